/* q, k, v of norm(x), with bias, norms of heads and rotation; q [T, H DH] f32, k and v into their pages in 16 bit.
 * One product of the norm (product.cuh) whose groups of 16 rows are 8 dims of a head and the 8 that they turn with, so that bias
 * and rotation are its epilogue. A norm of q, k or v sees whole heads, heads of other than a multiple of 16 dims have no such
 * groups, and other pairings of dims (neighbours, a part of the head) or q alone are not worth kernels of products of their own;
 * FP8's scale is of a whole head.
 * There it takes two kernels:
 *   1. the product over the rows of Wq, Wk, Wv as one, bias in the epilogue -> f32 q, kv_rows [T, 2 HKV DH].
 *   2. heads.cu: norm, rotation, q in place, k and v to the pages. */
#include "model/kernels/cuda/heads.cuh"
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product.cuh"
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
    static constexpr bool is_boxed = false;
    __device__ bool adds_in_order() const { return false; }
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
    struct rows rows;
    struct rope rope;
    const T *bq, *bk, *bv; /* may be NULL */
    float *q;
    struct kv_layer kv;
    int heads, kv_heads, head_dim;
    template <typename Sum> __device__ void store(int group, int first_token, int tokens, Sum sum) const {
        const int dh = head_dim, half = dh / 2;
        struct head_part part(group, dh);
        const bool is_q = part.head < heads, is_v = part.head >= heads + kv_heads;
        if (part.head >= heads + 2 * kv_heads) return;
        const T *bias = is_q ? bq : is_v ? bv : bk;
        if (!is_q) part.head = (part.head - heads) % kv_heads;
        for (int i = threadIdx.x; i < PRODUCT_HALF * tokens; i += BLOCK_THREADS) {
            const int d = part.dim + i % PRODUCT_HALF, row = first_token + i / PRODUCT_HALF,
                      position = rows.positions[row];
            const float2 turn = is_v ? float2{} : turns_of(rope, rows, row, position, dh)[d];
            float a = sum(i % PRODUCT_HALF, i / PRODUCT_HALF),
                  b = sum(i % PRODUCT_HALF + PRODUCT_HALF, i / PRODUCT_HALF);
            if (bias) a += to_float(bias[part.head * dh + d]), b += to_float(bias[part.head * dh + d + half]);
            if (!is_v) rotate(a, b, turn);
            T *cell = is_q ? nullptr
                           : kv_cell<T>(is_v ? kv.v : kv.k, kv_heads, dh, page_of(rows, row, position), part.head, row,
                                        position);
            keep_pair(is_q, q + ((size_t)row * heads + part.head) * dh, cell, d, d + half, a, b);
        }
    }
};

/* The rows of Wq, Wk and Wv one behind the other; kv_rows of each of the latter two, which may be absent. */
template <typename T> struct qkv_rows {
    const T *q, *k, *v;
    int q_rows, k_rows, v_rows, width;
    static constexpr bool is_boxed = false;
    __device__ bool adds_in_order() const { return false; }
    __device__ const T *row(int group, int i) const {
        int o = group * PRODUCT_ROWS + i;
        if (o < q_rows) return q + (size_t)o * width;
        if ((o -= q_rows) < k_rows) return k + (size_t)o * width;
        if ((o -= k_rows) < v_rows) return v + (size_t)o * width;
        return nullptr;
    }
};

template <typename T> struct qkv_store {
    float *q, *kv;
    const T *bq, *bk, *bv; /* may be NULL */
    int q_rows, k_rows, v_rows, kv_stride;
    __device__ float bias(int o) const {
        const bool is_q = o < q_rows;
        if (!is_q) o -= q_rows;
        const bool is_v = !is_q && o >= k_rows;
        if (is_v) o -= k_rows;
        const T *from = is_q ? bq : is_v ? bv : bk;
        return from ? to_float(from[o]) : 0.0f;
    }
    template <typename Sum> __device__ void store(int group, int first_token, int tokens, Sum sum) const {
        for (int i = threadIdx.x; i < PRODUCT_ROWS * tokens; i += BLOCK_THREADS) {
            int o = group * PRODUCT_ROWS + i % PRODUCT_ROWS, t = i / PRODUCT_ROWS;
            if (o >= q_rows + k_rows + v_rows) continue;
            float value = sum(i % PRODUCT_ROWS, t) + bias(o);
            size_t token = first_token + t;
            if (o < q_rows)
                q[token * q_rows + o] = value;
            else
                kv[token * kv_stride + o - q_rows] = value;
        }
    }
};

