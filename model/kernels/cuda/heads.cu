/* Heads of q, k and v from their sums: bias where the product did not add it, norm, rotation; q in place, k and v to the pages in
 * 16 bit or FP8. A warp a row and head. Norms of all heads at once come before, as kernels that normalise rows. */
#include "model/kernels/cuda/heads.cuh"

#include "model/kernels/cuda/add_norm.cuh"

enum { WARPS = BLOCK_THREADS / 32 };

/* One of the three kinds of heads: what of the op is about it. */
template <typename T> struct head_kind {
    const T *bias, *norm; /* may be NULL */
    float offset, eps;
    bool is_normed, is_rotated, is_normed_behind; /* behind: the norm is of the rotated head */
};
template <typename T> struct finish {
    struct rows rows;
    struct rope rope;
    struct head_kind<T> of_q, of_k, of_v;
    int heads, kv_heads, head_dim, all; /* all: heads and, of each row, key and value heads */
    bool v_is_k;
    float *q, *kv_rows;
    const float *gated_q; /* where it is not NULL q is read there */
    void *k, *v;
};

/* Its factors are what does not depend on the position, and asked for first. HELD pairs of dims a lane. */
template <typename T, int HELD, bool IS_FP8>
__global__ void __launch_bounds__(BLOCK_THREADS) finish_kernel(const struct finish<T> op, int count) {
    next_may_start();
    const int lane = threadIdx.x % 32, dh = op.head_dim, half = dh / 2, index = blockIdx.x * WARPS + threadIdx.x / 32;
    const int row = index / op.all, head = index % op.all, kv_head = (head - op.heads) % op.kv_heads;
    const bool is_q = head < op.heads, is_v = head >= op.heads + op.kv_heads;
    const float share = 1.0f / (float)dh;
    const struct head_kind<T> kind = is_q ? op.of_q : is_v ? op.of_v : op.of_k;
    const T *bias = kind.bias ? kind.bias + (is_q ? head : kv_head) * dh : nullptr;
    float factor_a[HELD], factor_b[HELD], bias_a[HELD], bias_b[HELD];
    auto first_of = [&](int j) { return rope_dim(&op.rope, dh, lane + 32 * j, 0); };
    auto second_of = [&](int j) { return rope_dim(&op.rope, dh, lane + 32 * j, 1); };
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        const bool is_there = lane + 32 * j < half;
        factor_a[j] = is_there && kind.norm ? to_float(kind.norm[first_of(j)]) + kind.offset : 1.0f;
        factor_b[j] = is_there && kind.norm ? to_float(kind.norm[second_of(j)]) + kind.offset : 1.0f;
        bias_a[j] = is_there && bias ? to_float(bias[first_of(j)]) : 0.0f;
        bias_b[j] = is_there && bias ? to_float(bias[second_of(j)]) : 0.0f;
    }
    const int its_row = min(row, count - 1), position = load_fixed(op.rows.positions + its_row),
              page = page_of(op.rows, its_row, position);
    const float2 *turns =
        kind.is_rotated ? turns_at(op.rope, turn_of(op.rope, op.rows, its_row, position), is_q, dh) : nullptr;
    float2 turn[HELD];
#pragma unroll
    for (int j = 0; j < HELD; j++) turn[j] = turns && lane + 32 * j < half ? turns[lane + 32 * j] : make_float2(1, 0);
    inputs_are_ready();
    if (row >= count) return;
    const size_t q_at = ((size_t)row * op.heads + head) * dh;
    const float *in = is_q
                          ? (op.gated_q ? op.gated_q + 2 * q_at : op.q + q_at)
                          : op.kv_rows + ((size_t)row * 2 * op.kv_heads + (op.v_is_k ? kv_head : head - op.heads)) * dh;
    float a[HELD], b[HELD], sum = 0;
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        const bool is_there = lane + 32 * j < half;
        a[j] = is_there ? in[first_of(j)] + bias_a[j] : 0.0f;
        b[j] = is_there ? in[second_of(j)] + bias_b[j] : 0.0f;
    }
    if (kind.is_normed) {
#pragma unroll
        for (int j = 0; j < HELD; j++) sum = fmaf(b[j], b[j], fmaf(a[j], a[j], sum));
        const float scale = inverse_rms(warp_sum(sum), share, kind.eps);
#pragma unroll
        for (int j = 0; j < HELD; j++) factor_a[j] *= scale, factor_b[j] *= scale;
    }
    auto finish_pair = [&](int j) {
        if (!kind.is_normed_behind) a[j] *= factor_a[j], b[j] *= factor_b[j];
        if (turns) rotate(a[j], b[j], turn[j]);
        if (kind.is_normed_behind) a[j] *= factor_a[j], b[j] *= factor_b[j];
    };
    if (IS_FP8 && !is_q) {
#pragma unroll
        for (int j = 0; j < HELD; j++) finish_pair(j);
        uint8_t *part = (uint8_t *)(is_v ? op.v : op.k) + kv_part_start(DTYPE_FP8, page, op.kv_heads, kv_head, dh);
        keep_codes(part, kv_offset(row, position), dh, a, b, first_of, second_of);
        return;
    }
    T *cache = kv_cell<T>(is_v ? op.v : op.k, op.kv_heads, dh, page, kv_head, kv_offset(row, position));
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        if (lane + 32 * j >= half) break;
        finish_pair(j);
        keep_pair(is_q, op.q + q_at, cache, first_of(j), second_of(j), a[j], b[j]);
    }
}

