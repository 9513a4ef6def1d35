/* RMSNorm of the residual stream into a product's 16-bit input: y[t, :] = x[t, :] / sqrt(mean(x^2) + eps) * weight.
 * One block a row; sums in f32 in a fixed tree. Bytes: T D (4 + 2). */
#ifndef DUET_MODEL_KERNELS_CUDA_NORM_CUH
#define DUET_MODEL_KERNELS_CUDA_NORM_CUH

#include "model/kernels/cuda/common.cuh"

enum { NORM_THREADS = 256 };

/* Row r of the output is row r * stride + offset of x. */
template <typename T>
__global__ void norm_kernel(const float *__restrict__ x, const T *__restrict__ weight, T *__restrict__ y, int width,
                            float eps, int stride, int offset) {
    __shared__ float partial[NORM_THREADS / 32];
    const float *in = x + ((size_t)blockIdx.x * stride + offset) * width;
    float sum = 0;
    for (int i = threadIdx.x; i < width; i += NORM_THREADS) sum = fmaf(in[i], in[i], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < NORM_THREADS / 32; w++) total += partial[w];
    float scale = 1.0f / sqrtf(total / (float)width + eps);
    for (int i = threadIdx.x; i < width; i += NORM_THREADS)
        y[(size_t)blockIdx.x * width + i] = from_float<T>(in[i] * scale * to_float(weight[i]));
}

template <typename T>
static int norm(struct stream *s, const float *x, const struct weight *weight, float *y, int rows, int width, float eps,
                int stride, int offset) {
    norm_kernel<T>
        <<<rows, NORM_THREADS, 0, cuda_native(s)>>>(x, (const T *)weight->data, (T *)y, width, eps, stride, offset);
    return cuda_launched(s, "norm", 40);
}

#endif
