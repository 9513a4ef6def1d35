/* The scalar definitions behind distributions and draws, the same bits on host and GPU (see base/fmath.h). */
#ifndef DUET_SAMPLER_RULES_H
#define DUET_SAMPLER_RULES_H

#include "base/fmath.h"
#include "base/philox.h"
#include "round/state.h"

/* e_i of the softmax: in (0, 1], 1 at the maximum. Division, so that any temperature > 0 is fine. */
DUET_INLINE float rule_weight(float logit, float max_logit, float temperature) {
    return fmath_exp((logit - max_logit) / temperature);
}

/* Orders logits as unsigned integers; -0 and +0 are equal. "More probable" means a greater logit, then the lower id:
 * two logits that round to one probability keep their order. */
DUET_INLINE uint32_t rule_order(float logit) {
    uint32_t bits = fmath_bits(logit + 0.0f);
    return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}

DUET_INLINE float rule_logit(uint32_t order) {
    return fmath_from_bits(order ^ (order >> 31 ? 0x80000000u : 0xFFFFFFFFu));
}

/* Sums over the vocabulary are sums of integers, the same in any order: of x in [0, 1] in units of 2^-42, rounded to
 * nearest (ties to even); at most 2^20 ids of 2^42 each. Between 2^10 and 2^11 doubles lie one unit apart. */
DUET_INLINE uint64_t rule_mass(float x) {
    double shifted = (double)x + 0x1p10;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return bits - 0x4090000000000000u;
}

/* The same sums in words of 32 bits, for where f64 is slow. x = high 2^-20 + rest; between 2^3 and 2^4 floats lie 2^-20 apart, so
 * a sum with 8 rounds to `high`, and the rest, at most 2^-21 on either side, is exact and lies likewise in units of 2^-42. */
enum { MASSES_MOST = 512 }; /* x in one sum */
struct rule_masses {
    uint32_t high, low, count;
};
DUET_INLINE void rule_masses_add(struct rule_masses *sum, float x) {
    float shifted = x + 8.0f, rest = x - (shifted - 8.0f);
    sum->high += fmath_bits(shifted), sum->low += fmath_bits(rest + 0x1.8p-19f), sum->count++;
}
DUET_INLINE uint64_t rule_masses_total(const struct rule_masses *sum) {
    uint32_t high = sum->high - sum->count * 0x41000000u;
    int32_t low = (int32_t)(sum->low - sum->count * 0x36400000u);
    return ((uint64_t)high << 22) + (uint64_t)(int64_t)low;
}

/* A sum of masses as a float, rounded once. */
DUET_INLINE float rule_sum(uint64_t mass) {
    return (float)mass * 0x1p-42f;
}

/* The mass that a top-p nucleus must reach; 1 <= result <= total. */
DUET_INLINE uint64_t rule_nucleus(uint64_t total, float top_p) {
    double mass = ceil((double)total * (double)top_p);
    if (mass < 1) return 1;
    return mass < (double)total ? (uint64_t)mass : total;
}

/* E = -log1p(-(x + 0.5) 2^-32), with x held at 2^32 - 256 so that the f32 argument stays above -1. */
DUET_INLINE float rule_race_time(uint32_t x) {
    x = x < 0xFFFFFF00u ? x : 0xFFFFFF00u;
    return -fmath_log1p(fmaf((float)x, -0x1p-32f, -0x1p-33f));
}

/* Whether p / E can reach `rate`, told without E: false only if it does not. E >= (1 - 2^-12) u and 2^-33, where u is x 2^-32
 * rounded down to 23 bits; p <= rate * RULE_NO_RATE reaches it with no x. */
#define RULE_NO_RATE 0x1p-34f
DUET_INLINE bool rule_may_reach(float rate, float p, uint32_t x) {
    float edge = rate * (1 - 0x1p-10f), u_above_1 = fmath_from_bits((x >> 9) + 0x3F800000u);
    return p > fmaf(edge, u_above_1, -edge);
}

/* u in [0, 1) on 24 bits. */
DUET_INLINE float rule_uniform(uint32_t x) {
    return (float)(x >> 8) * 0x1p-24f;
}

/* What is left of the target at one id, max(carry p - q, 0) (verify/verify.h). */
DUET_INLINE float rule_excess(float carry, float p_target, float p_draft) {
    float excess = fmaf(carry, p_target, -p_draft);
    return excess > 0 ? excess : 0.0f;
}

/* The draft's position of d_{index+1} once it is drawn, of a sequence of length n; -1: it is no input. It must lie below the draft's limit,
 * and of a head of the target (draft_shift) that of the token before it must not lie before 0. */
DUET_INLINE int rule_position(const struct round_state *b, int n, int index) {
    const int position = n + (b->draft_stays ? -1 : index) - b->draft_shift;
    return n > b->draft_shift && position < b->draft_positions ? position : -1;
}

/* What a draft model offers a sequence of length n once d_{index+1} is drawn: all of it or none. Its last input is d_index, which
 * must have had a position. */
DUET_INLINE int rule_offered(const struct round_state *b, int n, int index) {
    const int last = n + (b->draft_stays ? 0 : index) - 1 - b->draft_shift;
    return n > b->draft_shift && last < b->draft_positions ? index + 1 : 0;
}

/* Where a draw of the round that began at length n finds its numbers; `index`, 0..k, is that of the token decided. */
struct rule_stream {
    uint64_t subsequence;
    int purpose;
};
DUET_INLINE struct rule_stream rule_stream(enum accept_rule rule, int n, int index, int purpose) {
    struct rule_stream stream = {(uint64_t)(n + index), purpose};
    if (rule == ACCEPT_COUPLED) stream.purpose = PHILOX_PLAIN;
    if (rule == ACCEPT_BLOCK) stream.subsequence = (uint64_t)n, stream.purpose = index * PHILOX_PURPOSES + purpose;
    return stream;
}

#endif
