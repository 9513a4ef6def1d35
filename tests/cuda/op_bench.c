#include "tests/cuda/op_bench.h"

#include <math.h>
#include <string.h>

#include "model/config.h"
#include "model/kernels/host/isa.h"
#include "tests/support/support.h"

static const struct mini_shape shapes[] = {
    {.width = 64, .hidden = 96, .heads = 4, .kv_heads = 2, .head_dim = 16, .vocab = 67},
    {.width = 50,
     .hidden = 83,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 24,
     .vocab = 67,
     .window = 300,
     .has_bias = true,
     .has_qk_norm = true},
    {.width = 136,
     .hidden = 344,
     .heads = 6,
     .kv_heads = 1,
     .head_dim = 32,
     .vocab = 515,
     .window = 16,
     .has_bias = true},
    {.width = 96, .hidden = 2056, .heads = 8, .kv_heads = 8, .head_dim = 8, .vocab = 33, .has_qk_norm = true},
    {.width = 1024, .hidden = 136, .heads = 8, .kv_heads = 2, .head_dim = 128, .vocab = 1000},
    {.width = 320, .hidden = 100, .heads = 2, .kv_heads = 1, .head_dim = 256, .vocab = 130},
    {.width = 352, .hidden = 12296, .heads = 4, .kv_heads = 2, .head_dim = 16, .vocab = 24610}, /* long outputs */
    {.width = 200, .hidden = 4200, .heads = 34, .kv_heads = 1, .head_dim = 10, .vocab = 16400},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

int bench_shape_count(void) {
    return SHAPES + mini_family_count;
}

struct mini_shape bench_shape(int index) {
    const int which = index % bench_shape_count();
    struct mini_shape shape = which < SHAPES ? shapes[which] : mini_families[which - SHAPES];
    shape.type = index < bench_shape_count() ? DTYPE_BF16 : DTYPE_F16;
    shape.slots = shape.kv_heads * shape.head_dim < 64 ? BATCH_MAX + 2 : 18;
    return shape;
}

/* Any width, some of them multiples of 16; groups of 1 to 12 heads; head sizes 8 to 512; what families have from FEATURES_FROM on. */
struct mini_shape bench_random_shape(struct lab *lab, int index) {
    enum { FEATURES_FROM = 12 };
    static const int windows[] = {0, 0, 1, 16, 63, 64, 65, 300};
    int kv_heads = lab_pick(lab, 1, 4), head_dim = 2 * lab_pick(lab, 4,
                                                                index % 8 == 4   ? 257
                                                                : index % 8 == 0 ? 129
                                                                                 : 33);
    int align = index % 3 == 0 ? 16 : 1;
    struct mini_shape shape = {.type = index % 2 ? DTYPE_BF16 : DTYPE_F16,
                               .width = align * lab_pick(lab, 8, 500 / align),
                               .hidden = align * lab_pick(lab, 8, 1000 / align),
                               .heads = kv_heads * lab_pick(lab, 1, head_dim > 66 ? 4 : 13),
                               .kv_heads = kv_heads,
                               .head_dim = head_dim,
                               .vocab = lab_pick(lab, 3, 3000),
                               .window = windows[lab_pick(lab, 0, 8)],
                               .has_bias = lab_pick(lab, 0, 2),
                               .has_qk_norm = lab_pick(lab, 0, 2),
                               .slots = head_dim > 66 ? 18 : BATCH_MAX + 1};
    if (index >= FEATURES_FROM) mini_add_features(lab, &shape);
    return shape;
}

/* The scaling of Llama 3.1, whose original context ends inside the test's. */
static void scale_rope(struct mini *m) {
    const struct rope_config c = {.type = ROPE_LLAMA3,
                                  .head_dim = m->shape.head_dim,
                                  .dims = m->shape.head_dim,
                                  .theta = 500000,
                                  .factor = 8,
                                  .low_freq = 1,
                                  .high_freq = 4,
                                  .attention_factor = 1,
                                  .original_positions = KV_PAGE};
    model_config_rope(&c, m->shape.pages_per_slot * KV_PAGE, 0, m->rope);
}

void bench_open(struct bench *b, struct mini_shape shape, bool scaled_rope) {
    if (shape.pages_per_slot == 0) shape.pages_per_slot = PAGES_PER_SLOT;
    shape.max_rows = ROWS_MAX;
    b->eps = shape.type == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    gpu_open(&b->gpu);
    b->gpu.is_filled = b->prefill || shape.experts > 0; /* rows that choose no experts have no h */
    gpu_lend_workspace(&b->gpu);
    mini_make(&b->lab, &b->host, shape);
    if (scaled_rope && shape.rope_dims == 0 && !shape.lacks_rope) scale_rope(&b->host);
    b->raw = mini_random_caches(&b->lab, &b->host);
    gpu_twin(&b->gpu, &b->host, &b->raw, &b->twin);
    size_t bytes = b->host.kv_floats * sizeof(float);
    b->keys = memcpy(lab_alloc(&b->lab, bytes), b->host.kv.k, bytes);
    b->values = memcpy(lab_alloc(&b->lab, bytes), b->host.kv.v, bytes);
    b->got = lab_alloc(&b->lab, bytes);
}

void bench_restore_caches(struct bench *b) {
    gpu_restore_caches(&b->gpu, &b->twin, &b->raw);
    memcpy(b->host.kv.k, b->keys, b->host.kv_floats * sizeof(float));
    memcpy(b->host.kv.v, b->values, b->host.kv_floats * sizeof(float));
}

void bench_close(struct bench *b) {
    gpu_close(&b->gpu);
    lab_close(&b->lab);
}

/* Where a graph row begins: anywhere, or so that a page's edge lies in it; at -1 the first row has no position. */
static int pick_first(struct lab *lab, int pages, int q_len) {
    int end = pages * KV_PAGE - q_len + 1;
    int first =
        lab_pick(lab, 0, 2) ? lab_pick(lab, -1, end) : KV_PAGE * lab_pick(lab, 0, pages) - lab_pick(lab, 0, q_len + 1);
    return first < -1 ? -1 : first < end ? first : end - 1;
}

/* The last sequence of several is padding, and so may be the last rows of a chunk. */
void bench_set_pass(struct bench *b, int batch, int q_len) {
    struct mini *m = &b->host;
    const int padding = b->prefill && lab_pick(&b->lab, 0, 2) ? lab_pick(&b->lab, 0, q_len) : 0;
    b->batch = batch, b->q_len = q_len, b->count = batch * q_len;
    for (int i = 0; i < batch; i++) {
        bool is_padding = batch > 2 && i == batch - 1;
        int first = pick_first(&b->lab, m->shape.pages_per_slot, q_len);
        m->row_slot[i] = is_padding ? 0 : i + 1;
        for (int j = 0; j < q_len; j++) {
            m->positions[i * q_len + j] = is_padding ? -1 : first + j;
            m->tokens[i * q_len + j] = lab_pick(&b->lab, -2, m->shape.vocab + 2);
        }
    }
    for (int j = q_len - padding; j < q_len; j++) m->positions[j] = -1;
    gpu_put_rows(&b->gpu, m, &b->twin, batch, q_len);
}

struct rows bench_host_rows(const struct bench *b) {
    return mini_rows(&b->host, b->batch, b->q_len);
}
struct rows bench_gpu_rows(const struct bench *b) {
    struct rows rows = mini_rows(&b->twin, b->batch, b->q_len);
    rows.prefill = b->prefill;
    return rows;
}

void bench_must_be_close(const struct bench *b, double got, double expected, int row, int column) {
    const struct mini_shape *s = &b->host.shape;
    const double slack = b->is_gate ? 2 : 1;
    const double eps = b->is_exact ? 0x1p-18 : b->eps;
    if (fabs(got - expected) <= slack * (8 * eps + eps * fabs(expected))) return;
    ck_abort_msg("%s%s of %s, width %d, head size %d, pass %d x %d: row %d (position %d), column %d is %g, expected %g",
                 b->prefill ? "prefill " : "", b->what, s->name ? s->name : "a shape", s->width, s->head_dim, b->batch,
                 b->q_len, row, b->host.positions[row], column, got, expected);
}

/* [rows, cols] of `type` on the GPU against f32 on the host; rows without a position are skipped if `placed`. */
void bench_compare(struct bench *b, const char *what, const void *device, enum dtype type, const float *expected,
                   int rows, int cols, bool placed) {
    static float buffer[ROWS_MAX * COLS_MAX];
    struct weight w = {.data = buffer, .format = type, .rows = rows, .cols = cols};
    b->what = what;
    ck_assert_uint_le((size_t)rows * (size_t)cols, sizeof buffer / sizeof *buffer);
    gpu_get(&b->gpu, buffer, device, (size_t)rows * (size_t)cols * (size_t)dtype_bytes(type));
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols && !(placed && b->host.positions[r] < 0); c++)
            bench_must_be_close(b, lab_weight_at(&w, r, c), (double)expected[r * cols + c], r, c);
}

