/* The host ops against plain double precision, over odd shapes, all types, and caches that hold NaN wherever a row
 * must not look. Results are f32 sums of O(1) terms: |got - expected| <= 2e-5 + 2e-5 |expected|. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fmath.h"
#include "model/kernels/host/isa.h"
#include "tests/ops_lab.h"
#include "tests/support.h"

static void close_to(float got, double expected, const char *what, int row, int col) {
    ck_assert_msg(fabs(got - expected) <= 2e-5 + 2e-5 * fabs(expected), "%s[%d, %d] is %.9g, expected %.9g", what, row,
                  col, (double)got, expected);
}

/* A shape out of all that matter: odd widths, GQA, MQA, small and large heads. */
static struct mini_shape any_shape(struct lab *lab, int turn) {
    static const int heads[][2] = {{1, 1}, {4, 4}, {4, 2}, {6, 2}, {5, 1}, {9, 3}, {7, 7}};
    static const int dims[] = {8, 10, 16, 24, 32, 50, 64, 80, 128, 256};
    const int *h = heads[lab_pick(lab, 0, 7)];
    return (struct mini_shape){.type = (enum dtype)(turn % 3),
                               .width = lab_pick(lab, 1, 150),
                               .hidden = lab_pick(lab, 1, 200),
                               .heads = h[0],
                               .kv_heads = h[1],
                               .head_dim = dims[turn % 10],
                               .vocab = lab_pick(lab, 1, 300),
                               .has_bias = turn / 3 % 2,
                               .has_qk_norm = turn / 6 % 2,
                               .slots = 4,
                               .pages_per_slot = 2,
                               .max_rows = 24};
}

/* y = RMSNorm(x) * norm */
static void norm_reference(double *y, const float *x, const struct norm *norm) {
    const struct weight *w = &norm->weight;
    double squares = 0;
    for (int i = 0; i < w->cols; i++) squares += (double)x[i] * x[i];
    for (int i = 0; i < w->cols; i++)
        y[i] = x[i] / sqrt(squares / w->cols + (double)norm->eps) * lab_weight_at(w, 0, i);
}

static double product_reference(const struct weight *w, const struct weight *bias, int row, const double *x) {
    double sum = bias && bias->data ? lab_weight_at(bias, 0, row) : 0;
    for (int i = 0; i < w->cols; i++) sum += lab_weight_at(w, row, i) * x[i];
    return sum;
}

/* --- embed ---------------------------------------------------------------------------------------- */

static bool same_float(float got, float expected) {
    return isnan(expected) ? isnan(got) : memcmp(&got, &expected, sizeof got) == 0;
}

static void widen_all_patterns(struct lab *lab, enum dtype type) {
    enum { ROWS = 1725, COLS = 38 }; /* 65,550 values, and a width that is no multiple of the vector's */
    uint16_t *data = lab_alloc(lab, ROWS * COLS * sizeof *data);
    int32_t *tokens = lab_alloc(lab, ROWS * sizeof *tokens);
    for (int i = 0; i < ROWS * COLS; i++) data[i] = (uint16_t)i;
    for (int i = 0; i < ROWS; i++) tokens[i] = i;
    struct op_embed op = {.rows = {.batch = 1, .q_len = ROWS, .tokens = tokens},
                          .table = {.data = data, .format = type, .rows = ROWS, .cols = COLS},
                          .scale = 1,
                          .out = lab_alloc(lab, ROWS * COLS * sizeof(float))};
    ck_ok(ops_host()->embed(lab->stream, &op));
    for (int i = 0; i < ROWS * COLS; i++)
        ck_assert_msg(same_float(op.out[i], (float)lab_weight_at(&op.table, i / COLS, i % COLS)),
                      "%s, type %d: pattern %04x became %g", host_isa()->name, type, data[i], (double)op.out[i]);
}

