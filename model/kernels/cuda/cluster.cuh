/* What blocks of a cluster do with each other, sm_90 and later: cooperative_groups.h has the same, and takes a second to read. */
#ifndef DUET_MODEL_KERNELS_CUDA_CLUSTER_CUH
#define DUET_MODEL_KERNELS_CUDA_CLUSTER_CUH

#include <stdint.h>

#if __CUDA_ARCH__ >= 900
/* Shared memory of a block of the cluster. */
__device__ __forceinline__ uint32_t of_rank(const void *mine, int rank) {
    uint32_t its, at = (uint32_t)__cvta_generic_to_shared(mine);
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its) : "r"(at), "r"(rank));
    return its;
}
/* All blocks wait for each other. */
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ void meet_in_cluster() {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}
#endif

#endif
