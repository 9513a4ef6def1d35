/* h = activation(Wg y + bias, Wu y), y = norm(x). One part is a range of hidden columns, gate and up
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
        .x = op->x, .norm = op->norm, .width = op->width, .count = tokens, .step = 1, .normed = op->normed.data};
    struct product product = {
        .w = op->gate,
        .up = op->up,
        .bias = op->bias,
        .x = op->normed.data,
        .out = op->h.data,
        .out_stride = op->hidden,
        .tokens = tokens,
        .end = PRODUCT_GATE,
        .activation = op->activation,
        .times = op->times,
        .times_stride = op->times_stride,
    };
    norm_rows_run(&norm, a->threads);
    products_run(&(struct products){&product, 1}, a->threads);
    return 0;
}

int host_gate_up(struct stream *stream, const struct op_gate_up *op) {
    const bool has_up = op->up.data != NULL;
    if (has_up && (op->gate.rows != op->up.rows || op->gate.cols != op->up.cols))
        return err_set(ERR_INTERNAL, "gate_up: gate [%d, %d] and up [%d, %d] differ", op->gate.rows, op->gate.cols,
                       op->up.rows, op->up.cols);
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