START_TEST(every_16_bit_pattern_widens_exactly)
{
    struct lab lab;
    lab_open(&lab, 1);
    for (int i = 0; host_isa_at(i); i++) {
        if (!host_isa_at(i)->is_supported()) continue;
        host_isa_force(host_isa_at(i));
        widen_all_patterns(&lab, DTYPE_BF16);
        widen_all_patterns(&lab, DTYPE_F16);
    }
    lab_close(&lab);
}
END_TEST

START_TEST(embed_copies_rows_and_reads_row_0_for_foreign_ids)
{
    struct lab lab;
    lab_open(&lab, 2);
    for (int turn = 0; turn < 12; turn++) {
        struct mini m;
        mini_make(&lab, &m, any_shape(&lab, turn));
        const int vocab = m.shape.vocab, ids[] = {0, vocab - 1, vocab, -1, INT32_MAX, INT32_MIN, vocab / 2, 0};
        memcpy(m.tokens, ids, sizeof ids);
        struct op_embed op = mini_embed(&m, mini_rows(&m, 2, 4));
        ck_ok(ops_host()->embed(lab.stream, &op));
        for (int t = 0; t < 8; t++)
            for (int i = 0; i < m.shape.width; i++) {
                int row = ids[t] >= 0 && ids[t] < vocab ? ids[t] : 0;
                ck_assert_float_eq(m.x[t * m.shape.width + i], (float)lab_weight_at(&m.embedding, row, i));
            }
        lab_close(&lab);
        lab_open(&lab, 2);
    }
    lab_close(&lab);
}
END_TEST

/* --- qkv ------------------------------------------------------------------------------------------ */

/* q/k norm and RoPE of one head in double. */
static void turn_reference(const struct mini *m, const struct norm *norm, int position, double *head) {
    const int dim = m->shape.head_dim, half = dim / 2;
    const float *rope = m->rope + (size_t)(position < 0 ? 0 : position) * (size_t)dim;
    double squares = 0;
    for (int i = 0; i < dim; i++) squares += head[i] * head[i];
    for (int i = 0; norm->kind != NORM_NONE && i < dim; i++)
        head[i] *= lab_weight_at(&norm->weight, 0, i) / sqrt(squares / dim + 1e-5);
    for (int i = 0; i < half; i++) {
        double a = head[i], b = head[i + half], c = rope[2 * i], s = rope[2 * i + 1];
        head[i] = a * c - b * s, head[i + half] = b * c + a * s;
    }
}

static void head_reference(const struct mini *m, const struct weight *w, const struct weight *bias,
                           const struct norm *norm, int head, int position, const double *y, double *out) {
    const int dim = m->shape.head_dim;
    for (int i = 0; i < dim; i++) out[i] = product_reference(w, bias, head * dim + i, y);
    if (norm) turn_reference(m, norm, position, out);
}

/* Compares one cell and marks it as untouched again. */
static void check_cell(float *cell, const double *expected, int dim, const char *what, int t) {
    for (int i = 0; i < dim; i++) close_to(cell[i], expected[i], what, t, i);
    memset(cell, 0xFF, (size_t)dim * sizeof *cell);
}

static void check_qkv_row(const struct mini *m, const float *x, int t, int q_len) {
    const struct mini_shape *s = &m->shape;
    const int position = m->positions[t];
    double y[256], head[256];
    norm_reference(y, x + t * s->width, &m->norm);
    for (int h = 0; h < s->heads; h++) {
        head_reference(m, &m->wq, &m->bq, &m->q_norm, h, position, y, head);
        for (int i = 0; i < s->head_dim; i++)
            close_to(m->q[(t * s->heads + h) * s->head_dim + i], head[i], "q", t, h * s->head_dim + i);
    }
    for (int h = 0; h < s->kv_heads; h++) {
        size_t cell = position < 0 ? (size_t)(h * KV_PAGE + t % KV_PAGE) * (size_t)s->head_dim
                                   : mini_cell(m, m->row_slot[t / q_len], position, h);
        head_reference(m, &m->wk, &m->bk, &m->k_norm, h, position, y, head);
        check_cell((float *)m->kv.k + cell, head, s->head_dim, "k", t);
        head_reference(m, &m->wv, &m->bv, NULL, h, position, y, head);
        check_cell((float *)m->kv.v + cell, head, s->head_dim, "v", t);
    }
}

