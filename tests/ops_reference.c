#include "tests/ops_reference.h"

#include <math.h>

#include "tests/support.h"

void close_to(float got, double expected, const char *what, int row, int col) {
    require(fabs(got - expected) <= 2e-5 + 2e-5 * fabs(expected), "%s[%d, %d] is %.9g, expected %.9g", what, row, col,
            (double)got, expected);
}

static bool by_chance(struct lab *lab) {
    return lab_pick(lab, 0, 3) == 0;
}

/* Scales and the like, each in one shape of three; they must not make numbers so large that f32 sums are off. */
static void add_what_families_have(struct lab *lab, struct mini_shape *s) {
    static const float scales[] = {0, 1, 0.25f, -2};
    s->norms = (enum mini_norms)lab_pick(lab, 0, 3);
    s->norm_offset = by_chance(lab) ? 1 : 0;
    s->lacks_norm_weights = by_chance(lab);
    s->norms_all_heads = by_chance(lab), s->has_v_norm = by_chance(lab);
    s->pairs_neighbours = by_chance(lab), s->has_rope_choice = by_chance(lab), s->lacks_rope = by_chance(lab);
    if (by_chance(lab)) s->rope_dims = 2 * lab_pick(lab, 1, s->head_dim / 2 + 1);
    s->lacks_k = by_chance(lab), s->lacks_v = s->lacks_k || (by_chance(lab) && !s->norms_all_heads);
    if (by_chance(lab)) s->attention_scale = 0.2f;
    if (by_chance(lab)) s->attention_cap = 1.5f;
    s->has_sinks = by_chance(lab), s->has_output_bias = by_chance(lab), s->has_head_bias = by_chance(lab);
    s->has_layer_scale = by_chance(lab);
    s->embedding_scale = scales[lab_pick(lab, 0, 4)], s->residual_scale = scales[lab_pick(lab, 0, 4)];
    s->logits_scale = scales[lab_pick(lab, 0, 4)];
    if (by_chance(lab)) s->logits_cap = 1.25f;
    s->activation = (enum activation)lab_pick(lab, 0, 3);
    s->layer_inputs = lab_pick(lab, 1, 50);
    s->experts = lab_pick(lab, 1, 12), s->chosen = lab_pick(lab, 1, s->experts + 1);
    s->has_expert_bias = by_chance(lab), s->has_expert_scale = by_chance(lab);
    s->softmax_of_all = by_chance(lab), s->renormalises = by_chance(lab);
    s->experts_beside = by_chance(lab);
}

struct mini_shape reference_shape(struct lab *lab, int turn) {
    static const int heads[][2] = {{1, 1}, {4, 4}, {4, 2}, {6, 2}, {5, 1}, {9, 3}, {7, 7}};
    static const int dims[] = {8, 10, 16, 24, 32, 50, 64, 80, 128, 256, 512};
    lab->draws = (uint64_t)turn << 32;
    const int *h = heads[lab_pick(lab, 0, 7)];
    struct mini_shape s = {.type = (enum dtype)(turn % 3),
                           .width = lab_pick(lab, 1, 150),
                           .hidden = lab_pick(lab, 1, 200),
                           .heads = h[0],
                           .kv_heads = h[1],
                           .head_dim = dims[turn % 11],
                           .vocab = lab_pick(lab, 1, 300),
                           .has_bias = turn / 3 % 2,
                           .has_qk_norm = turn / 6 % 2,
                           .slots = 4,
                           .pages_per_slot = 2,
                           .max_rows = 24};
    if (turn >= 12) add_what_families_have(lab, &s);
    return s;
}

void reference_widen(double *out, const float *in, int n) {
    for (int i = 0; i < n; i++) out[i] = in[i];
}

void reference_norm(double *y, const double *x, const struct norm *norm, int n) {
    double squares = 0;
    for (int i = 0; i < n; i++) squares += x[i] * x[i];
    const double factor = norm->kind == NORM_RMS ? 1 / sqrt(squares / n + (double)norm->eps) : 1;
    const bool weighs = norm->kind == NORM_RMS && norm->weight.data;
    for (int i = 0; i < n; i++)
        y[i] = x[i] * factor * (weighs ? lab_weight_at(&norm->weight, 0, i) + (double)norm->offset : 1);
}

double reference_product(const struct weight *w, const struct weight *bias, int row, const double *x) {
    double sum = bias && bias->data ? lab_weight_at(bias, 0, row) : 0;
    for (int i = 0; i < w->cols; i++) sum += lab_weight_at(w, row, i) * x[i];
    return sum;
}

double reference_activation(enum activation activation, double gate, double up) {
    if (activation == ACTIVATION_SILU) return gate / (1 + exp(-gate)) * up;
    if (activation == ACTIVATION_GELU)
        return gate * (1 + tanh(sqrt(2 / acos(-1)) * (gate + 0.044715 * gate * gate * gate))) / 2 * up;
    gate = fmin(gate, 7), up = fmax(fmin(up, 7), -7);
    return (up + 1) * gate / (1 + exp(-1.702 * gate));
}

double reference_cap(double x, double cap) {
    return cap != 0 ? cap * tanh(x / cap) : x;
}

/* Pairs of neighbours, or of dimensions half of the rotated ones apart; the others stand still. */
void reference_turn(const struct rope *rope, int slot, int position, int dim, double *head) {
    const int at = (position < 0 ? 0 : position) + (rope->choice && rope->choice[slot] ? rope->positions : 0);
    const int pairs = rope->dims / 2;
    for (int i = 0; rope->table && i < pairs; i++) {
        const float *turn = rope->table + (size_t)at * (size_t)dim + 2 * (size_t)i;
        double *a = head + (rope->pairs_neighbours ? 2 * i : i), *b = a + (rope->pairs_neighbours ? 1 : pairs);
        const double x = *a, y = *b, c = (double)turn[0], s = (double)turn[1];
        *a = x * c - y * s, *b = y * c + x * s;
    }
}
