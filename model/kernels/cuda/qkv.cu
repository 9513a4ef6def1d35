/* q, k, v of RMSNorm(x), with bias, q/k norm and RoPE; q [T, H DH] f32, k and v into their pages in 16 bit.
 * One product of the norm (product.cuh) whose groups of 16 rows are 8 dims of a head and the 8 that they turn with, so that bias
 * and rotation are its epilogue. A norm of q and k sees whole heads, and heads of other than a multiple of 16 dims have no such
 * groups. There it takes two kernels:
 *   1. the product over the rows of Wq, Wk, Wv as one, bias in the epilogue -> f32 q, kv_rows [T, 2 HKV DH].
 *   2. rope: one warp a row and head: q/k norm, rotation, q in place, k and v to the pages. */
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product.cuh"
#include "model/kernels/cuda/rope.cuh"
#include "model/kernels/cuda/table.h"

/* A group's dims of a head: `dim` and the PRODUCT_HALF - 1 after it, and as many from `dim` + DH / 2. */
struct head_part {
    int head, dim;
    __device__ head_part(int group, int head_dim) {
        const int parts = head_dim / PRODUCT_ROWS;
        head = group / parts, dim = group % parts * PRODUCT_HALF;
    }
};

template <typename T> struct head_rows {
    const T *q, *k, *v;
    int heads, kv_heads, head_dim, width;
    __device__ const T *row(int group, int i) const {
        struct head_part part(group, head_dim);
        const T *weights = q;
        if (part.head >= heads) {
            part.head -= heads, weights = k;
            if (part.head >= kv_heads) part.head -= kv_heads, weights = v;
            if (part.head >= kv_heads) return nullptr;
        }
        return weights +
               (size_t)(part.head * head_dim + part.dim + i % PRODUCT_HALF + i / PRODUCT_HALF * (head_dim / 2)) * width;
    }
};

template <typename T> struct rotated_store {
    struct op_qkv op;
    template <typename Sum> __device__ void store(int group, int first_token, int tokens, Sum sum) const {
        const int dh = op.head_dim, half = dh / 2;
        struct head_part part(group, dh);
        const bool is_q = part.head < op.heads, is_v = part.head >= op.heads + op.kv_heads;
        if (part.head >= op.heads + 2 * op.kv_heads) return;
        const T *bias = (const T *)(is_q ? op.bq.data : is_v ? op.bv.data : op.bk.data);
        if (!is_q) part.head = (part.head - op.heads) % op.kv_heads;
        for (int i = threadIdx.x; i < PRODUCT_HALF * tokens; i += PRODUCT_THREADS) {
            const int d = part.dim + i % PRODUCT_HALF, row = first_token + i / PRODUCT_HALF,
                      position = op.rows.positions[row];
            const float2 turn =
                is_v ? float2{} : ((const float2 *)op.rope)[(size_t)max(position, 0) * half + d]; /* cos, sin */
            float a = sum(i % PRODUCT_HALF, i / PRODUCT_HALF),
                  b = sum(i % PRODUCT_HALF + PRODUCT_HALF, i / PRODUCT_HALF);
            if (bias) a += to_float(bias[part.head * dh + d]), b += to_float(bias[part.head * dh + d + half]);
            if (!is_v) rotate(a, b, turn.x, turn.y);
            if (is_q) {
                float *to = op.q + ((size_t)row * op.heads + part.head) * dh + d;
                to[0] = a, to[half] = b;
            } else {
                T *to = kv_cell<T>(op, is_v, page_of(op.rows, row, position), part.head, row, position) + d;
                to[0] = from_float<T>(a), to[half] = from_float<T>(b);
            }
        }
    }
};