static void check_untouched(const void *memory, size_t floats) {
    const uint32_t *words = memory;
    size_t same = 0;
    while (same < floats && words[same] == UINT32_MAX) same++;
    ck_assert_uint_eq(same, floats);
}

START_TEST(qkv_matches_reference_and_writes_its_own_cells_alone)
{
    struct lab lab;
    for (int turn = 0; turn < 30; turn++) {
        struct mini m;
        lab_open(&lab, 1 + turn % 3);
        mini_make(&lab, &m, any_shape(&lab, turn));
        const int batch = lab_pick(&lab, 1, 4), q_len = lab_pick(&lab, 1, 9);
        for (int b = 0; b < batch; b++) {
            int start = turn % 3 ? lab_pick(&lab, 0, 2 * KV_PAGE - q_len + 1) : -3; /* -3: rows without a position */
            m.row_slot[b] = b + 1;
            for (int i = 0; i < q_len; i++) m.positions[b * q_len + i] = start + i;
        }
        struct op_qkv op = mini_qkv(&m, mini_rows(&m, batch, q_len));
        op.x = lab_random_floats(&lab, (size_t)(batch * q_len * m.shape.width));
        ck_ok(ops_host()->qkv(lab.stream, &op));
        for (int t = 0; t < batch * q_len; t++) check_qkv_row(&m, op.x, t, q_len);
        check_untouched(m.kv.k, m.kv_floats);
        check_untouched(m.kv.v, m.kv_floats);
        lab_close(&lab);
    }
}
END_TEST

/* --- attention ------------------------------------------------------------------------------------ */

static void attention_reference(const struct mini *m, int slot, int position, int head, const float *q, double *out) {
    const struct mini_shape *s = &m->shape;
    const int dim = s->head_dim, kv_head = head / (s->heads / s->kv_heads);
    const int start = s->window > 0 && position >= s->window ? position - s->window + 1 : 0;
    double *p = calloc((size_t)position + 1, sizeof *p), max = -INFINITY, sum = 0;
    for (int j = start; j <= position; j++) {
        const float *k = (float *)m->kv.k + mini_cell(m, slot, j, kv_head);
        for (int i = 0; i < dim; i++) p[j] += (double)q[i] * k[i] / sqrt(dim);
        max = p[j] > max ? p[j] : max;
    }
    for (int j = start; j <= position; j++) sum += p[j] = exp(p[j] - max);
    for (int i = 0; i < dim; i++) out[i] = 0;
    for (int j = start; j <= position; j++)
        for (int i = 0; i < dim; i++)
            out[i] += p[j] / sum * ((float *)m->kv.v)[mini_cell(m, slot, j, kv_head) + (size_t)i];
    free(p);
}

/* Random keys and values at positions [first, end) of a slot; everything else stays as it is. */
static void fill_cells(struct lab *lab, struct mini *m, int slot, int first, int end) {
    for (int j = first; j < end; j++)
        for (int h = 0; h < m->shape.kv_heads; h++) {
            size_t cell = mini_cell(m, slot, j, h);
            for (int i = 0; i < m->shape.head_dim; i++) {
                ((float *)m->kv.k)[cell + (size_t)i] = lab_random(lab) * 2;
                ((float *)m->kv.v)[cell + (size_t)i] = lab_random(lab);
            }
        }
}

