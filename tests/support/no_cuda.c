/* In a build without CUDA; otherwise the .cu files of this folder take its place. */
#include "tests/support/chain_ops.h"
#include "tests/support/digit_ops.h"

const struct chain_ops *chain_cuda(void) {
    return NULL;
}

int digit_run_cuda(struct stream *stream, const struct digit_op *op) {
    (void)op;
    return stream_sync(stream); /* never called: no stream is of a CUDA device */
}
