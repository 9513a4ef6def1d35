/* A row's bits do not depend on the other rows of a pass: row r of M rows is a pass of that row alone. Whole layers, and what
 * they write into the caches; M = 1..64, 90, 200, 272, 1088, dealt to graph rows in every way; of the layers of families fewer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/gpu_lab.h"
#include "tests/support/support.h"

enum { SLOTS = 69, PAGES_PER_SLOT = 5, ROWS_MAX = 1088, OTHER_ROWS = 64, PLACES = 11 };

static const struct mini_shape shapes[] = {
    /* Tiles of fewer groups than eight, some of which begin within what product_order.cuh transposes; on an H200 a few groups more than turns
     * of all blocks, which share them. */
    {.type = DTYPE_BF16, .width = 3136, .hidden = 8480, .heads = 8, .kv_heads = 1, .head_dim = 128, .vocab = 5139},
    {.type = DTYPE_BF16, .width = 1032, .hidden = 2500, .heads = 8, .kv_heads = 1, .head_dim = 128, .vocab = 16400},
    {.type = DTYPE_BF16,
     .width = 64,
     .hidden = 200,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 24,
     .vocab = 67,
     .window = 300,
     .has_bias = true,
     .has_qk_norm = true},
    {.type = DTYPE_F16,
     .width = 48,
     .hidden = 128,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 64,
     .vocab = 130,
     .window = 16,
     .has_qk_norm = true},
    {.type = DTYPE_BF16, .width = 608, .hidden = 12296, .heads = 4, .kv_heads = 2, .head_dim = 16, .vocab = 24610},
    {.type = DTYPE_F16, .width = 50, .hidden = 83, .heads = 4, .kv_heads = 2, .head_dim = 24, .vocab = 67},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Packed weights: each code, with and without minima, groups of 16 to all of a row, columns out of order. */
static const int packed_forms[] = {0, 1, 4, 5, 7, 10, 12, 13, 23, 24};
enum { PACKED = sizeof packed_forms / sizeof *packed_forms };

/* These, then those of families, then packed ones, in either type by turns. */
static struct mini_shape shape_at(int index) {
    if (index < SHAPES) return shapes[index];
    const int family = index - SHAPES, packed = family - mini_family_count;
    const struct mini_shape of_packed = {
        .width = 512, .hidden = 768, .heads = 4, .kv_heads = 2, .head_dim = 32, .vocab = 520, .name = "packed"};
    struct mini_shape shape = packed >= 0 ? of_packed : mini_families[family];
    shape.type = index % 2 ? DTYPE_F16 : DTYPE_BF16;
    if (packed >= 0) {
        shape.packed = 1 + packed_forms[packed], shape.has_qk_norm = packed % 3 == 2;
        shape.type = gpu_type_of_packed(packed_forms[packed], shape.type);
    }
    /* Long outputs, whose splits are added in order, and widths of no whole stage (product_packed_bulk.cuh). */
    if (packed >= 0 && packed % 2 == 0) shape.hidden = 8448, shape.vocab = 16416;
    if (packed >= 0 && packed % 4 == 1) shape.hidden = 800;
    return shape;
}

/* What single rows gave: logits by slot and row, and the caches after all of them. */
struct single {
    struct lab lab;
    struct gpu gpu;
    struct mini host, twin;
    struct weight raw;
    float *x, *logits; /* [SLOTS][ROWS_MAX] of x, [SLOTS][LOGITS] of logits */
    uint16_t *k, *v, *got_k, *got_v;
    float *got;
    bool is_family;
};

/* Slot 1 has room for ROWS_MAX rows, the others for OTHER_ROWS. */
static int first_position(int slot) {
    return (slot - 1) % PLACES * 61;
}

static size_t row_floats(const struct single *s) {
    return (size_t)s->host.shape.width + (size_t)s->host.shape.vocab;
}

static float *expected(const struct single *s, int slot, int index) {
    size_t row = slot == 1 ? (size_t)index : ROWS_MAX + (size_t)(slot - 2) * OTHER_ROWS + (size_t)index;
    return s->x + row * row_floats(s);
}