/* Rows at [position - q_len + 1, position] of slot 1 see finite cells only where they may look. */
static void check_attention(struct lab *lab, struct mini *m, int position, int q_len) {
    const struct mini_shape *s = &m->shape;
    const int first = position - q_len + 1, dim = s->head_dim;
    memset(m->kv.k, 0xFF, m->kv_floats * sizeof(float)), memset(m->kv.v, 0xFF, m->kv_floats * sizeof(float));
    fill_cells(lab, m, 1, s->window > 0 && first >= s->window ? first - s->window + 1 : 0, position + 1);
    m->row_slot[0] = 1;
    struct op_attention op = mini_attention(m, mini_rows(m, 1, q_len));
    for (int t = 0; t < q_len; t++) m->positions[t] = first + t;
    for (int i = 0; i < q_len * s->heads * dim; i++) m->q[i] = lab_random(lab) * 2;
    ck_ok(ops_host()->attention(lab->stream, &op));
    for (int t = 0; t < q_len; t++)
        for (int h = 0; h < s->heads; h++) {
            double expected[256];
            const int at = (t * s->heads + h) * dim;
            attention_reference(m, 1, first + t, h, m->q + at, expected);
            for (int i = 0; i < dim; i++)
                close_to(((const float *)op.out.data)[at + i], expected[i], "attended", first + t, h * dim + i);
        }
}

START_TEST(attention_matches_reference_across_splits_pages_and_windows)
{
    static const int positions[] = {0, 1, 5, 62, 63, 64, 65, 127, 128, 254, 255, 256, 257, 510, 511, 512, 513, 700};
    static const int windows[] = {0, 1, 3, 16, 64, 65, 100, 256, 300, 1000};
    struct lab lab;
    for (int turn = 0; turn < 20; turn++) {
        struct mini m;
        lab_open(&lab, 1 + turn % 3);
        struct mini_shape shape = any_shape(&lab, turn);
        shape.slots = 2, shape.pages_per_slot = 3, shape.window = windows[turn % 10];
        mini_make(&lab, &m, shape);
        for (size_t i = (size_t)turn % 4; i < sizeof positions / sizeof *positions; i += 4) {
            check_attention(&lab, &m, positions[i], 1);
            if (positions[i] >= 8) check_attention(&lab, &m, positions[i], lab_pick(&lab, 2, 9));
        }
        lab_close(&lab);
    }
}
END_TEST

START_TEST(attention_survives_scores_of_any_size)
{
    struct lab lab;
    struct mini m;
    lab_open(&lab, 1);
    mini_make(&lab, &m,
              (struct mini_shape){.width = 1,
                                  .hidden = 1,
                                  .vocab = 1,
                                  .heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = 16,
                                  .slots = 2,
                                  .pages_per_slot = 1,
                                  .max_rows = 1});
    fill_cells(&lab, &m, 1, 0, 200);
    for (int key = 0; key < 200; key++) /* scores from -2e4 to 2e4: all but one weight underflow */
        for (int i = 0; i < 16; i++)
            ((float *)m.kv.k)[mini_cell(&m, 1, key, 0) + (size_t)i] = (float)(key * 37 % 200 - 100);
    for (int i = 0; i < 16; i++) m.q[i] = 50;
    m.row_slot[0] = 1, m.positions[0] = 199;
    struct op_attention op = mini_attention(&m, mini_rows(&m, 1, 1));
    ck_ok(ops_host()->attention(lab.stream, &op));
    double expected[16];
    attention_reference(&m, 1, 199, 0, m.q, expected);
    for (int i = 0; i < 16; i++) close_to(m.attended[i], expected[i], "attended", 0, i);
    lab_close(&lab);
}
END_TEST

START_TEST(row_without_position_attends_to_nothing)
{
    struct lab lab;
    struct mini m;
    lab_open(&lab, 2);
    mini_make(&lab, &m, any_shape(&lab, 2));
    const int row = m.shape.heads * m.shape.head_dim;
    m.row_slot[0] = 1, m.positions[0] = -1, m.positions[1] = 0;
    for (int i = 0; i < 2 * row; i++) m.q[i] = lab_random(&lab);
    fill_cells(&lab, &m, 1, 0, 1);
    struct op_attention op = mini_attention(&m, mini_rows(&m, 1, 2));
    ck_ok(ops_host()->attention(lab.stream, &op));
    for (int i = 0; i < row; i++) ck_assert_float_eq(m.attended[i], 0);
    for (int h = 0; h < m.shape.heads; h++) { /* one visible key: its value itself */
        size_t value = mini_cell(&m, 1, 0, h / (m.shape.heads / m.shape.kv_heads));
        ck_assert_mem_eq(m.attended + row + h * m.shape.head_dim, (float *)m.kv.v + value,
                         (size_t)m.shape.head_dim * sizeof(float));
    }
    lab_close(&lab);
}
END_TEST

