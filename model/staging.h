/* Pinned buffers between the host, which fills one, and the device, which copies the ones before it: the two work at the same time.
 *
 * A buffer is taken, filled, and sent; it comes again after the others, once the device has read it. One thread; only
 * staging_create allocates, and only staging_take waits. */
#ifndef DUET_MODEL_STAGING_H
#define DUET_MODEL_STAGING_H

#include "graphs/device.h"

/* Of a size that a copy over PCIe takes 150 us for, far above what it costs to start one, and that all lie in a last-level cache. */
enum { STAGING_BUFFERS = 4, STAGING_BYTES = 8 << 20 };

struct staging {
    struct stream *stream;
    char *memory; /* [STAGING_BUFFERS, STAGING_BYTES] pinned */
    struct event *sent[STAGING_BUFFERS];
    int turn; /* the buffer that was taken last */
};

int staging_create(struct staging *, struct stream *);
/* Nothing may be under way: sync the stream first. Half-built ones and zeroes are fine. */
void staging_destroy(struct staging *);

int staging_take(struct staging *, void **buffer);
/* The first `bytes` of the buffer that was taken last. */
int staging_send(struct staging *, void *to, size_t bytes);

#endif
