/* Loops over the vocabulary. Each is compiled for three CPUs; all of them give the same bits, because order and
 * fused operations are spelled out. `flatten` puts base/fmath.h into the clone, so that fmaf is an instruction. */
#include <string.h>

#include "sampler/internal.h"

#define FOR_EACH_CPU __attribute__((flatten, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))

FOR_EACH_CPU float vector_max(const float *x, int n, bool *finite) {
    float max = -INFINITY;
    uint32_t largest = 0;
#pragma omp simd reduction(max : max, largest)
    for (int i = 0; i < n; i++) {
        uint32_t magnitude = fmath_bits(x[i]) & 0x7FFFFFFFu;
        max = x[i] > max ? x[i] : max;
        largest = magnitude > largest ? magnitude : largest;
    }
    *finite = largest < 0x7F800000u;
    return max;
}

FOR_EACH_CPU void vector_weights(const float *restrict logits, int n, float max_logit, float temperature,
                                 float *restrict weight) {
#pragma omp simd
    for (int i = 0; i < n; i++) weight[i] = rule_weight(logits[i], max_logit, temperature);
}

static float fold_lanes(float *lane) {
    for (int w = SAMPLER_LANES / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++) lane[j] += lane[j + w];
    return lane[0];
}

FOR_EACH_CPU float vector_sum(const float *x, int n) {
    float lane[SAMPLER_LANES] = {0};
    for (int i = 0; i < n; i += SAMPLER_LANES) {
        int end = n - i < SAMPLER_LANES ? n - i : SAMPLER_LANES;
#pragma omp simd
        for (int j = 0; j < end; j++) lane[j] += x[i + j];
    }
    return fold_lanes(lane);
}

FOR_EACH_CPU float vector_sum_min(const float *x, const float *y, int n) {
    float lane[SAMPLER_LANES] = {0};
    for (int i = 0; i < n; i += SAMPLER_LANES) {
        int end = n - i < SAMPLER_LANES ? n - i : SAMPLER_LANES;
#pragma omp simd
        for (int j = 0; j < end; j++) lane[j] += x[i + j] < y[i + j] ? x[i + j] : y[i + j];
    }
    return fold_lanes(lane);
}

FOR_EACH_CPU void vector_divide(float *x, int n, float by) {
#pragma omp simd
    for (int i = 0; i < n; i++) x[i] /= by;
}

FOR_EACH_CPU int vector_count_above(const float *x, int n, float bound) {
    int count = 0;
#pragma omp simd reduction(+ : count)
    for (int i = 0; i < n; i++) count += x[i] > bound;
    return count;
}

FOR_EACH_CPU uint64_t vector_mass(const float *weight, int n) {
    uint64_t mass = 0;
#pragma omp simd reduction(+ : mass)
    for (int i = 0; i < n; i++) mass += rule_mass(weight[i]);
    return mass;
}

FOR_EACH_CPU void vector_zero_below(float *x, int n, float bound) {
#pragma omp simd
    for (int i = 0; i < n; i++) x[i] = x[i] < bound ? 0.0f : x[i];
}

FOR_EACH_CPU void vector_zero_after(float *restrict weight, const float *restrict logits, int n, uint32_t order,
                                    int id) {
#pragma omp simd
    for (int i = 0; i < n; i++) {
        uint32_t own = rule_order(logits[i]);
        int keep = (own > order) | ((own == order) & (i <= id));
        weight[i] = keep ? weight[i] : 0.0f;
    }
}

FOR_EACH_CPU void vector_residual(const float *restrict p, int n, const float *restrict q, int n_q,
                                  float *restrict out) {
    int both = n < n_q ? n : n_q;
#pragma omp simd
    for (int i = 0; i < both; i++) out[i] = p[i] > q[i] ? p[i] - q[i] : 0.0f;
    if (n > both) memcpy(out + both, p + both, sizeof *p * (size_t)(n - both));
}

/* Ids of one step of the race: skipped as a whole when none is possible. */
enum { RACE_IDS = 256 };

FOR_EACH_CPU static float race_step(const float *restrict p, const uint32_t *restrict words, float *restrict rate) {
    float best = 0;
#pragma omp simd reduction(max : best)
    for (int i = 0; i < RACE_IDS; i++) {
        rate[i] = p[i] / rule_race_time(words[i]);
        best = rate[i] > best ? rate[i] : best;
    }
    return best;
}

static void race_words(uint64_t key, uint64_t position, uint64_t first_block, uint32_t *words) {
    for (uint64_t b = 0; b < RACE_IDS / 4; b++) {
        struct philox_block block = philox_block(key, position, first_block + b);
        memcpy(words + 4 * b, block.w, sizeof block.w);
    }
}

int vector_race(const float *p, int n, uint64_t key, uint64_t position, int purpose) {
    int winner = -1;
    float best = 0, rate[RACE_IDS], padded[RACE_IDS] = {0};
    uint32_t words[RACE_IDS];
    for (int i = 0; i < n; i += RACE_IDS) {
        const float *ids = p + i;
        if (n - i < RACE_IDS) ids = memcpy(padded, ids, sizeof *p * (size_t)(n - i));
        if (vector_count_above(ids, RACE_IDS, 0) == 0) continue;
        race_words(key, position, ((uint64_t)purpose << 18) + (uint64_t)i / 4, words);
        float fastest = race_step(ids, words, rate);
        if (!(fastest > best)) continue;
        best = fastest;
        winner = i;
        while (rate[winner - i] != fastest) winner++;
    }
    return winner;
}
