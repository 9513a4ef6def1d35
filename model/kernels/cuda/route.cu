/* The experts of the largest logits of a row and their weights: a warp a row, none for a row without a position. A lane has the
 * experts lane, lane + 32, ... */
#include "model/kernels/cuda/common.cuh"
#include "model/kernels/cuda/table.h"

enum { WARPS = 4, EXPERTS_MAX = 32 * 32, CHOSEN_MAX = 32 };

/* Does a come before b? NaN first, so that it comes out; the lower id on a tie. */
__device__ __forceinline__ bool is_before(float a, int id, float b, int other) {
    const bool is_nan = a != a, other_is_nan = b != b;
    if (is_nan || other_is_nan) return is_nan && (!other_is_nan || id < other);
    return a > b || (a == b && id < other);
}

/* The best of a lane's experts that are not in `taken`, a bit each; its id is past all where there is none. */
__device__ __forceinline__ int best_of_lane(const float *logits, int experts, unsigned taken, float *value) {
    int best = EXPERTS_MAX;
    *value = -INFINITY;
    for (int e = threadIdx.x % 32; e < experts; e += 32) {
        const float x = logits[e];
        if (!(taken >> (e / 32) & 1) && is_before(x, e, *value, best)) *value = x, best = e;
    }
    return best;
}

/* The best of all lanes' best; every lane gets it. */
__device__ __forceinline__ int best_of_warp(int best, float *value) {
    for (int step = 16; step > 0; step >>= 1) {
        const float other_value = __shfl_xor_sync(0xffffffffu, *value, step);
        const int other = __shfl_xor_sync(0xffffffffu, best, step);
        if (is_before(other_value, other, *value, best)) *value = other_value, best = other;
    }
    return best;
}

/* grid (T / WARPS) */
template <typename T> __global__ void __launch_bounds__(WARPS * 32) route_kernel(const struct op_route op, int count) {
    next_may_start();
    inputs_are_ready();
    const int lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= count) return;
    if (op.rows.positions[row] < 0) {
        if (lane < op.chosen) op.ids[row * op.chosen + lane] = -1, op.weights[row * op.chosen + lane] = 0;
        return;
    }
    const float *logits = op.logits + (size_t)row * op.experts;
    unsigned taken = 0;
    int mine = 0; /* lane j: the id of choice j */
    float logit = -INFINITY, max = 0;
    for (int j = 0; j < op.chosen; j++) {
        float value;
        const int best = best_of_warp(best_of_lane(logits, op.experts, taken, &value), &value);
        if (best % 32 == lane) taken |= 1u << (best / 32);
        if (j == lane) mine = best, logit = value;
        if (j == 0) max = value;
    }
    const bool is_chosen = lane < op.chosen;
    float weight = is_chosen ? expf(logit - max) : 0.0f, sum = 0;
    if (op.softmax_of_all)
        for (int e = lane; e < op.experts; e += 32) sum += expf(logits[e] - max);
    weight /= warp_sum(op.softmax_of_all ? sum : weight);
    if (op.renormalise) weight /= warp_sum(weight);
    if (!is_chosen) return;
    if (op.expert_scale.data) weight *= to_float(((const T *)op.expert_scale.data)[mine]);
    op.ids[row * op.chosen + lane] = mine;
    op.weights[row * op.chosen + lane] = weight;
}

int cuda_op_route(struct stream *s, const struct op_route *op) {
    if (op->chosen < 1 || op->chosen > op->experts || op->chosen > CHOSEN_MAX || op->experts > EXPERTS_MAX)
        return err_set(ERR_INTERNAL, "route: %d of %d experts, expected up to %d of %d", op->chosen, op->experts,
                       CHOSEN_MAX, EXPERTS_MAX);
    return with_type("route", {op->expert_scale}, [&](auto type) {
        const int count = rows_count(&op->rows);
        launch_dependent(s, route_kernel<decltype(type)>, dim3(ceil_div(count, WARPS)), WARPS * 32, 0, 1, *op, count);
        return cuda_launched(s, "route", sizeof *op + 4);
    });
}