template <typename T>
static struct head_kind<T> kind_of(const struct weight *bias, const struct norm &norm, bool is_rotated,
                                   bool is_behind) {
    const bool is_normed = norm.kind == NORM_RMS, is_normed_behind = is_normed && is_rotated && is_behind;
    return {bias ? (const T *)bias->data : nullptr,
            is_normed ? (const T *)norm.weight.data : nullptr,
            norm.offset,
            norm.eps,
            is_normed,
            is_rotated,
            is_normed_behind};
}

/* q and k in place, each row of all heads as one; their kinds are then normed. */
template <typename T>
static int norm_all_heads(struct stream *s, const struct op_qkv *op, struct finish<T> *finish) {
    const int count = rows_count(&op->rows), q = op->heads * op->head_dim, kv = op->kv_heads * op->head_dim;
    finish->of_q.is_normed = finish->of_k.is_normed = false;
    finish->of_q.is_normed_behind = finish->of_k.is_normed_behind = false;
    finish->of_q.norm = finish->of_k.norm = nullptr;
    if (op->q_norm.kind == NORM_RMS)
        TRY(add_norm<T>(s, {rows_to_norm<T>(op->q, op->q_norm), op->q, nullptr, 1, 1, true}, count, q));
    if (!op->wk.data || op->k_norm.kind != NORM_RMS) return 0;
    return add_norm<T>(s, {rows_to_norm<T>(op->kv_rows, op->k_norm, 2), op->kv_rows, nullptr, 1, 1, true}, count, kv);
}

int cuda_finish_heads(struct stream *s, const struct op_qkv *op, bool adds_bias) {
    if (op->head_dim > 512 || op->head_dim % 2 != 0)
        return err_set(ERR_UNSUPPORTED, "qkv: heads of %d dimensions", op->head_dim);
    return with_type("qkv", {op->normed, op->bq, op->bk, op->bv, op->q_norm, op->k_norm, op->v_norm}, [&](auto type) {
        typedef decltype(type) T;
        const bool turns = op->rope.table != NULL, v_is_k = !op->wv.data;
        const struct weight *bv = v_is_k ? &op->bk : &op->bv;
        struct finish<T> finish = {
            op->rows, op->rope, kind_of<T>(adds_bias ? &op->bq : nullptr, op->q_norm, turns, op->norms_behind_rope),
                kind_of<T>(adds_bias ? &op->bk : nullptr, op->k_norm, turns, op->norms_behind_rope),
                kind_of<T>(adds_bias ? bv : nullptr, op->v_norm, false, false), op->heads, op->kv_heads, op->head_dim,
                op->heads + (op->wk.data ? 2 * op->kv_heads : 0), v_is_k, op->q, op->kv_rows, op->gated_q, op->kv.k,
                op->kv.v
        };
        if (op->norms_all_heads) TRY(norm_all_heads(s, op, &finish));
        enum { FEW = 16 };
        const int count = rows_count(&op->rows), blocks = ceil_div(count * finish.all, WARPS);
        const bool is_fp8 = op->kv.type == DTYPE_FP8;
        auto kernel = is_fp8 ? finish_kernel<T, 8, true> : finish_kernel<T, 8, false>;
        if (op->head_dim <= 256) kernel = is_fp8 ? finish_kernel<T, 4, true> : finish_kernel<T, 4, false>;
        if (op->head_dim <= 128) kernel = is_fp8 ? finish_kernel<T, 2, true> : finish_kernel<T, 2, false>;
        /* Behind a product that fills multiprocessors, which is measured of packed weights. */
        struct spread spread = {SHARED_PERCENT_ANY, 0};
        if (op->wq.packed && count > FEW && blocks <= 2 * cuda_multiprocessors(s->device)) spread = {SHARED_PERCENT, 2};
        launch_sharing(s, kernel, dim3(blocks), BLOCK_THREADS, spread_bytes(spread, 0), 1, spread.percent, finish,
                       count);
        return cuda_launched(s, "heads", sizeof finish + 4);
    });
}
