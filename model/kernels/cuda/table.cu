#include "model/kernels/cuda/common.cuh"
#include "model/kernels/cuda/table.h"

/* Products choose by tiles of 8 tokens, up to 128 (product.cuh); attention by the rows as well, in fewer steps. */
static int cuda_kernel_class(int rows) {
    enum { TILE = 8, MOST = 136 };
    return ((rows < MOST ? rows : MOST) + TILE - 1) / TILE;
}

extern "C" const struct ops *ops_cuda(void) {
    static const struct ops ops = {.embed = cuda_op_embed,
                                   .qkv = cuda_op_qkv,
                                   .attention = cuda_op_attention,
                                   .project = cuda_op_project,
                                   .gate_up = cuda_op_gate_up,
                                   .logits = cuda_op_logits,
                                   .attention_needs_partials = cuda_attention_needs_partials,
                                   .kernel_class = cuda_kernel_class};
    return &ops;
}
