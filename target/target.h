/* The target: its model and its graphs, which score the tokens of a round.
 *
 * DECODE [B, 1] and VERIFY [B, K+1] are the same graph at different widths: t[n-1] and the drafted tokens at positions
 * n-1.., logits of every row. The kernels are row-invariant, so row 0 of VERIFY is DECODE bit for bit; that is why plain
 * decoding and speculation give the same greedy text. */
#ifndef DUET_TARGET_TARGET_H
#define DUET_TARGET_TARGET_H

#include "graphs/graph_set.h"
#include "model/model.h"
#include "round/state.h"

enum target_graph { TARGET_VERIFY, TARGET_DECODE, TARGET_GRAPH_KINDS };

struct target {
    struct model *model;
    struct graph_set *graphs;
    const struct round_state *round;
    const int32_t *page_table; /* [S, pages_per_slot] device */
    int32_t pages_per_slot;
};

/* Declares DECODE, and VERIFY for every K in 1..k_max, so that K can change without a capture. Allocates. */
int target_create_graphs(struct target *t, const struct graph_set_options *options, int k_max);
/* Enqueues one replay, VERIFY [batch, k+1] or with k = 0 DECODE: rows (t[n-1], d_1..d_k) at n-1..n+k-1 -> target_logits
 * [batch, k+1, V] for the first `batch` rows of row_slot (a bucket). */
int target_score(struct target *t, struct stream *stream, int batch, int k);

#endif