/* Are groups of 8 dims and the 8 that they turn with finished by the product? */
static bool is_rotated_by_product(const struct op_qkv *op) {
    const bool is_normed = op->q_norm.kind != NORM_NONE || op->k_norm.kind != NORM_NONE || op->v_norm.kind != NORM_NONE;
    const bool turns_halves = op->rope.table && op->rope.dims == op->head_dim && !op->rope.pairs_neighbours;
    return op->kv.type != DTYPE_FP8 && !is_normed && turns_halves && op->head_dim % PRODUCT_ROWS == 0 && op->wk.data &&
           op->wv.data;
}

template <typename T> static int rotated_product(struct stream *s, const struct op_qkv *op, norm_rows<T> norm) {
    head_rows<T> rows = {(const T *)op->wq.data,
                         (const T *)op->wk.data,
                         (const T *)op->wv.data,
                         op->heads,
                         op->kv_heads,
                         op->head_dim,
                         op->width};
    rotated_store<T> store = {op->rows,
                              op->rope,
                              (const T *)op->bq.data,
                              (const T *)op->bk.data,
                              (const T *)op->bv.data,
                              op->q,
                              op->kv,
                              op->heads,
                              op->kv_heads,
                              op->head_dim};
    const int groups = (op->heads + 2 * op->kv_heads) * (op->head_dim / PRODUCT_ROWS), tokens = rows_count(&op->rows);
    return product_of_norm<T>(s, "qkv", groups, tokens, tokens, op->width, norm, (T *)op->normed.data, rows, store);
}

template <typename T> static int product_then_heads(struct stream *s, const struct op_qkv *op, norm_rows<T> norm) {
    const int q_rows = op->heads * op->head_dim, kv_rows = op->kv_heads * op->head_dim;
    const int k_rows = op->wk.data ? kv_rows : 0, v_rows = op->wv.data ? kv_rows : 0;
    const T *wq = (const T *)op->wq.data, *wk = (const T *)op->wk.data, *wv = (const T *)op->wv.data;
    const T *bq = (const T *)op->bq.data, *bk = (const T *)op->bk.data, *bv = (const T *)op->bv.data;
    qkv_rows<T> rows = {wq, wk, wv, q_rows, k_rows, v_rows, op->width};
    qkv_store<T> store = {op->q, op->kv_rows, bq, bk, bv, q_rows, k_rows, v_rows, 2 * kv_rows};
    const int groups = ceil_div(q_rows + k_rows + v_rows, PRODUCT_ROWS), tokens = rows_count(&op->rows);
    TRY(product_of_norm<T>(s, "qkv", groups, tokens, tokens, op->width, norm, (T *)op->normed.data, rows, store));
    return cuda_finish_heads(s, op, false);
}

/* In prefill biases come with the rotation, behind a norm of all heads, where they are too late. */
int cuda_op_qkv(struct stream *s, const struct op_qkv *op) {
    const bool has_bias = op->bq.data || op->bk.data;
    if (!op->wk.data && op->wv.data) return err_set(ERR_INTERNAL, "qkv: values without keys");
    if (prefill_takes(s, &op->rows, op->width) && !(op->norms_all_heads && has_bias)) return cuda_prefill_qkv(s, op);
    return with_type("qkv", {op->wq, op->wk, op->wv, op->bq, op->bk, op->bv, op->norm, op->normed}, [&](auto type) {
        typedef decltype(type) T;
        norm_rows<T> norm = rows_to_norm<T>(op->x, op->norm);
        return is_rotated_by_product(op) ? rotated_product<T>(s, op, norm) : product_then_heads<T>(s, op, norm);
    });
}
