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
#include "model/kernels/cuda/product_matrix.h"
#include "model/kernels/cuda/table.h"

/* A group's dims of a head: `dim` and the PRODUCT_HALF - 1 after it, and as many from `dim` + DH / 2. */
struct head_part {
    int head, dim;
    __device__ head_part(int group, int head_dim) {
        const int parts = head_dim / PRODUCT_ROWS;
        head = quotient(group, parts), dim = (group - head * parts) * PRODUCT_HALF;
    }
};

struct head_map {
    int heads, kv_heads, head_dim;
    static constexpr bool may_be_long = false, takes_many_packed = false;
    __host__ __device__ int rows_of(int matrix) const { return (matrix == 0 ? heads : kv_heads) * head_dim; }
    /* As many groups of a head as a tile may hold. */
    bulk_order order() const {
        int fold = BULK_GROUPS;
        while (head_dim / PRODUCT_ROWS % fold != 0) fold /= 2;
        return {fold, fold * PRODUCT_HALF};
    }
    __device__ __forceinline__ row_place at(int group, int i) const {
        struct head_part part(group, head_dim);
        int matrix = 0;
        if (part.head >= heads) {
            part.head -= heads, matrix = 1;
            if (part.head >= kv_heads) part.head -= kv_heads, matrix = 2;
            if (part.head >= kv_heads) return {-1, 0};
        }
        return {matrix, part.head * head_dim + part.dim + i % PRODUCT_HALF + i / PRODUCT_HALF * (head_dim / 2)};
    }
};

/* Rows of 16-bit Wq, Wk, Wv by a map. */
template <typename T, typename Map> struct qkv_rows {
    Map places;
    const T *q, *k, *v;
    int width;
    static constexpr bool may_be_long = Map::may_be_long;
    __host__ __device__ bool adds_in_order() const { return false; }
    __host__ __device__ const Map &map() const { return places; }
    __device__ const T *row(int group, int i) const {
        const row_place place = places.at(group, i);
        const T *weights = place.matrix == 0 ? q : place.matrix == 1 ? k : v;
        return place.matrix < 0 ? nullptr : weights + (size_t)place.row * width;
    }
    bulk_matrix matrix(int i) const { return {i == 0 ? q : i == 1 ? k : v, places.rows_of(i)}; }
};

template <typename T> struct rotated_store {
    struct rows rows;
    struct rope rope;
    const T *bq, *bk, *bv; /* may be NULL */
    float *q;
    struct kv_layer kv;
    int heads, kv_heads, head_dim;
    static constexpr int each = PRODUCT_HALF;
    static constexpr enum narrow_reads reads = READS_FIXED;
    /* Of a pair of dims. */
    struct pair_place {
        bool is_there, is_q, is_v;
        int head, dim, row;
    };
    __device__ __forceinline__ pair_place place(int group, int first_token, int tokens, int i) const {
        struct head_part part(group, head_dim);
        const bool is_q = part.head < heads, is_v = part.head >= heads + kv_heads;
        const int before = is_q ? 0 : is_v ? heads + kv_heads : heads;
        return {i < PRODUCT_HALF * tokens && part.head < heads + 2 * kv_heads,
                is_q,
                is_v,
                part.head - before,
                part.dim + i % PRODUCT_HALF,
                first_token + i / PRODUCT_HALF};
    }
    /* What is read for it: its turn, and where keys or values go. */
    struct held {
        float2 turn;
        T *cell;
    };
    template <bool LATE> __device__ __forceinline__ held fetch(int group, int first_token, int tokens, int i) const {
        const pair_place at = place(group, first_token, tokens, i);
        held h = {};
        if (!at.is_there) return h;
        const int position = load_fixed<LATE>(rows.positions + at.row);
        if (!at.is_v) h.turn = turns_of<LATE>(rope, rows, at.row, position, head_dim)[at.dim];
        if (!at.is_q)
            h.cell = kv_cell<T>(at.is_v ? kv.v : kv.k, kv_heads, head_dim, page_of<LATE>(rows, at.row, position),
                                at.head, at.row, position);
        return h;
    }
    template <typename Sum>
    __device__ __forceinline__ void finish(const held &h, int group, int first_token, int tokens, int i,
                                           Sum sum) const {
        const pair_place at = place(group, first_token, tokens, i);
        if (!at.is_there) return;
        const int dh = head_dim, half = dh / 2, d = at.dim;
        const T *bias = at.is_q ? bq : at.is_v ? bv : bk;
        float a = sum(i % PRODUCT_HALF, i / PRODUCT_HALF), b = sum(i % PRODUCT_HALF + PRODUCT_HALF, i / PRODUCT_HALF);
        if (bias) a += to_float(bias[at.head * dh + d]), b += to_float(bias[at.head * dh + d + half]);
        if (!at.is_v) rotate(a, b, h.turn);
        keep_pair(at.is_q, q + ((size_t)at.row * heads + at.head) * dh, h.cell, d, d + half, a, b);
    }
};

