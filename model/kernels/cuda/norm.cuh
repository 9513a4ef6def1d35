/* The norm of rows of the residual stream into a product's 16-bit input: y[t, :] = x[t, :] / sqrt(mean(x^2) + eps) * factor,
 * factor = weight + offset, or 1 where there is no weight; or the same of x - mean(x), plus a bias; or x as it is. A block normalises a
 * row; sums in f32 in a fixed tree of BLOCK_THREADS threads. Bytes: T D (4 + 2). */
#ifndef DUET_MODEL_KERNELS_CUDA_NORM_CUH
#define DUET_MODEL_KERNELS_CUDA_NORM_CUH

#include "model/kernels/cuda/product_order.cuh"
#include "model/kernels/cuda/tiles.cuh"

/* Rows of x to be normalised: row r is row r * step + first of x. x NULL: nothing is. */
template <typename T> struct norm_rows {
    const float *x;
    const T *weight; /* NULL: every factor is 1 */
    const T *bias;   /* may be NULL */
    float offset, eps;
    int step, first;
    bool is_plain; /* y = x */
    bool centres;
};
template <typename T>
static norm_rows<T> rows_to_norm(const float *x, const struct norm &norm, int step = 1, int first = 0) {
    const bool is_plain = norm.kind == NORM_NONE, has_weight = !is_plain && norm.weight.data;
    return {x,
            has_weight ? (const T *)norm.weight.data : nullptr,
            norm.kind == NORM_LAYER ? (const T *)norm.bias.data : nullptr,
            has_weight ? norm.offset : 0.0f,
            norm.eps,
            step,
            first,
            is_plain,
            norm.kind == NORM_LAYER};
}

/* Shared memory of a block that normalises: a row before, and the weight, which no kernel writes and so may be fetched early. Both are
 * copied past the registers: a thread that waits for loads waits for those of a product's weights as well. And by way of the first cache:
 * all blocks of a narrow product want the same few lines at once, and L2 has each in one place. */
template <typename T> struct norm_memory {
    float *held; /* [width], 16-byte aligned */
    T *weight;   /* [width] */
    __device__ norm_memory(void *memory, int width) : held((float *)memory), weight((T *)(held + width)) {}
    __device__ void fetch(const norm_rows<T> &rows, int width) {
        if (!rows.weight)
#pragma unroll 1
            for (int at = threadIdx.x; at < width; at += BLOCK_THREADS) weight[at] = from_float<T>(1.0f);
        else if (width % 8 == 0)
#pragma unroll 1
            for (int at = threadIdx.x * 8; at < width; at += BLOCK_THREADS * 8)
                copy_async_part<16>(weight + at, rows.weight + at);
        else
#pragma unroll 1
            for (int at = threadIdx.x; at < width; at += BLOCK_THREADS) weight[at] = rows.weight[at];
    }
};
static inline size_t norm_bytes(int width) {
    return (size_t)width * 6;
}

/* A row into `held`, by all BLOCK_THREADS threads: there for each that waits for its copies. */
__device__ __forceinline__ void hold_row(const float *in, int width, float *held) {
    if (width % 4 == 0)
#pragma unroll 2
        for (int at = threadIdx.x * 4; at < width; at += BLOCK_THREADS * 4) copy_async_part<16>(held + at, in + at);
    else
#pragma unroll 1
        for (int at = threadIdx.x; at < width; at += BLOCK_THREADS) held[at] = in[at];
}

/* Of each warp's sum. Ends with a barrier. */
__device__ __forceinline__ float sum_of_warps(float sum, float (&partial)[BLOCK_THREADS / 32]) {
    static_assert(BLOCK_THREADS == 256, "8 sums are added");
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    const float4 p = *(const float4 *)partial, q = *(const float4 *)(partial + 4);
    return ((p.x + q.x) + (p.z + q.z)) + ((p.y + q.y) + (p.w + q.w));
}

/* Takes its mean from a row that is held; each thread of the numbers that it holds. */
__device__ __forceinline__ void centre_held(int width, float *held) {
    __shared__ __align__(16) float partial[BLOCK_THREADS / 32];
    const int together = width % 4 == 0 ? 4 : 1; /* as hold_row has it */
    float sum = 0;
#pragma unroll 1
    for (int at = threadIdx.x * together; at < width; at += BLOCK_THREADS * together)
#pragma unroll 1
        for (int i = 0; i < together; i++) sum += held[at + i];
    const float mean = sum_of_warps(sum, partial) * (1.0f / (float)width);
#pragma unroll 1
    for (int at = threadIdx.x * together; at < width; at += BLOCK_THREADS * together)
#pragma unroll 1
        for (int i = 0; i < together; i++) held[at + i] -= mean;
}

