/* q, k, v of RMSNorm(x), with bias, q/k norm and RoPE; k and v into their pages.
 *   1. norm: x -> 16 bit.
 *   2. product over the rows of Wq, Wk, Wv as one, bias in the epilogue -> f32 q [T, H DH], kv_rows [T, 2 HKV DH].
 *   3. rope: one warp a row and head: q/k norm, rotation, q in place, k and v to the pages in 16 bit. */
#include "model/kernels/cuda/norm.cuh"
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product.cuh"
#include "model/kernels/cuda/table.h"

template <typename T> struct qkv_rows {
    const T *q, *k, *v;
    int q_rows, kv_rows, width;
    __device__ const T *row(int tile, int i) const {
        int o = tile * PRODUCT_ROWS + i;
        if (o < q_rows) return q + (size_t)o * width;
        if ((o -= q_rows) < kv_rows) return k + (size_t)o * width;
        if ((o -= kv_rows) < kv_rows) return v + (size_t)o * width;
        return nullptr;
    }
};

template <typename T> struct qkv_store {
    float *q, *kv;
    const T *bq, *bk, *bv; /* may be NULL */
    int q_rows, kv_rows;
    __device__ float bias(int o) const {
        if (!bq) return 0;
        if (o < q_rows) return to_float(bq[o]);
        o -= q_rows;
        return to_float(o < kv_rows ? bk[o] : bv[o - kv_rows]);
    }
    template <int STRIDE> __device__ void store(int tile, float (*sums)[STRIDE], int first_token, int tokens) const {
        for (int i = threadIdx.x; i < PRODUCT_ROWS * tokens; i += blockDim.x) {
            int o = tile * PRODUCT_ROWS + i % PRODUCT_ROWS, t = i / PRODUCT_ROWS;
            if (o >= q_rows + 2 * kv_rows) continue;
            float value = sums[i % PRODUCT_ROWS][t] + bias(o);
            size_t token = first_token + t;
            if (o < q_rows)
                q[token * q_rows + o] = value;
            else
                kv[token * 2 * kv_rows + o - q_rows] = value;
        }
    }
};

/* grid (T, H + 2 HKV), one warp. */
template <typename T> __global__ void rope_kernel(const struct op_qkv op) {
    next_may_start();
    inputs_are_ready();
    const int row = blockIdx.x, lane = threadIdx.x, dh = op.head_dim, half = dh / 2;
    int head = blockIdx.y;
    const int position = op.rows.positions[row];
    const bool is_q = head < op.heads, is_v = head >= op.heads + op.kv_heads;
    float *in = is_q ? op.q + ((size_t)row * op.heads + head) * dh
                     : op.kv_rows + ((size_t)row * 2 * op.kv_heads + head - op.heads) * dh;
    const T *norm = (const T *)(is_q ? op.q_norm.data : op.k_norm.data);
    float scale = 1;
    if (norm && !is_v) {
        float sum = 0;
        for (int i = lane; i < dh; i += 32) sum = fmaf(in[i], in[i], sum);
        scale = 1.0f / sqrtf(warp_sum(sum) / (float)dh + op.eps);
    }
    const float *rope = op.rope + (size_t)max(position, 0) * dh;
    if (!is_q) head = (head - op.heads) % op.kv_heads;
    int offset = position < 0 ? row % KV_PAGE : position % KV_PAGE;
    T *cache = is_q ? nullptr
                    : (T *)(is_v ? op.kv.v : op.kv.k) +
                          (((size_t)page_of(op.rows, row, position) * op.kv_heads + head) * KV_PAGE + offset) * dh;
    for (int i = lane; i < half; i += 32) {
        float a = in[i], b = in[i + half];
        if (!is_v) {
            if (norm) {
                a *= scale * to_float(norm[i]);
                b *= scale * to_float(norm[i + half]);
            }
            float c = rope[2 * i], s = rope[2 * i + 1], rotated = a * c - b * s;
            b = b * c + a * s;
            a = rotated;
        }
        if (is_q) {
            in[i] = a;
            in[i + half] = b;
        } else {
            cache[i] = from_float<T>(a);
            cache[i + half] = from_float<T>(b);
        }
    }
}

int cuda_op_qkv(struct stream *s, const struct op_qkv *op) {
    if (prefill_takes(s, &op->rows, op->width)) return cuda_prefill_qkv(s, op);
    int count = rows_count(&op->rows), outputs = op->wq.rows + 2 * op->wk.rows;
    return with_type(op->wq.type, [&](auto type) {
        typedef decltype(type) T;
        TRY(norm<T>(s, op->x, &op->norm, op->normed, count, op->width, op->eps, 1, 0));
        qkv_rows<T> rows = {(const T *)op->wq.data,
                            (const T *)op->wk.data,
                            (const T *)op->wv.data,
                            op->wq.rows,
                            op->wk.rows,
                            op->width};
        qkv_store<T> store = {
            op->q,       op->kv_rows, (const T *)op->bq.data, (const T *)op->bk.data, (const T *)op->bv.data,
            op->wq.rows, op->wk.rows};
        TRY(product<T>(s, "qkv", (outputs + PRODUCT_ROWS - 1) / PRODUCT_ROWS, count, op->width, (const T *)op->normed,
                       rows, store));
        launch_dependent(s, rope_kernel<T>, dim3(count, op->heads + 2 * op->kv_heads), 32, 0, 1, *op);
        return cuda_launched(s, "rope", sizeof *op);
    });
}