static void set_rows(struct single *s, int first_slot, int batch, int first, int q_len) {
    struct mini *m = &s->host;
    for (int b = 0; b < batch; b++) {
        m->row_slot[b] = first_slot + b;
        for (int i = 0; i < q_len; i++) {
            int position = first_position(first_slot + b) + first + i;
            m->positions[b * q_len + i] = position;
            m->tokens[b * q_len + i] = (position * 31 + (first_slot + b) * 7) % m->shape.vocab;
        }
    }
    gpu_put_rows(&s->gpu, m, &s->twin, batch, q_len);
}

/* One row's x and logits after a pass, read to `out`. */
static void read_row(struct single *s, int row, float *out) {
    size_t width = (size_t)s->host.shape.width, vocab = (size_t)s->host.shape.vocab;
    gpu_get(&s->gpu, out, s->twin.x + (size_t)row * width, width * sizeof *out);
    gpu_get(&s->gpu, out + width, s->twin.logits + (size_t)row * vocab, vocab * sizeof *out);
}

static void read_caches(struct single *s, uint16_t *k, uint16_t *v) {
    gpu_get(&s->gpu, k, s->twin.kv.k, s->twin.kv_floats * sizeof *k);
    gpu_get(&s->gpu, v, s->twin.kv.v, s->twin.kv_floats * sizeof *v);
}

/* Slots of the test, the dummy's included, and those of them whose rows are compared. */
static int slot_count(const struct single *s) {
    return test_is_small() ? 10 : s->is_family ? 20 : SLOTS;
}
static int compared_slots(const struct single *s) {
    return test_is_small() ? 3 : slot_count(s) - 1;
}

static void open_shape(struct single *s, struct mini_shape shape) {
    shape.max_rows = ROWS_MAX;
    lab_open(&s->lab, 1);
    gpu_open(&s->gpu);
    gpu_lend_workspace(&s->gpu);
    mini_make(&s->lab, &s->host, shape);
    s->raw = mini_random_caches(&s->lab, &s->host);
    gpu_twin(&s->gpu, &s->host, &s->raw, &s->twin);
    size_t rows = ROWS_MAX + (SLOTS - 2) * OTHER_ROWS, cache = s->host.kv_floats * sizeof(uint16_t);
    s->x = lab_alloc(&s->lab, rows * row_floats(s) * sizeof(float));
    s->got = lab_alloc(&s->lab, row_floats(s) * sizeof(float));
    s->k = lab_alloc(&s->lab, cache), s->v = lab_alloc(&s->lab, cache);
    s->got_k = lab_alloc(&s->lab, cache), s->got_v = lab_alloc(&s->lab, cache);
}

static void open_single(struct single *s, int index) {
    struct mini_shape shape = shape_at(index);
    s->is_family = index >= SHAPES;
    shape.slots = slot_count(s), shape.pages_per_slot = PAGES_PER_SLOT;
    open_shape(s, shape);
}

static void run_single_rows(struct single *s) {
    const int first = test_is_small() ? 17
                      : s->is_family  ? 272
                                      : ROWS_MAX,
              others = test_is_small() ? 8
                       : s->is_family  ? 16
                                       : OTHER_ROWS;
    for (int slot = 1; slot <= compared_slots(s); slot++)
        for (int i = 0; i < (slot == 1 ? first : others); i++) {
            set_rows(s, slot, 1, i, 1);
            mini_forward(&s->gpu.lab, &s->twin, mini_rows(&s->twin, 1, 1));
            read_row(s, 0, expected(s, slot, i));
        }
    read_caches(s, s->k, s->v);
}

static void check_caches(struct single *s, int batch, int q_len) {
    const struct mini *m = &s->host;
    size_t bytes = (size_t)m->shape.head_dim * sizeof *s->k;
    read_caches(s, s->got_k, s->got_v);
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < q_len; i++)
            for (int h = 0; h < m->shape.kv_heads; h++) {
                size_t cell = mini_cell(m, b + 1, first_position(b + 1) + i, h);
                ck_assert_msg(memcmp(s->got_k + cell, s->k + cell, bytes) == 0 &&
                                  memcmp(s->got_v + cell, s->v + cell, bytes) == 0,
                              "pass %d x %d: keys or values of row %d of slot %d differ", batch, q_len, i, b + 1);
            }
}

