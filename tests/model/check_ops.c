/* The host ops that make and use keys and values, against plain double precision, over odd shapes, all types, and caches that
 * hold NaN wherever a row must not look. The others: check_ops_mlp.c, check_ops_experts.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/kernels/host/isa.h"
#include "tests/support/ops_reference.h"
#include "tests/support/support.h"

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
    for (int turn = 0; turn < 30; turn++) {
        struct mini m;
        mini_make(&lab, &m, reference_shape(&lab, turn));
        const int vocab = m.shape.vocab, ids[] = {0, vocab - 1, vocab, -1, INT32_MAX, INT32_MIN, vocab / 2, 0};
        memcpy(m.tokens, ids, sizeof ids);
        struct op_embed op = mini_embed(&m, mini_rows(&m, 2, 4));
        ck_ok(ops_host()->embed(lab.stream, &op));
        for (int t = 0; t < 8; t++)
            for (int i = 0; i < m.shape.width; i++) {
                int row = ids[t] >= 0 && ids[t] < vocab ? ids[t] : 0;
                require(m.x[t * m.shape.width + i] == op.scale * (float)lab_weight_at(&m.embedding, row, i),
                        "row %d, column %d", t, i);
            }
        lab_close(&lab);
        lab_open(&lab, 2);
    }
    lab_close(&lab);
}
END_TEST

/* --- qkv ------------------------------------------------------------------------------------------ */

static bool are_normed_behind(const struct mini *m) {
    return m->shape.norms_behind_rope && !m->shape.norms_all_heads && m->rope;
}

static void norm_each(const struct norm *norm, double *x, int heads, int dim) {
    for (int h = 0; h < heads; h++) reference_norm(x + h * dim, x + h * dim, norm, dim);
}

/* Sums of W with the row y, then the norm of all heads or of each, if it is not behind the rotation. */
static void heads_reference(const struct mini *m, const struct weight *w, const struct weight *bias,
                            const struct norm *norm, const double *y, double *out) {
    const int dim = m->shape.head_dim;
    const bool norms_all = m->shape.norms_all_heads && norm != &m->v_norm;
    for (int i = 0; i < w->rows; i++) out[i] = reference_product(w, bias, i, y);
    if (norms_all)
        reference_norm(out, out, norm, w->rows);
    else if (norm == &m->v_norm || !are_normed_behind(m))
        norm_each(norm, out, w->rows / dim, dim);
}

/* Compares one cell and marks it as untouched again. */
static void check_cell(float *cell, const double *expected, int dim, const char *what, int t) {
    for (int i = 0; i < dim; i++) close_to(cell[i], expected[i], what, t, i);
    memset(cell, 0xFF, (size_t)dim * sizeof *cell);
}

