/* What kernels on tensor cores do with tiles: between memory, shared memory and the registers of mma. */
#ifndef DUET_MODEL_KERNELS_CUDA_TILES_CUH
#define DUET_MODEL_KERNELS_CUDA_TILES_CUH

#include "model/kernels/cuda/common.cuh"

/* Two numbers rounded to 16 bits, the first in the low half. */
__device__ __forceinline__ uint32_t pack(float a, float b, bf16) {
    __nv_bfloat162 p = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<uint32_t *>(&p);
}
__device__ __forceinline__ uint32_t pack(float a, float b, half) {
    __half2 p = __floats2half2_rn(a, b);
    return *reinterpret_cast<uint32_t *>(&p);
}

__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* 16 bytes into shared memory, or zeros without reading. The second asks L2 for 128 bytes: of a row that is read on. */
__device__ __forceinline__ void copy_async(void *to, const void *from, bool wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(wanted ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_async_ahead(void *to, const void *from, bool wanted) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(wanted ? 16 : 0)
                 : "memory");
}
/* The policy of what a pass reads once: L2 drops it first, and keeps what is read again. */
__device__ __forceinline__ uint64_t dropped_first() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    return policy;
}
/* As copy_async_ahead, of what is read once. */
__device__ __forceinline__ void copy_async_once(void *to, const void *from, bool wanted) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(shared_address(to)),
                 "l"(from), "r"(wanted ? 16 : 0), "l"(dropped_first())
                 : "memory");
}
/* 4, 8 or 16 bytes, by way of the first cache, where other blocks of the multiprocessor find them. */
template <int BYTES> __device__ __forceinline__ void copy_async_part(void *to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES)
                 : "memory");
}
/* 4 bytes or zeros; 8, read once. */
__device__ __forceinline__ void copy_async_4(void *to, const void *from, bool wanted) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(wanted ? 4 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_async_once_8(void *to, const void *from, bool wanted) {
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 8, %2, %3;" ::"r"(shared_address(to)), "l"(from),
                 "r"(wanted ? 8 : 0), "l"(dropped_first())
                 : "memory");
}
/* Ends a group of this thread's copies; waits until at most PENDING groups are on their way; waits for all copies. */
__device__ __forceinline__ void copies_commit_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void copies_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
__device__ __forceinline__ void copies_wait_all() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif
