#include "tests/cuda/op_bench.h"

#include <math.h>
#include <string.h>

#include "model/config.h"
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
    model_config_rope(&c, PAGES_PER_SLOT * KV_PAGE, 0, m->rope);
}

static void find_usual_heads(struct bench *b);

void bench_open(struct bench *b, struct mini_shape shape, bool scaled_rope) {
    ck_assert_int_le(shape.heads, HEADS_MAX);
    shape.pages_per_slot = PAGES_PER_SLOT, shape.max_rows = ROWS_MAX;
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
    find_usual_heads(b);
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
static int pick_first(struct lab *lab, int q_len) {
    int end = PAGES_PER_SLOT * KV_PAGE - q_len + 1;
    int first = lab_pick(lab, 0, 2) ? lab_pick(lab, -1, end)
                                    : KV_PAGE * lab_pick(lab, 0, PAGES_PER_SLOT) - lab_pick(lab, 0, q_len + 1);
    return first < -1 ? -1 : first < end ? first : end - 1;
}

/* The last sequence of several is padding, and so may be the last rows of a chunk. */
void bench_set_pass(struct bench *b, int batch, int q_len) {
    struct mini *m = &b->host;
    const int padding = b->prefill && lab_pick(&b->lab, 0, 2) ? lab_pick(&b->lab, 0, q_len) : 0;
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
    const double eps = b->is_exact ? 0x1p-18 : b->eps, enlarged = b->enlarged > 0 ? b->enlarged : 1;
    if (fabs(got - expected) <= (b->is_gate ? 2 : 1) * (8 * eps * enlarged + eps * fabs(expected))) return;
    ck_abort_msg("%s%s of %s, width %d, head size %d, pass %d x %d: row %d (position %d), column %d is %g, expected %g",
                 b->prefill ? "prefill " : "", b->what, s->name ? s->name : "a shape", s->width, s->head_dim, b->batch,
                 b->q_len, row, b->host.positions[row], column, got, expected);
}

/* Mean squares of the heads of q, k and v before their norms, of each row of a pass; 0 where there is none. */
struct head_squares {
    float of[3][ROWS_MAX * HEADS_MAX];
};

static float mean_square(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return (float)(sum / (double)n);
}

/* Writes to the host's caches. */
static void measure_heads(struct bench *b, struct head_squares *squares) {
    const struct mini *m = &b->host;
    const struct mini_shape *s = &m->shape;
    const size_t dims = (size_t)s->head_dim;
    const bool has_k = !s->lacks_k, is_alone = !s->norms_all_heads;
    struct op_qkv raw = mini_qkv(m, bench_host_rows(b));
    raw.q_norm = raw.k_norm = raw.v_norm = (struct norm){0};
    ck_ok(ops_host()->qkv(b->lab.stream, &raw));
    memset(squares, 0, sizeof *squares);
    for (int r = 0; r < b->count; r++) {
        if (m->positions[r] < 0) continue;
        const float *q = m->q + (size_t)r * (size_t)s->heads * dims;
        float *of_q = squares->of[QUERY_HEADS] + r * s->heads, *of_k = squares->of[KEY_HEADS] + r * s->kv_heads,
              *of_v = squares->of[VALUE_HEADS] + r * s->kv_heads, keys = 0;
        for (int h = 0; h < s->heads; h++)
            of_q[h] = is_alone ? mean_square(q + (size_t)h * dims, dims) : mean_square(q, (size_t)s->heads * dims);
        for (int h = 0; has_k && h < s->kv_heads; h++) {
            const size_t cell = mini_cell(m, m->row_slot[r / b->q_len], m->positions[r], h);
            of_k[h] = mean_square((const float *)m->kv.k + cell, dims);
            of_v[h] = mean_square((const float *)m->kv.v + cell, dims);
            keys += of_k[h] / (float)s->kv_heads;
        }
        for (int h = 0; !is_alone && h < s->kv_heads; h++) of_k[h] = keys;
    }
}

/* Means over the rows of a pass, head by head: rows of a block's scale of their own make some heads smaller than others for good. */
static void find_usual_heads(struct bench *b) {
    enum { ROWS = 64 };
    static struct head_squares squares;
    const struct mini_shape *s = &b->host.shape;
    bench_set_pass(b, 1, ROWS);
    for (int i = 0; i < b->count * s->width; i++) b->host.x[i] = lab_random(&b->lab);
    measure_heads(b, &squares);
    for (int of = 0; of < 3; of++) {
        const int heads = of == QUERY_HEADS ? s->heads : s->kv_heads;
        for (int h = 0; h < heads; h++) {
            int there = 0;
            b->usual[of][h] = 0;
            for (int r = 0; r < b->count; r++)
                b->usual[of][h] += squares.of[of][r * heads + h], there += squares.of[of][r * heads + h] > 0;
            b->usual[of][h] /= (float)(there > 0 ? there : 1);
        }
    }
    bench_restore_caches(b);
}

static struct head_squares of_pass;

void bench_weigh_heads(struct bench *b) {
    measure_heads(b, &of_pass);
    bench_restore_caches(b);
}

void bench_compare_head(struct bench *b, enum bench_heads of, int row, int head) {
    const struct mini_shape *s = &b->host.shape;
    const float its = of_pass.of[of][row * (of == QUERY_HEADS ? s->heads : s->kv_heads) + head];
    const bool is_normed = of == VALUE_HEADS ? s->has_v_norm : s->has_qk_norm;
    b->enlarged = is_normed && its > 0 ? fmax(sqrt((double)(b->usual[of][head] / its)), 1) : 1;
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
        for (int c = 0; c < cols && !(placed && b->host.positions[r] < 0); c++) {
            if (b->is_queries) bench_compare_head(b, QUERY_HEADS, r, c / b->host.shape.head_dim);
            bench_must_be_close(b, lab_weight_at(&w, r, c), (double)expected[r * cols + c], r, c);
        }
    b->enlarged = 1;
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
