/* What the kernels share: 16-bit types, warp sums, and the rows of a pass. */
#ifndef DUET_MODEL_KERNELS_CUDA_COMMON_CUH
#define DUET_MODEL_KERNELS_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "graphs/cuda.cuh"
extern "C" {
#include "model/ops.h"
}

typedef __nv_bfloat16 bf16;

template <typename T> __device__ __forceinline__ float to_float(T x);
template <> __device__ __forceinline__ float to_float<bf16>(bf16 x) {
    return __bfloat162float(x);
}
template <> __device__ __forceinline__ float to_float<half>(half x) {
    return __half2float(x);
}
template <> __device__ __forceinline__ float to_float<float>(float x) {
    return x;
}

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) {
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ half from_float<half>(float x) {
    return __float2half_rn(x);
}

/* The sum over a warp in a fixed tree; every lane gets it. */
__device__ __forceinline__ float warp_sum(float x) {
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
    for (int step = 16; step > 0; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* The page of a row's position; page 0 for a row without one. */
__device__ __forceinline__ int page_of(const struct rows &rows, int row, int position) {
    if (position < 0) return 0;
    int slot = rows.row_slot[row / rows.q_len];
    return rows.page_table[(size_t)slot * rows.pages_per_slot + position / KV_PAGE];
}

/* Programmatic dependent launch, sm_90 and later: a kernel launched by launch_dependent may start while the kernel before it still
 * runs. So it fetches weights, which nothing writes, and then waits; before inputs_are_ready() it reads nothing else and writes
 * nothing, and every thread calls it, else the kernels after it could start too early. */
__device__ __forceinline__ void inputs_are_ready() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* Lets the next kernel start as soon as blocks of this one leave room for it. */
__device__ __forceinline__ void next_may_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Launches `kernel` so that it may start early; clusters of `cluster` blocks along x. All ask for the largest shared memory:
 * a multiprocessor changes its share only while idle, and blocks of the next kernel would wait for that. */
template <typename... Params, typename... Args>
static void launch_dependent(struct stream *stream, void (*kernel)(Params...), dim3 grid, int threads, size_t shared,
                             int cluster, Args... args) {
    cudaLaunchAttribute attributes[3] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    attributes[2].id = cudaLaunchAttributeClusterDimension;
    attributes[2].val.clusterDim.x = (unsigned)cluster;
    attributes[2].val.clusterDim.y = attributes[2].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = dim3((unsigned)threads), config.dynamicSmemBytes = shared;
    config.stream = cuda_native(stream), config.attrs = attributes, config.numAttrs = cluster > 1 ? 3 : 2;
    (void)cudaLaunchKernelEx(&config, kernel, args...); /* cuda_launched reports the error */
}

/* Calls `run` with the 16-bit type of the weights: every weight of a CUDA model has one (model_upload rounds f32 to bf16). */
template <typename Run> static int with_type(enum dtype type, Run run) {
    if (type == DTYPE_BF16) return run(bf16());
    if (type == DTYPE_F16) return run(half());
    return err_set(ERR_INTERNAL, "an f32 weight on the CUDA device");
}

#endif
