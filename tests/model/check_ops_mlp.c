/* The host ops on the residual stream, project, add_norm, gate_up and logits, against plain double precision, over odd shapes, all
 * types, and what families have. */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "model/kernels/host/isa.h"
#include "tests/support/ops_reference.h"
#include "tests/support/support.h"

static double row_of_h[REFERENCE_MAX]; /* what a product of a row takes */

static void check_project(struct lab *lab, struct op_project op) {
    const int tokens = rows_count(&op.rows), rows = op.w.rows, cols = op.w.cols;
    float *before = lab_random_floats(lab, (size_t)(tokens * rows));
    float *h = lab_random_floats(lab, (size_t)(tokens * cols));
    op.h.data = h;
    memcpy(op.x, before, (size_t)(tokens * rows) * sizeof(float));
    ck_ok(ops_host()->project(lab->stream, &op));
    for (int t = 0; t < tokens; t++) {
        reference_widen(row_of_h, h + t * cols, cols);
        for (int o = 0; o < rows; o++) {
            const double sum = (double)op.scale * reference_product(&op.w, &op.bias, o, row_of_h);
            close_to(op.x[t * rows + o], op.stores ? sum : (double)before[t * rows + o] + sum, "x", t, o);
        }
    }
}

/* `op.x` may be `op.y`. */
static void check_add_norm(struct lab *lab, struct op_add_norm op) {
    const int rows = rows_count(&op.rows) * op.parts, n = rows * op.width;
    const double last = (op.layer_scale.data ? lab_weight_at(&op.layer_scale, 0, 0) : 1) * (double)op.last_scale;
    float *before = lab_random_floats(lab, (size_t)n), *y = lab_random_floats(lab, (size_t)n);
    memcpy(op.x, before, (size_t)n * sizeof(float)), memcpy(op.y, y, (size_t)n * sizeof(float));
    ck_ok(ops_host()->add_norm(lab->stream, &op));
    for (int r = 0; r < rows; r++) {
        double normed[256];
        reference_widen(normed, y + r * op.width, op.width);
        reference_norm(normed, normed, &op.norm, op.width);
        for (int i = 0; i < op.width; i++) {
            const double sum = (double)op.scale * normed[i] + (op.stores ? 0 : (double)before[r * op.width + i]);
            close_to(op.x[r * op.width + i], sum * last, "x", r, i);
        }
    }
}

static void check_add_norms(struct lab *lab, const struct mini *m, struct rows rows) {
    struct op_add_norm op = mini_add_norm(m, rows, &m->post_mlp_norm);
    op.layer_scale = m->layer_scale;
    check_add_norm(lab, op);
    op.stores = true;
    check_add_norm(lab, op);
    op.x = op.y;
    check_add_norm(lab, op);
    op = mini_add_norm(m, rows, &m->input_norm);
    op.y = m->projected, op.x = m->inputs, op.width = m->shape.layer_inputs, op.parts = 2, op.last_scale = 0.7f;
    check_add_norm(lab, op);
}

