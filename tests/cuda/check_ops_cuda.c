/* Every op of the CUDA table against the host's: chosen shapes in both 16-bit types, and random ones.
 * Tolerance: |got - expected| <= 8 eps + eps |expected|, eps = 2^-8 for bf16 and 2^-11 for f16: inputs of products and 16-bit
 * outputs are rounded once each, sums are of order 1. */
#include <math.h>
#include <string.h>

#include "model/config.h"
#include "tests/cuda/gpu_lab.h"
#include "tests/support.h"

enum { PAGES_PER_SLOT = 3, ROWS_MAX = 640, RANDOM_SHAPES = 40, RANDOM_PASSES = 8, BATCH_MAX = 64 };

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
    {.width = 200, .hidden = 4200, .heads = 34, .kv_heads = 1, .head_dim = 10, .vocab = 16400},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const int passes[][2] = {{1, 1},  {1, 2},  {2, 5},  {5, 1},  {8, 2},   {3, 6},
                                {17, 1}, {10, 9}, {64, 1}, {64, 9}, {1, 100}, {1, 256}};
static const int chunks[] = {1, 2, 15, 63, 64, 65, 200, 256, 257, 449, 512}; /* rows of prefill */
enum { PASSES = sizeof passes / sizeof *passes, CHUNKS = sizeof chunks / sizeof *chunks };

struct bench {
    struct lab lab;
    struct gpu gpu;
    struct mini host, twin;
    struct weight raw; /* the caches of both before a pass: of 16 bits, and widened */
    float *keys, *values;
    uint16_t *got; /* [2 * kv_floats] */
    double eps;
    int batch, q_len, count; /* of the pass */
    bool prefill;
    const char *what;
};

static struct mini_shape chosen_shape(int index) {
    struct mini_shape shape = shapes[index % SHAPES];
    shape.type = index < SHAPES ? DTYPE_BF16 : DTYPE_F16;
    shape.slots = shape.kv_heads * shape.head_dim < 64 ? BATCH_MAX + 2 : 18;
    return shape;
}