static void check_pass(struct single *s, int batch, int q_len) {
    gpu_restore_caches(&s->gpu, &s->twin, &s->raw);
    set_rows(s, 1, batch, 0, q_len);
    mini_forward(&s->gpu.lab, &s->twin, mini_rows(&s->twin, batch, q_len));
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < q_len; i++) {
            read_row(s, b * q_len + i, s->got);
            size_t n = row_floats(s);
            if (memcmp(s->got, expected(s, b + 1, i), n * sizeof *s->got) == 0) continue;
            size_t at = 0;
            while (memcmp(&s->got[at], &expected(s, b + 1, i)[at], sizeof *s->got) == 0) at++;
            ck_abort_msg("pass %d x %d: row %d of slot %d: %s %zu is %a, alone %a", batch, q_len, i, b + 1,
                         at < (size_t)s->host.shape.width ? "x" : "logit", at, (double)s->got[at],
                         (double)expected(s, b + 1, i)[at]);
        }
    check_caches(s, batch, q_len);
}

/* `rows` rows as 1 x rows, 2 x rows / 2, ...: so that shapes of one M alternate. */
static void check_splits(struct single *s, int rows) {
    const int others = s->is_family ? 16 : OTHER_ROWS;
    for (int batch = 1; batch <= compared_slots(s) && batch <= rows; batch++)
        if (rows % batch == 0 && (batch == 1 || rows / batch <= others)) check_pass(s, batch, rows / batch);
}

/* Checkers of memory and races are slow: they get the families whose kernels no other shape has. */
static bool is_left_out(int index) {
    const struct mini_shape s = shape_at(index);
    const bool has_kernels =
        s.packed > 0 || s.experts > 0 || s.norms_all_heads || s.head_dim > 256 || s.attention_cap != 0;
    return test_is_small() && index >= SHAPES && !has_kernels;
}

/* Loop index: the shape. */
START_TEST(row_of_many_equals_single_row)
{
    static struct single s;
    static const int large[] = {90, 200, 272, 1088}, few[] = {1, 9, 17},
                     of_families[] = {1, 2, 6, 8, 9, 16, 17, 33, 64, 100, 130, 250, 272};
    enum { LARGE = sizeof large / sizeof *large, FEW = sizeof few / sizeof *few };
    enum { OF_FAMILIES = sizeof of_families / sizeof *of_families };
    if (is_left_out(_i)) return;
    open_single(&s, _i);
    run_single_rows(&s);
    for (size_t i = 0; i < FEW; i++) check_splits(&s, few[i]);
    for (size_t i = 0; i < OF_FAMILIES && s.is_family && !test_is_small(); i++) check_splits(&s, of_families[i]);
    for (int rows = 1; rows <= 64 && !s.is_family && !test_is_small(); rows++) check_splits(&s, rows);
    for (size_t i = 0; i < LARGE && !s.is_family && !test_is_small(); i++) check_splits(&s, large[i]);
    gpu_close(&s.gpu);
    lab_close(&s.lab);
}
END_TEST

/* Padding beside real rows, over caches whose free cells hold NaN. */
START_TEST(padding_rows_and_nan_in_free_cells_change_nothing)
{
    static struct single s;
    if (is_left_out(_i)) return;
    open_single(&s, _i);
    run_single_rows(&s);
    const struct mini *m = &s.host;
    size_t half = m->kv_floats, bytes = (size_t)m->shape.head_dim * sizeof(uint16_t);
    uint16_t *raw = malloc(2 * half * sizeof *raw);
    memset(raw, 0xFF, 2 * half * sizeof *raw);
    for (int slot = 1; slot <= 3; slot++) /* a layer that shares keys finds those of its own rows, too */
        for (int j = 0; j < first_position(slot) + (m->shape.lacks_k ? 8 : 0); j++)
            for (int h = 0; h < m->shape.kv_heads; h++) {
                size_t cell = mini_cell(m, slot, j, h);
                memcpy(raw + cell, (const uint16_t *)s.raw.data + cell, bytes);
                memcpy(raw + half + cell, (const uint16_t *)s.raw.data + half + cell, bytes);
            }
    gpu_put(&s.gpu, s.twin.kv.k, raw, half * sizeof *raw);
    gpu_put(&s.gpu, s.twin.kv.v, raw + half, half * sizeof *raw);
    set_rows(&s, 1, 8, 0, 8);
    for (int b = 3; b < 8; b++) { /* graph rows 3..5: the dummy sequence; 6, 7: no position */
        s.host.row_slot[b] = 0;
        for (int i = 0; i < 8; i++) s.host.positions[b * 8 + i] = b < 6 ? i : -1 - i, s.host.tokens[b * 8 + i] = -5;
    }
    gpu_put_rows(&s.gpu, &s.host, &s.twin, 8, 8);
    mini_forward(&s.gpu.lab, &s.twin, mini_rows(&s.twin, 8, 8));
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 8; i++) {
            read_row(&s, b * 8 + i, s.got);
            ck_assert_msg(memcmp(s.got, expected(&s, b + 1, i), row_floats(&s) * sizeof *s.got) == 0,
                          "row %d of slot %d", i, b + 1);
        }
    check_caches(&s, 3, 8);
    for (int slot = 4; slot < m->shape.slots; slot++) { /* pages of nobody in this pass keep their bytes */
        size_t cell = mini_cell(m, slot, 0, 0), n = (size_t)m->shape.kv_heads * KV_PAGE * (size_t)m->shape.head_dim,
               same = 0;
        while (same < n && s.got_k[cell + same] == 0xFFFF && s.got_v[cell + same] == 0xFFFF) same++;
        ck_assert_uint_eq(same, n);
    }
    free(raw);
    gpu_close(&s.gpu);
    lab_close(&s.lab);
}
END_TEST

