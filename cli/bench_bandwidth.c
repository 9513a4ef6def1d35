/* What this machine's memory delivers to a reader: the yardstick of every step. */
#include "cli/bench.h"

#include <unistd.h>

#include "base/err.h"

enum { PASSES = 9 };

/* Larger than the caches: on the host four times the last level, 256 MB at least and 1 GB at most; elsewhere 4 GB. Where memory
 * is short a quarter of what is free, but 64 MB at least. */
static size_t buffer_bytes(const struct device *device) {
    const uint64_t mb = 1 << 20;
    uint64_t free_bytes = 0, total_bytes = 0, bytes = 4096 * mb;
    if (device_kind(device) == DEVICE_HOST) {
        long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
        bytes = cache > 0 ? (uint64_t)cache * 4 : 0;
        bytes = bytes < 256 * mb ? 256 * mb : bytes > 1024 * mb ? 1024 * mb : bytes;
    }
    if (device_memory(device, &free_bytes, &total_bytes) == 0 && bytes > free_bytes / 4) bytes = free_bytes / 4;
    return (bytes > 64 * mb ? bytes : 64 * mb) / mb * mb;
}

/* The best of several passes, a launch each; the first, which loads the kernel, counts like the others. */
static int time_passes(struct stream *stream, struct event *const ends[2], const void *words, size_t bytes,
                       uint64_t *sum, double *bytes_per_second) {
    float best_ms = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        float ms;
        TRY(event_record(ends[0], stream));
        TRY(stream_sum_words(stream, words, bytes, sum));
        TRY(event_record(ends[1], stream));
        TRY(stream_sync(stream));
        TRY(event_elapsed_ms(ends[0], ends[1], &ms));
        if (pass == 0 || ms < best_ms) best_ms = ms;
    }
    *bytes_per_second = (double)bytes / ((double)best_ms * 1e-3);
    return 0;
}

static int measure(struct device *device, struct pool *pool, size_t bytes, double *bytes_per_second) {
    struct stream *stream = NULL;
    struct event *ends[2] = {NULL, NULL};
    void *words, *sum;
    TRY(pool_slice(pool, POOL_SCRATCH, "words", bytes, &words));
    TRY(pool_slice(pool, POOL_SCRATCH, "sum", sizeof(uint64_t), &sum));
    int rc = stream_create(device, &stream);
    for (int i = 0; i < 2 && rc == 0; i++) rc = event_create(device, &ends[i]);
    if (rc == 0) rc = stream_fill(stream, words, 1, bytes);
    if (rc == 0) rc = time_passes(stream, ends, words, bytes, sum, bytes_per_second);
    for (int i = 0; i < 2; i++) event_destroy(ends[i]);
    stream_destroy(stream);
    return rc;
}

int bench_bandwidth(const char *device_wanted, const struct device_options *options, double *bytes_per_second) {
    struct device *device;
    struct pool *pool = NULL;
    TRY(device_open(&device, device_wanted, options));
    size_t bytes = buffer_bytes(device);
    int rc = pool_create(device, bytes + POOL_ALIGN, &pool);
    if (rc == 0) rc = measure(device, pool, bytes, bytes_per_second);
    pool_destroy(pool);
    device_close(device);
    return rc;
}
