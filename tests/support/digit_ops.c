#include "tests/support/digit_ops.h"

static int run(const void *args) {
    const struct digit_op *op = args;
    *op->out = *op->in * 10 + op->digit;
    return 0;
}

int digit_run(struct stream *stream, const struct digit_op *op) {
    if (device_kind(stream_device(stream)) == DEVICE_CUDA) return digit_run_cuda(stream, op);
    return stream_run_host(stream, run, op, sizeof *op);
}