static void check_gate_up(struct lab *lab, struct op_gate_up op) {
    const int tokens = rows_count(&op.rows);
    op.x = lab_random_floats(lab, (size_t)(tokens * op.width));
    float *times = lab_random_floats(lab, (size_t)(tokens * (op.times_stride + 1)));
    if (op.times) op.times = times;
    ck_ok(ops_host()->gate_up(lab->stream, &op));
    for (int t = 0; t < tokens; t++) {
        double y[256];
        reference_widen(y, op.x + t * op.width, op.width);
        reference_norm(y, y, &op.norm, op.width);
        for (int o = 0; o < op.hidden; o++) {
            const double gate = reference_product(&op.gate, &op.bias, o, y),
                         up = op.times     ? (double)op.times[t * op.times_stride + o]
                              : op.up.data ? reference_product(&op.up, NULL, o, y)
                                           : 1;
            close_to(((const float *)op.h.data)[t * op.hidden + o], reference_activation(op.activation, gate, up), "h",
                     t, o);
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
        reference_widen(y, op.x + (op.last_only ? i * q_len + q_len - 1 : i) * op.width, op.width);
        reference_norm(y, y, &op.norm, op.width);
        for (int o = 0; o < op.vocab; o++) {
            const double sum = (double)op.scale * reference_product(&op.w, &op.bias, o, y);
            close_to(op.logits[i * op.vocab + o], reference_cap(sum, (double)op.cap), "logits", i, o);
        }
    }
}

START_TEST(ops_on_the_residual_stream_match_reference)
{
    struct lab lab;
    for (int turn = 0; turn < 90; turn++) {
        struct mini m;
        lab_open(&lab, 1 + turn % 3);
        mini_make(&lab, &m, reference_shape(&lab, turn));
        struct rows rows = mini_rows(&m, lab_pick(&lab, 1, 4), lab_pick(&lab, 1, 9));
        check_project(&lab, mini_project(&m, rows));
        check_project(&lab, mini_down(&m, rows));
        check_gate_up(&lab, mini_gate_up(&m, rows));
        if (m.shape.layer_inputs > 0) check_gate_up(&lab, mini_input_gate(&m, rows));
        if (m.shape.layer_inputs > 0) check_add_norms(&lab, &m, rows);
        struct op_logits logits = mini_logits(&m, rows);
        check_logits(&lab, logits);
        logits.last_only = true;
        check_logits(&lab, logits);
        lab_close(&lab);
    }
}
END_TEST

/* Every other row of one matrix is gate's, the others are up's, as fused projections store them. */
START_TEST(rows_that_lie_apart_give_the_bits_of_rows_side_by_side)
{
    struct lab lab;
    for (int turn = 0; turn < 3; turn++) {
        struct mini m;
        lab_open(&lab, 2);
        mini_make(&lab, &m, reference_shape(&lab, turn));
        struct op_gate_up op = mini_gate_up(&m, mini_rows(&m, 1, 5));
        const struct weight *const both[] = {&op.gate, &op.up};
        const size_t bytes = (size_t)op.width * (size_t)dtype_bytes(op.gate.format), n = 5 * (size_t)op.hidden;
        struct weight fused = lab_weight(&lab, 2 * op.hidden, op.width, op.gate.format, 1);
        for (int r = 0; r < 2 * op.hidden; r++)
            memcpy((void *)(uintptr_t)weight_row(&fused, r), weight_row(both[r % 2], r / 2), bytes);
        op.x = lab_random_floats(&lab, 5 * (size_t)op.width);
        ck_ok(ops_host()->gate_up(lab.stream, &op));
        float *expected = memcpy(lab_alloc(&lab, n * sizeof(float)), op.h.data, n * sizeof(float));
        op.gate.data = weight_row(&fused, 0), op.up.data = weight_row(&fused, 1);
        op.gate.stride = op.up.stride = 2 * op.width;
        ck_ok(ops_host()->gate_up(lab.stream, &op));
        ck_assert_mem_eq(op.h.data, expected, n * sizeof(float));
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
    struct op_gate_up op = {
        .rows = {.batch = 1, .q_len = 1},
        .x = &one,
        .gate = gate,
        .up = up,
        .width = 1,
        .norm = {.kind = NORM_RMS, .weight = {.data = &one, .format = DTYPE_F32, .rows = 1, .cols = 1}},
        .hidden = HIDDEN,
        .normed = {lab_alloc(&lab, sizeof(float)), DTYPE_F32},
        .h = {h, DTYPE_F32}};
    for (int i = 0; host_isa_at(i); i++) {
        if (!host_isa_at(i)->is_supported()) continue;
        host_isa_force(host_isa_at(i));
        ck_ok(ops_host()->gate_up(lab.stream, &op));
        for (int o = 0; o < HIDDEN; o++) {
            float g = (float)lab_weight_at(&gate, o, 0), expected = g / (1 + fmath_exp(-g));
            ck_assert_msg(h[o] == expected * (float)lab_weight_at(&up, o, 0), "%s: gate %g gives %a", host_isa()->name,
                          (double)g, (double)h[o]);
        }
    }
    lab_close(&lab);
}
END_TEST

/* Sums as large as limits and exponents matter for. Loop index: the activation. */
START_TEST(activations_match_reference_far_out)
{
    enum { HIDDEN = 1003 };
    struct lab lab;
    lab_open(&lab, 1);
    const float one = 1;
    float *h = lab_alloc(&lab, HIDDEN * sizeof(float));
    struct op_gate_up op = {.rows = {.batch = 1, .q_len = 1},
                            .x = &one,
                            .gate = lab_weight(&lab, HIDDEN, 1, DTYPE_F32, 20),
                            .up = lab_weight(&lab, HIDDEN, 1, DTYPE_F32, 20),
                            .activation = (enum activation)_i,
                            .width = 1,
                            .hidden = HIDDEN,
                            .normed = {lab_alloc(&lab, sizeof(float)), DTYPE_F32},
                            .h = {h, DTYPE_F32}};
    for (int i = 0; host_isa_at(i); i++) {
        if (!host_isa_at(i)->is_supported()) continue;
        host_isa_force(host_isa_at(i));
        ck_ok(ops_host()->gate_up(lab.stream, &op));
        for (int o = 0; o < HIDDEN; o++)
            close_to(h[o],
                     reference_activation(op.activation, lab_weight_at(&op.gate, o, 0), lab_weight_at(&op.up, o, 0)),
                     host_isa()->name, 0, o);
    }
    lab_close(&lab);
}
END_TEST

START_TEST(matrices_that_do_not_fit_are_an_internal_error)
{
    struct lab lab;
    struct mini m;
    lab_open(&lab, 1);
    mini_make(&lab, &m, reference_shape(&lab, 0));
    struct op_gate_up gate_up = mini_gate_up(&m, mini_rows(&m, 1, 1));
    gate_up.up.rows++;
    ck_assert_int_eq(ops_host()->gate_up(lab.stream, &gate_up), ERR_INTERNAL);
    lab_close(&lab);
}
END_TEST

Suite *check_ops_mlp(void);
Suite *check_ops_mlp(void) {
    Suite *suite = suite_create("ops_mlp");
    TCase *tc = tcase_create("host");
    tcase_add_test(tc, ops_on_the_residual_stream_match_reference);
    tcase_add_test(tc, rows_that_lie_apart_give_the_bits_of_rows_side_by_side);
    tcase_add_test(tc, silu_is_made_of_fmath_exp);
    tcase_add_loop_test(tc, activations_match_reference_far_out, 0, ACTIVATION_RELU2 + 1);
    tcase_add_test(tc, matrices_that_do_not_fit_are_an_internal_error);
    suite_add_tcase(suite, tc);
    return suite;
}
