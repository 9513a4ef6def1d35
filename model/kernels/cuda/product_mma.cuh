/* The instruction under the products, and the cut of k that they share. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_MMA_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_MMA_CUH

#include "model/kernels/cuda/common.cuh"

enum {
    PRODUCT_SPLITS = 8,
    PRODUCT_ROWS = 16,               /* of weights, a group */
    PRODUCT_HALF = PRODUCT_ROWS / 2, /* rows of two matrices or places that make a group together */
    PRODUCT_PIECE = 64,              /* of k */
    PRODUCT_UNIT = 4                 /* pieces */
};
static_assert(BLOCK_THREADS == PRODUCT_SPLITS * 32, "a warp a split");

/* Row i of a group: which row of which of the matrices of a product; matrix < 0: none. */
struct row_place {
    int matrix, row;
};

/* What is of matrix i < N, without an address that depends on i: kernels' arguments would be copied for it. */
template <typename V, int N> __host__ __device__ __forceinline__ V of_matrix(const V (&each)[N], int i) {
    static_assert(N <= 3, "matrices of a product");
    if constexpr (N == 3)
        if (i == 2) return each[2];
    if constexpr (N >= 2)
        if (i == 1) return each[1];
    return each[0];
}

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, half) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 32 of k are two mma from 16 bytes a lane of weight rows g and g + 8, and of token g, g = lane / 4. Sum j of a lane belongs to
 * row g + j / 2 * 8 and token lane % 4 * 2 + j % 2. */
template <typename T>
__device__ __forceinline__ void mma_half(float (&c)[4], const uint4 &low, const uint4 &high, const uint4 &x,
                                         int second) {
    const uint32_t first_a[4] = {low.x, high.x, low.y, high.y}, second_a[4] = {low.z, high.z, low.w, high.w};
    if (second)
        mma(c, second_a, x.z, x.w, T());
    else
        mma(c, first_a, x.x, x.y, T());
}

/* Pieces of every split: as many for all, a multiple of UNIT, so that some may lie past k. */
__host__ __device__ __forceinline__ int piece_count(int k) {
    constexpr int turn = PRODUCT_SPLITS * PRODUCT_PIECE * PRODUCT_UNIT;
    return (k + turn - 1) / turn * PRODUCT_UNIT;
}
/* Where in k a split begins. */
__device__ __forceinline__ int split_start(int split, int pieces) {
    return split * pieces * PRODUCT_PIECE;
}

/* Adds the sums of the splits, in pairs. */
template <typename At> __device__ __forceinline__ float add_splits(At at) {
    return ((at(0) + at(4)) + (at(1) + at(5))) + ((at(2) + at(6)) + (at(3) + at(7)));
}
#endif