/* Any width, some of them multiples of 16; groups of 1 to 12 heads; head sizes 8 to 256. */
static struct mini_shape random_shape(struct lab *lab, int index) {
    static const int windows[] = {0, 0, 1, 16, 63, 64, 65, 300};
    int kv_heads = lab_pick(lab, 1, 4), head_dim = 2 * lab_pick(lab, 4, index % 4 == 0 ? 129 : 33);
    int align = index % 3 == 0 ? 16 : 1;
    return (struct mini_shape){.type = index % 2 ? DTYPE_BF16 : DTYPE_F16,
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
}

/* The scaling of Llama 3.1, whose original context ends inside the test's. */
static void scale_rope(struct mini *m) {
    const struct model_config c = {.head_dim = m->shape.head_dim,
                                   .rope = ROPE_LLAMA3,
                                   .rope_theta = 500000,
                                   .rope_factor = 8,
                                   .rope_low_freq = 1,
                                   .rope_high_freq = 4,
                                   .rope_original_positions = KV_PAGE};
    model_config_rope(&c, PAGES_PER_SLOT * KV_PAGE, m->rope);
}

static void open_bench(struct bench *b, struct mini_shape shape, bool scaled_rope) {
    shape.pages_per_slot = PAGES_PER_SLOT, shape.max_rows = ROWS_MAX;
    b->eps = shape.type == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    gpu_open(&b->gpu);
    b->gpu.is_filled = b->prefill;
    gpu_lend_workspace(&b->gpu);
    mini_make(&b->lab, &b->host, shape);
    if (scaled_rope) scale_rope(&b->host);
    b->raw = mini_random_caches(&b->lab, &b->host);
    gpu_twin(&b->gpu, &b->host, &b->raw, &b->twin);
    size_t bytes = b->host.kv_floats * sizeof(float);
    b->keys = memcpy(lab_alloc(&b->lab, bytes), b->host.kv.k, bytes);
    b->values = memcpy(lab_alloc(&b->lab, bytes), b->host.kv.v, bytes);
    b->got = lab_alloc(&b->lab, bytes);
}

static void restore_caches(struct bench *b) {
    gpu_restore_caches(&b->gpu, &b->twin, &b->raw);
    memcpy(b->host.kv.k, b->keys, b->host.kv_floats * sizeof(float));
    memcpy(b->host.kv.v, b->values, b->host.kv_floats * sizeof(float));
}

static void close_bench(struct bench *b) {
    gpu_close(&b->gpu);
    lab_close(&b->lab);
}

/* Where a graph row begins: anywhere, or so that a page's edge lies in it; at -1 the first row has no position. */
static int pick_first(struct lab *lab, int q_len) {
    int end = PAGES_PER_SLOT * KV_PAGE - q_len + 1;
    int first = lab_pick(lab, 0, 2) ? lab_pick(lab, -1, end)
                                    : KV_PAGE * lab_pick(lab, 0, PAGES_PER_SLOT) - lab_pick(lab, 0, q_len + 1);
    return first < -1 ? -1 : first < end ? first : end - 1;
}

/* The last sequence of several is padding. */
static void set_pass(struct bench *b, int batch, int q_len) {
    struct mini *m = &b->host;
    b->batch = batch, b->q_len = q_len, b->count = batch * q_len;
    for (int i = 0; i < batch; i++) {
        bool is_padding = batch > 2 && i == batch - 1;
        int first = pick_first(&b->lab, q_len);
        m->row_slot[i] = is_padding ? 0 : i + 1;
        for (int j = 0; j < q_len; j++) {
            m->positions[i * q_len + j] = is_padding ? -1 : first + j;
            m->tokens[i * q_len + j] = lab_pick(&b->lab, -2, m->shape.vocab + 2);
        }
    }
    gpu_put_rows(&b->gpu, m, &b->twin, batch, q_len);
}

static struct rows host_rows(const struct bench *b) {
    return mini_rows(&b->host, b->batch, b->q_len);
}
static struct rows gpu_rows(const struct bench *b) {
    struct rows rows = mini_rows(&b->twin, b->batch, b->q_len);
    rows.prefill = b->prefill;
    return rows;
}

static void must_be_close(const struct bench *b, double got, double expected, int row, int column) {
    /* Prefill's products take rows of 16 bits; of thousands of heads of 8 dimensions some are so small before their norm that it
     * enlarges what that costs. */
    const double slack = b->prefill && b->host.shape.has_qk_norm && b->host.shape.head_dim == 8 ? 4 : 1;
    if (fabs(got - expected) <= slack * (8 * b->eps + b->eps * fabs(expected))) return;
    ck_abort_msg("%s%s, width %d, head size %d, pass %d x %d: row %d (position %d), column %d is %g, expected %g",
                 b->prefill ? "prefill " : "", b->what, b->host.shape.width, b->host.shape.head_dim, b->batch, b->q_len,
                 row, b->host.positions[row], column, got, expected);
}

/* [rows, cols] of `type` on the GPU against f32 on the host; rows without a position are skipped if `placed`. */
static void compare(struct bench *b, const char *what, const void *device, enum dtype type, const float *expected,
                    int rows, int cols, bool placed) {
    static float buffer[ROWS_MAX * 20000];
    struct weight w = {buffer, type, rows, cols};
    b->what = what;
    ck_assert_uint_le((size_t)rows * (size_t)cols, sizeof buffer / sizeof *buffer);
    gpu_get(&b->gpu, buffer, device, (size_t)rows * (size_t)cols * (size_t)dtype_bytes(type));
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols && !(placed && b->host.positions[r] < 0); c++)
            must_be_close(b, lab_weight_at(&w, r, c), (double)expected[r * cols + c], r, c);
}

/* Random values in both: f32, or of 16 bits and the same widened. */
static void share_floats(struct bench *b, float *host, void *device, int rows, int cols) {
    size_t n = (size_t)rows * (size_t)cols;
    for (size_t i = 0; i < n; i++) host[i] = lab_random(&b->lab);
    gpu_put(&b->gpu, device, host, n * sizeof *host);
}

