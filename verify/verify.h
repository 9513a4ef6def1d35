/* Acceptance: which of the drafted tokens a round keeps, and the token after them.
 *
 * Rules (enum accept_rule), with p_j = p_target and q_j = p_draft of d_j, for a row that was offered k tokens; if all k are
 * accepted each of them draws a bonus from p_{k+1}:
 *   TOKEN (Leviathan et al. 2023, Chen et al. 2023): accept d_j if u < p_j(d_j) / q_j(d_j); at the first rejection draw
 *     from max(p_j - q_j, 0) normalised (from p_j if that sums to 0).
 *   COUPLED (Daliri et al. 2024): draft and target run the race with the same times E; accept d_j if it is the target's own
 *     winner; at the first rejection emit that winner. So the text is that of plain draws, whatever was drafted.
 *   BLOCK (Sun et al. 2024): c_0 = 1, c_i = min(c_{i-1} p_i(d_i) / q_i(d_i), 1); S_i = sum of max(c_i p_{i+1} - q_{i+1}, 0);
 *     h_i = S_i / (S_i + (1 - c_i)) for i < k, h_k = c_k; keep as many tokens as the largest i with u_i < h_i says (0 if there is
 *     none), then draw from max(c_i p_{i+1} - q_{i+1}, 0) normalised (from p_{i+1} if that sums to 0). k is the row's, or less
 *     where d_k is an end id or falls on the limit: what is drafted after it can never be emitted.
 * A row with k = 0 draws from p_1 with PHILOX_PLAIN. Numbers: sampler/sampler.h; the walk of a row, written once: walk.h.
 *
 * Errors inside: a row of p that begins with NaN (non-finite logits) and matters for a live slot sets SLOT_ERROR for that slot
 * alone and emits nothing in that round. Rows that matter: all drafted rows of the round, and the target's rows up to the one
 * that decides the last emitted token; for BLOCK all rows of p_1..p_k, which decide the length, and p_{k+1} where the bonus is
 * drawn. A drafted id that is negative, or that either map lacks, is never accepted. A slot that is not live never changes.
 *
 * Rollback is the slot's length: rejected positions stay in both caches past it and are overwritten by the next round,
 * which starts at n-1. No function here allocates or synchronises. */
#ifndef DUET_VERIFY_VERIFY_H
#define DUET_VERIFY_VERIFY_H

#include "sampler/sampler.h"

/* What the launches of a GPU tell each other, in device memory; NULL on the host. */
struct verify {
    uint64_t *overlap;  /* [B, K+1] sum of min(p_target, p_draft) in units of 2^-42 */
    uint64_t *verdicts; /* [B, K+1] COUPLED: the race of p_target; BLOCK, from the second row on: S in the same units */
};

/* Cuts it from `pool` (also a plan), for launches on `device`. The sizes of the state must be set. */
int verify_layout(struct verify *, const struct device *, const struct round_state *, struct pool *);

/* Eager, of the first `batch` rows of row_slot: p_target from target_logits, the rule (k = 0: a plain draw), the slot's new state,
 * records[0..batch). At most three launches; where the round has a penalty, one before them. */
struct verify_accept {
    struct round_state b;
    struct sampler sampler;
    struct verify verify;
    int32_t batch, k;
};
int verify_accept(struct stream *, const struct verify_accept *);

/* After it: of each emitted token the logarithm of its probability under the softmax of the target's logits, before temperature and
 * filters and after the penalty: records[].logprobs. One launch. */
int verify_logprobs(struct stream *, const struct verify_accept *);

/* The documented number of its launches at K on this device, with the rule of this state. */
int verify_launches(const struct device *, const struct round_state *, int k);

#endif