/* Random values in both: f32, or of 16 bits and the same widened. */
void bench_share_floats(struct bench *b, float *host, void *device, int rows, int cols) {
    size_t n = (size_t)rows * (size_t)cols;
    for (size_t i = 0; i < n; i++) host[i] = lab_random(&b->lab);
    gpu_put(&b->gpu, device, host, n * sizeof *host);
}

void bench_share_halves(struct bench *b, float *host, void *device, int rows, int cols) {
    static uint16_t halves[ROWS_MAX * COLS_MAX];
    struct weight w = {.data = halves, .format = b->host.shape.type, .rows = rows, .cols = cols};
    for (int i = 0; i < rows * cols; i++) { /* any bits of a moderate exponent */
        uint32_t sign = (uint32_t)lab_pick(&b->lab, 0, 2) << 15;
        halves[i] = (uint16_t)(w.format == DTYPE_BF16 ? sign | (uint32_t)lab_pick(&b->lab, 0x3C00, 0x3F80)
                                                      : sign | (uint32_t)lab_pick(&b->lab, 0x2000, 0x3C00));
        host[i] = (float)lab_weight_at(&w, i / cols, i % cols);
    }
    gpu_put(&b->gpu, device, halves, (size_t)rows * (size_t)cols * sizeof *halves);
}