static void share_halves(struct bench *b, float *host, void *device, int rows, int cols) {
    static uint16_t halves[ROWS_MAX * 20000];
    struct weight w = {halves, b->host.shape.type, rows, cols};
    for (int i = 0; i < rows * cols; i++) { /* any bits of a moderate exponent */
        uint32_t sign = (uint32_t)lab_pick(&b->lab, 0, 2) << 15;
        halves[i] = (uint16_t)(w.type == DTYPE_BF16 ? sign | (uint32_t)lab_pick(&b->lab, 0x3C00, 0x3F80)
                                                    : sign | (uint32_t)lab_pick(&b->lab, 0x2000, 0x3C00));
        host[i] = (float)lab_weight_at(&w, i / cols, i % cols);
    }
    gpu_put(&b->gpu, device, halves, (size_t)rows * (size_t)cols * sizeof *halves);
}

/* --- op by op --------------------------------------------------------------------------------------------- */

static void check_embed(struct bench *b) {
    struct op_embed host = mini_embed(&b->host, host_rows(b)), gpu = mini_embed(&b->twin, gpu_rows(b));
    ck_ok(ops_host()->embed(b->lab.stream, &host));
    ck_ok(ops_cuda()->embed(b->gpu.lab.stream, &gpu));
    compare(b, "embed", gpu.out, DTYPE_F32, host.out, b->count, b->host.shape.width, false);
}

/* The cells of the pass are close, all others but the dummy page keep their bits. `got` ends up equal to `raw`. */
static void compare_cells(struct bench *b, const char *what, uint16_t *got, const uint16_t *raw,
                          const float *expected) {
    const struct mini *m = &b->host;
    b->what = what;
    for (int r = 0; r < b->count; r++)
        for (int h = 0; m->positions[r] >= 0 && h < m->shape.kv_heads; h++) {
            size_t cell = mini_cell(m, m->row_slot[r / b->q_len], m->positions[r], h), n = (size_t)m->shape.head_dim;
            struct weight w = {got + cell, m->shape.type, 1, (int)n};
            for (size_t i = 0; i < n; i++)
                must_be_close(b, lab_weight_at(&w, 0, (int)i), (double)expected[cell + i], r, (int)i);
            memcpy(got + cell, raw + cell, n * sizeof *got);
        }
    size_t dummy = (size_t)m->shape.kv_heads * KV_PAGE * (size_t)m->shape.head_dim;
    ck_assert_msg(memcmp(got + dummy, raw + dummy, (m->kv_floats - dummy) * sizeof *got) == 0,
                  "%s: cells of no row were written", what);
}

static void compare_caches(struct bench *b) {
    size_t n = b->host.kv_floats;
    const uint16_t *raw = (const uint16_t *)b->raw.data;
    gpu_get(&b->gpu, b->got, b->twin.kv.k, n * sizeof *b->got);
    gpu_get(&b->gpu, b->got + n, b->twin.kv.v, n * sizeof *b->got);
    compare_cells(b, "keys", b->got, raw, b->host.kv.k);
    compare_cells(b, "values", b->got + n, raw + n, b->host.kv.v);
}

static void check_qkv(struct bench *b) {
    const struct mini_shape *s = &b->host.shape;
    struct op_qkv host = mini_qkv(&b->host, host_rows(b)), gpu = mini_qkv(&b->twin, gpu_rows(b));
    restore_caches(b);
    share_floats(b, b->host.x, b->twin.x, b->count, s->width);
    ck_ok(ops_host()->qkv(b->lab.stream, &host));
    ck_ok(ops_cuda()->qkv(b->gpu.lab.stream, &gpu));
    compare(b, "queries", gpu.q, DTYPE_F32, host.q, b->count, s->heads * s->head_dim, true);
    compare_caches(b);
}

static void check_attention(struct bench *b) {
    const struct mini_shape *s = &b->host.shape;
    restore_caches(b);
    struct op_attention host = mini_attention(&b->host, host_rows(b)), gpu = mini_attention(&b->twin, gpu_rows(b));
    share_floats(b, b->host.q, b->twin.q, b->count, s->heads * s->head_dim);
    host.scale = gpu.scale = 4 * host.scale; /* some keys matter more than others */
    ck_ok(ops_host()->attention(b->lab.stream, &host));
    ck_ok(ops_cuda()->attention(b->gpu.lab.stream, &gpu));
    compare(b, "attention", gpu.out, s->type, host.out, b->count, s->heads * s->head_dim, true);
}

