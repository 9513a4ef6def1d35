/* The repetition penalty (Keskar et al. 2019, with the sign rule that transformers and vLLM share): the logit l of an id that the
 * sequence has so far becomes l / penalty where l > 0, else l * penalty. An id counts once, however often it came; the
 * prompt's count too. A penalty is 0.01 to 100: beyond, logits of released models come near the ends of what a float holds.
 *
 * Exact under speculation: what "so far" means depends on the position, so each row of a block is penalised by the committed
 * tokens and by the drafted ones before it, and each of the draft's steps likewise. Target and draft draw from what is left, and
 * acceptance compares that.
 *
 * No function here allocates or synchronises. Pointers are device memory. */
#ifndef DUET_SAMPLER_PENALTY_H
#define DUET_SAMPLER_PENALTY_H

#include "round/state.h"

#define PENALTY_MIN 0.01f
#define PENALTY_MAX 100.0f

/* Changes logits in place, where they are not the same already: of the first `batch` rows of row_slot, position `index` of the
 * round's k drafted ones. The target's rows [batch, k + 1] at once (index is not used), or the draft's [batch] at step `index`. */
struct penalise {
    struct round_state b;
    int32_t batch, k, index;
    bool of_draft;
};
int sampler_penalise(struct stream *, const struct penalise *);

/* After acceptance: the tokens of the records join `seen`. */
struct mark_seen {
    struct round_state b;
    int32_t batch;
};
int sampler_mark_seen(struct stream *, const struct mark_seen *);

#endif