template <typename T> struct qkv_rows {
    const T *q, *k, *v;
    int q_rows, kv_rows, width;
    __device__ const T *row(int group, int i) const {
        int o = group * PRODUCT_ROWS + i;
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
    template <typename Sum> __device__ void store(int group, int first_token, int tokens, Sum sum) const {
        for (int i = threadIdx.x; i < PRODUCT_ROWS * tokens; i += PRODUCT_THREADS) {
            int o = group * PRODUCT_ROWS + i % PRODUCT_ROWS, t = i / PRODUCT_ROWS;
            if (o >= q_rows + 2 * kv_rows) continue;
            float value = sum(i % PRODUCT_ROWS, t) + bias(o);
            size_t token = first_token + t;
            if (o < q_rows)
                q[token * q_rows + o] = value;
            else
                kv[token * 2 * kv_rows + o - q_rows] = value;
        }
    }
};

enum { ROPE_WARPS = 8, ROPE_HELD = 4 /* pairs of dims of a lane: heads of up to 256 dims */ };

/* A warp a row and head, 8 a block, as long as there are. What does not depend on the position is asked for first. */
template <typename T>
__global__ void __launch_bounds__(ROPE_WARPS * 32) rope_kernel(const struct op_qkv op, int count) {
    next_may_start();
    const int lane = threadIdx.x % 32, dh = op.head_dim, half = dh / 2, heads = op.heads + 2 * op.kv_heads;
    const int index = blockIdx.x * ROPE_WARPS + threadIdx.x / 32, row = index / heads;
    int head = index % heads;
    const bool is_q = head < op.heads, is_v = head >= op.heads + op.kv_heads;
    const T *norm = is_v ? nullptr : (const T *)(is_q ? op.q_norm.data : op.k_norm.data);
    float norm_a[ROPE_HELD], norm_b[ROPE_HELD];
#pragma unroll
    for (int j = 0; j < ROPE_HELD; j++) {
        int i = lane + 32 * j;
        norm_a[j] = norm && i < half ? to_float(norm[i]) : 1.0f;
        norm_b[j] = norm && i < half ? to_float(norm[i + half]) : 1.0f;
    }
    inputs_are_ready();
    if (row >= count) return;
    const int position = op.rows.positions[row], slot = op.rows.row_slot[row / op.rows.q_len];
    float *in = is_q ? op.q + ((size_t)row * op.heads + head) * dh
                     : op.kv_rows + ((size_t)row * 2 * op.kv_heads + head - op.heads) * dh;
    float a[ROPE_HELD], b[ROPE_HELD], sum = 0;
#pragma unroll
    for (int j = 0; j < ROPE_HELD; j++) {
        int i = lane + 32 * j;
        a[j] = i < half ? in[i] : 0.0f;
        b[j] = i < half ? in[i + half] : 0.0f;
    }
    const int page =
        position < 0 || is_q ? 0 : op.rows.page_table[(size_t)slot * op.rows.pages_per_slot + position / KV_PAGE];
    float2 turn[ROPE_HELD]; /* cos, sin */
    const float2 *rope = (const float2 *)op.rope + (size_t)max(position, 0) * half;
#pragma unroll
    for (int j = 0; j < ROPE_HELD; j++) {
        int i = lane + 32 * j;
        turn[j] = !is_v && i < half ? rope[i] : make_float2(1, 0);
    }
    if (norm) {
#pragma unroll
        for (int j = 0; j < ROPE_HELD; j++) sum = fmaf(b[j], b[j], fmaf(a[j], a[j], sum));
        float scale = 1.0f / sqrtf(warp_sum(sum) / (float)dh + op.eps);
#pragma unroll
        for (int j = 0; j < ROPE_HELD; j++) a[j] *= scale * norm_a[j], b[j] *= scale * norm_b[j];
    }
    if (!is_q) head = (head - op.heads) % op.kv_heads;
    T *cache = kv_cell<T>(op, is_v, page, head, row, position);
#pragma unroll
    for (int j = 0; j < ROPE_HELD; j++) {
        int i = lane + 32 * j;
        if (i >= half) break;
        if (!is_v) rotate(a[j], b[j], turn[j].x, turn[j].y);
        if (is_q)
            in[i] = a[j], in[i + half] = b[j];
        else
            cache[i] = from_float<T>(a[j]), cache[i + half] = from_float<T>(b[j]);
    }
}

template <typename T> static int rotated_product(struct stream *s, const struct op_qkv *op, norm_rows<T> norm) {
    head_rows<T> rows = {(const T *)op->wq.data,
                         (const T *)op->wk.data,
                         (const T *)op->wv.data,
                         op->heads,
                         op->kv_heads,
                         op->head_dim,
                         op->width};
    const int groups = (op->heads + 2 * op->kv_heads) * (op->head_dim / PRODUCT_ROWS);
    return product_of_norm<T>(s, "qkv", groups, rows_count(&op->rows), op->width, norm, (T *)op->normed, rows,
                              rotated_store<T>{*op});
}

template <typename T> static int product_then_rope(struct stream *s, const struct op_qkv *op, norm_rows<T> norm) {
    const int count = rows_count(&op->rows), outputs = op->wq.rows + 2 * op->wk.rows;
    qkv_rows<T> rows = {
        (const T *)op->wq.data, (const T *)op->wk.data, (const T *)op->wv.data, op->wq.rows, op->wk.rows, op->width};
    qkv_store<T> store = {
        op->q,       op->kv_rows, (const T *)op->bq.data, (const T *)op->bk.data, (const T *)op->bv.data,
        op->wq.rows, op->wk.rows};
    TRY(product_of_norm<T>(s, "qkv", (outputs + PRODUCT_ROWS - 1) / PRODUCT_ROWS, count, op->width, norm,
                           (T *)op->normed, rows, store));
    const int warps = count * (op->heads + 2 * op->kv_heads), blocks = (warps + ROPE_WARPS - 1) / ROPE_WARPS;
    launch_dependent(s, rope_kernel<T>, dim3(blocks), ROPE_WARPS * 32, 0, 1, *op, count);
    return cuda_launched(s, "rope", sizeof *op);
}

int cuda_op_qkv(struct stream *s, const struct op_qkv *op) {
    if (prefill_takes(s, &op->rows, op->width)) return cuda_prefill_qkv(s, op);
    return with_type(op->wq.type, [&](auto type) {
        typedef decltype(type) T;
        norm_rows<T> norm = {op->x, (const T *)op->norm.data, op->eps, 1, 0};
        if (op->q_norm.data || op->head_dim % PRODUCT_ROWS != 0) return product_then_rope<T>(s, op, norm);
        return rotated_product<T>(s, op, norm);
    });
}
