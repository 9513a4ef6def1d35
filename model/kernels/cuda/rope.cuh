/* What finishes a head of q, k or v after its product, in decoding and in prefill alike. */
#ifndef DUET_MODEL_KERNELS_CUDA_ROPE_CUH
#define DUET_MODEL_KERNELS_CUDA_ROPE_CUH

#include "model/kernels/cuda/common.cuh"

/* RoPE of dims i and i + DH / 2, with the cosine and sine of a position. */
__device__ __forceinline__ void rotate(float &a, float &b, float c, float s) {
    const float rotated = a * c - b * s;
    b = b * c + a * s;
    a = rotated;
}

/* Where the key or value of a row and key/value head is kept, [DH]; of a row without a position in the dummy page, page 0. */
template <typename T>
__device__ __forceinline__ T *kv_cell(const struct op_qkv &op, bool is_v, int page, int head, int row, int position) {
    const int offset = position < 0 ? row % KV_PAGE : position % KV_PAGE;
    return (T *)(is_v ? op.kv.v : op.kv.k) + (((size_t)page * op.kv_heads + head) * KV_PAGE + offset) * op.head_dim;
}

#endif
