/* Distributions and draws: temperature, top-k, top-p, min-p, the race, seeds. It runs as ordinary launches between graph
 * replays, on the state of the round (round/state.h).
 *
 * Distributions. p_target and p_draft are always the filtered, normalised f32 distribution: divide logits by
 * the temperature, softmax, keep the top_k most probable (ties: lower id first), of these (renormalised) the
 * smallest set of most probable whose sum reaches top_p, of these all with p >= min_p * max p; renormalise.
 * Temperature 0 is one-hot at the argmax (lowest id on a tie). Both models' logits go through the same
 * parameters. The vector that a draft token was drawn from is the vector stored as p_draft.
 * p_target covers ids [0, vocab_target) (the target's own map; padding ids past it are masked); p_draft covers
 * [0, vocab_draft), or the draft_ids of a draft that is cut to them, and is 0 elsewhere. These ascend, so "the lower id" means
 * the same by place, and the race takes the word of the id.
 *
 * Numerics, the same bits on every device (sampler/rules.h, base/fmath.h), in f32 unless said:
 *   max = the greatest logit; e_i = fmath_exp((l_i - max) / T), so e is 1 at the maximum;
 *   order of filters: greater logit first, then the lower id; top_k counts ids with e_i > 0; top_p adds up e_i as below;
 *   min_p keeps e_i >= min_p;
 *   p_i = e_i / sum of the e_i that are kept. Sums over ids, the overlap of p_target and p_draft too, add integers: each
 *   term rounded to units of 2^-42, the whole rounded to f32 once. Terms below 2^-43 vanish from sums, not from draws.
 *
 * Draws: exponential race, argmax p_i / E_i, lowest id on a tie, E_i = -log1p(-(x_i + 0.5) 2^-32), x_i the
 * Philox word of id i. Acceptance: u = (x >> 8) 2^-24. Keys and streams: base/philox.h, rule_stream. Subsequence of a
 * draw is the absolute position of the token that it decides: d_j (j = 1..K) and its acceptance are at n - 1 + j,
 * where n is the committed length; residual or bonus after a accepted tokens at n + a. COUPLED takes PHILOX_PLAIN for
 * everything. BLOCK decides its length by all numbers of the round, so none may come again: the subsequence is n, and the
 * purpose is (index in the round, 0..K) * PHILOX_PURPOSES + purpose.
 *
 * Errors inside: a row with a non-finite logit below the map's size is marked by NaN in the first element of its p, which
 * verify_accept reads; nothing else passes from one launch to the next.
 *
 * No function here allocates or synchronises. Pointers in structs are device memory unless marked. */
#ifndef DUET_SAMPLER_SAMPLER_H
#define DUET_SAMPLER_SAMPLER_H

#include "base/philox.h"
#include "round/state.h"

/* ERR_USAGE with the name, the value and the range of the first bad field. */
int sampling_check(const struct sampling *);

/* What the launches of a GPU need beside the state of the round; begins as zeros and is left alone between launches. */
struct sampler {
    struct team_exchange *exchange; /* what the blocks of a row tell each other; NULL on the host */
};

/* Cuts it from `pool` (also a plan), for launches on `device`. The sizes of the state must be set. */
int sampler_layout(struct sampler *, const struct device *, const struct round_state *, struct pool *);

/* Eager, one launch (and before it that of the penalty, where the round has one), of the first `batch` rows of row_slot: p_draft[slot, index] from draft_logits, drafted[slot, index] drawn from
 * it, offered[slot] (rule_offered), and the input of the next DRAFT_STEP: draft_tokens[row] (packed [batch]) = d, position
 * n + index - draft_shift; inert (id 0 at position -1) where rule_position says so. Rows that are not live draw nothing and are inert.
 * So a row is offered K tokens if n + K - 1 <= draft_positions, because the draft's last input is d_{K-1} at position n + K - 2;
 * else none: it draws with PHILOX_PLAIN at n, as in a round of K = 0. */
struct sampler_draw {
    struct round_state b;
    struct sampler sampler;
    int32_t batch, index; /* index i = 0..K-1 draws d_{i+1} */
};
int sampler_draw(struct stream *, const struct sampler_draw *);

/* --- the distribution itself, for tests and reports (host memory) -------------------------------------- */

/* Writes the filtered, normalised distribution of `logits` [vocab] to p [vocab]. ERR_NUMERIC for a non-finite
 * logit. */
int sampling_distribution(const struct sampling *, const float *logits, int vocab, float *p);
/* The exponential race over p [vocab]; -1 if every p is 0. */
int sampling_draw(const float *p, int vocab, uint64_t key, uint64_t position, enum philox_purpose);

/* Philox key of record n of a run with --seed S, below 2^53 so that JSON numbers hold it. For a fixed S it is
 * one-to-one in n modulo 2^53: S is hashed to 53 bits, an odd multiple of n is added, and the sum is mixed by xor
 * shifts and odd factors modulo 2^53 (in the manner of splitmix64's finaliser). */
uint64_t seed_for_record(uint64_t run_seed, uint64_t record);
/* A seed from the system's randomness, below 2^53. */
uint64_t seed_random(void);

#endif
