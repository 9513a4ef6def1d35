/* The state of the round, in device memory: what draft, target, sampler and rule of acceptance tell each other, so that the host
 * never has to wait for a round before it enqueues the next.
 *
 * A round offers each live row up to K drafted tokens, scores them, accepts a prefix and emits one token more:
 *   proposer   drafted [S, K], p_draft [S, K, VD], offered [S]     by slot: rows move, slots do not
 *   target     target_logits [B, K+1, V] of (t[n-1], d_1..d_k)
 *   verify     slot [S], records [B]
 * It lives as long as the pool that it was cut from. Unless it says so no function here allocates or synchronises. Pointers in structs are device
 * memory unless marked. */
#ifndef DUET_ROUND_STATE_H
#define DUET_ROUND_STATE_H

#include <stdbool.h>

#include "base/inline.h"
#include "graphs/device.h"
#include "graphs/pool.h"

enum { K_MAX = 63 };

/* How drafted tokens are accepted (verify/verify.h); one for all sequences. */
enum accept_rule { ACCEPT_TOKEN, ACCEPT_COUPLED, ACCEPT_BLOCK };
/* "token", "coupled", "block". */
const char *accept_rule_name(enum accept_rule);

/* Which distribution is drawn from (sampler/sampler.h). */
struct sampling {
    float temperature;        /* >= 0 */
    float top_p;              /* (0, 1]; 1 = off */
    float min_p;              /* [0, 1); 0 = off */
    int32_t top_k;            /* >= 0; 0 = off */
    float repetition_penalty; /* [0.01, 100]; 1 = off, and 0 reads as 1 (sampler/penalty.h) */
};

enum slot_status {
    SLOT_IDLE = 0,   /* no sequence, or the dummy: emits nothing */
    SLOT_LIVE = 1,   /* takes part in rounds */
    SLOT_END = 2,    /* an end id was emitted (it is the last token) */
    SLOT_LENGTH = 3, /* length == limit */
    SLOT_ERROR = 4,  /* non-finite logits */
};

/* State of one sequence, device memory [slots]. Slot 0 is the dummy sequence (always SLOT_IDLE, length 1).
 * The host writes a whole slot by an ordered copy when a sequence starts an answer; after that only
 * verify_accept writes it. Any status but SLOT_LIVE freezes the slot. */
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
    int32_t live;         /* was the slot SLOT_LIVE when the round began? if not, the rest is 0 */
    int32_t status;       /* after the round */
    int32_t k;            /* drafted tokens that the round offered this row: round_row_k */
    int32_t emitted;      /* tokens committed, end id included */
    int32_t accepted;     /* of these, accepted draft tokens */
    int32_t rejected;     /* 1 if a drafted token was not kept and its replacement emitted */
    int32_t evaluated;    /* accepted + rejected: positions decided up to the last emitted token */
    int32_t length;       /* after the round */
    int32_t is_draft_bad; /* with SLOT_ERROR: the logits were the draft's; else the target's */
    float overlap_sum;    /* sum over evaluated positions of o = sum_i min(p_target, p_draft) */
    float coupled_sum;    /* likewise of o / (2 - o), the least chance that coupled draws agree */
    /* Chances to keep d_1..d_j, each given d_1..d_j, summed over the drafted j that could be emitted (up to the first end
     * id and the limit): what TOKEN and BLOCK accept of such blocks on average, whatever the rule in use. */
    float expected_token, expected_block;
    int32_t tokens[K_MAX + 1]; /* [emitted] */
    float logprobs[K_MAX + 1]; /* [emitted] of each token, where the round was asked for them (verify_logprobs) */
};

/* S slots (max_batch + 1), B rows of the largest bucket. */
struct round_state {
    int32_t slots, max_batch, k_max;
    int32_t vocab_target; /* ids of the target's map */
    int32_t vocab_draft;  /* how many of these may be proposed, the numbers of a row of p_draft; 0: no proposer */
    int32_t vocab_input;  /* ids [0, vocab_input) are what a draft model can read */
    bool draft_is_cut;    /* those that may be proposed are draft_ids; else ids [0, vocab_draft) */
    int32_t target_stride,
        draft_stride;        /* floats between rows of the models' logits (padded vocabularies); draft 0: none */
    float simulate_alpha;    /* benchmarks alone: above 0, accept with this probability in place of the rule */
    int32_t draft_positions; /* the draft's own position limit */
    int32_t draft_first;     /* the most tokens of a row of DRAFT_FIRST; at least 2 where there is a draft */
    int32_t draft_shift;     /* token t[i] stands at the draft's i - draft_shift: 1 for a head of the target, or 0 */
    bool draft_stays;        /* drafted tokens stand where the sequence's last one does */
    int32_t draft_block;     /* rows of draft_logits of a graph row, row i of d_i; 0: drafts come one by one */
    int32_t draft_mask;      /* the id that stands in such a block for tokens to come */
    enum accept_rule rule;

    struct slot *slot; /* [S] */
    int32_t *row_slot; /* [B] slot of each graph row; rows past the live ones are 0 */
    int32_t *end_ids;  /* [end_count] */
    int32_t end_count;
    uint32_t *
        seen; /* [S, seen_words] a bit for each id of the target's map that the sequence has; kept where it is penalised */
    int32_t seen_words;
    bool penalises; /* the host, before each round: is a row of it penalised? */

