/* x[i, :] = (x[i, :] + scale * norm(y[i, :])) * layer_scale, or without x. One part is a range of rows. */
#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/isa.h"

struct args {
    struct op_add_norm op;
    int threads;
};

static void add_row(const struct op_add_norm *op, size_t row, float last_scale) {
    const size_t width = (size_t)op->width;
    float *y = op->y + row * width, *x = op->x + row * width;
    host_isa()->norm(y, y, &op->norm, op->width);
    for (size_t i = 0; i < width; i++) {
        float value = op->scale != 1 ? y[i] * op->scale : y[i];
        if (!op->stores) value = x[i] + value;
        x[i] = last_scale != 1 ? value * last_scale : value;
    }
}

static void rows_part(const void *args, int part, int parts) {
    const struct op_add_norm *op = args;
    struct range mine = parallel_range(rows_count(&op->rows) * op->parts, part, parts);
    float layer_scale = 1;
    if (op->layer_scale.data) host_isa()->widen(&layer_scale, op->layer_scale.data, op->layer_scale.format, 1);
    for (int row = mine.first; row < mine.end; row++) add_row(op, (size_t)row, layer_scale * op->last_scale);
}

static int run(const void *args) {
    const struct args *a = args;
    const struct op_add_norm *op = &a->op;
    parallel_run(a->threads, (int64_t)rows_count(&op->rows) * op->parts * op->width, rows_part, op);
    return 0;
}

int host_add_norm(struct stream *stream, const struct op_add_norm *op) {
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
