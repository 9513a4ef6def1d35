/* The order of the 16-bit tokens that product_bulk.cuh reads.
 *
 * A lane of a narrow product takes 16 bytes of a weight row for two instructions: each of these adds the products of half of the
 * numbers in four such pieces, 64 bytes. To add the same products in one instruction that reads tokens from shared memory, the halves
 * must lie together: so the 16 words of each 64 bytes of a token are transposed, as 4 x 4 of them, by the kernel that writes
 * them. A transposition undoes itself. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_ORDER_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_ORDER_CUH

#include "model/kernels/cuda/common.cuh"

enum { ORDER_GROUP = 32 /* numbers */ };

/* Where number `i` of tokens goes, whose widths are multiples of ORDER_GROUP. */
__device__ __forceinline__ int transposed_place(int i) {
    return (i & ~(ORDER_GROUP - 1)) | (i & 6) << 2 | (i & 24) >> 2 | (i & 1);
}

/* Four numbers from `at` on, a multiple of 4. */
template <typename T> __device__ __forceinline__ void store_transposed(T *to, int at, const T (&x)[4]) {
    const uint32_t *words = (const uint32_t *)x;
    *(uint32_t *)(to + transposed_place(at)) = words[0];
    *(uint32_t *)(to + transposed_place(at + 2)) = words[1];
}

#endif
