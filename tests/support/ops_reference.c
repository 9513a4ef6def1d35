#include "tests/support/ops_reference.h"

#include <math.h>

#include "tests/support/support.h"

void close_to(float got, double expected, const char *what, int row, int col) {
    require(fabs(got - expected) <= 2e-5 + 2e-5 * fabs(expected), "%s[%d, %d] is %.9g, expected %.9g", what, row, col,
            (double)got, expected);
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
    if (turn >= 12) mini_add_features(lab, &s);
    return s;
}

void reference_widen(double *out, const float *in, int n) {
    for (int i = 0; i < n; i++) out[i] = in[i];
}

void reference_norm(double *y, const double *x, const struct norm *norm, int n) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    const double mean = norm->kind == NORM_LAYER ? sum / n : 0;
    for (int i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    const double factor = norm->kind != NORM_NONE ? 1 / sqrt(squares / n + (double)norm->eps) : 1;
    const bool weighs = norm->kind != NORM_NONE && norm->weight.data,
               adds = norm->kind == NORM_LAYER && norm->bias.data;
    for (int i = 0; i < n; i++)
        y[i] = (x[i] - mean) * factor * (weighs ? lab_weight_at(&norm->weight, 0, i) + (double)norm->offset : 1) +
               (adds ? lab_weight_at(&norm->bias, 0, i) : 0);
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
    if (activation == ACTIVATION_RELU2) return fmax(gate, 0) * fmax(gate, 0) * up;
    gate = fmin(gate, 7), up = fmax(fmin(up, 7), -7);
    return (up + 1) * gate / (1 + exp(-1.702 * gate));
}

double reference_cap(double x, double cap) {
    return cap != 0 ? cap * tanh(x / cap) : x;
}

/* Pairs of neighbours, or of dimensions half of the rotated ones apart; the others stand still. */
void reference_turn(const struct rope *rope, int slot, int position, bool is_q, int dim, double *head) {
    const int at = (position < 0 ? 0 : position) + (rope->choice && rope->choice[slot] ? rope->positions : 0) +
                   (is_q ? rope->queries : 0);
    const int pairs = rope->dims / 2;
    for (int i = 0; rope->table && i < pairs; i++) {
        const float *turn = rope->table + (size_t)at * (size_t)dim + 2 * (size_t)i;
        double *a = head + (rope->pairs_neighbours ? 2 * i : i), *b = a + (rope->pairs_neighbours ? 1 : pairs);
        const double x = *a, y = *b, c = (double)turn[0], s = (double)turn[1];
        *a = x * c - y * s, *b = y * c + x * s;
    }
}