    int32_t *draft_ids;   /* [vocab_draft] ascending: the ids of a row of p_draft and of draft_logits; NULL: not cut */
    int32_t *draft_index; /* [vocab_target] where an id stands in them, -1: nowhere */

    int32_t *draft_tokens;       /* [B, F] input of DRAFT_FIRST, and of DRAFT_STEP (one a row, packed [B]) */
    int32_t *draft_positions_in; /* [B, F] alike */
    int32_t *draft_sees;         /* [B, F] of a block: the position of its last token; NULL: there are none */
    float *draft_logits;         /* [B, draft_stride] output of the draft graphs; of a block [B, F, draft_stride] */
    int32_t *drafted;            /* [S, k_max] d_1..d_K */
    int32_t *offered;            /* [S] how many of them this round has for each slot; the proposer writes it */
    float *p_draft;              /* [S, k_max, vocab_draft] what each was drawn from */

    int32_t *target_tokens;       /* [B, K+1] packed with the round's own K */
    int32_t *target_positions;    /* [B, K+1] */
    float *target_logits;         /* [B, K+1, target_stride] */
    float *p_target;              /* [B, K+1, vocab_target] scratch of verify_accept */
    struct round_record *records; /* [B] where acceptance writes them; pinned memory will do, too */
};

/* Cuts all buffers from `pool` (also a plan). The sizes and end_count must be set; ERR_LIMIT, ERR_USAGE or ERR_INTERNAL for one
 * that makes no sense. */
int round_layout(struct round_state *, struct pool *);

/* Fills both maps of a draft that is cut to these ids [vocab_draft], ascending, all of the target's map. Allocates, synchronises. */
int round_set_draft_ids(const struct round_state *, struct stream *, const int32_t *ids);

/* ERR_INTERNAL if a launch asks for more rows or draws than there are buffers for. */
int round_check_shape(const char *what, const struct round_state *, int batch, int k);

/* --- the inputs of graphs; each works on the first `batch` rows of row_slot ------------------------------ */

/* Rows that are not live (and slot 0) are inert: id 0 at position -1. */
struct round_load {
    struct round_state b;
    int32_t batch, k;
};
/* Inside DRAFT_FIRST: draft_tokens [batch, 2] = (t[n-2], t[n-1]) at positions (n-2, n-1). With n = 1 the first row is id 0
 * at position -1, and so is an input past draft_positions. Ids past vocab_input become 0. k is not used. */
int round_load_pending(struct stream *, const struct round_load *);
/* Inside DRAFT_FIRST of blocks, of draft_block rows: t[n-1] and draft_mask behind it, at n-1...; all see the last of them. k is not
 * used. */
int round_load_masks(struct stream *, const struct round_load *);
/* Inside VERIFY (k = K) and DECODE (k = 0): target_tokens [batch, k+1] = (t[n-1], d_1..d_k) at n-1... */
int round_load_block(struct stream *, const struct round_load *);

/* --- what host and GPU share -------------------------------------------------------------------------------- */

/* Where the logits of d_{index+1} lie, of a graph row. */
DUET_INLINE float *round_draft_logits(const struct round_state *b, int row, int index) {
    const size_t at = b->draft_block > 0 ? (size_t)row * (size_t)b->draft_block + (size_t)index + 1 : (size_t)row;
    return b->draft_logits + at * (size_t)b->draft_stride;
}

/* A place in a block, whose last one all rows see; -1 where the slot has ended. No limit of the draft's counts: verification goes as far. */
DUET_INLINE int round_block_position(const struct slot *slot, int i) {
    return slot->status == SLOT_LIVE ? slot->length - 1 + i : -1;
}

/* An id as the input of a model whose map has `vocab` ids. */
DUET_INLINE int id_or_zero(int id, int vocab) {
    return id >= 0 && id < vocab ? id : 0;
}

/* Drafted tokens that a round of k tests for a slot. */
DUET_INLINE int round_row_k(const struct round_state *b, int slot, int k) {
    return k > 0 && b->offered[slot] < k ? b->offered[slot] : k;
}

/* Where an id of the target's map stands in rows of p_draft; -1: it cannot be proposed. */
DUET_INLINE int round_draft_index(const struct round_state *b, int id) {
    if (b->draft_is_cut) return b->draft_index[id];
    return id < b->vocab_draft ? id : -1;
}

/* The id at a place of these rows. */
DUET_INLINE int round_draft_id(const struct round_state *b, int index) {
    return b->draft_is_cut && index >= 0 ? b->draft_ids[index] : index;
}

/* The probability of an id by a row of p_draft: 0 for one that cannot be proposed. */
DUET_INLINE float round_q(const struct round_state *b, const float *p_draft, int id) {
    int index = round_draft_index(b, id);
    return index >= 0 ? p_draft[index] : 0;
}

/* p_draft [vocab_draft] of a slot's drafted token `index`. */
DUET_INLINE float *round_p_draft(const struct round_state *b, int slot, int index) {
    return b->p_draft + ((size_t)slot * (size_t)b->k_max + (size_t)index) * (size_t)b->vocab_draft;
}

/* p_target [vocab_target] of position j of a row, in a round of k. */
DUET_INLINE float *round_p_target(const struct round_state *b, int row, int k, int j) {
    return b->p_target + ((size_t)row * (size_t)(k + 1) + (size_t)j) * (size_t)b->vocab_target;
}

#endif
