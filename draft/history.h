/* The tokens of every sequence in device memory, by slot, for proposers that look back: those of a turn are copied there when it begins,
 * those of a round after acceptance. What lies past a sequence's length has no meaning: a cut is a smaller length, and what follows
 * overwrites it. */
#ifndef DUET_DRAFT_HISTORY_H
#define DUET_DRAFT_HISTORY_H

#include "draft/proposer.h"

struct history {
    int32_t *tokens;  /* [S, capacity] device: t[0..n-1] of each slot */
    int32_t capacity; /* the context and K_max + 1 */
};

/* It, and the staging of what is copied. Belongs to a proposer. */
struct history_store {
    struct history history;
    struct device *device;
    int32_t *staging; /* pinned, used in turn */
    struct event *staged[2];
    int turn;
};
int history_create(struct history_store *,
                   struct device *); /* allocates; what failed half-way is for history_destroy */
void history_destroy(struct history_store *);
int history_layout(struct history_store *, int slots, const struct model_limits *, struct pool *);
/* What is new of a turn; what was there before is on the device, in stream order. May wait for the copy before the last. */
int history_begin(struct history_store *, struct stream *, const struct proposer_turn *);

/* --- launches, on the first `batch` rows of row_slot; neither allocates nor synchronises --------------------------- */

struct history_rows {
    struct round_state b;
    struct history history;
    int32_t batch;
    int32_t first; /* F of history_load: at most draft_first */
};
/* After acceptance: the tokens of the records. */
int history_append(struct stream *, const struct history_rows *);
/* Inside DRAFT_FIRST, in place of round_load_pending: draft_tokens [batch, F] = t[n-F..n-1], each at its place less
 * draft_shift. Inert (id 0 at position -1) before position 0 and past draft_positions, and where the slot is. */
int history_load(struct stream *, const struct history_rows *);

/* What history_load makes of the token at `place` of a sequence: its position, -1 where it is inert. */
DUET_INLINE int history_position(const struct round_state *b, const struct slot *slot, int place) {
    const int position = place - b->draft_shift;
    return slot->status == SLOT_LIVE && position >= 0 && position < b->draft_positions ? position : -1;
}

/* Of either device. */
int history_append_host(struct stream *, const struct history_rows *);
int history_append_cuda(struct stream *, const struct history_rows *);
int history_load_host(struct stream *, const struct history_rows *);
int history_load_cuda(struct stream *, const struct history_rows *);

#endif
