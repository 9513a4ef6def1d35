/* N-gram lookup: proposes what followed the last time that the sequence ended as it does now. No model, no graphs, no logits.
 *
 * Of a history t[0..n-1] it finds the longest suffix, of NGRAM_LEAST to NGRAM_MOST tokens, that occurs before itself too (the two
 * may overlap), of that the latest occurrence, and offers up to K tokens that followed it. Where there is none, nothing: the row's
 * round is plain. All of it happens on the device, where the history lies (draft/history.h).
 *
 * A proposal is not drawn, so p_draft is one-hot at it. These rows are kept, and not written anew: all zeros but for a 1 at the id
 * that `drafted` names (at none where it is -1). Nobody else writes either. */
#ifndef DUET_DRAFT_NGRAM_H
#define DUET_DRAFT_NGRAM_H

#include "draft/history.h"

enum { NGRAM_LEAST = 2, NGRAM_MOST = 8 };

extern const struct proposer_ops proposer_ngram;

/* Before acceptance: drafted, p_draft and offered of a round of k, of the first `batch` rows of row_slot. */
struct ngram_search {
    struct round_state b;
    struct history history;
    int32_t batch, k;
};
int ngram_search(struct stream *, const struct ngram_search *);

#endif
