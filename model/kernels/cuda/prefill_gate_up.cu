/* h = silu(y Wg^T) * (y Wu^T), y = RMSNorm(x), for a chunk of prefill: a norm, both products by one call -> f32 gated [2, T, F],
 * then their combination -> 16 bit h [T, F]. */
#include "model/kernels/cuda/norm.cuh"
#include "model/kernels/cuda/prefill.cuh"

enum { THREADS = 256 };

/* Four elements a thread; the last may reach into the rows past T. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    combine_kernel(const float4 *__restrict__ gate, const float4 *__restrict__ up, T *__restrict__ h, size_t fours) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= fours) return;
    const float4 g = gate[i], u = up[i];
    h[4 * i] = from_float<T>(silu_times(g.x, u.x));
    h[4 * i + 1] = from_float<T>(silu_times(g.y, u.y));
    h[4 * i + 2] = from_float<T>(silu_times(g.z, u.z));
    h[4 * i + 3] = from_float<T>(silu_times(g.w, u.w));
}

int cuda_prefill_gate_up(struct stream *s, const struct op_gate_up *op) {
    const int count = rows_count(&op->rows);
    const size_t apart = (size_t)prefill_padded(&op->rows) * (size_t)op->hidden;
    const size_t fours = ((size_t)count * (size_t)op->hidden + 3) / 4;
    return with_type(op->gate.type, [&](auto type) {
        typedef decltype(type) T;
        TRY(norm<T>(s, {op->x, (const T *)op->norm.data, op->eps, 1, 0}, (T *)op->normed, count, op->width));
        TRY(prefill_product(s, &op->rows, &op->gate, &op->up, op->normed, 0, op->gated, op->hidden, apart));
        combine_kernel<T><<<(unsigned)((fours + THREADS - 1) / THREADS), THREADS, 0, cuda_native(s)>>>(
            (const float4 *)op->gated, (const float4 *)(op->gated + apart), (T *)op->h, fours);
        return cuda_launched(s, "prefill gate_up", 32);
    });
}