/* The rows of Wq, Wk and Wv one behind the other; k_rows and v_rows may be 0. */
struct qkv_map {
    int q_rows, k_rows, v_rows;
    static constexpr bool may_be_long = false, takes_many_packed = true;
    __host__ __device__ int rows_of(int matrix) const { return matrix == 0 ? q_rows : matrix == 1 ? k_rows : v_rows; }
    /* Boxes of one matrix. */
    bulk_order order() const {
        int box = BULK_ROWS;
        while (box > 0 && (q_rows % box != 0 || k_rows % box != 0)) box = box > BULK_ATOM ? box / 2 : 0;
        return {1, box};
    }
    __device__ __forceinline__ row_place at(int group, int i) const {
        int o = group * PRODUCT_ROWS + i;
        if (o < q_rows) return {0, o};
        if ((o -= q_rows) < k_rows) return {1, o};
        if ((o -= k_rows) < v_rows) return {2, o};
        return {-1, 0};
    }
};

template <typename T> struct qkv_store {
    float *q, *kv;
    const T *bq, *bk, *bv; /* may be NULL */
    int q_rows, k_rows, v_rows, kv_stride;
    static constexpr int each = PRODUCT_ROWS;
    static constexpr enum narrow_reads reads = READS_NOTHING;
    struct held {};
    template <bool LATE> __device__ __forceinline__ held fetch(int, int, int, int) const { return {}; }
    __device__ float bias(int o) const {
        const bool is_q = o < q_rows;
        if (!is_q) o -= q_rows;
        const bool is_v = !is_q && o >= k_rows;
        if (is_v) o -= k_rows;
        const T *from = is_q ? bq : is_v ? bv : bk;
        return from ? to_float(from[o]) : 0.0f;
    }
    template <typename Sum>
    __device__ __forceinline__ void finish(held, int group, int first_token, int tokens, int i, Sum sum) const {
        const int o = group * PRODUCT_ROWS + i % PRODUCT_ROWS, t = i / PRODUCT_ROWS;
        if (t >= tokens || o >= q_rows + k_rows + v_rows) return;
        const float value = sum(i % PRODUCT_ROWS, t) + bias(o);
        const size_t token = first_token + t;
        if (o < q_rows)
            q[token * q_rows + o] = value;
        else
            kv[token * kv_stride + o - q_rows] = value;
    }
};

/* Are groups of 8 dims and the 8 that they turn with finished by the product? Of packed weights and so many rows that
 * product_packed_bulk.cuh may take them that is slower than a kernel of its own. */
static bool is_rotated_by_product(const struct stream *s, const struct op_qkv *op) {
    const bool is_normed = op->q_norm.kind != NORM_NONE || op->k_norm.kind != NORM_NONE || op->v_norm.kind != NORM_NONE;
    const bool turns_halves = op->rope.table && op->rope.dims == op->head_dim && !op->rope.pairs_neighbours;
    const bool is_many = op->wq.packed && rows_count(&op->rows) > NARROW_TOKENS && cuda_has_wgmma(s->device);
    return op->kv.type != DTYPE_FP8 && !is_normed && !is_many && turns_halves && op->head_dim % PRODUCT_ROWS == 0 &&
           op->wk.data && op->wv.data;
}

