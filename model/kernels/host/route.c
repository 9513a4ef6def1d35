/* Which experts a row goes to, and their weights. Rows are few: one thread does them all. */
#include <math.h>

#include "base/err.h"
#include "base/fmath.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/isa.h"

/* The largest number that was not taken before, the lowest id on a tie. */
static int next_expert(const float *numbers, int experts, const int32_t *taken, int count) {
    int best = -1;
    for (int e = 0; e < experts; e++) {
        bool is_taken = false;
        for (int i = 0; i < count; i++) is_taken = is_taken || taken[i] == e;
        if (!is_taken && (best < 0 || numbers[e] > numbers[best])) best = e;
    }
    return best;
}

static float largest_of(const float *logits, int experts) {
    float max = logits[0];
    for (int e = 1; e < experts; e++) max = logits[e] > max ? logits[e] : max;
    return max;
}

/* Of all experts: sigmoids, or softmax, whose sum is in ascending order. */
static void score_all(const struct op_route *op, const float *logits, float *scores) {
    const float max = largest_of(logits, op->experts);
    float sum = 0;
    for (int e = 0; e < op->experts; e++) {
        scores[e] = op->scores == SCORES_SIGMOID ? 1 / (1 + fmath_exp(-logits[e])) : fmath_exp(logits[e] - max);
        sum += scores[e];
    }
    for (int e = 0; e < op->experts && op->scores == SCORES_OF_ALL; e++) scores[e] /= sum;
}

/* Divides them by their sum, which is in ascending order. */
static void share(float *weights, int count) {
    float sum = 0;
    for (int i = 0; i < count; i++) sum += weights[i];
    for (int i = 0; i < count; i++) weights[i] /= sum;
}

static void route_row(const struct op_route *op, int row) {
    const float *logits = op->logits + (size_t)row * (size_t)op->experts, *numbers = logits;
    int32_t *ids = op->ids + (size_t)row * (size_t)op->chosen;
    float *weights = op->weights + (size_t)row * (size_t)op->chosen, scores[EXPERTS_MAX], sums[EXPERTS_MAX];
    const bool is_of_chosen = op->scores == SCORES_OF_CHOSEN;
    if (op->rows.positions[row] < 0) {
        for (int i = 0; i < op->chosen; i++) ids[i] = -1, weights[i] = 0;
        return;
    }
    if (!is_of_chosen) score_all(op, logits, scores);
    for (int e = 0; e < op->experts && op->bias.data; e++) sums[e] = scores[e] + host_number(&op->bias, e);
    if (op->bias.data) numbers = sums;
    for (int i = 0; i < op->chosen; i++) ids[i] = next_expert(numbers, op->experts, ids, i);
    for (int i = 0; i < op->chosen; i++)
        weights[i] = is_of_chosen ? fmath_exp(logits[ids[i]] - logits[ids[0]]) : scores[ids[i]];
    if (is_of_chosen) share(weights, op->chosen);
    if (op->renormalise) share(weights, op->chosen);
    for (int i = 0; i < op->chosen; i++) {
        weights[i] *= op->scale;
        if (op->expert_scale.data) weights[i] *= host_number(&op->expert_scale, ids[i]);
    }
}

static int run(const void *args) {
    const struct op_route *op = args;
    for (int row = 0; row < rows_count(&op->rows); row++) route_row(op, row);
    return 0;
}

int host_route(struct stream *stream, const struct op_route *op) {
    if (op->chosen < 1 || op->chosen > op->experts || op->experts > EXPERTS_MAX)
        return err_set(ERR_INTERNAL, "route: %d of %d experts", op->chosen, op->experts);
    return stream_run_host(stream, run, op, sizeof *op);
}
