/* A short convolution between two gates. A thread has channels of a graph row, and goes from position to position. */
#include <string.h>

#include "base/err.h"
#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/isa.h"

enum { BLOCK = 64 };

/* Channels first.. of a graph row. */
struct block {
    const struct op_short_conv *op;
    struct recurrence_step step;
    int graph_row, first, count;
    float *kept; /* of the sequence */
    float taps[BLOCK * RECURRENT_TAPS_MAX];
};

static size_t row_of(const struct block *b, int position) {
    return (size_t)b->graph_row * (size_t)b->op->rows.q_len + (size_t)(b->step.row + position - b->step.first);
}

static float *kept_row(const struct block *b, int position) {
    return b->kept + (size_t)(position % b->op->state.kept_rows) * (size_t)b->op->width + b->first;
}

/* B x of a position, [count]. */
static void read_product(const struct block *b, int position, float *out) {
    const size_t width = (size_t)b->op->width;
    if (position < b->step.first) {
        memcpy(out, kept_row(b, position), (size_t)b->count * sizeof *out);
        return;
    }
    const float *in = b->op->inputs + row_of(b, position) * 3 * width + b->first, *x = in + 2 * width;
    for (int i = 0; i < b->count; i++) out[i] = in[i] * x[i];
}

static void convolve(const struct block *b, int position) {
    const int taps = b->op->conv.cols;
    const size_t row = row_of(b, position), width = (size_t)b->op->width;
    const float *c = b->op->inputs + row * 3 * width + width + b->first;
    float *out = (float *)b->op->out.data + row * width + b->first, sum[BLOCK] = {0}, x[BLOCK];
    for (int t = 0; t < taps; t++) {
        const int at = position - taps + 1 + t;
        if (at < 0) continue;
        read_product(b, at, x);
        for (int i = 0; i < b->count; i++) sum[i] += b->taps[i * taps + t] * x[i];
    }
    for (int i = 0; i < b->count; i++) out[i] = c[i] * sum[i];
}

static void clear_rows(const struct block *b) {
    const int q_len = b->op->rows.q_len, count = b->step.end - b->step.first;
    for (int i = 0; i < q_len; i++) {
        if (i >= b->step.row && i < b->step.row + count) continue;
        const size_t row = (size_t)b->graph_row * (size_t)q_len + (size_t)i;
        memset((float *)b->op->out.data + row * (size_t)b->op->width + b->first, 0, (size_t)b->count * sizeof(float));
    }
}

static void run_block(struct block *b) {
    const struct op_short_conv *op = b->op;
    clear_rows(b);
    host_isa()->widen(b->taps, weight_row(&op->conv, b->first), op->conv.format, b->count * op->conv.cols);
    for (int p = b->step.first; p < b->step.end; p++) convolve(b, p);
    const int oldest = b->step.end - op->state.kept_rows;
    for (int p = b->step.first > oldest ? b->step.first : oldest; p < b->step.end; p++)
        read_product(b, p, kept_row(b, p));
}

static void blocks_part(const void *args, int part, int parts) {
    const struct op_short_conv *op = args;
    const int blocks = (op->width + BLOCK - 1) / BLOCK;
    const struct range mine = parallel_range(op->rows.batch * blocks, part, parts);
    const size_t kept = (size_t)op->state.kept_rows * (size_t)op->width;
    for (int i = mine.first; i < mine.end; i++) {
        const int first = i % blocks * BLOCK, left = op->width - first;
        struct block block = {.op = op,
                              .step = op->steps[i / blocks],
                              .graph_row = i / blocks,
                              .first = first,
                              .count = left < BLOCK ? left : BLOCK};
        block.kept = op->state.kept + (size_t)block.step.slot * kept;
        run_block(&block);
    }
}

struct args {
    struct op_short_conv op;
    int threads;
};

static int run(const void *args) {
    const struct args *a = args;
    const int64_t numbers = (int64_t)rows_count(&a->op.rows) * a->op.width;
    parallel_run(a->threads, numbers * 2 * a->op.conv.cols, blocks_part, &a->op);
    return 0;
}

int host_short_conv(struct stream *stream, const struct op_short_conv *op) {
    if (op->conv.cols > RECURRENT_TAPS_MAX) return err_set(ERR_INTERNAL, "short convolution: %d taps", op->conv.cols);
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
