/* The scalar definitions behind acceptance, the same bits on host and GPU (see base/fmath.h). */
#ifndef DUET_VERIFY_RULES_H
#define DUET_VERIFY_RULES_H

#include "sampler/rules.h"

/* A pair (p_target(d), p_draft(d)) accepts d. 0/0 does not. */
DUET_INLINE int rule_accepts(float u, float p_target, float p_draft) {
    return u < p_target / p_draft;
}

/* Block verification: what remains of `carry` after a drafted token with this pair, min(carry p / q, 1). The chance that
 * the rule keeps d_1..d_i, given these, is the carry after d_i; it begins at 1. A token without p gives 0. */
DUET_INLINE float rule_carry(float carry, float p_target, float p_draft) {
    float scaled = carry * p_target;
    return scaled < p_draft ? scaled / p_draft : scaled > 0 ? 1.0f : 0.0f;
}

/* Block verification keeps at least i of the tokens if u_i is below this; `excess` is the sum of rule_excess at position
 * i + 1 with the carry after d_i. 0/0 (nothing left, so a longer prefix is kept) passes. */
DUET_INLINE float rule_threshold(float excess, float carry) {
    float rest = 1 - carry;
    return excess + rest > 0 ? excess / (excess + rest) : 1.0f;
}

#endif
