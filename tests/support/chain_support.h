/* Two made-up models through the sampler's real launches, round after round, and what comes out of it counted against the
 * exact distribution.
 *
 * The models are Markov chains whose logits also depend on the parity of the position, so that a token drawn from a stale
 * row, a wrong position or a wrong slot shows. Requests of 3 to 12 tokens follow each other in the slots, and rows serve the
 * slots in an order that changes every round. Keys are fixed: a run always gives the same numbers. */
#ifndef DUET_TESTS_CHAIN_SUPPORT_H
#define DUET_TESTS_CHAIN_SUPPORT_H

#include "tests/support/chain_ops.h"
#include "tests/support/sampler_support.h"
#include "tests/support/statistics.h"
#include "verify/stats.h"

enum {
    CHAIN_VOCAB = 8,
    CHAIN_K_MAX = 8,
    CHAIN_START = 2,   /* committed tokens when a request starts */
    CHAIN_PREFIX = 42, /* of n-gram's; the same parity */
    CHAIN_ROOM_MAX = 12
};

enum chain_draft {
    CHAIN_GOOD,     /* the target's logits and some noise */
    CHAIN_BAD,      /* nothing to do with the target */
    CHAIN_DISJOINT, /* draft and target have no id in common */
    CHAIN_SAME,
    CHAIN_ONE_HOT, /* certain of an id that the target may or may not like */
    CHAIN_UNIFORM,
    CHAIN_FEWER, /* the draft's map lacks ids */
    CHAIN_MORE,  /* and has ids that the target lacks */
    CHAIN_CUT,   /* the draft's head has rows for some ids alone */
    CHAIN_DRAFTS,
    CHAIN_NGRAM = CHAIN_DRAFTS /* no model: n-gram lookup in a history of CHAIN_PREFIX tokens and the request's own */
};

enum { CHAIN_DRAFT_VOCAB = CHAIN_VOCAB + 2 }; /* at most */

struct chain {
    int vocab_draft, vocab_input;
    int32_t ids[CHAIN_VOCAB];                             /* [vocab_draft] what rows of `draft` are of, of CHAIN_CUT */
    float target[2][CHAIN_VOCAB][CHAIN_VOCAB];            /* [parity of the last position][last token][next] */
    float draft[2][CHAIN_DRAFT_VOCAB][CHAIN_DRAFT_VOCAB]; /* in their order */
    int32_t prefix[2][CHAIN_PREFIX]; /* by the pending token: a text that the target might have written */
};
void chain_make(struct chain *, enum chain_draft);
/* The filtered distributions of the target, or of the draft's first CHAIN_VOCAB ids. */
typedef double chain_table[2][CHAIN_VOCAB][CHAIN_VOCAB];
void chain_distributions(const struct chain *, bool of_draft, const struct sampling *, chain_table p);

/* --- counting --------------------------------------------------------------------------------------------------- */

struct chain_tally {
    chain_table p; /* exact */
    bool by_depth; /* count by the index in the round too; a rule that decides a block as a whole has no such claim */
    int64_t next[CHAIN_K_MAX + 1][2][CHAIN_VOCAB][CHAIN_VOCAB];
    int64_t after_two[2][CHAIN_VOCAB][CHAIN_VOCAB][CHAIN_VOCAB];
    /* The first two and the first three tokens of a request, by its pending token, 0 or 1. */
    int64_t pairs[2][CHAIN_VOCAB * CHAIN_VOCAB], triples[2][CHAIN_VOCAB * CHAIN_VOCAB * CHAIN_VOCAB];
    int64_t emitted, rounds_by_k[CHAIN_K_MAX + 1]; /* the latter of chooses_k */
    struct acceptance stats;
};

struct chain_request {
    int pending, room, count;
    int32_t tokens[CHAIN_ROOM_MAX + CHAIN_K_MAX + 1];
};
struct chain_request chain_request_at(uint64_t serial);

void chain_tally_init(struct chain_tally *, const struct chain *, const struct sampling *);
/* Counts `count` tokens of one round of a request, which may not pass its room. */
void chain_count(struct chain_tally *, struct chain_request *, const int32_t *tokens, int count);

struct chain_chances {
    double next, after_two, pairs, triples, least; /* chances of what was counted, and the least of them */
    struct distance distance;                      /* of single tokens */
};
struct chain_chances chain_chances(const struct chain_tally *);

/* --- running (chain_drive.c) -------------------------------------------------------------------------------------- */

struct chain_run {
    enum accept_rule rule;
    int k; /* below 0: rounds of 0, 1, ... -k in turn */
    int batch;
    struct sampling sampling;
    enum chain_draft draft;
    int draft_positions; /* the draft's own limit; 0: none */
    int64_t tokens;      /* to emit, about */
    enum chain_fault fault;
    bool chooses_k;      /* each round has the K that K_AUTO takes, at most k, by the records of those before */
    double ms_per_token; /* then a round of K takes 1 + this K milliseconds */
};
/* Everything happens on test_device(), which is some rounds ahead of the counting. */
void chain_drive(const struct chain_run *, struct chain_tally *);

#endif
