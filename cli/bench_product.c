/* What this machine's matrix product delivers: the yardstick of steps with many rows. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/bench.h"
#include "model/ops.h"
#include "model/random_weights.h"

enum { CUDA_SIZE = 8192, HOST_SIZE = 1024, PASSES = 20, PASSES_LEAST = 3, PASSES_US = 1000000 };

struct square {
    int size;             /* N */
    enum dtype type;      /* of h */
    void *h, *w;          /* [N, N], bf16 the latter */
    void *out;            /* [N, N] f32 */
    void *workspace;      /* of the library */
    struct event *end[2]; /* of a pass */
};

static int cut_square(struct square *s, struct pool *pool) {
    const size_t numbers = (size_t)s->size * (size_t)s->size;
    TRY(pool_slice(pool, POOL_SCRATCH, "h", numbers * (size_t)dtype_bytes(s->type), &s->h));
    TRY(pool_slice(pool, POOL_SCRATCH, "w", numbers * sizeof(uint16_t), &s->w));
    TRY(pool_slice(pool, POOL_SCRATCH, "out", numbers * sizeof(float), &s->out));
    return pool_slice(pool, POOL_SCRATCH, "workspace", WORKSPACE_BYTES, &s->workspace);
}

static size_t square_bytes(const struct square *s) {
    const size_t numbers = (size_t)s->size * (size_t)s->size;
    return numbers * ((size_t)dtype_bytes(s->type) + sizeof(uint16_t) + sizeof(float)) + WORKSPACE_BYTES +
           (size_t)4 * POOL_ALIGN;
}

/* Two bf16 side by side are an f32 of about the size of the second, so the table serves either type. */
static int fill_random(struct stream *stream, char *to, size_t bytes, const uint16_t *table) {
    const size_t most = RANDOM_CHUNK * sizeof *table;
    for (size_t at = 0; at < bytes; at += most)
        TRY(stream_copy(stream, to + at, table, bytes - at < most ? bytes - at : most));
    return stream_sync(stream);
}

static int fill_square(const struct square *s, struct stream *stream) {
    const size_t numbers = (size_t)s->size * (size_t)s->size;
    uint16_t *table;
    TRY(random_weights_create(&table));
    int rc = fill_random(stream, s->h, numbers * (size_t)dtype_bytes(s->type), table);
    if (rc == 0) rc = fill_random(stream, s->w, numbers * sizeof(uint16_t), table);
    free(table);
    return rc;
}

/* out = h w', as a chunk of a prompt has it. */
static int multiply(const struct square *s, struct stream *stream) {
    const struct op_project product = {.rows = {.batch = 1, .q_len = s->size, .prefill = true},
                                       .h = {s->h, s->type},
                                       .w = {.data = s->w, .format = DTYPE_BF16, .rows = s->size, .cols = s->size},
                                       .scale = 1,
                                       .stores = true,
                                       .x = s->out};
    return ops_for(stream_device(stream))->project(stream, &product);
}

/* After a pass that does not count, which loads the kernel. */
static int time_passes(const struct square *s, struct stream *stream, double *flops_per_second) {
    float best_ms = 0;
    TRY(multiply(s, stream));
    TRY(stream_sync(stream));
    const int64_t start_us = clock_us();
    for (int pass = 0; pass < PASSES && (pass < PASSES_LEAST || clock_us() - start_us < PASSES_US); pass++) {
        float ms;
        TRY(event_record(s->end[0], stream));
        TRY(multiply(s, stream));
        TRY(event_record(s->end[1], stream));
        TRY(stream_sync(stream));
        TRY(event_elapsed_ms(s->end[0], s->end[1], &ms));
        if (pass == 0 || ms < best_ms) best_ms = ms;
    }
    const double size = s->size;
    *flops_per_second = 2 * size * size * size / ((double)best_ms * 1e-3);
    return 0;
}

static int measure(struct device *device, struct pool *pool, struct square *s, double *flops_per_second) {
    struct stream *stream = NULL;
    TRY(cut_square(s, pool));
    int rc = stream_create(device, &stream);
    if (rc == 0) rc = stream_set_workspace(stream, s->workspace, WORKSPACE_BYTES);
    for (int i = 0; i < 2 && rc == 0; i++) rc = event_create(device, &s->end[i]);
    if (rc == 0) rc = fill_square(s, stream);
    if (rc == 0) rc = time_passes(s, stream, flops_per_second);
    for (int i = 0; i < 2; i++) event_destroy(s->end[i]);
    stream_destroy(stream);
    return rc;
}

int bench_product_rate(const char *device_wanted, const struct device_options *options, double *flops_per_second) {
    struct device *device;
    struct pool *pool = NULL;
    TRY(device_open(&device, device_wanted, options));
    const bool on_host = device_kind(device) == DEVICE_HOST;
    struct square square = {.size = on_host ? HOST_SIZE : CUDA_SIZE, .type = on_host ? DTYPE_F32 : DTYPE_BF16};
    int rc = pool_create(device, square_bytes(&square), &pool);
    if (rc == 0) rc = measure(device, pool, &square, flops_per_second);
    pool_destroy(pool);
    device_close(device);
    return rc;
}
