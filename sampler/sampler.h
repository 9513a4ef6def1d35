/* The eager sampler: temperature, top-k, top-p, min-p, draws, and the rules of acceptance.
 *
 * It runs as ordinary launches between graph replays, and owns the state of every sequence that changes
 * from round to round (struct slot), in device memory, so that the host never has to wait for a round
 * before it enqueues the next.
 *
 * Distributions. p_target and p_draft are always the filtered, normalised f32 distribution: divide logits by
 * the temperature, softmax, keep the top_k most probable (ties: lower id first), of these (renormalised) the
 * smallest set of most probable whose sum reaches top_p, of these all with p >= min_p * max p; renormalise.
 * Temperature 0 is one-hot at the argmax (lowest id on a tie). Both models' logits go through the same
 * parameters. The vector that a draft token was drawn from is the vector stored as p_draft.
 * p_target covers ids [0, vocab_target) (the target's own map; padding ids past it are masked); p_draft covers
 * [0, vocab_draft) and is 0 beyond.
 *
 * Numerics, the same bits on every device (sampler/rules.h, base/fmath.h), in f32 unless said:
 *   max = the greatest logit; e_i = fmath_exp((l_i - max) / T), so e is 1 at the maximum;
 *   order of filters: greater logit first, then the lower id; top_k counts ids with e_i > 0; top_p adds up e_i as below;
 *   min_p keeps e_i >= min_p;
 *   p_i = e_i / sum of the e_i that are kept. Sums over ids, the overlap of p_target and p_draft too, add integers: each
 *   term rounded to units of 2^-42, the whole rounded to f32 once. Terms below 2^-43 vanish from sums, not from draws.
 *
 * Rules (enum accept_rule), with p_j = p_target and q_j = p_draft of d_j; if all K are accepted each of them draws a bonus
 * from p_{K+1}:
 *   TOKEN (Leviathan et al. 2023, Chen et al. 2023): accept d_j if u < p_j(d_j) / q_j(d_j); at the first rejection draw
 *     from max(p_j - q_j, 0) normalised (from p_j if that sums to 0).
 *   COUPLED (Daliri et al. 2024): draft and target run the race with the same times E; accept d_j if it is the target's own
 *     winner; at the first rejection emit that winner. So the text is that of plain draws, whatever was drafted.
 *   BLOCK (Sun et al. 2024): c_0 = 1, c_i = min(c_{i-1} p_i(d_i) / q_i(d_i), 1); S_i = sum of max(c_i p_{i+1} - q_{i+1}, 0);
 *     h_i = S_i / (S_i + (1 - c_i)) for i < k, h_k = c_k; keep as many tokens as the largest i with u_i < h_i says (0 if there is
 *     none), then draw from max(c_i p_{i+1} - q_{i+1}, 0) normalised (from p_{i+1} if that sums to 0). k is K, or less where
 *     d_k is an end id or falls on the limit: what is drafted after it can never be emitted.
 *
 * Draws: exponential race, argmax p_i / E_i, lowest id on a tie, E_i = -log1p(-(x_i + 0.5) 2^-32), x_i the
 * Philox word of id i. Acceptance: u = (x >> 8) 2^-24. Keys and streams: base/philox.h, rule_stream. Subsequence of a
 * draw is the absolute position of the token that it decides: d_j (j = 1..K) and its acceptance are at n - 1 + j,
 * where n is the committed length; residual or bonus after a accepted tokens at n + a. COUPLED takes PHILOX_PLAIN for
 * everything. BLOCK decides its length by all numbers of the round, so none may come again: the subsequence is n, and the
 * purpose is (index in the round, 0..K) * PHILOX_PURPOSES + purpose.
 *
 * Errors inside: a non-finite logit (below the map's size) in a row that matters for a live slot sets SLOT_ERROR
 * for that slot alone and emits nothing in that round. Rows that matter: all draft rows of the round, and the
 * target's rows up to the one that decides the last emitted token; for BLOCK all rows of p_1..p_k, which decide the
 * length, and p_{K+1} where the bonus is drawn. Between launches such a row is marked by NaN in
 * the first element of its p. A drafted id that is negative or past either map is never accepted.
 *
 * Rows that are not live (and slot 0) are inert: their inputs are id 0 at position -1, they draw nothing.
 * A round of K offers a row K drafted tokens if n + K - 1 <= draft_positions, because the draft's last input is
 * d_{K-1} at position n + K - 2; otherwise none: it draws with PHILOX_PLAIN at n, as in a round of K = 0. Draft
 * inputs at positions past the limit are inert too.
 *
 * No function here allocates or synchronises. Pointers in structs are device memory unless marked. */
