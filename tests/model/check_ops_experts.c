/* The host ops of experts against plain double precision: choices, products of few and of many rows, rows that choose nobody, and
 * experts that nobody chooses. */
#include <math.h>
#include <string.h>

#include "tests/support/ops_reference.h"
#include "tests/support/support.h"

/* --- route ------------------------------------------------------------------------------------------------ */

static void route_reference(const struct op_route *op, const float *logits, int *ids, double *weights) {
    double max = -INFINITY, sum = 0, scores[16], sums[16];
    for (int e = 0; e < op->experts; e++) max = fmax(max, (double)logits[e]);
    for (int e = 0; e < op->experts; e++) sum += exp((double)logits[e] - max);
    for (int e = 0; e < op->experts; e++) {
        scores[e] =
            op->scores == SCORES_SIGMOID ? 1 / (1 + exp(-(double)logits[e])) : exp((double)logits[e] - max) / sum;
        sums[e] = op->bias.data ? scores[e] + lab_weight_at(&op->bias, 0, e) : (double)logits[e];
    }
    for (int j = 0; j < op->chosen; j++) {
        ids[j] = -1;
        for (int e = 0; e < op->experts; e++) {
            bool is_taken = false;
            for (int i = 0; i < j; i++) is_taken = is_taken || ids[i] == e;
            if (!is_taken && (ids[j] < 0 || sums[e] > sums[ids[j]])) ids[j] = e;
        }
    }
    sum = 0;
    for (int j = 0; j < op->chosen; j++) sum += scores[ids[j]];
    for (int j = 0; j < op->chosen; j++) {
        weights[j] = scores[ids[j]] / (op->renormalise || op->scores == SCORES_OF_CHOSEN ? sum : 1) * (double)op->scale;
        if (op->expert_scale.data) weights[j] *= lab_weight_at(&op->expert_scale, 0, ids[j]);
    }
}

START_TEST(route_matches_reference_and_takes_the_lowest_of_equals)
{
    struct lab lab;
    for (int turn = 12; turn < 100; turn++) {
        struct mini m;
        lab_open(&lab, 1);
        mini_make(&lab, &m, reference_shape(&lab, turn));
        const int count = lab_pick(&lab, 1, 9), experts = m.shape.experts, chosen = m.shape.chosen;
        struct op_route op = mini_route(&m, mini_rows(&m, 1, count));
        for (int t = 0; t < count; t++) m.positions[t] = t % 4 == 3 ? -1 : t;
        for (int i = 0; i < count * experts; i++) /* of few values in every other turn */
            m.router_logits[i] = turn % 2 ? lab_random(&lab) * 3 : (float)lab_pick(&lab, -1, 2);
        ck_ok(ops_host()->route(lab.stream, &op));
        for (int t = 0; t < count; t++) {
            int ids[16];
            double weights[16];
            route_reference(&op, m.router_logits + t * experts, ids, weights);
            for (int j = 0; j < chosen; j++) {
                const bool chooses = m.positions[t] >= 0;
                require(op.ids[t * chosen + j] == (chooses ? ids[j] : -1), "row %d, choice %d is %d, expected %d", t, j,
                        op.ids[t * chosen + j], ids[j]);
                close_to(op.weights[t * chosen + j], chooses ? weights[j] : 0, "weight", t, j);
            }
        }
        lab_close(&lab);
    }
}
END_TEST

START_TEST(more_choices_than_experts_are_an_internal_error)
{
    struct lab lab;
    struct mini m;
    lab_open(&lab, 1);
    mini_make(&lab, &m, mini_families[mini_family_count - 1]);
    struct op_route op = mini_route(&m, mini_rows(&m, 1, 1));
    op.chosen = op.experts + 1;
    ck_assert_int_eq(ops_host()->route(lab.stream, &op), ERR_INTERNAL);
    lab_close(&lab);
}
END_TEST

/* --- products --------------------------------------------------------------------------------------------- */

