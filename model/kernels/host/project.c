/* x[t, :] += scale * (W h[t, :] + bias), or =. One part is a range of output rows, for all tokens. */
#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/product.h"

struct args {
    struct op_project op;
    int threads;
};

static int run(const void *args) {
    const struct args *a = args;
    const struct op_project *op = &a->op;
    struct product product = {
        .w = op->w,
        .bias = op->bias,
        .x = op->h.data,
        .out = op->x,
        .out_stride = op->w.rows,
        .tokens = rows_count(&op->rows),
        .end = op->stores ? PRODUCT_STORE : PRODUCT_ADD,
        .scale = op->scale,
    };
    products_run(&(struct products){&product, 1}, a->threads);
    return 0;
}

int host_project(struct stream *stream, const struct op_project *op) {
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
