/* In a build without CUDA; otherwise chain_cuda.cu takes its place. */
#include "tests/support/chain_ops.h"

const struct chain_ops *chain_cuda(void) {
    return NULL;
}