#ifndef DUET_SAMPLER_SAMPLER_H
#define DUET_SAMPLER_SAMPLER_H

#include "base/philox.h"
#include "graphs/device.h"
#include "graphs/pool.h"

enum { K_MAX = 63 };

/* How drafted tokens are accepted; one for all sequences of the buffers. */
enum accept_rule { ACCEPT_TOKEN, ACCEPT_COUPLED, ACCEPT_BLOCK };
/* "token", "coupled", "block". */
const char *accept_rule_name(enum accept_rule);

struct sampling {
    float temperature; /* >= 0 */
    float top_p;       /* (0, 1]; 1 = off */
    float min_p;       /* [0, 1); 0 = off */
    int32_t top_k;     /* >= 0; 0 = off */
};

/* ERR_USAGE with the name, the value and the range of the first bad field. */
int sampling_check(const struct sampling *);

enum slot_status {
    SLOT_IDLE = 0,   /* no sequence, or the dummy: emits nothing */
    SLOT_LIVE = 1,   /* takes part in rounds */
    SLOT_END = 2,    /* an end id was emitted (it is the last token) */
    SLOT_LENGTH = 3, /* length == limit */
    SLOT_ERROR = 4,  /* non-finite logits */
};

/* State of one sequence, device memory [slots]. Slot 0 is the dummy sequence (always SLOT_IDLE, length 1).
 * The host writes a whole slot by an ordered copy when a sequence starts an answer; after that only
 * sampler_accept writes it. Any status but SLOT_LIVE freezes the slot. */
struct slot {
    int32_t length;  /* n: committed tokens; >= 1 */
    int32_t last[2]; /* t[n-2] (or -1 when n = 1), t[n-1]: the last one is pending, in no cache */
    int32_t limit;   /* stop when length reaches this; above length when the answer starts */
    int32_t status;
    int32_t serial; /* of the request; copied into every record */
    int32_t ignore_end;
    struct sampling sampling;
    uint64_t key; /* Philox key */
};

/* What one graph row did in one round; a pinned ring brings these to the host. */
struct round_record {
    int32_t slot, serial;
    int32_t live;      /* was the slot SLOT_LIVE when the round began? if not, the rest is 0 */
    int32_t status;    /* after the round */
    int32_t k;         /* drafted tokens that the round offered this row: K, or 0 past the draft's limit */
    int32_t emitted;   /* tokens committed, end id included */
    int32_t accepted;  /* of these, accepted draft tokens */
    int32_t rejected;  /* 1 if a drafted token was not kept and its replacement emitted */
    int32_t evaluated; /* accepted + rejected: positions decided up to the last emitted token */
    int32_t length;    /* after the round */
    float overlap_sum; /* sum over evaluated positions of o = sum_i min(p_target, p_draft) */
    float coupled_sum; /* likewise of o / (2 - o), the least chance that coupled draws agree */
    /* Chances to keep d_1..d_j, each given d_1..d_j, summed over the drafted j that could be emitted (up to the first end
     * id and the limit): what TOKEN and BLOCK accept of such blocks on average, whatever the rule in use. */
    float expected_token, expected_block;
    int32_t tokens[K_MAX + 1]; /* [emitted] */
};