static void check_project(struct bench *b, struct op_project host, struct op_project gpu) {
    share_halves(b, (float *)host.h, (void *)gpu.h, b->count, host.w.cols);
    share_floats(b, host.x, gpu.x, b->count, host.w.rows);
    ck_ok(ops_host()->project(b->lab.stream, &host));
    ck_ok(ops_cuda()->project(b->gpu.lab.stream, &gpu));
    compare(b, "project", gpu.x, DTYPE_F32, host.x, b->count, host.w.rows, false);
}

static void check_gate_up(struct bench *b) {
    const struct mini_shape *s = &b->host.shape;
    struct op_gate_up host = mini_gate_up(&b->host, host_rows(b)), gpu = mini_gate_up(&b->twin, gpu_rows(b));
    share_floats(b, b->host.x, b->twin.x, b->count, s->width);
    ck_ok(ops_host()->gate_up(b->lab.stream, &host));
    ck_ok(ops_cuda()->gate_up(b->gpu.lab.stream, &gpu));
    compare(b, "gate_up", gpu.h, s->type, host.h, b->count, s->hidden, false);
}

static void check_logits(struct bench *b, bool last_only) {
    const struct mini_shape *s = &b->host.shape;
    struct op_logits host = mini_logits(&b->host, host_rows(b)), gpu = mini_logits(&b->twin, gpu_rows(b));
    host.last_only = gpu.last_only = last_only;
    share_floats(b, b->host.x, b->twin.x, b->count, s->width);
    ck_ok(ops_host()->logits(b->lab.stream, &host));
    ck_ok(ops_cuda()->logits(b->gpu.lab.stream, &gpu));
    compare(b, "logits", gpu.logits, DTYPE_F32, host.logits, last_only ? b->batch : b->count, s->vocab, false);
}

static void check_layer(struct bench *b) {
    check_qkv(b);
    check_attention(b);
    check_project(b, mini_project(&b->host, host_rows(b)), mini_project(&b->twin, gpu_rows(b)));
    check_project(b, mini_down(&b->host, host_rows(b)), mini_down(&b->twin, gpu_rows(b)));
    check_gate_up(b);
}

static void check_pass(struct bench *b, int batch, int q_len) {
    set_pass(b, batch, q_len);
    check_embed(b);
    check_layer(b);
    check_logits(b, false);
    check_logits(b, true);
}

/* One for each kernel of products: few rows, more of them, tiles after tiles. */
static bool is_small_pass(int p) {
    return passes[p][0] * passes[p][1] == 10 || passes[p][0] == 17 || passes[p][1] == 9;
}

/* Loop index: the shape, first all in bf16, then in f16. */
START_TEST(ops_agree_with_the_host)
{
    static struct bench b;
    lab_open(&b.lab, 2);
    open_bench(&b, chosen_shape(_i), false);
    for (int p = 0; p < PASSES; p++)
        if (passes[p][0] < b.host.shape.slots && (!test_is_small() || is_small_pass(p)))
            check_pass(&b, passes[p][0], passes[p][1]);
    close_bench(&b);
}
END_TEST

/* Loop index: the shape. */
START_TEST(ops_agree_with_the_host_for_random_shapes)
{
    static struct bench b;
    if (test_is_small()) return;
    lab_open(&b.lab, 2);
    b.lab.draws = (uint64_t)_i << 32;
    open_bench(&b, random_shape(&b.lab, _i), _i % 4 == 1);
    for (int p = 0; p < RANDOM_PASSES; p++) {
        int batch = lab_pick(&b.lab, 1, b.host.shape.slots), most = p % 2 ? 9 : ROWS_MAX / batch;
        check_pass(&b, batch, lab_pick(&b.lab, 1, most + 1));
    }
    close_bench(&b);
}
END_TEST

