/* What must not change a row's bits: the other rows, their number, threads, the instruction set, capture, and what lies in cells
 * that nobody owns. Whole layers are run and compared byte for byte: one of a Qwen thoroughly, and one of each family. */
#include <string.h>

#include "model/kernels/host/isa.h"
#include "tests/support/mini.h"
#include "tests/support/support.h"

enum { SLOTS = 18, PAGES_PER_SLOT = 5, ROWS_MAX = 1088 };

static const struct mini_shape usual = {.name = "usual",
                                        .type = DTYPE_BF16,
                                        .width = 50,
                                        .hidden = 83,
                                        .heads = 6,
                                        .kv_heads = 2,
                                        .head_dim = 22,
                                        .vocab = 67,
                                        .window = 300,
                                        .has_bias = true,
                                        .has_qk_norm = true,
                                        .slots = SLOTS,
                                        .pages_per_slot = PAGES_PER_SLOT,
                                        .max_rows = ROWS_MAX};

/* Where slot s continues; slot 1 from the beginning. */
static int first_position(int slot) {
    return (slot - 1) * 61;
}

/* Graph rows b = 0.. serve slots b + 1.., each from its first position. */
static void set_rows(struct mini *m, int batch, int q_len) {
    for (int b = 0; b < batch; b++) {
        m->row_slot[b] = b + 1;
        for (int i = 0; i < q_len; i++) {
            int position = first_position(b + 1) + i;
            m->positions[b * q_len + i] = position;
            m->tokens[b * q_len + i] = (position * 31 + b * 7) % m->shape.vocab;
        }
    }
}

/* The results of single rows: x and logits by slot and index, and the caches after all of them. */
struct single {
    struct mini m;
    float *x, *logits; /* [SLOTS][ROWS_MAX][width], [..][vocab] */
    int count[SLOTS];
    float *k, *v; /* the caches before any row */
    int ops;      /* of the layer */
};

static size_t width_bytes(const struct single *s) {
    return (size_t)s->m.shape.width * sizeof(float);
}
static size_t vocab_bytes(const struct single *s) {
    return (size_t)s->m.shape.vocab * sizeof(float);
}
static float *x_of(const struct single *s, int slot, int index) {
    return s->x + ((size_t)slot * ROWS_MAX + (size_t)index) * (size_t)s->m.shape.width;
}
static float *logits_of(const struct single *s, int slot, int index) {
    return s->logits + ((size_t)slot * ROWS_MAX + (size_t)index) * (size_t)s->m.shape.vocab;
}

static void run_single_row(struct lab *lab, struct single *s, int slot, int index) {
    struct mini *m = &s->m;
    m->row_slot[0] = slot, m->positions[0] = first_position(slot) + index;
    m->tokens[0] = (m->positions[0] * 31 + (slot - 1) * 7) % m->shape.vocab;
    s->ops = mini_forward(lab, m, mini_rows(m, 1, 1));
    memcpy(x_of(s, slot, index), m->x, width_bytes(s));
    memcpy(logits_of(s, slot, index), m->logits, vocab_bytes(s));
}

static void restore_caches(const struct single *s, struct mini *m) {
    memcpy(m->kv.k, s->k, m->kv_floats * sizeof(float)), memcpy(m->kv.v, s->v, m->kv_floats * sizeof(float));
}

/* Runs slot 1 for so many rows and the others for others. */
static void run_single_rows(struct lab *lab, struct single *s, struct mini_shape shape, int slot_1_rows,
                            int other_rows) {
    shape.slots = SLOTS, shape.pages_per_slot = PAGES_PER_SLOT, shape.max_rows = ROWS_MAX;
    mini_make(lab, &s->m, shape);
    s->k = lab_random_floats(lab, s->m.kv_floats), s->v = lab_random_floats(lab, s->m.kv_floats);
    s->x = lab_alloc(lab, (size_t)SLOTS * ROWS_MAX * width_bytes(s));
    s->logits = lab_alloc(lab, (size_t)SLOTS * ROWS_MAX * vocab_bytes(s));
    restore_caches(s, &s->m);
    for (int slot = 1; slot < SLOTS; slot++) {
        s->count[slot] = slot == 1 ? slot_1_rows : other_rows;
        for (int i = 0; i < s->count[slot]; i++) run_single_row(lab, s, slot, i);
    }
}

