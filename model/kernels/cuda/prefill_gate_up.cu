/* h = activation(Wg y + bias, Wu y), y = norm(x), for a chunk of prefill: a norm, both products by one call -> f32 gated [2, T, F], then
 * their combination -> 16 bit h [T, F]. */
#include "model/kernels/cuda/norm.cuh"
#include "model/kernels/cuda/prefill.cuh"

/* Four elements a thread; the last may reach past the last row. */
template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    combine_kernel(const float4 *__restrict__ gate, const float4 *__restrict__ up, T *__restrict__ h, size_t fours,
                   enum activation activation) {
    size_t i = (size_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;
    if (i >= fours) return;
    const float4 g = gate[i], u = up[i];
    h[4 * i] = from_float<T>(activate(activation, g.x, u.x));
    h[4 * i + 1] = from_float<T>(activate(activation, g.y, u.y));
    h[4 * i + 2] = from_float<T>(activate(activation, g.z, u.z));
    h[4 * i + 3] = from_float<T>(activate(activation, g.w, u.w));
}

/* The same with `times` in place of up, which has rows of its own length, or with ones and a bias: a block a row. */
template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    combine_rows_kernel(const float *gate, const T *bias, const float *times, int times_stride, T *h, int hidden,
                        enum activation activation) {
    const size_t row = blockIdx.x;
    for (int i = threadIdx.x; i < hidden; i += BLOCK_THREADS) {
        const float g = gate[row * hidden + i] + (bias ? to_float(bias[i]) : 0.0f);
        h[row * hidden + i] = from_float<T>(activate(activation, g, times ? times[row * times_stride + i] : 1.0f));
    }
}

template <typename T> static void combine(struct stream *s, const struct op_gate_up *op, size_t apart) {
    const int count = rows_count(&op->rows);
    T *h = (T *)op->h.data;
    if (!op->up.data) {
        combine_rows_kernel<T><<<count, BLOCK_THREADS, 0, cuda_native(s)>>>(
            op->gated, (const T *)op->bias.data, op->times, op->times_stride, h, op->hidden, op->activation);
        return;
    }
    const size_t fours = apart / 4;
    combine_kernel<T><<<(unsigned)((fours + BLOCK_THREADS - 1) / BLOCK_THREADS), BLOCK_THREADS, 0, cuda_native(s)>>>(
        (const float4 *)op->gated, (const float4 *)(op->gated + apart), h, fours, op->activation);
}

int cuda_prefill_gate_up(struct stream *s, const struct op_gate_up *op) {
    const size_t apart = ((size_t)rows_count(&op->rows) * (size_t)op->hidden + 3) & ~(size_t)3;
    return with_type("gate_up", {op->gate, op->up, op->bias, op->norm, op->normed, op->h}, [&](auto type) {
        typedef decltype(type) T;
        TRY(norm(s, rows_to_norm<T>(op->x, op->norm), (T *)op->normed.data, rows_count(&op->rows), op->width));
        struct prefill_product product = {};
        product.rows = &op->rows, product.w = &op->gate, product.second = op->up.data ? &op->up : nullptr;
        product.x = op->normed, product.scale = 1;
        product.out = op->gated, product.stride = op->hidden, product.apart = apart;
        TRY(prefill_product(s, &product));
        combine<T>(s, op, apart);
        return cuda_launched(s, "prefill gate_up", 40);
    });
}
