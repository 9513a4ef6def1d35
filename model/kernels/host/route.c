/* Which experts a row goes to, and their weights. Rows are few: one thread does them all. */
#include <math.h>

#include "base/err.h"
#include "base/fmath.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/isa.h"

/* The largest logit that was not taken before, the lowest id on a tie. */
static int next_expert(const float *logits, int experts, const int32_t *taken, int count) {
    int best = -1;
    for (int e = 0; e < experts; e++) {
        bool is_taken = false;
        for (int i = 0; i < count; i++) is_taken = is_taken || taken[i] == e;
        if (!is_taken && (best < 0 || logits[e] > logits[best])) best = e;
    }
    return best;
}

/* Softmax over all logits, or over the chosen; sums in ascending order. */
static void weigh(const struct op_route *op, const float *logits, const int32_t *ids, float *weights) {
    const float max = logits[ids[0]];
    float sum = 0;
    for (int i = 0; i < (op->softmax_of_all ? op->experts : op->chosen); i++)
        sum += fmath_exp(logits[op->softmax_of_all ? i : ids[i]] - max);
    for (int i = 0; i < op->chosen; i++) weights[i] = fmath_exp(logits[ids[i]] - max) / sum;
    if (!op->renormalise) return;
    sum = 0;
    for (int i = 0; i < op->chosen; i++) sum += weights[i];
    for (int i = 0; i < op->chosen; i++) weights[i] /= sum;
}

static void route_row(const struct op_route *op, int row) {
    const float *logits = op->logits + (size_t)row * (size_t)op->experts;
    int32_t *ids = op->ids + (size_t)row * (size_t)op->chosen;
    float *weights = op->weights + (size_t)row * (size_t)op->chosen;
    if (op->rows.positions[row] < 0) {
        for (int i = 0; i < op->chosen; i++) ids[i] = -1, weights[i] = 0;
        return;
    }
    for (int i = 0; i < op->chosen; i++) ids[i] = next_expert(logits, op->experts, ids, i);
    weigh(op, logits, ids, weights);
    for (int i = 0; i < op->chosen; i++) weights[i] *= op->scale;
    const struct weight *scale = &op->expert_scale;
    for (int i = 0; scale->data && i < op->chosen; i++) {
        float factor;
        host_isa()->widen(&factor, (const char *)scale->data + ids[i] * dtype_bytes(scale->format), scale->format, 1);
        weights[i] *= factor;
    }
}

static int run(const void *args) {
    const struct op_route *op = args;
    for (int row = 0; row < rows_count(&op->rows); row++) route_row(op, row);
    return 0;
}

int host_route(struct stream *stream, const struct op_route *op) {
    if (op->chosen < 1 || op->chosen > op->experts)
        return err_set(ERR_INTERNAL, "route: %d of %d experts", op->chosen, op->experts);
    return stream_run_host(stream, run, op, sizeof *op);
}