/* What the values of a row that is held are to be multiplied with before their factors; without their mean, where that goes. What any thread
 * fetched and held is there for all. */
template <typename T> __device__ float scale_of_held(const norm_rows<T> &rows, int width, float *held) {
    __shared__ __align__(16) float partial[BLOCK_THREADS / 32];
    const float share = 1.0f / (float)width;
    if (rows.centres) centre_held(width, held);
    float sum = 0;
    auto add = [&](float x) { sum = fmaf(x, x, sum); };
    if (width % 4 == 0) {
#pragma unroll 2
        for (int at = threadIdx.x * 4; at < width; at += BLOCK_THREADS * 4) {
            const float4 x = *(const float4 *)(held + at);
            add(x.x), add(x.y), add(x.z), add(x.w);
        }
    } else {
#pragma unroll 1
        for (int at = threadIdx.x; at < width; at += BLOCK_THREADS) add(held[at]);
    }
    const float total = sum_of_warps(sum, partial);
    return rows.is_plain ? 1.0f : inverse_rms(total, share, rows.eps);
}

/* The bias is added to what is rounded to f32, whichever kernel does it. */
template <typename T> __device__ __forceinline__ float with_bias(const norm_rows<T> &rows, int at, float y) {
    return rows.bias ? __fadd_rn(y, to_float(rows.bias[at])) : y;
}

struct store_in_own_order {
    template <typename T> __device__ __forceinline__ void operator()(T *to, int at, const T (&four)[4]) const {
        store_in_order(ORDER_OWN, to, at, four);
    }
};
/* The row that is held; store(out, at, y[4]) keeps four numbers, where the width is a multiple of 4. Ends with a barrier. */
template <typename T, typename Store = store_in_own_order>
__device__ void norm_held_row(const norm_rows<T> &rows, int width, norm_memory<T> memory, T *out, Store store = {}) {
    const float scale = scale_of_held(rows, width, memory.held), offset = rows.offset;
    if (width % 4 == 0) {
#pragma unroll 2
        for (int at = threadIdx.x * 4; at < width; at += BLOCK_THREADS * 4) {
            const float4 x = *(const float4 *)(memory.held + at);
            alignas(8) T y[4];
            T w[4];
            *(uint2 *)w = *(const uint2 *)(memory.weight + at);
            y[0] = from_float<T>(with_bias(rows, at, x.x * scale * (to_float(w[0]) + offset)));
            y[1] = from_float<T>(with_bias(rows, at + 1, x.y * scale * (to_float(w[1]) + offset)));
            y[2] = from_float<T>(with_bias(rows, at + 2, x.z * scale * (to_float(w[2]) + offset)));
            y[3] = from_float<T>(with_bias(rows, at + 3, x.w * scale * (to_float(w[3]) + offset)));
            store(out, at, y);
        }
    } else {
#pragma unroll 1
        for (int at = threadIdx.x; at < width; at += BLOCK_THREADS)
            out[at] =
                from_float<T>(with_bias(rows, at, memory.held[at] * scale * (to_float(memory.weight[at]) + offset)));
    }
    __syncthreads();
}

/* One row, after fetch. */
template <typename T, typename Store = store_in_own_order>
__device__ void norm_row(const norm_rows<T> &rows, int row, int width, norm_memory<T> memory, T *out,
                         Store store = {}) {
    hold_row(rows.x + ((size_t)row * rows.step + rows.first) * width, width, memory.held);
    copies_wait_all();
    norm_held_row(rows, width, memory, out, store);
}

template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    norm_kernel(norm_rows<T> rows, T *y, int width, enum token_order order) {
    extern __shared__ __align__(16) unsigned char shared[];
    norm_memory<T> memory(shared, width);
    next_may_start();
    memory.fetch(rows, width);
    inputs_are_ready();
    norm_row(rows, blockIdx.x, width, memory, y + token_start(order, width, blockIdx.x),
             [=](T *to, int at, const T(&four)[4]) { store_in_order(order, to, place_start(order, at), four); });
}

template <typename T>
static int norm(struct stream *s, norm_rows<T> rows, T *y, int count, int width, enum token_order order = ORDER_OWN,
                struct spread spread = {SHARED_PERCENT, 0}) {
    const size_t shared = spread_bytes(spread, norm_bytes(width));
    launch_sharing(s, norm_kernel<T>, dim3(count), BLOCK_THREADS, shared, 1, spread.percent, rows, y, width, order);
    return cuda_launched(s, "norm", sizeof rows + 16);
}

#endif