/* A second layer state over the same weights, with its own caches and buffers. */
static struct mini twin(struct lab *lab, const struct single *s) {
    struct mini m = s->m;
    m.kv.k = lab_alloc(lab, m.kv_floats * sizeof(float)), m.kv.v = lab_alloc(lab, m.kv_floats * sizeof(float));
    restore_caches(s, &m);
    return m;
}

static void check_pass(const struct single *s, const struct mini *m, int batch, int q_len, const char *what) {
    const struct mini_shape *shape = &s->m.shape;
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < q_len; i++) {
            const size_t t = (size_t)(b * q_len + i);
            ck_assert_msg(memcmp(m->x + t * (size_t)shape->width, x_of(s, b + 1, i), width_bytes(s)) == 0 &&
                              memcmp(m->logits + t * (size_t)shape->vocab, logits_of(s, b + 1, i), vocab_bytes(s)) == 0,
                          "%s, %s: row %d of slot %d in a pass of %d x %d differs", shape->name, what, i, b + 1, batch,
                          q_len);
            for (int h = 0; h < shape->kv_heads; h++) {
                size_t cell = mini_cell(m, b + 1, first_position(b + 1) + i, h);
                size_t bytes = (size_t)shape->head_dim * sizeof(float);
                ck_assert_mem_eq((float *)m->kv.k + cell, (float *)s->m.kv.k + cell, bytes);
                ck_assert_mem_eq((float *)m->kv.v + cell, (float *)s->m.kv.v + cell, bytes);
            }
        }
}

static void check_split(struct lab *lab, const struct single *s, struct mini *m, int batch, int q_len,
                        const char *what) {
    restore_caches(s, m);
    set_rows(m, batch, q_len);
    mini_forward(lab, m, mini_rows(m, batch, q_len));
    check_pass(s, m, batch, q_len, what);
}

START_TEST(row_of_many_equals_single_row)
{
    struct lab lab;
    struct single s;
    lab_open(&lab, 2);
    const bool is_small = test_is_small();
    run_single_rows(&lab, &s, usual, ROWS_MAX, is_small ? 16 : 64);
    struct mini m = twin(&lab, &s);
    for (int t = 1; t <= 64; t += t < 12 || !is_small ? 1 : 13) check_split(&lab, &s, &m, 1, t, "one sequence");
    for (int q_len = 1; q_len <= 9; q_len += is_small ? 4 : 1)
        for (int batch = 2; batch < SLOTS; batch += 3) check_split(&lab, &s, &m, batch, q_len, "several sequences");
    static const int large[][2] = {{1, 90}, {15, 6}, {1, 272}, {17, 16}, {1, 1088}, {17, 64}};
    for (size_t i = 0; i < sizeof large / sizeof *large - is_small; i++) /* the last: other slots' 64 rows */
        check_split(&lab, &s, &m, large[i][0], large[i][1], "large pass");
    lab_close(&lab);
}
END_TEST

/* Loop index: the family. Row by row on one thread in portable code, then in passes by every instruction set, on two. */
START_TEST(rows_of_every_family_keep_their_bits)
{
    struct lab lab, other;
    struct single s;
    lab_open(&lab, 1);
    lab_open(&other, 2);
    host_isa_force(&host_isa_portable);
    const bool is_small = test_is_small();
    const int longest = is_small ? 12 : 24, others = is_small ? 2 : 6;
    run_single_rows(&lab, &s, mini_families[_i], longest, others);
    struct mini m = twin(&lab, &s);
    for (int i = 0; host_isa_at(i); i++) {
        if (!host_isa_at(i)->is_supported()) continue;
        host_isa_force(host_isa_at(i));
        for (int q_len = 1; q_len <= longest; q_len += 1 + q_len / (is_small ? 1 : 4))
            check_split(&other, &s, &m, 1, q_len, host_isa()->name);
        for (int q_len = 1; q_len <= others; q_len += 2) check_split(&other, &s, &m, 17, q_len, host_isa()->name);
    }
    lab_close(&other);
    lab_close(&lab);
}
END_TEST