static void check_qkv_row(const struct mini *m, const struct op_qkv *op, int t) {
    const struct mini_shape *s = &m->shape;
    const int position = m->positions[t], slot = m->row_slot[t / op->rows.q_len], dim = s->head_dim;
    static double y[REFERENCE_MAX], q[REFERENCE_MAX], k[REFERENCE_MAX], v[REFERENCE_MAX];
    reference_widen(y, op->x + t * s->width, s->width);
    reference_norm(y, y, &m->norm, s->width);
    heads_reference(m, &m->wq, &m->bq, &m->q_norm, y, q);
    for (int h = 0; h < s->heads; h++) reference_turn(&op->rope, slot, position, true, dim, q + h * dim);
    if (are_normed_behind(m)) norm_each(&m->q_norm, q, s->heads, dim);
    for (int i = 0; i < s->heads * dim; i++) close_to(m->q[t * s->heads * dim + i], q[i], "q", t, i);
    if (s->lacks_k) return;
    heads_reference(m, &m->wk, &m->bk, &m->k_norm, y, k);
    heads_reference(m, s->lacks_v ? &m->wk : &m->wv, s->lacks_v ? &m->bk : &m->bv, &m->v_norm, y, v);
    for (int h = 0; h < s->kv_heads; h++) {
        size_t cell =
            position < 0 ? (size_t)(h * KV_PAGE + t % KV_PAGE) * (size_t)dim : mini_cell(m, slot, position, h);
        reference_turn(&op->rope, slot, position, false, dim, k + h * dim);
        if (are_normed_behind(m)) norm_each(&m->k_norm, k + h * dim, 1, dim);
        check_cell((float *)m->kv.k + cell, k + h * dim, dim, "k", t);
        check_cell((float *)m->kv.v + cell, v + h * dim, dim, "v", t);
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
    for (int turn = 0; turn < 100; turn++) {
        struct mini m;
        lab_open(&lab, 1 + turn % 3);
        mini_make(&lab, &m, reference_shape(&lab, turn));
        const int batch = lab_pick(&lab, 1, 4), q_len = lab_pick(&lab, 1, 9);
        for (int b = 0; b < batch; b++) {
            int start = turn % 3 ? lab_pick(&lab, 0, 2 * KV_PAGE - q_len + 1) : -3; /* -3: rows without a position */
            m.row_slot[b] = b + 1;
            for (int i = 0; i < q_len; i++) m.positions[b * q_len + i] = start + i;
        }
        struct op_qkv op = mini_qkv(&m, mini_rows(&m, batch, q_len));
        op.x = lab_random_floats(&lab, (size_t)(batch * q_len * m.shape.width));
        ck_ok(ops_host()->qkv(lab.stream, &op));
        for (int t = 0; t < batch * q_len; t++) check_qkv_row(&m, &op, t);
        check_untouched(m.kv.k, m.kv_floats);
        check_untouched(m.kv.v, m.kv_floats);
        lab_close(&lab);
    }
}
END_TEST

/* --- attention ------------------------------------------------------------------------------------ */

static void attention_reference(const struct mini *m, const struct op_attention *op, int slot, int position, int head,
                                const float *q, double *out) {
    const struct mini_shape *s = &m->shape;
    const int dim = s->head_dim, kv_head = head / (s->heads / s->kv_heads);
    const int start = s->window > 0 && position >= s->window ? position - s->window + 1 : 0;
    double *p = calloc((size_t)position + 1, sizeof *p), max = -INFINITY, sum = 0;
    for (int j = start; j <= position; j++) {
        const float *k = (float *)m->kv.k + mini_cell(m, slot, j, kv_head);
        for (int i = 0; i < dim; i++) p[j] += (double)q[i] * k[i] * (double)op->scale;
        p[j] = reference_cap(p[j], (double)op->cap);
        max = p[j] > max ? p[j] : max;
    }
    if (op->sinks.data) sum = exp(lab_weight_at(&op->sinks, 0, head) - max);
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
            double expected[512];
            const int at = (t * s->heads + h) * dim;
            attention_reference(m, &op, 1, first + t, h, m->q + at, expected);
            for (int i = 0; i < dim; i++)
                close_to(m->attended[at + i], expected[i], "attended", first + t, h * dim + i);
        }
}

START_TEST(attention_matches_reference_across_splits_pages_and_windows)
{
    static const int positions[] = {0, 1, 5, 62, 63, 64, 65, 127, 128, 254, 255, 256, 257, 510, 511, 512, 513, 700};
    static const int windows[] = {0, 1, 3, 16, 64, 65, 100, 256, 300, 1000};
    struct lab lab;
    for (int turn = 0; turn < 60; turn++) {
        struct mini m;
        lab_open(&lab, 1 + turn % 3);
        struct mini_shape shape = reference_shape(&lab, turn);
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
    attention_reference(&m, &op, 1, 199, 0, m.q, expected);
    for (int i = 0; i < 16; i++) close_to(m.attended[i], expected[i], "attended", 0, i);
    lab_close(&lab);
}
END_TEST

START_TEST(row_without_position_attends_to_nothing)
{
    struct lab lab;
    struct mini m;
    lab_open(&lab, 2);
    mini_make(&lab, &m, reference_shape(&lab, 2));
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

/* --- errors --------------------------------------------------------------------------------------- */

START_TEST(position_past_the_page_table_is_an_internal_error)
{
    struct lab lab;
    struct mini m;
    lab_open(&lab, 1);
    mini_make(&lab, &m, reference_shape(&lab, 0));
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

START_TEST(heads_that_do_not_fit_are_an_internal_error)
{
    struct lab lab;
    struct mini m;
    lab_open(&lab, 1);
    mini_make(&lab, &m, reference_shape(&lab, 0));
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
    tcase_add_test(tc, every_16_bit_pattern_widens_exactly);
    tcase_add_test(tc, embed_copies_rows_and_reads_row_0_for_foreign_ids);
    tcase_add_test(tc, qkv_matches_reference_and_writes_its_own_cells_alone);
    tcase_add_test(tc, attention_matches_reference_across_splits_pages_and_windows);
    tcase_add_test(tc, attention_survives_scores_of_any_size);
    tcase_add_test(tc, row_without_position_attends_to_nothing);
    tcase_add_test(tc, position_past_the_page_table_is_an_internal_error);
    tcase_add_test(tc, heads_that_do_not_fit_are_an_internal_error);
    suite_add_tcase(suite, tc);
    return suite;
}
