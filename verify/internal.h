/* What the files of verify share: the launches of either device, and what both look up for the walk (walk.h). */
#ifndef DUET_VERIFY_INTERNAL_H
#define DUET_VERIFY_INTERNAL_H

#include <stdbool.h>

#include "verify/rules.h"
#include "verify/verify.h"

int verify_accept_host(struct stream *, const struct verify_accept *);
int verify_accept_cuda(struct stream *, const struct verify_accept *);
int verify_logprobs_host(struct stream *, const struct verify_accept *);
int verify_logprobs_cuda(struct stream *, const struct verify_accept *);

/* Position j of a graph row, and the token that the round emitted there; < 0: none. */
DUET_INLINE int emitted_at(const struct verify_accept *op, int row, int j) {
    const struct round_record *record = &op->b.records[row];
    return record->live && j < record->emitted ? record->tokens[j] : -1;
}

/* Which walk a round takes; simulated acceptance goes token by token. */
DUET_INLINE bool is_coupled(const struct round_state *b) {
    return b->rule == ACCEPT_COUPLED && b->simulate_alpha == 0;
}
DUET_INLINE bool is_by_block(const struct round_state *b) {
    return b->rule == ACCEPT_BLOCK && b->simulate_alpha == 0;
}

/* p_target and p_draft of a drafted token; an id outside either map has 0 and 1. */
struct token_pair {
    float target, draft;
    int id;
    bool is_common; /* of both maps; no other is ever accepted */
};

/* Of drafted token j of a slot, whose p_target is `p`. */
DUET_INLINE struct token_pair pair_at(const struct round_state *b, const float *p, int slot, int j) {
    struct token_pair pair = {0, 1, b->drafted[slot * b->k_max + j], false};
    if (pair.id < 0 || pair.id >= b->vocab_target || round_draft_index(b, pair.id) < 0) return pair;
    pair.target = p[pair.id], pair.draft = round_q(b, round_p_draft(b, slot, j), pair.id), pair.is_common = true;
    return pair;
}

/* The number that decides whether drafted token j is kept. */
DUET_INLINE float uniform_at(const struct round_state *b, uint64_t key, int n, int j) {
    struct rule_stream from = rule_stream(b->rule, n, j, PHILOX_ACCEPT);
    return rule_uniform(philox_word(key, from.subsequence, from.purpose, 0));
}

#endif