/* --- project, gate_up, logits --------------------------------------------------------------------- */

static void to_double(double *out, const float *in, int n) {
    for (int i = 0; i < n; i++) out[i] = in[i];
}

static void check_project(struct lab *lab, struct mini *m, struct op_project op) {
    const int tokens = rows_count(&op.rows), rows = op.w.rows, cols = op.w.cols;
    float *before = lab_random_floats(lab, (size_t)(tokens * rows));
    float *rows_of_h = lab_random_floats(lab, (size_t)(tokens * cols));
    op.h.data = rows_of_h;
    memcpy(m->x, before, (size_t)(tokens * rows) * sizeof(float));
    ck_ok(ops_host()->project(lab->stream, &op));
    for (int t = 0; t < tokens; t++) {
        double h[3000];
        to_double(h, rows_of_h + t * cols, cols);
        for (int o = 0; o < rows; o++)
            close_to(m->x[t * rows + o], before[t * rows + o] + product_reference(&op.w, NULL, o, h), "x", t, o);
    }
}

static void check_gate_up(struct lab *lab, struct op_gate_up op) {
    const int tokens = rows_count(&op.rows);
    op.x = lab_random_floats(lab, (size_t)(tokens * op.width));
    ck_ok(ops_host()->gate_up(lab->stream, &op));
    for (int t = 0; t < tokens; t++) {
        double y[256];
        norm_reference(y, op.x + t * op.width, &op.norm);
        for (int o = 0; o < op.hidden; o++) {
            double gate = product_reference(&op.gate, NULL, o, y), up = product_reference(&op.up, NULL, o, y);
            close_to(((const float *)op.h.data)[t * op.hidden + o], gate / (1 + exp(-gate)) * up, "h", t, o);
        }
    }
}

static void check_logits(struct lab *lab, struct op_logits op) {
    const int q_len = op.rows.q_len, count = op.last_only ? op.rows.batch : rows_count(&op.rows);
    op.x = lab_random_floats(lab, (size_t)(rows_count(&op.rows) * op.width));
    op.logits = lab_alloc(lab, (size_t)(count * op.vocab) * sizeof(float)); /* to the byte */
    ck_ok(ops_host()->logits(lab->stream, &op));
    for (int i = 0; i < count; i++) {
        double y[256];
        norm_reference(y, op.x + (op.last_only ? i * q_len + q_len - 1 : i) * op.width, &op.norm);
        for (int o = 0; o < op.vocab; o++)
            close_to(op.logits[i * op.vocab + o], product_reference(&op.w, NULL, o, y), "logits", i, o);
    }
}

START_TEST(project_gate_up_and_logits_match_reference)
{
    struct lab lab;
    for (int turn = 0; turn < 30; turn++) {
        struct mini m;
        lab_open(&lab, 1 + turn % 3);
        mini_make(&lab, &m, any_shape(&lab, turn));
        struct rows rows = mini_rows(&m, lab_pick(&lab, 1, 4), lab_pick(&lab, 1, 9));
        check_project(&lab, &m, mini_project(&m, rows));
        check_project(&lab, &m, mini_down(&m, rows));
        check_gate_up(&lab, mini_gate_up(&m, rows));
        struct op_logits logits = mini_logits(&m, rows);
        check_logits(&lab, logits);
        logits.last_only = true;
        check_logits(&lab, logits);
        lab_close(&lab);
    }
}
END_TEST