/* The persistent buffers of the round. S slots (max_batch + 1), B rows of the largest bucket. */
struct sampler_buffers {
    int32_t slots, max_batch, k_max;
    int32_t vocab_target, vocab_draft;   /* common map sizes as above; vocab_draft 0 without a draft */
    int32_t target_stride, draft_stride; /* floats between rows of the models' logits (padded vocabularies) */
    float simulate_alpha;    /* benchmarks alone: above 0, accept with this probability in place of the rule */
    int32_t draft_positions; /* the draft's own position limit */
    enum accept_rule rule;

    struct slot *slot; /* [S] */
    int32_t *row_slot; /* [B] slot of each graph row; rows past the live ones are 0 */
    int32_t *end_ids;  /* [end_count] */
    int32_t end_count;

    int32_t *draft_tokens;       /* [B, 2] input of DRAFT_FIRST (two a row) and of DRAFT_STEP (one a row, packed [B]) */
    int32_t *draft_positions_in; /* [B, 2] alike */
    int32_t *drafted;            /* [S, k_max] d_1..d_K */
    float *draft_logits;         /* [B, draft_stride] output of the draft graphs */
    float *p_draft;              /* [S, k_max, vocab_draft] indexed by slot, never by row */

    int32_t *target_tokens;       /* [B, K+1] packed with the round's own K */
    int32_t *target_positions;    /* [B, K+1] */
    float *target_logits;         /* [B, K+1, target_stride] */
    float *p_target;              /* [B, K+1, vocab_target] scratch */
    struct round_record *records; /* [B] device */

    /* For the launches' own use on a GPU; begins as zeros and is left alone between launches. */
    uint64_t *overlap;  /* [B, K+1] sum of min(p_target, p_draft) in units of 2^-42 */
    uint64_t *verdicts; /* [B, K+1] COUPLED: the race of p_target; BLOCK, from the second row on: S in the same units */
    struct team_exchange *exchange; /* [min(B (K+1), SAMPLER_TEAMS)] what the blocks of a row tell each other */
};

/* Cuts all buffers from `pool` (also a plan). The five sizes of `b` and end_count must be set. */
int sampler_layout(struct sampler_buffers *b, struct pool *pool);

/* --- the four launches of a round; each works on the first `batch` rows of row_slot ------------------- */

struct sampler_load {
    struct sampler_buffers b;
    int32_t batch, k;
};
struct sampler_draw {
    struct sampler_buffers b;
    int32_t batch, index; /* index i = 0..K-1 draws d_{i+1} */
};
struct sampler_accept {
    struct sampler_buffers b;
    int32_t batch, k;
};

struct sampler_ops {
    /* Inside DRAFT_FIRST: draft_tokens [batch, 2] = (t[n-2], t[n-1]) at positions (n-2, n-1). With n = 1 the
     * first row is id 0 at position -1. Ids past the draft's map become 0. k is not used. */
    int (*load_pending)(struct stream *, const struct sampler_load *);
    /* Eager, one launch: p_draft[slot, index] from draft_logits, drafted[slot, index] drawn from it, and the
     * input of the next DRAFT_STEP: draft_tokens[b] (packed [batch]) = d, position n + index. */
    int (*draw)(struct stream *, const struct sampler_draw *);
    /* Inside VERIFY (k = K) and DECODE (k = 0): target_tokens [batch, k+1] = (t[n-1], d_1..d_k) at n-1... */
    int (*load_block)(struct stream *, const struct sampler_load *);
    /* Eager: p_target from target_logits, the rule, the slot's new state, records[0..batch). A row whose
     * drafted positions would pass draft_positions uses k = 0 for itself (plain draw). At most three launches. */
    int (*accept)(struct stream *, const struct sampler_accept *);
};

const struct sampler_ops *sampler_host(void);
const struct sampler_ops *sampler_cuda(void); /* NULL in a build without CUDA */
static inline const struct sampler_ops *sampler_for(const struct device *d) {
    return device_kind(d) == DEVICE_CUDA ? sampler_cuda() : sampler_host();
}

/* The documented launch counts of a round, for tests and reports: eager kernel launches at K on this device, with the rule
 * of these buffers. */
int sampler_launches(const struct device *, const struct sampler_buffers *, int k);

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
