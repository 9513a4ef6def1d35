/* The draft: proposes K tokens a row by K replays of its decode graphs, each followed by one eager draw.
 *
 *   DRAFT_FIRST [B, 2]: rows (t[n-2], t[n-1]); re-ingesting the last two committed tokens fills the one position that a fully
 *     accepted round leaves out of the draft's cache, with no branch and no extra pass.
 *   DRAFT_STEP  [B, 1]: row d_i at position n-1+i, i = 1..K-1.
 *
 * What it leaves: drafted [S, K] and p_draft [S, K, V] (sampler.h), and draft KV for positions up to n+K-2. */
#ifndef DUET_DRAFT_DRAFT_H
#define DUET_DRAFT_DRAFT_H

#include "graphs/graph_set.h"
#include "graphs/marks.h"
#include "model/model.h"
#include "sampler/sampler.h"

enum draft_graph { DRAFT_FIRST, DRAFT_STEP, DRAFT_GRAPH_KINDS };

struct draft {
    struct model *model;
    struct graph_set *graphs;
    const struct sampler *sampler;
    const struct round_state *round;
    const int32_t *page_table; /* [S, pages_per_slot] device */
    int32_t pages_per_slot;
};

/* Declares the graphs of `d` (all members but graphs set) in a new set; `options` without name, build and user.
 * graph_set_capture makes them. Allocates. */
int draft_create_graphs(struct draft *d, const struct graph_set_options *options);
/* Enqueues K replays and K draws for the first `batch` rows of row_slot; batch is a bucket. Neither allocates nor
 * synchronises. `marks`, if not NULL, gets one after each replay and one after each draw. */
int draft_propose(struct draft *d, struct stream *stream, int batch, int k, struct marks *marks);

#endif
