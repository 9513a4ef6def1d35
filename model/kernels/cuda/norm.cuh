/* RMSNorm of the residual stream into a product's 16-bit input: y[t, :] = x[t, :] / sqrt(mean(x^2) + eps) * weight.
 * One block a row; sums in f32 in a fixed tree. Bytes: T D (4 + 2). */
#ifndef DUET_MODEL_KERNELS_CUDA_NORM_CUH
#define DUET_MODEL_KERNELS_CUDA_NORM_CUH

#include "model/kernels/cuda/common.cuh"

enum { NORM_THREADS = 512, NORM_HELD = 16 };

/* Row r of the output is row r * stride + offset of x. The first NORM_THREADS * NORM_HELD elements stay in registers. */
template <typename T>
__global__ void __launch_bounds__(NORM_THREADS)
    norm_kernel(const float *x, const T *weight, T *y, int width, float eps, int stride, int offset) {
    __shared__ float partial[NORM_THREADS / 32];
    const float *in = x + ((size_t)blockIdx.x * stride + offset) * width;
    T *out = y + (size_t)blockIdx.x * width;
    float held[NORM_HELD], scales[NORM_HELD], sum = 0;
    next_may_start();
#pragma unroll
    for (int i = 0; i < NORM_HELD; i++) {
        int at = threadIdx.x + i * NORM_THREADS;
        scales[i] = at < width ? to_float(weight[at]) : 0.0f;
    }
    inputs_are_ready();
#pragma unroll
    for (int i = 0; i < NORM_HELD; i++) {
        int at = threadIdx.x + i * NORM_THREADS;
        held[i] = at < width ? in[at] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < NORM_HELD; i++) sum = fmaf(held[i], held[i], sum);
    for (int at = threadIdx.x + NORM_HELD * NORM_THREADS; at < width; at += NORM_THREADS)
        sum = fmaf(in[at], in[at], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = warp_sum(threadIdx.x % 32 < NORM_THREADS / 32 ? partial[threadIdx.x % 32] : 0.0f);
    float scale = 1.0f / sqrtf(total / (float)width + eps);
#pragma unroll
    for (int i = 0; i < NORM_HELD; i++) {
        int at = threadIdx.x + i * NORM_THREADS;
        if (at < width) out[at] = from_float<T>(held[i] * scale * scales[i]);
    }
    for (int at = threadIdx.x + NORM_HELD * NORM_THREADS; at < width; at += NORM_THREADS)
        out[at] = from_float<T>(in[at] * scale * to_float(weight[at]));
}

template <typename T>
static int norm(struct stream *s, const float *x, const struct weight *weight, float *y, int rows, int width, float eps,
                int stride, int offset) {
    launch_dependent(s, norm_kernel<T>, dim3(rows), NORM_THREADS, 0, 1, x, (const T *)weight->data, (T *)y, width, eps,
                     stride, offset);
    return cuda_launched(s, "norm", 40);
}

#endif
