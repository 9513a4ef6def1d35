/* Made-up models whose text has a known distribution, driven through the real launches, and the count of what comes out.
 *
 * The models are Markov chains whose logits also depend on the parity of the position, so a token drawn from a stale row, a
 * wrong position or a wrong slot shows. The keys are fixed: a run always gives the same numbers. */
#ifndef DUET_TESTS_CHAIN_SUPPORT_H
#define DUET_TESTS_CHAIN_SUPPORT_H

#include "tests/sampler_support.h"
#include "verify/stats.h"

enum { CHAIN_VOCAB = 10, CHAIN_START = 2, CHAIN_JOINT = CHAIN_VOCAB * CHAIN_VOCAB };

/* Both models: logits after (parity of the position, token). The draft may know fewer ids, or more. */
struct chain {
    int vocab_draft;
    float target[2][CHAIN_VOCAB][CHAIN_VOCAB], draft[2][CHAIN_VOCAB][CHAIN_VOCAB + 2];
};
void make_chain(struct chain *, int vocab_draft);

/* What is counted. */
struct tally {
    double p[2][CHAIN_VOCAB][CHAIN_VOCAB];       /* exact p(next | parity of the last position, last token) */
    int64_t counts[2][CHAIN_VOCAB][CHAIN_VOCAB]; /* of emitted tokens */
    int64_t joint[2][CHAIN_JOINT];               /* the first two tokens of a request, by its pending token (0 or 1) */
    int64_t emitted;                             /* of requests that ended */
    struct acceptance stats;
};
void make_tally(struct tally *, const struct chain *, const struct sampling *);
/* One request's emitted tokens after `pending` at position CHAIN_START - 1. */
void tally_request(struct tally *, int pending, const int32_t *tokens, int count);
/* The chance of what was counted: of each token given the one before it, and of the first two together. */
void tally_p(const struct tally *, double *p_next, double *p_joint);

struct chain_run {
    enum accept_rule rule;
    int k, batch; /* k < 0: rounds of 0, 1, ... -k in turn */
    float temperature;
    int top_k;
    float top_p, min_p;
    int vocab_draft, draft_positions; /* 0: no limit */
    /* Spoils the buffers between the last draw and accept; NULL: no. */
    void (*tamper)(struct rig *);
};
/* Requests of 2 to 12 tokens, rows that move, until `emitted` tokens are counted. */
void drive_chain(const struct chain_run *, struct chain *, struct tally *, int64_t emitted);

#endif
