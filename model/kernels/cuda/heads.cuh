/* What finishes a head of q, k or v after its product, in decoding and in prefill alike: rotation, and where it is kept. */
#ifndef DUET_MODEL_KERNELS_CUDA_HEADS_CUH
#define DUET_MODEL_KERNELS_CUDA_HEADS_CUH

#include "model/fp8.h"
#include "model/kernels/cuda/common.cuh"

/* Which position of the rope's table is a row's. */
template <bool LATE = false>
__device__ __forceinline__ int turn_of(const struct rope &rope, const struct rows &rows, int row, int position) {
    int at = max(position, 0);
    if (rope.choice && load_fixed<LATE>(rope.choice + load_fixed<LATE>(rows.row_slot + quotient(row, rows.q_len))))
        at += rope.positions;
    return at;
}
/* The cosine and sine of each pair of dims there, of q or of k. */
__device__ __forceinline__ const float2 *turns_at(const struct rope &rope, int turn, bool is_q, int head_dim) {
    return (const float2 *)rope.table + (size_t)(turn + (is_q ? rope.queries : 0)) * (head_dim / 2);
}

/* Both halves of a pair by its cosine and sine: rounded alike in every kernel. */
__device__ __forceinline__ void rotate(float &a, float &b, float2 turn) {
    const float rotated = fmaf(a, turn.x, -__fmul_rn(b, turn.y));
    b = fmaf(b, turn.x, __fmul_rn(a, turn.y));
    a = rotated;
}

/* Where the key or value of a row is kept in its page; of a row without a position in the dummy page, page 0. */
__device__ __forceinline__ int kv_offset(int row, int position) {
    return position < 0 ? row % KV_PAGE : position % KV_PAGE;
}
/* That of a key/value head in 16 bits, [DH]. */
template <typename T>
__device__ __forceinline__ T *kv_cell(void *cache, int kv_heads, int head_dim, int page, int head, int offset) {
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

/* A warp's key or value to its cell in FP8 (model/fp8.h): HELD pairs of dims a lane, zeros past them. */
template <int HELD, typename First, typename Second>
__device__ __forceinline__ void keep_codes(uint8_t *part, int offset, int head_dim, const float (&a)[HELD],
                                           const float (&b)[HELD], First first, Second second) {
    const int lane = threadIdx.x % 32;
    uint8_t *cell = part + offset * head_dim;
    uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < HELD; j++)
        largest = max(largest, max(fmath_bits(a[j]) & 0x7FFFFFFFu, fmath_bits(b[j]) & 0x7FFFFFFFu));
    const uint8_t scale = fp8_scale(__reduce_max_sync(0xffffffffu, largest));
    if (lane == 0) part[KV_PAGE * head_dim + offset] = scale;
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        if (lane + 32 * j >= head_dim / 2) break;
        cell[first(j)] = fp8_code(a[j], scale), cell[second(j)] = fp8_code(b[j], scale);
    }
}

/* Norms and rotation of q (in place) and of kv_rows (into the pages), after bias where `adds_bias`. */
int cuda_finish_heads(struct stream *, const struct op_qkv *, bool adds_bias);

#endif
