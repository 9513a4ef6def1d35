/* How a warp chooses the experts of a row: those of the largest logits, the lowest id on a tie. A lane has the experts lane, lane + 32,
 * ..., up to EACH, in registers, and a choice is two reductions. */
#ifndef DUET_MODEL_KERNELS_CUDA_ROUTE_CUH
#define DUET_MODEL_KERNELS_CUDA_ROUTE_CUH

#include "model/kernels/cuda/common.cuh"

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

/* Lane j has choice j of a row: id -1 where there is none, of a row without a position, or past the last. */
struct choice {
    int id;
    float logit, largest; /* its own; of all */
};

__device__ __forceinline__ float sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

/* Scores of all, and biases, in place of the logits; the largest of these. Lanes past the last expert have any number. */
template <int EACH>
__device__ __forceinline__ float score_all(const struct op_route &op, const float (&logits)[EACH],
                                           float (&sums)[EACH]) {
    const int lane = threadIdx.x % 32;
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < op.experts) largest = fmaxf(largest, logits[i]);
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < op.experts) sum += expf(logits[i] - largest);
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const float score = op.scores == SCORES_SIGMOID ? sigmoid(logits[i]) : expf(logits[i] - largest) / sum;
        sums[i] = op.bias.data ? score + number_of(op.bias, min(lane + 32 * i, op.experts - 1)) : logits[i];
    }
    return largest;
}

/* `IS_SCORED`: by sigmoids, or with biases. */
template <int EACH, bool IS_SCORED = false>
__device__ __forceinline__ struct choice choose(const struct op_route &op, int row) {
    const int lane = threadIdx.x % 32;
    const float *logits = op.logits + (size_t)row * op.experts;
    float numbers[EACH], largest_of_all = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        numbers[i] = __int_as_float(load_fixed((const int *)logits + min(lane + 32 * i, op.experts - 1)));
    const int position = load_fixed(op.rows.positions + row);
    if constexpr (IS_SCORED) {
        float sums[EACH];
        largest_of_all = score_all<EACH>(op, numbers, sums);
#pragma unroll
        for (int i = 0; i < EACH; i++) numbers[i] = sums[i];
    }
    unsigned left[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) left[i] = lane + 32 * i < op.experts ? order_of(numbers[i]) : 0;
    struct choice mine = {-1, -INFINITY, 0};
    if (position < 0) return mine;
    for (int j = 0; j < op.chosen; j++) {
        unsigned best = 0;
        int id = EXPERTS_MAX;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (left[i] > best) best = left[i], id = lane + 32 * i;
        const unsigned largest = __reduce_max_sync(0xffffffffu, best);
        id = __reduce_min_sync(0xffffffffu, best == largest ? id : EXPERTS_MAX);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (id == lane + 32 * i) left[i] = 0;
        if (j == lane) mine.id = id, mine.logit = logit_of(largest);
        if (j == 0) mine.largest = logit_of(largest);
    }
    if constexpr (IS_SCORED) {
        if (mine.id >= 0) mine.logit = __ldcg(logits + mine.id);
        mine.largest = largest_of_all;
    }
    return mine;
}

/* Ids and weights of a row's choices to where the op has them. */
template <typename T, int EACH, bool IS_SCORED = false>
__device__ __forceinline__ void put_choice(const struct op_route &op, int row, struct choice mine) {
    const int lane = threadIdx.x % 32;
    const float *logits = op.logits + (size_t)row * op.experts;
    const bool is_of_all = op.scores == SCORES_OF_ALL;
    float weight = mine.id >= 0 ? expf(mine.logit - mine.largest) : 0.0f, sum = 0;
    if (is_of_all)
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (lane + 32 * i < op.experts) sum += expf(__ldcg(logits + lane + 32 * i) - mine.largest);
    weight /= warp_sum(is_of_all ? sum : weight);
    if (IS_SCORED && op.scores == SCORES_SIGMOID) weight = mine.id >= 0 ? sigmoid(mine.logit) : 0.0f;
    if (op.renormalise) weight /= warp_sum(weight);
    weight *= op.scale;
    if (lane >= op.chosen) return;
    const bool chooses = mine.id >= 0;
    if (chooses && op.expert_scale.data) weight *= to_float(((const T *)op.expert_scale.data)[mine.id]);
    op.ids[row * op.chosen + lane] = mine.id;
    op.weights[row * op.chosen + lane] = chooses ? weight : 0.0f;
}

static inline bool is_scored(const struct op_route *route) {
    return route->bias.data || route->scores == SCORES_SIGMOID;
}
/* Is the choice of a single row left to the ops of experts, which are told of it? Of so many experts a lane. */
enum { FEW_EXPERTS = 4 };
static inline bool is_route_left(const struct rows *rows, const struct op_route *route) {
    return route->is_told && !is_scored(route) && !rows->prefill && rows_count(rows) == 1 &&
           route->experts <= FEW_EXPERTS * 32;
}
/* Makes the choice, left or not. */
int cuda_route(struct stream *, const struct rows *, const struct op_route *);

#endif
