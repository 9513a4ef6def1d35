/* RMSNorm of the residual stream into a product's 16-bit input: y[t, :] = x[t, :] / sqrt(mean(x^2) + eps) * weight.
 * A block normalises a row; sums in f32 in a fixed tree of NORM_THREADS threads. Bytes: T D (4 + 2). */
#ifndef DUET_MODEL_KERNELS_CUDA_NORM_CUH
#define DUET_MODEL_KERNELS_CUDA_NORM_CUH

#include "model/kernels/cuda/common.cuh"

enum { NORM_THREADS = 256 };

/* Rows of x to be normalised: row r is row r * stride + offset of x. x NULL: nothing is. */
template <typename T> struct norm_rows {
    const float *x;
    const T *weight;
    float eps;
    int stride, offset;
};

/* Shared memory of a block that normalises: a row before, and the weight, which no kernel writes and so may be fetched early. */
template <typename T> struct norm_memory {
    float *held; /* [width], 16-byte aligned */
    T *weight;   /* [width] */
    __device__ norm_memory(void *memory, int width) : held((float *)memory), weight((T *)(held + width)) {}
    __device__ void fetch(const norm_rows<T> &rows, int width) {
        if (width % 4 == 0) {
#pragma unroll 4
            for (int at = threadIdx.x * 4; at < width; at += NORM_THREADS * 4)
                *(uint2 *)(weight + at) = *(const uint2 *)(rows.weight + at);
        } else {
            for (int at = threadIdx.x; at < width; at += NORM_THREADS) weight[at] = rows.weight[at];
        }
    }
};
static inline size_t norm_bytes(int width) {
    return (size_t)width * 6;
}

/* One row by all NORM_THREADS threads, after fetch. Ends with a barrier. */
template <typename T>
__device__ void norm_row(const norm_rows<T> &rows, int row, int width, norm_memory<T> memory, T *out) {
    __shared__ __align__(16) float partial[NORM_THREADS / 32];
    static_assert(NORM_THREADS == 256, "8 sums are added");
    const float *in = rows.x + ((size_t)row * rows.stride + rows.offset) * width;
    float sum = 0;
    auto add = [&](float x) { sum = fmaf(x, x, sum); };
    if (width % 4 == 0) {
#pragma unroll 4
        for (int at = threadIdx.x * 4; at < width; at += NORM_THREADS * 4) {
            float4 x = *(const float4 *)(in + at);
            *(float4 *)(memory.held + at) = x;
            add(x.x), add(x.y), add(x.z), add(x.w);
        }
    } else {
        for (int at = threadIdx.x; at < width; at += NORM_THREADS) add(memory.held[at] = in[at]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    const float4 p = *(const float4 *)partial, q = *(const float4 *)(partial + 4);
    const float total = ((p.x + q.x) + (p.z + q.z)) + ((p.y + q.y) + (p.w + q.w));
    const float scale = 1.0f / sqrtf(total / (float)width + rows.eps);
    if (width % 4 == 0) {
#pragma unroll 4
        for (int at = threadIdx.x * 4; at < width; at += NORM_THREADS * 4) {
            const float4 x = *(const float4 *)(memory.held + at);
            T y[4], w[4];
            *(uint2 *)w = *(const uint2 *)(memory.weight + at);
            y[0] = from_float<T>(x.x * scale * to_float(w[0])), y[1] = from_float<T>(x.y * scale * to_float(w[1]));
            y[2] = from_float<T>(x.z * scale * to_float(w[2])), y[3] = from_float<T>(x.w * scale * to_float(w[3]));
            *(uint2 *)(out + at) = *(const uint2 *)y;
        }
    } else {
        for (int at = threadIdx.x; at < width; at += NORM_THREADS)
            out[at] = from_float<T>(memory.held[at] * scale * to_float(memory.weight[at]));
    }
    __syncthreads();
}

template <typename T> __global__ void __launch_bounds__(NORM_THREADS) norm_kernel(norm_rows<T> rows, T *y, int width) {
    extern __shared__ __align__(16) unsigned char shared[];
    norm_memory<T> memory(shared, width);
    next_may_start();
    memory.fetch(rows, width);
    inputs_are_ready();
    norm_row(rows, blockIdx.x, width, memory, y + (size_t)blockIdx.x * width);
}

template <typename T> static int norm(struct stream *s, norm_rows<T> rows, T *y, int count, int width) {
    const size_t shared = norm_bytes(width);
    CUDA_TRY(cudaFuncSetAttribute(norm_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    launch_sharing(s, norm_kernel<T>, dim3(count), NORM_THREADS, shared, 1, SHARED_PERCENT, rows, y, width);
    return cuda_launched(s, "norm", sizeof rows + 12);
}

#endif