START_TEST(threads_do_not_change_bits)
{
    struct lab lab, other;
    struct single s;
    lab_open(&lab, 1);
    run_single_rows(&lab, &s, usual, 64, 16);
    for (int threads = 2; threads <= 7; threads += test_is_small() ? 5 : 1) {
        lab_open(&other, threads);
        struct mini m = twin(&other, &s);
        check_split(&other, &s, &m, 1, 64, "threads");
        check_split(&other, &s, &m, 17, 16, "threads");
        lab_close(&other);
    }
    lab_close(&lab);
}
END_TEST

/* Wide enough that a single row is spread over threads. */
START_TEST(threads_do_not_change_a_single_row)
{
    enum { ROWS = 515, COLS = 700 };
    struct lab lab;
    lab_open(&lab, 1);
    struct weight w = lab_weight(&lab, ROWS, COLS, DTYPE_F16, 1);
    float *h = lab_random_floats(&lab, COLS), *before = lab_random_floats(&lab, ROWS);
    float *x = lab_alloc(&lab, ROWS * sizeof(float)), *expected = lab_alloc(&lab, ROWS * sizeof(float));
    struct op_project op = {.rows = {.batch = 1, .q_len = 1}, .h = {h, DTYPE_F32}, .w = w, .scale = 1, .x = expected};
    memcpy(expected, before, ROWS * sizeof(float));
    ck_ok(ops_host()->project(lab.stream, &op));
    for (int threads = 2; threads <= 5; threads++) {
        struct lab other;
        lab_open(&other, threads);
        memcpy(x, before, ROWS * sizeof(float)), op.x = x;
        ck_ok(ops_host()->project(other.stream, &op));
        ck_assert_mem_eq(x, expected, ROWS * sizeof(float));
        lab_close(&other);
    }
    lab_close(&lab);
}
END_TEST

START_TEST(instruction_sets_give_the_same_bits)
{
    struct lab lab;
    struct single s;
    int compared = 0;
    lab_open(&lab, 1);
    host_isa_force(&host_isa_portable);
    run_single_rows(&lab, &s, usual, 64, 16);
    struct mini m = twin(&lab, &s);
    for (int i = 0; host_isa_at(i); i++) {
        if (!host_isa_at(i)->is_supported()) continue;
        host_isa_force(host_isa_at(i));
        check_split(&lab, &s, &m, 1, 64, host_isa()->name);
        check_split(&lab, &s, &m, 1, 1, host_isa()->name);
        for (int q_len = 1; q_len <= 8; q_len += test_is_small() ? 3 : 1)
            check_split(&lab, &s, &m, 17, q_len, host_isa()->name);
        compared++;
    }
    if (compared == 1) skip("this CPU runs the portable code alone");
    lab_close(&lab);
}
END_TEST

