/* q, k, v of norm(x), with bias, norms of heads and rotation; q [T, H DH] f32, k and v into their pages in 16 bit.
 * One product of the norm (product.cuh) whose groups of 16 rows are 8 dims of a head and the 8 that they turn with, so that bias
 * and rotation are its epilogue. A norm of q, k or v sees whole heads, heads of other than a multiple of 16 dims have no such
 * groups, and other pairings of dims (neighbours, a part of the head) or q alone are not worth kernels of products of their own;
 * FP8's scale is of a whole head.
 * There it takes two kernels:
 *   1. product_matrix.cu over the rows of Wq, Wk, Wv as one -> f32 q, kv_rows [T, 2 HKV DH].
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
    static constexpr int matrices = 3;
    int heads, kv_heads, head_dim;
    static constexpr bool may_be_long = false, takes_many_packed = false;
    static constexpr int step = 0;
    __host__ __device__ int rows_of(int matrix) const { return (matrix == 0 ? heads : kv_heads) * head_dim; }
    /* As many groups of a head as a tile may hold. */
    bulk_order order(int groups) const {
        const int fold = common_part(groups, head_dim / PRODUCT_ROWS);
        return {groups, fold, fold * PRODUCT_HALF};
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

template <typename T> struct rotated_store {
    struct rows rows;
    struct rope rope;
    const T *bq, *bk, *bv; /* may be NULL */
    float *q;
    struct kv_layer kv;
    int heads, kv_heads, head_dim;
    static constexpr int each = PRODUCT_HALF;
    static constexpr enum narrow_reads reads = READS_FIXED;
    static constexpr bool makes_rows = false, finds_tokens = true, may_share = false;
    /* Of a pair of dims. */
    struct place {
        bool is_there, is_q, is_v;
        int head, dim;
        float2 bias;
    };
    __device__ __forceinline__ place at(int group, int i) const {
        struct head_part part(group, head_dim);
        const bool is_q = part.head < heads, is_v = part.head >= heads + kv_heads,
                   is_there = part.head < heads + 2 * kv_heads;
        const int head = part.head - (is_q ? 0 : is_v ? heads + kv_heads : heads), dim = part.dim + i;
        place its = {is_there, is_q, is_v, head, dim, make_float2(0, 0)};
        const T *bias = is_q ? bq : is_v ? bv : bk;
        if (is_there && bias) {
            bias += head * head_dim + dim;
            its.bias = make_float2(to_float(bias[0]), to_float(bias[head_dim / 2]));
        }
        return its;
    }
    __device__ __forceinline__ bool has(const place &at) const { return at.is_there; }
    /* What is read for it: its turn, and where keys or values go. */
    struct held {
        float2 turn;
        T *cell;
    };
    struct of_token {
        int turn, page, offset;
    };
    template <bool LATE> __device__ __forceinline__ of_token find(int token) const {
        const int position = load_fixed<LATE>(rows.positions + token);
        return {turn_of<LATE>(rope, rows, token, position), page_of<LATE>(rows, token, position),
                kv_offset(token, position)};
    }
    __device__ __forceinline__ held fetch_of(const place &at, const of_token &its) const {
        return {turns_at(rope, its.turn, at.is_q, head_dim)[at.dim],
                kv_cell<T>(at.is_v ? kv.v : kv.k, kv_heads, head_dim, its.page, at.is_q ? 0 : at.head, its.offset)};
    }
    template <bool LATE> __device__ __forceinline__ held fetch(const place &at, int token) const {
        return fetch_of(at, find<LATE>(token));
    }
    __device__ __forceinline__ void finish(const held &h, const place &at, int token, const float (&sums)[2]) const {
        const float a = sums[0] + at.bias.x, b = sums[1] + at.bias.y;
        float turned_a = a, turned_b = b;
        rotate(turned_a, turned_b, h.turn);
        keep_pair(at.is_q, q + (int64_t)(token * heads + at.head) * head_dim, h.cell, at.dim, at.dim + head_dim / 2,
                  at.is_v ? a : turned_a, at.is_v ? b : turned_b);
    }
};

/* Are groups of 8 dims and the 8 that they turn with finished by the product? Of packed weights and so many rows that
 * product_packed_bulk.cuh may take them that is slower than a kernel of its own. */
static bool is_rotated_by_product(const struct stream *s, const struct op_qkv *op) {
    const bool is_normed = op->q_norm.kind != NORM_NONE || op->k_norm.kind != NORM_NONE || op->v_norm.kind != NORM_NONE;
    const bool turns_halves = op->rope.table && op->rope.dims == op->head_dim && !op->rope.pairs_neighbours;
    const bool is_many = op->wq.packed && rows_count(&op->rows) > NARROW_TOKENS && cuda_has_wgmma(s->device);
    return op->kv.type != DTYPE_FP8 && !op->gated_q && !is_normed && !is_many && turns_halves &&
           op->head_dim % PRODUCT_ROWS == 0 && op->wk.data && op->wv.data &&
           are_read_alike({&op->wq, &op->wk, &op->wv});
}

template <typename T> static int rotated_product(struct stream *s, const struct op_qkv *op) {
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
    const head_map map = {op->heads, op->kv_heads, op->head_dim};
    const int groups = (op->heads + 2 * op->kv_heads) * (op->head_dim / PRODUCT_ROWS), tokens = rows_count(&op->rows);
    const norm_rows<T> norm = rows_to_norm<T>(op->x, op->norm);
    T *normed = (T *)op->normed.data;
    if (op->wq.packed)
        return product_of_packed<T>(s, "qkv", groups, tokens, op->width, &norm, normed, false,
                                    {&op->wq, &op->wk, &op->wv}, map, false, store);
    const plain_rows<T, head_map> rows = {
        map, {(const T *)op->wq.data, (const T *)op->wk.data, (const T *)op->wv.data}, op->width, false};
    return product_of_norm<T>(s, "qkv", groups, tokens, op->width, norm, normed, rows, store);
}

static int product_then_heads(struct stream *s, const struct op_qkv *op) {
    const int kv_rows = op->kv_heads * op->head_dim;
    struct matrix_product product = {};
    product.name = "qkv";
    product.of[0] = {&op->wq, &op->bq, op->gated_q ? op->gated_q : op->q, 0};
    product.of[1] = {&op->wk, &op->bk, op->kv_rows, 2 * kv_rows};
    product.of[2] = {&op->wv, &op->bv, op->kv_rows + kv_rows, 2 * kv_rows};
    product.x = op->normed;
    product.rows = op->x, product.norm = &op->norm, product.step = 1;
    product.tokens = rows_count(&op->rows);
    product.scale = 1;
    TRY(cuda_matrix_product(s, &product));
    return cuda_finish_heads(s, op, false);
}

/* In prefill biases come with the rotation, behind a norm of all heads, where they are too late. */
int cuda_op_qkv(struct stream *s, const struct op_qkv *op) {
    const bool has_bias = op->bq.data || op->bk.data;
    if (!op->wk.data && op->wv.data) return err_set(ERR_INTERNAL, "qkv: values without keys");
    if (prefill_takes(s, &op->rows, &op->wq) && !(op->norms_all_heads && has_bias)) return cuda_prefill_qkv(s, op);
    if (!is_rotated_by_product(s, op)) return product_then_heads(s, op);
    return with_type("qkv", {op->wq, op->wk, op->wv, op->bq, op->bk, op->bv, op->norm, op->normed},
                     [&](auto type) { return rotated_product<decltype(type)>(s, op); });
}
