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

static float number_of(const struct weight *w, int index) {
    float number;
    host_isa()->widen(&number, (const char *)w->data + index * dtype_bytes(w->format), w->format, 1);
    return number;
}

static float sigmoid(float x) {
    return 1 / (1 + fmath_exp(-x));
}

/* Scores and biases of all. */
static void add_bias(const struct op_route *op, const float *logits, float *sums) {
    float max = logits[0], sum = 0;
    for (int e = 1; e < op->experts; e++) max = logits[e] > max ? logits[e] : max;
    for (int e = 0; e < op->experts; e++) sum += fmath_exp(logits[e] - max);
    for (int e = 0; e < op->experts; e++)
        sums[e] = (op->scores == SCORES_SIGMOID ? sigmoid(logits[e]) : fmath_exp(logits[e] - max) / sum) +
                  number_of(&op->bias, e);
}

/* Scores of the chosen; sums in ascending order. */
static void weigh(const struct op_route *op, const float *logits, const int32_t *ids, float *weights) {
    const bool is_of_all = op->scores == SCORES_OF_ALL;
    float max = logits[ids[0]], sum = 0;
    for (int e = 0; e < op->experts && op->bias.data; e++) max = logits[e] > max ? logits[e] : max;
    for (int i = 0; i < (is_of_all ? op->experts : op->chosen); i++)
        sum += fmath_exp(logits[is_of_all ? i : ids[i]] - max);
    for (int i = 0; i < op->chosen; i++)
        weights[i] = op->scores == SCORES_SIGMOID ? sigmoid(logits[ids[i]]) : fmath_exp(logits[ids[i]] - max) / sum;
    if (!op->renormalise) return;
    sum = 0;
    for (int i = 0; i < op->chosen; i++) sum += weights[i];
    for (int i = 0; i < op->chosen; i++) weights[i] /= sum;
}

static void route_row(const struct op_route *op, int row) {
    const float *logits = op->logits + (size_t)row * (size_t)op->experts;
    int32_t *ids = op->ids + (size_t)row * (size_t)op->chosen;
    float *weights = op->weights + (size_t)row * (size_t)op->chosen, sums[EXPERTS_MAX];
    if (op->rows.positions[row] < 0) {
        for (int i = 0; i < op->chosen; i++) ids[i] = -1, weights[i] = 0;
        return;
    }
    if (op->bias.data) add_bias(op, logits, sums);
    for (int i = 0; i < op->chosen; i++) ids[i] = next_expert(op->bias.data ? sums : logits, op->experts, ids, i);
    weigh(op, logits, ids, weights);
    for (int i = 0; i < op->chosen; i++) weights[i] *= op->scale;
    for (int i = 0; op->expert_scale.data && i < op->chosen; i++) weights[i] *= number_of(&op->expert_scale, ids[i]);
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
