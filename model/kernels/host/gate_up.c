/* h = silu(y Wg^T) * (y Wu^T), y = RMSNorm(x) * norm. One part is a range of hidden columns, gate and up
 * together, so that neither sum goes through memory. */
#include "base/err.h"
#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/product.h"

struct args {
    struct op_gate_up op;
    int threads;
};

static int run(const void *args) {
    const struct args *a = args;
    const struct op_gate_up *op = &a->op;
    const int tokens = rows_count(&op->rows);
    struct norm_rows norm = {
        .x = op->x, .norm = op->norm, .eps = op->eps, .count = tokens, .step = 1, .normed = op->normed};
    struct product product = {
        .w = op->gate,
        .up = op->up,
        .x = op->normed,
        .out = op->h,
        .out_stride = op->hidden,
        .tokens = tokens,
        .end = PRODUCT_SILU,
    };
    norm_rows_run(&norm, a->threads);
    products_run(&(struct products){.each = {product}, .count = 1}, a->threads);
    return 0;
}

int host_gate_up(struct stream *stream, const struct op_gate_up *op) {
    if (op->gate.type != op->up.type || op->gate.rows != op->up.rows || op->gate.cols != op->up.cols)
        return err_set(ERR_INTERNAL, "gate_up: gate [%d, %d] and up [%d, %d] differ", op->gate.rows, op->gate.cols,
                       op->up.rows, op->up.cols);
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
