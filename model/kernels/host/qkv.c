/* The norm, the products with their biases, norms of heads, RoPE, and K and V into their pages.
 *
 * The products run as one range of H*DH + 2*HKV*DH output rows. What follows goes by head, all rows of a head in
 * ascending order in one thread: two rows that write the same cell of the dummy page never race. */
#include <string.h>

#include "base/err.h"
#include "base/parallel.h"
#include "model/fp8.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/product.h"

struct args {
    struct op_qkv op;
    int threads;
};

static void keep_codes(uint8_t *codes, uint8_t *scale, const float *x, int dim) {
    uint32_t largest = 0;
    for (int i = 0; i < dim; i++) {
        const uint32_t magnitude = fmath_bits(x[i]) & 0x7FFFFFFFu;
        largest = magnitude > largest ? magnitude : largest;
    }
    *scale = fp8_scale(largest);
    for (int i = 0; i < dim; i++) codes[i] = fp8_code(x[i], *scale);
}

/* A finished vector of row t and key/value head `head` to a layer's keys or values. */
static void keep_vector(const struct op_qkv *op, void *cache, int t, int head, const float *x) {
    const struct rows *rows = &op->rows;
    const size_t dim = (size_t)op->head_dim;
    const int32_t position = rows->positions[t];
    int32_t page = 0, offset = t % KV_PAGE;
    if (position >= 0) {
        page = rows->page_table[(size_t)rows->row_slot[t / rows->q_len] * (size_t)rows->pages_per_slot +
                                (size_t)(position / KV_PAGE)];
        offset = position % KV_PAGE;
    }
    char *part = (char *)cache + kv_part_start(op->kv.type, page, op->kv_heads, head, op->head_dim);
    if (op->kv.type == DTYPE_FP8)
        keep_codes((uint8_t *)part + (size_t)offset * dim, (uint8_t *)part + KV_PAGE * dim + offset, x, op->head_dim);
    else
        memcpy((float *)(void *)part + (size_t)offset * dim, x, dim * sizeof *x);
}

static void turn_head(const struct op_qkv *op, const struct host_isa *isa, bool is_q, int t, float *x) {
    const int32_t position = op->rows.positions[t];
    const struct norm *norm = is_q ? &op->q_norm : &op->k_norm;
    const bool is_normed = !op->norms_all_heads, is_behind = op->norms_behind_rope && op->rope.table;
    if (is_normed && !is_behind) isa->norm(x, x, norm, op->head_dim);
    if (!op->rope.table) return;
    const int32_t *choice = op->rope.choice;
    size_t row = (size_t)(position < 0 ? 0 : position);
    if (choice && choice[op->rows.row_slot[t / op->rows.q_len]]) row += (size_t)op->rope.positions;
    if (is_q) row += (size_t)op->rope.queries;
    const float *cos_sin = op->rope.table + row * (size_t)op->head_dim;
    isa->rope(x, &op->rope, cos_sin, op->head_dim);
    if (is_normed && is_behind) isa->norm(x, x, norm, op->head_dim);
}

static void store_kv_head(const struct op_qkv *op, const struct host_isa *isa, int head) {
    const size_t dim = (size_t)op->head_dim, stride = 2 * (size_t)op->kv_heads * dim;
    for (int t = 0; t < rows_count(&op->rows); t++) {
        float *k = op->kv_rows + (size_t)t * stride + (size_t)head * dim, *v = k + stride / 2;
        if (!op->wv.data) memcpy(v, k, dim * sizeof *v);
        turn_head(op, isa, false, t, k);
        isa->norm(v, v, &op->v_norm, op->head_dim);
        keep_vector(op, op->kv.k, t, head, k);
        keep_vector(op, op->kv.v, t, head, v);
    }
}

static void heads_part(const void *args, int part, int parts) {
    const struct op_qkv *op = args;
    const struct host_isa *isa = host_isa();
    const size_t dim = (size_t)op->head_dim;
    struct range mine = parallel_range(op->heads + (op->wk.data ? op->kv_heads : 0), part, parts);
    for (int h = mine.first; h < mine.end; h++) {
        if (h >= op->heads) {
            store_kv_head(op, isa, h - op->heads);
            continue;
        }
        for (int t = 0; t < rows_count(&op->rows); t++) {
            const size_t index = (size_t)t * (size_t)op->heads + (size_t)h;
            float *q = op->q + index * dim;
            if (op->gated_q) memcpy(q, op->gated_q + 2 * index * dim, dim * sizeof *q);
            turn_head(op, isa, true, t, q);
        }
    }
}

static int check_positions(const struct op_qkv *op) {
    for (int t = 0; t < rows_count(&op->rows); t++) {
        int32_t position = op->rows.positions[t];
        if ((op->rope.table && position >= op->rope.positions) || position / KV_PAGE >= op->rows.pages_per_slot)
            return err_set(ERR_INTERNAL, "qkv: row %d is at position %d, expected below %d and in %d pages", t,
                           position, op->rope.positions, op->rows.pages_per_slot);
    }
    return 0;
}

/* Norms of whole rows of q and of k. */
static void norm_all_heads(const struct op_qkv *op) {
    const struct host_isa *isa = host_isa();
    const int q_rows = op->heads * op->head_dim, kv_rows = op->kv_heads * op->head_dim;
    for (int t = 0; t < rows_count(&op->rows); t++) {
        float *q = op->q + (size_t)t * (size_t)q_rows, *k = op->kv_rows + (size_t)t * 2 * (size_t)kv_rows;
        isa->norm(q, q, &op->q_norm, q_rows);
        if (op->wk.data) isa->norm(k, k, &op->k_norm, kv_rows);
    }
}

static int run(const void *args) {
    const struct args *a = args;
    const struct op_qkv *op = &a->op;
    TRY(check_positions(op));
    const int tokens = rows_count(&op->rows), q_rows = op->heads * op->head_dim, kv_rows = op->kv_heads * op->head_dim;
    struct norm_rows norm = {
        .x = op->x, .norm = op->norm, .width = op->width, .count = tokens, .step = 1, .normed = op->normed.data};
    struct product all[3], shared = {.x = op->normed.data, .tokens = tokens, .end = PRODUCT_STORE, .scale = 1};
    all[0] = all[1] = all[2] = shared;
    all[0].w = op->wq, all[0].bias = op->bq, all[0].out = op->q, all[0].out_stride = q_rows;
    if (op->gated_q) all[0].out = op->gated_q, all[0].out_stride = 2 * q_rows;
    all[1].w = op->wk, all[1].bias = op->bk, all[1].out = op->kv_rows, all[1].out_stride = 2 * kv_rows;
    all[2].w = op->wv, all[2].bias = op->bv, all[2].out = op->kv_rows + kv_rows, all[2].out_stride = 2 * kv_rows;
    norm_rows_run(&norm, a->threads);
    products_run(&(struct products){all, op->wv.data ? 3 : op->wk.data ? 2 : 1}, a->threads);
    if (op->norms_all_heads) norm_all_heads(op);
    parallel_run(a->threads, (int64_t)tokens * (q_rows + 2 * kv_rows), heads_part, op);
    return 0;
}

int host_qkv(struct stream *stream, const struct op_qkv *op) {
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
