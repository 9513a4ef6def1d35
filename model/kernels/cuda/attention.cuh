/* What the attentions share: which keys a row sees, how scores are capped, and what sinks add. */
#ifndef DUET_MODEL_KERNELS_CUDA_ATTENTION_CUH
#define DUET_MODEL_KERNELS_CUDA_ATTENTION_CUH

#include <math_constants.h>

#include "model/kernels/cuda/product_matrix.h"

enum { ATTENTION_DIMS_MAX = 512 };
static constexpr float LOG2_E = 1.44269504f;

/* Does a row at `position` see the key at position `key`? A window of 0: no bound. */
__device__ __forceinline__ bool is_visible(int key, int position, int window) {
    return key <= position && (window == 0 || key > position - window);
}

/* 2^x; below 2^-126 it is 0. */
__device__ __forceinline__ float power_of_2(float x) {
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}

/* The larger one; NaN if one is. */
__device__ __forceinline__ float max_or_nan(float x, float y) {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
    return x;
}

/* What makes scores, times log2(e), of sums: the op's scale, and its cap; a cap of 0: none. */
struct scoring {
    float factor, cap;
};
static inline struct scoring scoring_of(const struct op_attention *op) {
    return {op->scale * LOG2_E, op->cap * LOG2_E};
}

/* cap * tanh(x / cap) of a score that was multiplied by log2(e), as `cap` was. */
__device__ __forceinline__ float cap_score(float x, float cap) {
    return cap - __fdividef(2.0f * cap, 1.0f + exp2f(x * __fdividef(2.0f * LOG2_E, cap)));
}

/* The sum of a softmax whose scores, and so its maximum, were multiplied by log2(e), with the sink of a head; 0, of no key, stays. */
template <typename T>
__device__ __forceinline__ float add_sink(const struct op_attention &op, int head, float sum, float max) {
    if (!op.sinks.data || sum == 0) return sum;
    return sum + exp2f(to_float(((const T *)op.sinks.data)[head]) * LOG2_E - max);
}

int cuda_attention_cluster(struct stream *, const struct op_attention *);
int cuda_attention_plain(struct stream *, const struct op_attention *);

#endif