/* The cells of the pass are close, all others but the dummy page keep their bits. `got` ends up equal to `raw`. */
static void compare_cells(struct bench *b, const char *what, uint16_t *got, const uint16_t *raw,
                          const float *expected) {
    const struct mini *m = &b->host;
    b->what = what;
    for (int r = 0; r < b->count; r++)
        for (int h = 0; m->positions[r] >= 0 && !m->shape.lacks_k && h < m->shape.kv_heads; h++) {
            size_t cell = mini_cell(m, m->row_slot[r / b->q_len], m->positions[r], h), n = (size_t)m->shape.head_dim;
            struct weight w = {.data = got + cell, .format = m->shape.type, .rows = 1, .cols = (int)n};
            for (size_t i = 0; i < n; i++)
                bench_must_be_close(b, lab_weight_at(&w, 0, (int)i), (double)expected[cell + i], r, (int)i);
            memcpy(got + cell, raw + cell, n * sizeof *got);
        }
    size_t dummy = (size_t)m->shape.kv_heads * KV_PAGE * (size_t)m->shape.head_dim;
    ck_assert_msg(memcmp(got + dummy, raw + dummy, (m->kv_floats - dummy) * sizeof *got) == 0,
                  "%s: cells of no row were written", what);
}

void bench_compare_caches(struct bench *b) {
    size_t n = b->host.kv_floats;
    const uint16_t *raw = (const uint16_t *)b->raw.data;
    gpu_get(&b->gpu, b->got, b->twin.kv.k, n * sizeof *b->got);
    gpu_get(&b->gpu, b->got + n, b->twin.kv.v, n * sizeof *b->got);
    compare_cells(b, "keys", b->got, raw, b->host.kv.k);
    compare_cells(b, "values", b->got + n, raw + n, b->host.kv.v);
}

/* The GPU's cell of a key or value, as numbers. */
static void take_cell(const struct bench *b, float *to, const uint16_t *from) {
    const struct weight w = {.data = from, .format = b->host.shape.type, .rows = 1, .cols = b->host.shape.head_dim};
    for (int i = 0; i < w.cols; i++) to[i] = (float)lab_weight_at(&w, 0, i);
}

static void norm_heads(const struct norm *norm, float *x, int heads, int dims, bool at_once) {
    for (int h = 0; h < (at_once ? 1 : heads); h++)
        host_isa()->norm(x + h * dims, x + h * dims, norm, at_once ? heads * dims : dims);
}

