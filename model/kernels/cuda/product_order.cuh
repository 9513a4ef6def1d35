/* Orders of 16-bit tokens other than their own.
 *
 * Of product_bulk.cuh:
 * A lane of a narrow product takes 16 bytes of a weight row for two instructions: each of these adds the products of half of the
 * numbers in four such pieces, 64 bytes. To add the same products in one instruction that reads tokens from shared memory, the halves
 * must lie together: so the 16 words of each 64 bytes of a token are transposed, as 4 x 4 of them, by the kernel that writes
 * them, or in place by one of its own. A transposition undoes itself.
 *
 * Of product_packed_bulk.cuh: a lane has four numbers of each 16, of which one instruction takes all. It wants two of them in the first 8
 * and two in the others: the 8 words of each 32 bytes are transposed, as 4 x 2.
 *
 * Of product_packed.cuh: what a warp loads of tokens at once are four numbers of each 16 of 8 of them, which lie side by side: the 16 numbers
 * of each of 8 tokens, one behind the other, then the next 16 of these. Or of 16 tokens. So tokens take as much memory as the next multiple
 * of so many.
 *
 * Of packed weights whose groups' columns do not lie side by side (model/packed.h): that of the groups. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_ORDER_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_ORDER_CUH

#include "model/kernels/cuda/common.cuh"

enum {
    ORDER_GROUP = 32 /* numbers */,
    ORDER_BLOCK = 16 /* those of a token that lie side by side in the last two orders */
};
enum token_order { ORDER_OWN, ORDER_TRANSPOSED, ORDER_SPREAD, ORDER_BY_8, ORDER_BY_16 };

/* Where number `i` of tokens goes, whose widths are multiples of ORDER_GROUP. */
__device__ __forceinline__ int transposed_place(int i) {
    return (i & ~(ORDER_GROUP - 1)) | (i & 6) << 2 | (i & 24) >> 2 | (i & 1);
}
__device__ __forceinline__ int spread_place(int i) {
    return (i & ~15) | (i & 2) << 2 | (i & 12) >> 1 | (i & 1);
}

/* Where it goes among the numbers of its token. */
__device__ __forceinline__ int place_in(enum token_order order, int i) {
    return order == ORDER_SPREAD ? spread_place(i) : order == ORDER_TRANSPOSED ? transposed_place(i) : i;
}
/* Which number lies at a place. */
__device__ __forceinline__ int number_at(enum token_order order, int place) {
    if (order == ORDER_SPREAD) return (place & ~15) | (place & 8) >> 2 | (place & 6) << 1 | (place & 1);
    return place_in(order, place);
}
/* Tokens whose blocks lie side by side. */
__device__ __forceinline__ int tokens_together(enum token_order order) {
    return order == ORDER_BY_8 ? 8 : order == ORDER_BY_16 ? 16 : 1;
}
/* Where a number lies in memory is that of the token, and what is added for its place, in numbers. */
__device__ __forceinline__ size_t token_start(enum token_order order, int width, int token) {
    const int its = token & (tokens_together(order) - 1);
    return (size_t)(token - its) * width + its * ORDER_BLOCK;
}
__device__ __forceinline__ int place_start(enum token_order order, int place) {
    const int in_block = place & (ORDER_BLOCK - 1);
    return (place - in_block) * tokens_together(order) + in_block;
}

/* Four numbers of a token from `at` on, a multiple of 4; in the last two orders `at` is a place_start. */
template <typename T>
__device__ __forceinline__ void store_in_order(enum token_order order, T *to, int at, const T (&x)[4]) {
    const uint32_t *words = (const uint32_t *)x;
    if (order != ORDER_TRANSPOSED && order != ORDER_SPREAD) {
        *(uint2 *)(to + at) = make_uint2(words[0], words[1]);
        return;
    }
    *(uint32_t *)(to + place_in(order, at)) = words[0];
    *(uint32_t *)(to + place_in(order, at + 2)) = words[1];
}

/* Tokens of so many blocks of ORDER_GROUP, in place. */
template <typename T> __global__ void __launch_bounds__(BLOCK_THREADS) transpose_kernel(T *x, int blocks) {
    const int block = blockIdx.x * BLOCK_THREADS + threadIdx.x;
    next_may_start();
    inputs_are_ready();
    if (block >= blocks) return;
    uint4 *chunks = (uint4 *)(x + (size_t)block * ORDER_GROUP);
    const uint4 a = chunks[0], b = chunks[1], c = chunks[2], d = chunks[3];
    chunks[0] = make_uint4(a.x, b.x, c.x, d.x), chunks[1] = make_uint4(a.y, b.y, c.y, d.y);
    chunks[2] = make_uint4(a.z, b.z, c.z, d.z), chunks[3] = make_uint4(a.w, b.w, c.w, d.w);
}
template <typename T> static int transpose_tokens(struct stream *s, T *x, int tokens, int k) {
    const int blocks = tokens * (k / ORDER_GROUP);
    launch_dependent(s, transpose_kernel<T>, dim3(ceil_div(blocks, BLOCK_THREADS)), BLOCK_THREADS, 0, 1, x, blocks);
    return cuda_launched(s, "transpose", 12);
}

/* Tokens of k numbers, a multiple of 32, in place: number i becomes what number order[i] was. A block a token. Bytes: T K 4. */
template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS) reorder_kernel(T *x, const int32_t *order, int k) {
    extern __shared__ __align__(16) unsigned char shared[];
    T *was = (T *)shared, *token = x + (size_t)blockIdx.x * k;
    next_may_start();
    inputs_are_ready();
    for (int i = threadIdx.x * 8; i < k; i += BLOCK_THREADS * 8) *(uint4 *)(was + i) = *(const uint4 *)(token + i);
    __syncthreads();
    for (int i = threadIdx.x * 4; i < k; i += BLOCK_THREADS * 4) {
        const int4 from = *(const int4 *)(order + i);
        const T four[4] = {was[from.x], was[from.y], was[from.z], was[from.w]};
        *(uint2 *)(token + i) = *(const uint2 *)four;
    }
}
template <typename T>
static int reorder_tokens(struct stream *s, T *x, const int32_t *order, int tokens, int k, struct spread spread) {
    const size_t bytes = spread_bytes(spread, (size_t)k * sizeof(T));
    launch_sharing(s, reorder_kernel<T>, dim3(tokens), BLOCK_THREADS, bytes, 1, spread.percent, x, order, k);
    return cuda_launched(s, "reorder", 20);
}

#endif