/* Fused multiply-add in plain C: a sum with every kind of rounding, from subnormal to overflow. */
START_TEST(instruction_sets_agree_on_extreme_values)
{
    enum { ROWS = 4000, COLS = 33 };
    struct lab lab;
    lab_open(&lab, 1);
    float *w = lab_alloc(&lab, ROWS * COLS * sizeof *w), *h = lab_alloc(&lab, COLS * sizeof *h);
    for (int i = 0; i < ROWS * COLS; i++) { /* any bits but infinity and NaN, tiny and huge ones often */
        uint32_t exponent = (uint32_t)(i % 3 == 0 ? lab_pick(&lab, 0, 40) : lab_pick(&lab, 60, 200));
        uint32_t bits = exponent << 23 | (uint32_t)lab_pick(&lab, 0, 1 << 23) | (uint32_t)(i & 1) << 31;
        memcpy(&w[i], &bits, sizeof bits);
    }
    for (int i = 0; i < COLS; i++) h[i] = i % 4 ? lab_random(&lab) : lab_random(&lab) * 0x1p-30f;
    float *x = lab_alloc(&lab, ROWS * sizeof *x), *expected = lab_alloc(&lab, ROWS * sizeof *expected);
    struct op_project op = {.rows = {.batch = 1, .q_len = 1},
                            .h = {h, DTYPE_F32},
                            .scale = 1,
                            .x = expected,
                            .w = {.data = w, .format = DTYPE_F32, .rows = ROWS, .cols = COLS}};
    memset(expected, 0, ROWS * sizeof *expected);
    host_isa_force(&host_isa_portable);
    ck_ok(ops_host()->project(lab.stream, &op));
    for (int i = 0; host_isa_at(i); i++) {
        if (!host_isa_at(i)->is_supported()) continue;
        host_isa_force(host_isa_at(i));
        memset(x, 0, ROWS * sizeof *x), op.x = x;
        ck_ok(ops_host()->project(lab.stream, &op));
        for (int o = 0; o < ROWS; o++)
            ck_assert_msg(memcmp(&x[o], &expected[o], sizeof *x) == 0, "%s: row %d is %a, portable %a",
                          host_isa()->name, o, (double)x[o], (double)expected[o]);
    }
    lab_close(&lab);
}
END_TEST

/* (1 + u) + (1 - u^2) u / 2 with u = 2^-23 lies just below the middle of two f32, and on it once rounded to f64. */
START_TEST(multiply_add_rounds_once)
{
    enum { COLS = 17 }; /* columns 0 and 16 share a lane */
    struct lab lab;
    lab_open(&lab, 1);
    float w[COLS] = {[0] = 1 + 0x1p-23f, [16] = (1 + 0x1p-23f) * 0x1p-24f}, h[COLS] = {[0] = 1, [16] = 1 - 0x1p-23f};
    for (int i = 0; host_isa_at(i); i++) {
        if (!host_isa_at(i)->is_supported()) continue;
        host_isa_force(host_isa_at(i));
        for (int sign = -1; sign <= 1; sign += 2) {
            float x = 0, signed_h[COLS];
            for (int k = 0; k < COLS; k++) signed_h[k] = h[k] * (float)sign;
            struct op_project op = {.rows = {.batch = 1, .q_len = 1},
                                    .h = {signed_h, DTYPE_F32},
                                    .scale = 1,
                                    .x = &x,
                                    .w = {.data = w, .format = DTYPE_F32, .rows = 1, .cols = COLS}};
            ck_ok(ops_host()->project(lab.stream, &op));
            ck_assert_msg(x == (float)sign * (1 + 0x1p-23f), "%s: %a", host_isa()->name, (double)x);
        }
    }
    lab_close(&lab);
}
END_TEST

/* Padding rows and rows without a position beside real ones, over caches whose free cells hold NaN. Loop index: the family, or
 * the usual layer past them. */
