/* What this machine's memory delivers: the yardstick of every step. */
#include "cli/bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/parallel.h"

enum { PASSES = 7, WORDS_A_BLOCK = 1 << 16 };

/* Sums a block in independent chains, so that loads and not the adds decide. */
static uint64_t sum_block(const uint64_t *words) {
    uint64_t s[8] = {0};
    for (size_t i = 0; i < WORDS_A_BLOCK; i += 8)
        for (int j = 0; j < 8; j++) s[j] += words[i + (size_t)j];
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

struct sum {
    const uint64_t *words;
    int blocks; /* of WORDS_A_BLOCK */
};
static _Atomic uint64_t read_sum; /* so that no read can be left out */

static void sum_part(const void *context, int part, int parts) {
    const struct sum *s = context;
    struct range r = parallel_range(s->blocks, part, parts);
    uint64_t sum = 0;
    for (int i = r.first; i < r.end; i++) sum += sum_block(s->words + (size_t)i * WORDS_A_BLOCK);
    read_sum += sum;
}

/* Larger than the caches; where memory is short a quarter of what is free, but 64 MB at least. */
static size_t buffer_bytes(const struct device *device) {
    uint64_t free_bytes = 0, total_bytes = 0;
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t bytes = cache > 0 ? (uint64_t)cache * 4 : 0;
    if (bytes < (uint64_t)256 << 20) bytes = (uint64_t)256 << 20;
    if (bytes > (uint64_t)1 << 30) bytes = (uint64_t)1 << 30;
    if (device_memory(device, &free_bytes, &total_bytes) == 0 && bytes > free_bytes / 4) bytes = free_bytes / 4;
    return bytes > (uint64_t)64 << 20 ? bytes : (uint64_t)64 << 20;
}

/* Read bandwidth of the host: all threads read the buffer, best of several passes. */
static int measure_host(const struct device *device, double *bytes_per_second) {
    int blocks = (int)(buffer_bytes(device) / (WORDS_A_BLOCK * sizeof(uint64_t)));
    size_t bytes = (size_t)blocks * WORDS_A_BLOCK * sizeof(uint64_t);
    uint64_t *words = malloc(bytes);
    if (!words) return err_set(ERR_MEMORY, "no %zu bytes to measure the read bandwidth with", bytes);
    memset(words, 1, bytes);
    struct sum sum = {words, blocks};
    int64_t best_us = INT64_MAX;
    for (int pass = 0; pass < PASSES; pass++) {
        int64_t start_us = clock_us();
        parallel_run(device_threads(device), (int64_t)bytes, sum_part, &sum);
        int64_t us = clock_us() - start_us;
        if (us < best_us) best_us = us;
    }
    free(words);
    *bytes_per_second = (double)bytes / ((double)best_us * 1e-6);
    return 0;
}

/* A copy within the device reads and writes each byte. */
static int time_copies(struct device *device, struct pool *pool, size_t bytes, double *bytes_per_second) {
    struct stream *stream;
    void *from, *to;
    int64_t best_us = INT64_MAX;
    TRY(pool_slice(pool, "from", bytes, &from));
    TRY(pool_slice(pool, "to", bytes, &to));
    TRY(stream_create(device, &stream));
    int rc = 0;
    for (int pass = 0; pass < PASSES && rc == 0; pass++) {
        int64_t start_us = clock_us();
        rc = stream_copy(stream, to, from, bytes);
        if (rc == 0) rc = stream_sync(stream);
        if (clock_us() - start_us < best_us) best_us = clock_us() - start_us;
    }
    stream_destroy(stream);
    *bytes_per_second = 2 * (double)bytes / ((double)best_us * 1e-6);
    return rc;
}

static int measure_device(struct device *device, double *bytes_per_second) {
    size_t bytes = (size_t)1 << 30;
    struct pool *pool;
    TRY(pool_create(device, 2 * bytes, &pool));
    int rc = time_copies(device, pool, bytes, bytes_per_second);
    pool_destroy(pool);
    return rc;
}

int bench_bandwidth(const char *device_wanted, int threads, double *bytes_per_second) {
    struct device *device;
    TRY(device_open(&device, device_wanted, &(struct device_options){.threads = threads}));
    int rc = device_kind(device) == DEVICE_HOST ? measure_host(device, bytes_per_second)
                                                : measure_device(device, bytes_per_second);
    device_close(device);
    return rc;
}