static void turn_heads(const struct op_qkv *op, float *x, int row, int heads, bool are_q) {
    const int slot = op->rows.row_slot[row / op->rows.q_len];
    const int at = op->rows.positions[row] + (op->rope.choice && op->rope.choice[slot] ? op->rope.positions : 0) +
                   (are_q ? op->rope.queries : 0);
    for (int h = 0; h < heads && op->rope.table; h++)
        host_isa()->rope(x + h * op->head_dim, &op->rope, op->rope.table + (size_t)at * (size_t)op->head_dim,
                         op->head_dim);
}

/* Norm and rotation, in their order. */
static void finish_row(const struct op_qkv *op, const struct norm *norm, float *x, int row, int heads, bool are_q) {
    const bool at_once = op->norms_all_heads && heads > 0,
               is_behind = op->norms_behind_rope && !at_once && op->rope.table;
    if (!is_behind) norm_heads(norm, x, heads, op->head_dim, at_once);
    turn_heads(op, x, row, heads, are_q);
    if (is_behind) norm_heads(norm, x, heads, op->head_dim, false);
}

/* From the GPU's q, and keys and values in b->got, without norms and rotation: with both, in b->host. */
static void finish_heads(struct bench *b, const struct op_qkv *op) {
    static float keys[4096], values[4096];
    const struct mini *m = &b->host;
    const int dims = op->head_dim, heads = m->shape.lacks_k ? 0 : op->kv_heads;
    ck_assert_int_le(heads * dims, 4096);
    for (int r = 0; r < b->count; r++) {
        if (m->positions[r] < 0) continue;
        float *q = m->q + (size_t)r * (size_t)(op->heads * dims);
        finish_row(op, &op->q_norm, q, r, op->heads, true);
        for (int h = 0; h < heads; h++) {
            const size_t cell = mini_cell(m, m->row_slot[r / b->q_len], m->positions[r], h);
            take_cell(b, keys + h * dims, b->got + cell);
            take_cell(b, values + h * dims, b->got + m->kv_floats + cell);
        }
        finish_row(op, &op->k_norm, keys, r, heads, false);
        norm_heads(&op->v_norm, values, heads, dims, false);
        for (int h = 0; h < heads; h++) {
            const size_t cell = mini_cell(m, m->row_slot[r / b->q_len], m->positions[r], h);
            memcpy((float *)m->kv.k + cell, keys + h * dims, (size_t)dims * sizeof *keys);
            memcpy((float *)m->kv.v + cell, values + h * dims, (size_t)dims * sizeof *values);
        }
    }
}

void bench_expect_qkv(struct bench *b) {
    const struct mini_shape *s = &b->host.shape;
    const struct op_qkv whole = mini_qkv(&b->host, bench_host_rows(b));
    if (!s->has_qk_norm && !s->has_v_norm) {
        ck_ok(ops_host()->qkv(b->lab.stream, &whole));
        return;
    }
    struct op_qkv host = whole, gpu = mini_qkv(&b->twin, bench_gpu_rows(b));
    host.q_norm = host.k_norm = host.v_norm = gpu.q_norm = gpu.k_norm = gpu.v_norm = (struct norm){0};
    host.norms_all_heads = gpu.norms_all_heads = false;
    host.rope.table = gpu.rope.table = NULL;
    gpu_restore_caches(&b->gpu, &b->twin, &b->raw);
    ck_ok(ops_host()->qkv(b->lab.stream, &host));
    ck_ok(ops_cuda()->qkv(b->gpu.lab.stream, &gpu));
    bench_compare(b, "queries before their norm", gpu.q, DTYPE_F32, host.q, b->count, s->heads * s->head_dim, true);
    bench_compare_caches(b);
    const size_t n = b->host.kv_floats;
    gpu_get(&b->gpu, b->host.q, gpu.q, (size_t)(b->count * s->heads * s->head_dim) * sizeof *b->host.q);
    gpu_get(&b->gpu, b->got, b->twin.kv.k, n * sizeof *b->got);
    gpu_get(&b->gpu, b->got + n, b->twin.kv.v, n * sizeof *b->got);
    finish_heads(b, &whole);
    gpu_restore_caches(&b->gpu, &b->twin, &b->raw);
}