/* One launch over the rows that a map names, of weights of one kind. */
template <typename T, typename Map, typename Out>
static int qkv_product(struct stream *s, const struct op_qkv *op, int groups, norm_rows<T> norm, Map map, Out out) {
    const int tokens = rows_count(&op->rows);
    T *normed = (T *)op->normed.data;
    if (op->wq.packed)
        return product_of_packed<T>(s, "qkv", groups, tokens, tokens, op->width, &norm, normed,
                                    {&op->wq, &op->wk, &op->wv}, map, out);
    qkv_rows<T, Map> rows = {map, (const T *)op->wq.data, (const T *)op->wk.data, (const T *)op->wv.data, op->width};
    return product_of_norm<T>(s, "qkv", groups, tokens, tokens, op->width, norm, normed, rows, out);
}

template <typename T> static int rotated_product(struct stream *s, const struct op_qkv *op, norm_rows<T> norm) {
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
    const int groups = (op->heads + 2 * op->kv_heads) * (op->head_dim / PRODUCT_ROWS);
    return qkv_product<T>(s, op, groups, norm, head_map{op->heads, op->kv_heads, op->head_dim}, store);
}

template <typename T> static int product_then_heads(struct stream *s, const struct op_qkv *op, norm_rows<T> norm) {
    const int q_rows = op->heads * op->head_dim, kv_rows = op->kv_heads * op->head_dim;
    const int k_rows = op->wk.data ? kv_rows : 0, v_rows = op->wv.data ? kv_rows : 0;
    const T *bq = (const T *)op->bq.data, *bk = (const T *)op->bk.data, *bv = (const T *)op->bv.data;
    qkv_store<T> store = {op->q, op->kv_rows, bq, bk, bv, q_rows, k_rows, v_rows, 2 * kv_rows};
    TRY(qkv_product<T>(s, op, ceil_div(q_rows + k_rows + v_rows, PRODUCT_ROWS), norm, qkv_map{q_rows, k_rows, v_rows},
                       store));
    return cuda_finish_heads(s, op, false);
}

/* Weights of several kinds: a product each, of the norm each, as a product may leave what it reads in another order. */
static int products_then_heads(struct stream *s, const struct op_qkv *op) {
    const struct weight *weights[3] = {&op->wq, &op->wk, &op->wv}, *biases[3] = {&op->bq, &op->bk, &op->bv};
    const int kv_rows = op->kv_heads * op->head_dim;
    struct matrix_product product = {};
    product.name = "qkv", product.x = op->normed, product.scale = 1;
    product.rows = op->x, product.norm = &op->norm, product.step = 1;
    product.tokens = product.columns = rows_count(&op->rows);
    for (int i = 0; i < 3; i++) {
        if (!weights[i]->data) continue;
        product.w = weights[i], product.bias = biases[i];
        product.out = i == 0 ? op->q : op->kv_rows + (i - 1) * kv_rows;
        product.stride = i == 0 ? 0 : 2 * kv_rows;
        TRY(cuda_matrix_product(s, &product));
    }
    return cuda_finish_heads(s, op, false);
}

static bool are_of_one_kind(const struct op_qkv *op) {
    const bool is_packed = op->wq.packed;
    for (const struct weight *w : {&op->wk, &op->wv})
        if (w->data && (is_packed ? !are_packed_alike(w, &op->wq) : w->packed != NULL)) return false;
    return true;
}

/* In prefill biases come with the rotation, behind a norm of all heads, where they are too late. */
int cuda_op_qkv(struct stream *s, const struct op_qkv *op) {
    const bool has_bias = op->bq.data || op->bk.data;
    if (!op->wk.data && op->wv.data) return err_set(ERR_INTERNAL, "qkv: values without keys");
    if (prefill_takes(s, &op->rows, op->width) && !(op->norms_all_heads && has_bias)) return cuda_prefill_qkv(s, op);
    return with_type("qkv", {op->wq, op->wk, op->wv, op->bq, op->bk, op->bv, op->norm, op->normed}, [&](auto type) {
        typedef decltype(type) T;
        norm_rows<T> norm = rows_to_norm<T>(op->x, op->norm);
        if (!are_of_one_kind(op)) return products_then_heads(s, op);
        return is_rotated_by_product(s, op) ? rotated_product<T>(s, op, norm) : product_then_heads<T>(s, op, norm);
    });
}
