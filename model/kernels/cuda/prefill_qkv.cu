/* q, k, v of RMSNorm(x) for a chunk of prefill.
 *   1. norm: x -> 16 bit.
 *   2. products -> f32 q [T, H DH]; k and v by one call -> kv_rows [T, 2 HKV DH].
 *   3. finish: one warp a row and head: bias, q/k norm, rotation; q in place, k and v to the pages in 16 bit. */
#include "model/kernels/cuda/norm.cuh"
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/rope.cuh"

enum { WARPS = 8 };

/* One head of one row: where its sums and weights are. */
template <typename T> struct head {
    float *in;
    const T *bias, *norm; /* may be NULL */
    T *cache;             /* NULL: q, which stays in place */
    bool is_rotated;
    __device__ float value(int i) const { return bias ? in[i] + to_float(bias[i]) : in[i]; }
};

template <typename T> __device__ struct head<T> find_head(const struct op_qkv &op, int row, int index, int position) {
    const int dh = op.head_dim;
    struct head<T> h = {};
    if (index < op.heads) {
        h.in = op.q + ((size_t)row * op.heads + index) * dh;
        h.bias = op.bq.data ? (const T *)op.bq.data + index * dh : nullptr;
        h.norm = (const T *)op.q_norm.data;
        h.is_rotated = true;
        return h;
    }
    h.in = op.kv_rows + ((size_t)row * 2 * op.kv_heads + index - op.heads) * dh;
    const bool is_v = index >= op.heads + op.kv_heads;
    const struct weight &bias = is_v ? op.bv : op.bk;
    index = (index - op.heads) % op.kv_heads;
    h.bias = bias.data ? (const T *)bias.data + index * dh : nullptr;
    h.norm = is_v ? nullptr : (const T *)op.k_norm.data;
    h.is_rotated = !is_v;
    h.cache = kv_cell<T>(op, is_v, page_of(op.rows, row, position), index, row, position);
    return h;
}

/* grid (T, (H + 2 HKV) / WARPS) */
template <typename T>
__global__ void __launch_bounds__(WARPS * 32) finish_kernel(const struct op_qkv op) {
    const int row = blockIdx.x, index = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    const int dh = op.head_dim, half = dh / 2, position = op.rows.positions[row];
    if (index >= op.heads + 2 * op.kv_heads) return;
    const struct head<T> h = find_head<T>(op, row, index, position);
    float scale = 1;
    if (h.norm) {
        float sum = 0;
        for (int i = lane; i < dh; i += 32) sum = fmaf(h.value(i), h.value(i), sum);
        scale = 1.0f / sqrtf(warp_sum(sum) / (float)dh + op.eps);
    }
    const float *rope = op.rope + (size_t)max(position, 0) * dh;
    for (int i = lane; i < half; i += 32) {
        float a = h.value(i), b = h.value(i + half);
        if (h.norm) {
            a *= scale * to_float(h.norm[i]);
            b *= scale * to_float(h.norm[i + half]);
        }
        if (h.is_rotated) rotate(a, b, rope[2 * i], rope[2 * i + 1]);
        if (h.cache) {
            h.cache[i] = from_float<T>(a);
            h.cache[i + half] = from_float<T>(b);
        } else {
            h.in[i] = a;
            h.in[i + half] = b;
        }
    }
}

int cuda_prefill_qkv(struct stream *s, const struct op_qkv *op) {
    const int count = rows_count(&op->rows), heads = op->heads + 2 * op->kv_heads, kv = op->wk.rows;
    return with_type(op->wq.type, [&](auto type) {
        typedef decltype(type) T;
        TRY(norm<T>(s, {op->x, (const T *)op->norm.data, op->eps, 1, 0}, (T *)op->normed, count, op->width));
        TRY(prefill_product(s, &op->rows, &op->wq, nullptr, op->normed, 0, op->q, op->wq.rows, 0));
        TRY(prefill_product(s, &op->rows, &op->wk, &op->wv, op->normed, 0, op->kv_rows, 2 * kv, kv));
        finish_kernel<T><<<dim3(count, (heads + WARPS - 1) / WARPS), WARPS * 32, 0, cuda_native(s)>>>(*op);
        return cuda_launched(s, "prefill qkv", sizeof *op);
    });
}