/* Rows that see many splits of keys, of which few rows have two on their way at once (attention_cluster.cu). Loop index: heads, window. */
START_TEST(row_far_on_equals_row_of_many)
{
    enum { FAR_ROWS = 16, FAR_PAGES = 132 };
    static const int from[] = {1000, 2040, 9001, FAR_PAGES * KV_PAGE - FAR_ROWS};
    static struct single s;
    struct mini_shape shape = {.type = _i % 4 < 2 ? DTYPE_BF16 : DTYPE_F16,
                               .width = 64,
                               .hidden = 96,
                               .heads = 4,
                               .kv_heads = 1,
                               .head_dim = _i % 2 ? 64 : 128,
                               .vocab = 67,
                               .window = _i < 4 ? 0 : 3000,
                               .slots = 2,
                               .pages_per_slot = FAR_PAGES};
    open_shape(&s, shape);
    for (size_t f = 0; f < (test_is_small() ? 2 : sizeof from / sizeof *from); f++) {
        gpu_restore_caches(&s.gpu, &s.twin, &s.raw);
        set_rows(&s, 1, 1, from[f], FAR_ROWS);
        mini_forward(&s.gpu.lab, &s.twin, mini_rows(&s.twin, 1, FAR_ROWS));
        for (int i = 0; i < FAR_ROWS; i++) {
            read_row(&s, i, expected(&s, 1, i));
            for (size_t j = 0; j < row_floats(&s); j++)
                ck_assert_msg(isfinite(expected(&s, 1, i)[j]), "position %d: number %zu", from[f] + i, j);
        }
        for (int rows = 1; rows <= 2; rows++) {
            gpu_restore_caches(&s.gpu, &s.twin, &s.raw);
            for (int i = 0; i < FAR_ROWS; i += rows) {
                set_rows(&s, 1, 1, from[f] + i, rows);
                mini_forward(&s.gpu.lab, &s.twin, mini_rows(&s.twin, 1, rows));
                for (int j = 0; j < rows; j++) {
                    read_row(&s, j, s.got);
                    ck_assert_msg(memcmp(s.got, expected(&s, 1, i + j), row_floats(&s) * sizeof *s.got) == 0,
                                  "position %d: %d rows at once differ from %d", from[f] + i + j, rows, FAR_ROWS);
                }
            }
        }
    }
    gpu_close(&s.gpu);
    lab_close(&s.lab);
}
END_TEST

Suite *check_rows_cuda(void);
Suite *check_rows_cuda(void) {
    Suite *suite = suite_create("rows_cuda");
    TCase *tc = tcase_create("rows_cuda");
    const int first = test_is_small() ? 2 : 0,
              end = SHAPES + mini_family_count + PACKED; /* the widest take checkers minutes */
    tcase_add_loop_test(tc, row_of_many_equals_single_row, first, end);
    tcase_add_loop_test(tc, padding_rows_and_nan_in_free_cells_change_nothing, first, end);
    TCase *far = tcase_create("far");
    tcase_add_loop_test(far, row_far_on_equals_row_of_many, 0, 8);
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, far);
    return suite;
}
