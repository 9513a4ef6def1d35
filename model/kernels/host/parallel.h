/* Spreading one op over the device's threads. Results never depend on how many there are. */
#ifndef DUET_KERNELS_HOST_PARALLEL_H
#define DUET_KERNELS_HOST_PARALLEL_H

#include <stdint.h>

#include "graphs/device.h"

/* Part `part` of `parts` of an op. */
typedef void (*part_fn)(const void *op, int part, int parts);

/* Runs all parts: one a thread, or a single part in the calling thread where `work`, in multiply-adds or the
 * like, is not worth waking the others. */
void parallel_run(int threads, int64_t work, part_fn run, const void *op);

/* The range of `units` that belongs to a part: contiguous, sizes differ by at most one. */
struct range {
    int first, end;
};
static inline struct range parallel_range(int units, int part, int parts) {
    struct range r = {(int)((int64_t)units * part / parts), (int)((int64_t)units * (part + 1) / parts)};
    return r;
}

/* Threads of the stream's device, for an op's arguments. */
static inline int parallel_threads(const struct stream *s) {
    return device_threads(stream_device(s));
}

#endif
