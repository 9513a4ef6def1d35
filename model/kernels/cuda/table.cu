#include "model/kernels/cuda/common.cuh"
#include "model/kernels/cuda/table.h"

/* Products choose by tiles of 8 tokens, up to 128 (product.cuh), those of experts at 8 and at 128 (experts.cuh); attention by the
 * rows as well, in fewer steps. */
static int cuda_kernel_class(int rows) {
    enum { TILE = 8, MOST = 136 };
    return ((rows < MOST ? rows : MOST) + TILE - 1) / TILE;
}

extern "C" const struct ops *ops_cuda(void) {
    static const struct ops ops = {.embed = cuda_op_embed,
                                   .qkv = cuda_op_qkv,
                                   .attention = cuda_op_attention,
                                   .project = cuda_op_project,
                                   .add_norm = cuda_op_add_norm,
                                   .gate_up = cuda_op_gate_up,
                                   .logits = cuda_op_logits,
                                   .route = cuda_op_route,
                                   .experts_up = cuda_op_experts_up,
                                   .experts_down = cuda_op_experts_down,
                                   .attention_needs_partials = cuda_attention_needs_partials,
                                   .kernel_class = cuda_kernel_class};
    return &ops;
}