/* sum_j weight_j (Wd_e h_e + bd_e) of one row, h_e as an expert's gate makes it. */
static void row_reference(const struct mini *m, const double *y, const int32_t *ids, const float *weights,
                          double *out) {
    const struct mini_shape *s = &m->shape;
    static double h[REFERENCE_MAX];
    for (int i = 0; i < s->width; i++) out[i] = 0;
    for (int j = 0; j < s->chosen && ids[j] >= 0; j++) {
        const int e = ids[j];
        const bool has_bias = s->has_expert_bias;
        for (int f = 0; f < s->hidden; f++) {
            const struct weight *gate_bias = has_bias ? &m->expert_gate_bias.each[e] : NULL,
                                *up_bias = has_bias ? &m->expert_up_bias.each[e] : NULL;
            const double gate = reference_product(&m->expert_gate.each[e], gate_bias, f, y);
            h[f] = reference_activation(s->activation, gate,
                                        s->lacks_up ? 1 : reference_product(&m->expert_up.each[e], up_bias, f, y));
        }
        const struct weight *bias = has_bias ? &m->expert_down_bias.each[e] : NULL;
        for (int i = 0; i < s->width; i++)
            out[i] += (double)weights[j] * reference_product(&m->expert_down.each[e], bias, i, h);
    }
}

/* Rows choose by chance, all alike, all different, or nobody (every third row); those who are not chosen hold NaN. */
static void choose(struct lab *lab, const struct mini *m, int count, int how) {
    const int chosen = m->shape.chosen, experts = m->shape.experts;
    for (int t = 0; t < count; t++) {
        const int first = how == 0 ? lab_pick(lab, 0, experts) : how == 1 ? 1 % experts : t * chosen % experts;
        for (int j = 0; j < chosen; j++) {
            const bool chooses = how != 3 || t % 3 != 0;
            m->expert_ids[t * chosen + j] = chooses ? (first + j) % experts : -1;
            m->expert_weights[t * chosen + j] = chooses ? lab_random(lab) : 0;
        }
    }
}

static void poison_unchosen(struct mini *m, int count) {
    struct mini_experts *all[MINI_EXPERTS_MAX];
    const int lists = mini_experts(m, all);
    for (int e = 0; e < m->shape.experts; e++) {
        bool is_chosen = false;
        for (int i = 0; i < count * m->shape.chosen; i++) is_chosen = is_chosen || m->expert_ids[i] == e;
        for (int i = 0; i < lists && !is_chosen; i++) {
            const struct weight *w = &all[i]->each[e];
            memset((void *)(uintptr_t)w->data, 0xFF,
                   (size_t)w->rows * (size_t)w->cols * (size_t)dtype_bytes(w->format));
        }
    }
}

static void check_experts(struct lab *lab, struct mini *m, int count, int how) {
    const struct mini_shape *s = &m->shape;
    struct rows rows = mini_rows(m, 1, count);
    struct op_experts_up up = mini_experts_up(m, rows);
    struct op_experts_down down = mini_experts_down(m, rows);
    float *x = lab_random_floats(lab, (size_t)(count * s->width));
    float *before = lab_random_floats(lab, (size_t)(count * s->width));
    up.x = x;
    choose(lab, m, count, how);
    poison_unchosen(m, count);
    memcpy(down.x, before, (size_t)(count * s->width) * sizeof *before);
    ck_ok(ops_host()->experts_up(lab->stream, &up));
    ck_ok(ops_host()->experts_down(lab->stream, &down));
    for (int t = 0; t < count; t++) {
        double y[256], expected[256];
        reference_widen(y, x + t * s->width, s->width);
        reference_norm(y, y, &m->mlp_norm, s->width);
        row_reference(m, y, m->expert_ids + t * s->chosen, m->expert_weights + t * s->chosen, expected);
        for (int i = 0; i < s->width; i++) {
            const double old = down.stores ? 0 : (double)before[t * s->width + i];
            /* sums of `chosen` products of O(1) */
            close_to((float)(((double)down.x[t * s->width + i] - old) / s->chosen), expected[i] / s->chosen, "x", t, i);
        }
    }
}

START_TEST(experts_match_reference_and_nobody_else_is_read)
{
    struct lab lab;
    for (int turn = 12; turn < 72; turn++) {
        struct mini m;
        lab_open(&lab, 1 + turn % 3);
        mini_make(&lab, &m, reference_shape(&lab, turn));
        check_experts(&lab, &m, turn % 5 == 0 ? 1 : lab_pick(&lab, 1, 25), turn % 4);
        lab_close(&lab);
    }
}
END_TEST

Suite *check_ops_experts(void);
Suite *check_ops_experts(void) {
    Suite *suite = suite_create("ops_experts");
    TCase *tc = tcase_create("host");
    tcase_add_test(tc, route_matches_reference_and_takes_the_lowest_of_equals);
    tcase_add_test(tc, more_choices_than_experts_are_an_internal_error);
    tcase_add_test(tc, experts_match_reference_and_nobody_else_is_read);
    suite_add_tcase(suite, tc);
    return suite;
}
