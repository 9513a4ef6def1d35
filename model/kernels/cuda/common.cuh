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

/* silu(gate) * up */
__device__ __forceinline__ float silu_times(float gate, float up) {
    return gate / (1.0f + expf(-gate)) * up;
}

/* The page of a row's position; page 0 for a row without one. */
__device__ __forceinline__ int page_of(const struct rows &rows, int row, int position) {
    if (position < 0) return 0;
    int slot = rows.row_slot[row / rows.q_len];
    return rows.page_table[(size_t)slot * rows.pages_per_slot + position / KV_PAGE];
}

/* Programmatic dependent launch, sm_90 and later: a kernel launched by launch_dependent may start while the kernel before it
 * still runs. So it fetches weights, which nothing writes, and then waits; before inputs_are_ready() it reads nothing else and
 * writes nothing, and every thread calls it, else the kernels after it could start too early. */
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

/* The part of a multiprocessor's memory, in bytes and in percent of 228 KiB, that kernels around a narrow product ask for as
 * shared memory. It changes only while a multiprocessor is idle, so blocks of the next kernel would wait if it needed more; and
 * loads in flight need the rest. */
enum { SHARED_BYTES = 132 << 10, SHARED_PERCENT = 57, SHARED_PERCENT_ANY = cudaSharedmemCarveoutDefault };

/* Launches `kernel` so that it may start early; clusters of `cluster` blocks along x. */
template <typename... Params, typename... Args>
static void launch_sharing(struct stream *stream, void (*kernel)(Params...), dim3 grid, int threads, size_t shared,
                           int cluster, int percent, Args... args) {
    cudaLaunchAttribute attributes[3] = {};
    unsigned count = 0;
    if (cuda_starts_early(stream->device)) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (percent != SHARED_PERCENT_ANY) {
        attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
        attributes[count++].val.sharedMemCarveout = (unsigned)percent;
    }
    if (cluster > 1) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count].val.clusterDim.x = (unsigned)cluster;
        attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
        count++;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = dim3((unsigned)threads), config.dynamicSmemBytes = shared;
    config.stream = cuda_native(stream), config.attrs = attributes, config.numAttrs = count;
    (void)cudaLaunchKernelEx(&config, kernel, args...); /* cuda_launched reports the error */
}
template <typename... Params, typename... Args>
static void launch_dependent(struct stream *stream, void (*kernel)(Params...), dim3 grid, int threads, size_t shared,
                             int cluster, Args... args) {
    launch_sharing(stream, kernel, grid, threads, shared, cluster, SHARED_PERCENT_ANY, args...);
}

/* Calls `run` with the 16-bit type of the weights: every weight of a CUDA model has one (model_upload rounds f32 to bf16). */
template <typename Run> static int with_type(enum dtype type, Run run) {
    if (type == DTYPE_BF16) return run(bf16());
    if (type == DTYPE_F16) return run(half());
    return err_set(ERR_INTERNAL, "an f32 weight on the CUDA device");
}

#endif
