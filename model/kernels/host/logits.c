/* logits[i, :] = W norm(x[row_i, :]) and what follows. One part is a range of the vocabulary. */
#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/product.h"

struct args {
    struct op_logits op;
    int threads;
};

static int run(const void *args) {
    const struct args *a = args;
    const struct op_logits *op = &a->op;
    const int q_len = op->rows.q_len;
    struct norm_rows norm = {.x = op->x, .norm = op->norm, .width = op->width, .normed = op->normed.data};
    norm.count = op->last_only ? op->rows.batch : rows_count(&op->rows);
    norm.first = op->last_only ? q_len - 1 : 0;
    norm.step = op->last_only ? q_len : 1;
    struct product product = {
        .w = op->w,
        .bias = op->bias,
        .x = op->normed.data,
        .out = op->logits,
        .out_stride = op->vocab,
        .tokens = norm.count,
        .end = PRODUCT_STORE,
        .scale = op->scale,
        .cap = op->cap,
    };
    norm_rows_run(&norm, a->threads);
    products_run(&(struct products){&product, 1}, a->threads);
    return 0;
}

int host_logits(struct stream *stream, const struct op_logits *op) {
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
