#include "model/kernels/cuda/common.cuh"
#include "model/kernels/cuda/table.h"

extern "C" const struct ops *ops_cuda(void) {
    static const struct ops ops = {cuda_op_embed,
                                   cuda_op_qkv,
                                   cuda_op_attention,
                                   cuda_op_project,
                                   cuda_op_gate_up,
                                   cuda_op_logits,
                                   cuda_attention_needs_partials};
    return &ops;
}
