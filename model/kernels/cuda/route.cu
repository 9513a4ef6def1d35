/* The experts of the largest logits of a row and their weights: a warp a row, none for a row without a position. A lane has the
 * experts lane, lane + 32, ..., up to EACH, in registers. */
#include "model/kernels/cuda/common.cuh"
#include "model/kernels/cuda/table.h"

enum { WARPS = 4 };
static_assert(EXPERTS_MAX == 32 * 32 && CHOSEN_MAX <= 32, "a lane has 32 experts, and one choice");

/* Numbers that order as logits do: NaN first, so that it comes out, and 0 as -0 does. 0 is less than any. */
__device__ __forceinline__ unsigned order_of(float x) {
    const unsigned bits = __float_as_uint(x == 0 ? 0.0f : x);
    if (x != x) return ~0u;
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ __forceinline__ float logit_of(unsigned order) {
    return __uint_as_float(order >> 31 ? order & ~(1u << 31) : ~order);
}

/* grid (T / WARPS) */
template <typename T, int EACH>
__global__ void __launch_bounds__(WARPS * 32) route_kernel(const struct op_route op, int count) {
    next_may_start();
    inputs_are_ready();
    const int lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= count) return;
    const float *logits = op.logits + (size_t)row * op.experts;
    unsigned left[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) left[i] = lane + 32 * i < op.experts ? order_of(logits[lane + 32 * i]) : 0;
    if (op.rows.positions[row] < 0) {
        if (lane < op.chosen) op.ids[row * op.chosen + lane] = -1, op.weights[row * op.chosen + lane] = 0;
        return;
    }
    unsigned all[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) all[i] = left[i];
    int mine = 0; /* lane j: the id of choice j */
    float logit = -INFINITY, max = 0;
    for (int j = 0; j < op.chosen; j++) {
        unsigned best = 0;
        int id = EXPERTS_MAX;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (left[i] > best) best = left[i], id = lane + 32 * i;
        const unsigned largest = __reduce_max_sync(0xffffffffu, best);
        id = __reduce_min_sync(0xffffffffu, best == largest ? id : EXPERTS_MAX); /* the lowest on a tie */
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (id == lane + 32 * i) left[i] = 0;
        if (j == lane) mine = id, logit = logit_of(largest);
        if (j == 0) max = logit_of(largest);
    }
    const bool is_chosen = lane < op.chosen;
    float weight = is_chosen ? expf(logit - max) : 0.0f, sum = 0;
    if (op.softmax_of_all)
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (lane + 32 * i < op.experts) sum += expf(logit_of(all[i]) - max);
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
        typedef decltype(type) T;
        auto kernel = op->experts <= 128 ? route_kernel<T, 4> : route_kernel<T, 32>;
        launch_dependent(s, kernel, dim3(ceil_div(count, WARPS)), WARPS * 32, 0, 1, *op, count);
        return cuda_launched(s, "route", sizeof *op + 4);
    });
}
