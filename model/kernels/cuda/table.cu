#include "model/kernels/cuda/common.cuh"
#include "model/kernels/cuda/table.h"

/* Products choose by tiles of 8 tokens, up to 128 (product.cuh), those of long outputs by the tokens of a chunk too
 * (product_bulk.cuh), those of experts at 8 and at 128 (experts.cuh); attention by the rows as well, in fewer steps. */
static int cuda_kernel_class(int rows) {
    enum { TILE = 8, MOST = 136, CHUNK = 192, CHUNKS_OF_FEW = MOST / TILE + 1 };
    if (rows > CHUNK && ceil_div(rows, ceil_div(rows, CHUNK)) <= MOST - TILE) return CHUNKS_OF_FEW;
    return ceil_div(min(rows, (int)MOST), TILE);
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
                                   .products = cuda_op_products,
                                   .gate = cuda_op_gate,
                                   .group_norm = cuda_op_group_norm,
                                   .steps = cuda_op_steps,
                                   .linear_attention = cuda_op_linear_attention,
                                   .short_conv = cuda_op_short_conv,
                                   .keep = cuda_op_keep,
                                   .join = cuda_op_join,
                                   .tap = cuda_op_tap,
                                   .attention_needs_partials = cuda_attention_needs_partials,
                                   .kernel_class = cuda_kernel_class};
    return &ops;
}
