/* The penalty of one logit, and which ids have it: one source for host and GPU. */
#ifndef DUET_SAMPLER_PENALTY_RULES_H
#define DUET_SAMPLER_PENALTY_RULES_H

#include <float.h>

#include "sampler/penalty.h"

/* Penalises a finite logit to a finite one: what leaves the range of floats stays at its end. */
DUET_INLINE float penalised_logit(float logit, float penalty) {
    const float end = FLT_MAX, x = logit > 0 ? logit / penalty : logit * penalty;
    if (!(logit >= -end && logit <= end)) return logit;
    return x < -end ? -end : x > end ? end : x;
}

/* A row that is penalised: its logits at `index` tokens past the committed ones; slot < 0: none is. */
struct penalised_row {
    float *logits;
    bool of_draft;
    int32_t slot, index;
    float penalty;
};

/* Of the draft row `at`, or of the target's, which are k + 1 a graph row. */
DUET_INLINE struct penalised_row penalised_row_at(const struct penalise *op, int at) {
    const struct round_state *b = &op->b;
    const int row = op->of_draft ? at : at / (op->k + 1), index = op->of_draft ? op->index : at % (op->k + 1);
    struct penalised_row r = {NULL, op->of_draft, b->row_slot[row], index, 1};
    const struct slot *slot = &b->slot[r.slot];
    const bool is_looked_at = op->of_draft || index <= round_row_k(b, r.slot, op->k);
    r.penalty = slot->sampling.repetition_penalty;
    r.logits =
        op->of_draft ? round_draft_logits(b, row, index) : b->target_logits + (size_t)at * (size_t)b->target_stride;
    if (slot->status != SLOT_LIVE || !is_looked_at || r.penalty == 0 || r.penalty == 1) r.slot = -1;
    return r;
}

/* An id that the draft cannot propose has no logit of it. */
DUET_INLINE void penalise_id(const struct round_state *b, const struct penalised_row *r, int id) {
    const int at = r->of_draft ? round_draft_index(b, id) : id < b->vocab_target ? id : -1;
    if (at < 0) return;
    r->logits[at] = penalised_logit(r->logits[at], r->penalty);
}

/* The ids of one word of `seen`. */
DUET_INLINE void penalise_word(const struct round_state *b, const struct penalised_row *r, int word) {
    const uint32_t bits = b->seen[(size_t)r->slot * (size_t)b->seen_words + (size_t)word];
    for (int i = 0; i < 32 && bits >> i != 0; i++)
        if (bits >> i & 1) penalise_id(b, r, 32 * word + i);
}

/* Drafted token j < index, unless the row has had it. */
DUET_INLINE void penalise_drafted(const struct round_state *b, const struct penalised_row *r, int j) {
    const int32_t *drafted = b->drafted + (size_t)r->slot * (size_t)b->k_max;
    const int id = drafted[j];
    if (id < 0) return;
    if (id < b->vocab_target && b->seen[(size_t)r->slot * (size_t)b->seen_words + (size_t)id / 32] >> id % 32 & 1)
        return;
    for (int i = 0; i < j; i++)
        if (drafted[i] == id) return;
    penalise_id(b, r, id);
}

#endif
