/* What finishes a head of q, k or v after its product, in decoding and in prefill alike: rotation, and where it is kept. */
#ifndef DUET_MODEL_KERNELS_CUDA_HEADS_CUH
#define DUET_MODEL_KERNELS_CUDA_HEADS_CUH

#include "model/kernels/cuda/common.cuh"

/* The cosine and sine of each pair of a row's heads. */
__device__ __forceinline__ const float2 *turns_of(const struct rope &rope, const struct rows &rows, int row,
                                                  int position, int head_dim) {
    int at = max(position, 0);
    if (rope.choice && rope.choice[rows.row_slot[row / rows.q_len]]) at += rope.positions;
    return (const float2 *)rope.table + (size_t)at * (head_dim / 2);
}

/* Both halves of a pair by its cosine and sine. */
__device__ __forceinline__ void rotate(float &a, float &b, float2 turn) {
    const float rotated = a * turn.x - b * turn.y;
    b = b * turn.x + a * turn.y;
    a = rotated;
}

/* Where the key or value of a row and key/value head is kept, [DH]; of a row without a position in the dummy page, page 0. */
template <typename T>
__device__ __forceinline__ T *kv_cell(void *cache, int kv_heads, int head_dim, int page, int head, int row,
                                      int position) {
    const int offset = position < 0 ? row % KV_PAGE : position % KV_PAGE;
    return (T *)cache + (((size_t)page * kv_heads + head) * KV_PAGE + offset) * head_dim;
}

/* A finished pair of dims: of q as f32, of a key or value in its cell. */
template <typename T>
__device__ __forceinline__ void keep_pair(bool is_q, float *q, T *cell, int first, int second, float a, float b) {
    if (is_q)
        q[first] = a, q[second] = b;
    else
        cell[first] = from_float<T>(a), cell[second] = from_float<T>(b);
}

/* Norms and rotation of q (in place) and of kv_rows (into the pages), after bias where `adds_bias`. */
int cuda_finish_heads(struct stream *, const struct op_qkv *, bool adds_bias);

#endif