START_TEST(silu_is_made_of_fmath_exp)
{
    enum { HIDDEN = 1003 };
    struct lab lab;
    lab_open(&lab, 1);
    const float one = 1;
    float *h = lab_alloc(&lab, HIDDEN * sizeof(float));
    struct weight gate = lab_weight(&lab, HIDDEN, 1, DTYPE_F32, 100), up = lab_weight(&lab, HIDDEN, 1, DTYPE_F32, 3);
    struct op_gate_up op = {.rows = {.batch = 1, .q_len = 1},
                            .x = &one,
                            .gate = gate,
                            .up = up,
                            .width = 1,
                            .norm = {NORM_RMS, {.data = &one, .format = DTYPE_F32, .rows = 1, .cols = 1}},
                            .hidden = HIDDEN,
                            .normed = {lab_alloc(&lab, sizeof(float)), DTYPE_F32},
                            .h = {h, DTYPE_F32}};
    for (int i = 0; host_isa_at(i); i++) {
        if (!host_isa_at(i)->is_supported()) continue;
        host_isa_force(host_isa_at(i));
        ck_ok(ops_host()->gate_up(lab.stream, &op));
        for (int o = 0; o < HIDDEN; o++) {
            float g = (float)lab_weight_at(&gate, o, 0), expected = g / (1 + fmath_exp(-g));
            ck_assert_msg(same_float(h[o], expected * (float)lab_weight_at(&up, o, 0)), "%s: gate %g gives %a",
                          host_isa()->name, (double)g, (double)h[o]);
        }
    }
    lab_close(&lab);
}
END_TEST

/* --- errors --------------------------------------------------------------------------------------- */

START_TEST(position_past_the_page_table_is_an_internal_error)
{
    struct lab lab;
    struct mini m;
    lab_open(&lab, 1);
    mini_make(&lab, &m, any_shape(&lab, 0));
    m.row_slot[0] = 1, m.positions[0] = 2 * KV_PAGE;
    memset(m.x, 0, (size_t)m.shape.width * sizeof(float));
    struct op_qkv qkv = mini_qkv(&m, mini_rows(&m, 1, 1));
    struct op_attention attention = mini_attention(&m, mini_rows(&m, 1, 1));
    ck_assert_int_eq(ops_host()->qkv(lab.stream, &qkv), ERR_INTERNAL);
    ck_assert_int_eq(ops_host()->attention(lab.stream, &attention), ERR_INTERNAL);
    m.positions[0] = 100, qkv.rope.positions = 100;
    ck_assert_int_eq(ops_host()->qkv(lab.stream, &qkv), ERR_INTERNAL);
    check_untouched(m.kv.k, m.kv_floats);
    lab_close(&lab);
}
END_TEST

START_TEST(shapes_that_do_not_fit_are_internal_errors)
{
    struct lab lab;
    struct mini m;
    lab_open(&lab, 1);
    mini_make(&lab, &m, any_shape(&lab, 0));
    struct op_gate_up gate_up = mini_gate_up(&m, mini_rows(&m, 1, 1));
    gate_up.up.rows++;
    ck_assert_int_eq(ops_host()->gate_up(lab.stream, &gate_up), ERR_INTERNAL);
    struct op_attention attention = mini_attention(&m, mini_rows(&m, 1, 1));
    attention.heads = 5, attention.kv_heads = 2;
    ck_assert_int_eq(ops_host()->attention(lab.stream, &attention), ERR_INTERNAL);
    lab_close(&lab);
}
END_TEST

Suite *check_ops(void);
Suite *check_ops(void) {
    Suite *suite = suite_create("ops");
    TCase *tc = tcase_create("host");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, every_16_bit_pattern_widens_exactly);
    tcase_add_test(tc, embed_copies_rows_and_reads_row_0_for_foreign_ids);
    tcase_add_test(tc, qkv_matches_reference_and_writes_its_own_cells_alone);
    tcase_add_test(tc, attention_matches_reference_across_splits_pages_and_windows);
    tcase_add_test(tc, attention_survives_scores_of_any_size);
    tcase_add_test(tc, row_without_position_attends_to_nothing);
    tcase_add_test(tc, project_gate_up_and_logits_match_reference);
    tcase_add_test(tc, silu_is_made_of_fmath_exp);
    tcase_add_test(tc, position_past_the_page_table_is_an_internal_error);
    tcase_add_test(tc, shapes_that_do_not_fit_are_internal_errors);
    suite_add_tcase(suite, tc);
    return suite;
}
