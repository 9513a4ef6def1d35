/* Hidden rows that are kept by position, and read again beside an embedding; and copies of rows side by side. One part is a range of
 * rows. */
#include <string.h>

#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/isa.h"

/* That of a position of row t's sequence, which has a page. */
static float *hidden_row(const struct hidden_rows *hidden, const struct rows *rows, int t, int position, int width) {
    const int32_t *pages = rows->page_table + (size_t)rows->row_slot[t / rows->q_len] * (size_t)rows->pages_per_slot;
    const size_t cell = (size_t)pages[position / KV_PAGE] * KV_PAGE + (size_t)(position % KV_PAGE);
    return (float *)hidden->data + cell * (size_t)width;
}

static void keep_part(const void *args, int part, int parts) {
    const struct op_keep *op = args;
    const struct range mine = parallel_range(rows_count(&op->rows), part, parts);
    for (int t = mine.first; t < mine.end; t++) {
        const int position = op->rows.positions[t];
        if (position < 0 || (op->last_only && (t + 1) % op->rows.q_len != 0)) continue;
        float *to = hidden_row(&op->hidden, &op->rows, t, position + op->ahead, op->width);
        host_isa()->norm(to, op->x + (size_t)t * (size_t)op->width, &op->norm, op->width);
    }
}

struct keep_args {
    struct op_keep op;
    int threads;
};

static int run_keep(const void *args) {
    const struct keep_args *a = args;
    parallel_run(a->threads, (int64_t)rows_count(&a->op.rows) * a->op.width, keep_part, &a->op);
    return 0;
}

int host_keep(struct stream *stream, const struct op_keep *op) {
    struct keep_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_keep, &args, sizeof args);
}

static void join_part(const void *args, int part, int parts) {
    const struct op_join *op = args;
    const size_t width = (size_t)op->width;
    const struct range mine = parallel_range(rows_count(&op->rows), part, parts);
    for (int t = mine.first; t < mine.end; t++) {
        const int position = op->rows.positions[t];
        float *out = (float *)op->out.data + (size_t)t * 2 * width;
        float *residual = op->residual ? op->residual + (size_t)t * width : NULL;
        memset(out, 0, 2 * width * sizeof *out);
        if (residual) memset(residual, 0, width * sizeof *residual);
        if (position < 0) continue;
        const int at = position + (op->rows.standing == ROWS_DRAFTED ? op->ahead : 0);
        const float *hidden = hidden_row(&op->hidden, &op->rows, t, at, op->width);
        host_isa()->norm(out, op->x + (size_t)t * width, &op->norm, op->width);
        host_isa()->norm(out + width, hidden, &op->hidden_norm, op->width);
        if (residual) memcpy(residual, op->norms_residual ? out + width : hidden, width * sizeof *residual);
    }
}

struct join_args {
    struct op_join op;
    int threads;
};

static int run_join(const void *args) {
    const struct join_args *a = args;
    parallel_run(a->threads, (int64_t)rows_count(&a->op.rows) * a->op.width * 2, join_part, &a->op);
    return 0;
}

int host_join(struct stream *stream, const struct op_join *op) {
    struct join_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_join, &args, sizeof args);
}

static int run_tap(const void *args) {
    const struct op_tap *op = args;
    float *out = op->out.data;
    for (int t = 0; t < rows_count(&op->rows); t++)
        memcpy(out + (size_t)t * (size_t)op->stride + op->first, op->x + (size_t)t * (size_t)op->width,
               (size_t)op->width * sizeof *out);
    return 0;
}

int host_tap(struct stream *stream, const struct op_tap *op) {
    return stream_run_host(stream, run_tap, op, sizeof *op);
}