START_TEST(padding_rows_and_nan_in_free_cells_change_nothing)
{
    struct lab lab;
    struct single s;
    lab_open(&lab, 2);
    run_single_rows(&lab, &s, _i < mini_family_count ? mini_families[_i] : usual, 8, 8);
    struct mini m = twin(&lab, &s);
    const struct mini_shape *shape = &m.shape;
    memset(m.kv.k, 0xFF, m.kv_floats * sizeof(float)), memset(m.kv.v, 0xFF, m.kv_floats * sizeof(float));
    for (int slot = 1; slot <= 3; slot++) /* a layer that shares keys finds those of its own rows, too */
        for (int j = 0; j < first_position(slot) + (shape->lacks_k ? 8 : 0); j++)
            for (int h = 0; h < shape->kv_heads; h++) {
                size_t cell = mini_cell(&m, slot, j, h), bytes = (size_t)shape->head_dim * sizeof(float);
                memcpy((float *)m.kv.k + cell, s.k + cell, bytes), memcpy((float *)m.kv.v + cell, s.v + cell, bytes);
            }
    set_rows(&m, 8, 8);
    for (int b = 3; b < 8; b++) { /* rows 3..5: the dummy sequence at one position; 6, 7: no position */
        m.row_slot[b] = 0;
        for (int i = 0; i < 8; i++) m.positions[b * 8 + i] = b < 6 ? i : -1 - i, m.tokens[b * 8 + i] = -5;
    }
    mini_forward(&lab, &m, mini_rows(&m, 8, 8));
    check_pass(&s, &m, 3, 8, "padded");
    for (int slot = 4; slot < SLOTS; slot++) { /* pages of nobody in this pass keep their bytes */
        const uint32_t *k = (const uint32_t *)m.kv.k, *v = (const uint32_t *)m.kv.v;
        size_t cell = mini_cell(&m, slot, 0, 0), n = (size_t)shape->kv_heads * KV_PAGE * (size_t)shape->head_dim;
        size_t same = 0;
        while (same < n && k[cell + same] == UINT32_MAX && v[cell + same] == UINT32_MAX) same++;
        ck_assert_uint_eq(same, n);
    }
    lab_close(&lab);
}
END_TEST

/* Loop index: the family, or the usual layer past them. */
START_TEST(replay_of_a_capture_equals_the_eager_run)
{
    struct lab lab;
    struct single s;
    struct recording *recording;
    lab_open(&lab, 2);
    run_single_rows(&lab, &s, _i < mini_family_count ? mini_families[_i] : usual, 5, 5);
    struct mini m = twin(&lab, &s);
    set_rows(&m, 3, 5);
    memset(m.positions, 0, ROWS_MAX * sizeof(int32_t)); /* read at replay, not at capture */
    ck_ok(stream_begin_capture(lab.stream));
    mini_forward(&lab, &m, mini_rows(&m, 3, 5));
    ck_ok(stream_end_capture(lab.stream, &recording));
    ck_assert_int_eq(recording_nodes(recording), s.ops);
    ck_assert_mem_eq(m.kv.k, s.k, m.kv_floats * sizeof(float)); /* nothing ran yet */
    for (int repeat = 0; repeat < 2; repeat++) {
        restore_caches(&s, &m);
        memset(m.logits, 0xFF, 15 * vocab_bytes(&s));
        set_rows(&m, 3, 5);
        ck_ok(recording_launch(recording, lab.stream));
        check_pass(&s, &m, 3, 5, "replayed");
    }
    recording_destroy(recording);
    lab_close(&lab);
}
END_TEST

Suite *check_ops_rows(void);
Suite *check_ops_rows(void) {
    Suite *suite = suite_create("ops_rows");
    TCase *tc = tcase_create("host");
    const int again = SANITIZED_THREADS ? 2 : mini_family_count + 1; /* the loops of each were watched once */
    tcase_add_test(tc, row_of_many_equals_single_row);
    tcase_add_loop_test(tc, rows_of_every_family_keep_their_bits, 0, mini_family_count);
    tcase_add_test(tc, threads_do_not_change_bits);
    tcase_add_test(tc, threads_do_not_change_a_single_row);
    tcase_add_test(tc, instruction_sets_give_the_same_bits);
    tcase_add_test(tc, instruction_sets_agree_on_extreme_values);
    tcase_add_test(tc, multiply_add_rounds_once);
    tcase_add_loop_test(tc, padding_rows_and_nan_in_free_cells_change_nothing, 0, again);
    tcase_add_loop_test(tc, replay_of_a_capture_equals_the_eager_run, 0, again);
    suite_add_tcase(suite, tc);
    return suite;
}