/* A layer's ops of one sequence's chunks. Widths that are no multiple of 8 take the product of decoding. */
START_TEST(prefill_agrees_with_the_host)
{
    static struct bench b = {.prefill = true};
    lab_open(&b.lab, 2);
    open_bench(&b, chosen_shape(_i), false);
    for (int i = 0; i < CHUNKS; i++) {
        if (test_is_small() && chunks[i] != 65) continue;
        set_pass(&b, 1, chunks[i]);
        check_layer(&b);
    }
    close_bench(&b);
}
END_TEST

static uint16_t *attend(struct bench *b, uint16_t *out) {
    struct op_attention gpu = mini_attention(&b->twin, gpu_rows(b));
    ck_ok(ops_cuda()->attention(b->gpu.lab.stream, &gpu));
    gpu_get(&b->gpu, out, gpu.out, (size_t)b->count * (size_t)(gpu.heads * gpu.head_dim) * sizeof *out);
    return out;
}

/* One value of `position` in key/value head 0 becomes NaN: rows that see it have NaN there, and all else keeps its bits. */
static void check_nan_value(struct bench *b, int position, int dim) {
    static uint16_t clean[64 * 1024], got[64 * 1024];
    const struct mini_shape *s = &b->host.shape;
    const uint16_t nan = 0x7FFF;
    restore_caches(b);
    attend(b, clean);
    gpu_put(&b->gpu, (uint16_t *)b->twin.kv.v + mini_cell(&b->host, 1, position, 0) + dim, &nan, sizeof nan);
    attend(b, got);
    for (int i = 0; i < b->count * s->heads * s->head_dim; i++) {
        int row = i / s->head_dim / s->heads, head = i / s->head_dim % s->heads, at = b->host.positions[row];
        bool sees = position <= at && (s->window == 0 || position > at - s->window);
        struct weight w = {got + i, s->type, 1, 1};
        if (sees && head < s->heads / s->kv_heads && i % s->head_dim == dim)
            ck_assert_msg(isnan(lab_weight_at(&w, 0, 0)), "position %d does not see the NaN at %d", at, position);
        else
            ck_assert_msg(got[i] == clean[i], "position %d, head %d: the NaN at %d changed bits", at, head, position);
    }
}

/* Loop index: the shape. NaN at both ends of what the rows of a pass see, where one row sees it and the next does not. */
START_TEST(nan_values_reach_the_rows_that_see_them)
{
    static struct bench b;
    static const int firsts[] = {0, 61, 255, 310}, lengths[] = {1, 6, 20};
    lab_open(&b.lab, 2);
    open_bench(&b, chosen_shape(_i), false);
    const struct mini_shape *s = &b.host.shape;
    for (int i = 0; i < 12; i += test_is_small() ? 5 : 1) {
        int first = firsts[i % 4], q_len = lengths[i / 4];
        b.batch = 1, b.q_len = b.count = q_len;
        b.host.row_slot[0] = 1;
        for (int j = 0; j < q_len; j++) b.host.positions[j] = first + j, b.host.tokens[j] = 0;
        gpu_put_rows(&b.gpu, &b.host, &b.twin, 1, q_len);
        share_floats(&b, b.host.q, b.twin.q, b.count, s->heads * s->head_dim);
        const int places[] = {first, first + q_len / 2, first + q_len, first - 9, first - s->window + 2};
        for (int j = 0; j < 5; j++)
            if (places[j] >= 0) check_nan_value(&b, places[j], lab_pick(&b.lab, 0, s->head_dim));
    }
    close_bench(&b);
}
END_TEST

Suite *check_ops_cuda(void);
Suite *check_ops_cuda(void) {
    Suite *suite = suite_create("ops_cuda");
    TCase *tc = tcase_create("ops_cuda");
    tcase_add_loop_test(tc, ops_agree_with_the_host, 0, 2 * SHAPES);
    tcase_add_loop_test(tc, ops_agree_with_the_host_for_random_shapes, 0, RANDOM_SHAPES);
    tcase_add_loop_test(tc, prefill_agrees_with_the_host, 0, 2 * SHAPES);
    tcase_add_loop_test(tc, nan_values_reach_the_rows_that_see_them, 0, 2 * SHAPES);
    suite_add_tcase(suite, tc);
    return suite;
}
