/* The target: its model and its graphs, and plain decoding.
 *
 * DECODE [B, 1] and VERIFY [B, K+1] are the same graph at different widths: t[n-1] and the drafted tokens at positions
 * n-1.., logits of every row. The kernels are row-invariant, so row 0 of VERIFY is DECODE bit for bit; that is why plain
 * decoding and speculation give the same greedy text. */
#ifndef DUET_TARGET_TARGET_H
#define DUET_TARGET_TARGET_H

#include "graphs/graph_set.h"
#include "model/model.h"
#include "sampler/sampler.h"

enum target_graph { TARGET_VERIFY, TARGET_DECODE, TARGET_GRAPH_KINDS };

struct target {
    struct model *model;
    struct graph_set *graphs;
    const struct sampler_ops *sampler;
    const struct sampler_buffers *buffers;
    const int32_t *page_table; /* [S, pages_per_slot] device */
    int32_t pages_per_slot;
};

/* Declares DECODE, and VERIFY for every K in 1..k_max, so that K can change without a capture. Allocates. */
int target_create_graphs(struct target *t, const struct graph_set_options *options, int k_max);
/* Enqueues one DECODE replay: target_logits [batch, 1, V] for the first `batch` rows of row_slot (a bucket). */
int target_decode(struct target *t, struct stream *stream, int batch);

#endif
