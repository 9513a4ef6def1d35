/* Prefill: a sequence's known tokens into a cache, in chunks cut at absolute multiples of the device's chunk, so that
 * the numbers depend on the sequence's tokens and turn boundaries alone.
 *
 * With graphs a chunk is padded to a captured size by rows without a position, and attention runs eagerly between the captured
 * pieces, over the rows that are there. */
#include <string.h>

#include "base/err.h"
#include "model/model_internal.h"

enum { STAGE_INTS = 2 * PREFILL_CHUNK_MAX + 1 };

int prefill_create(struct prefill_buffers *p, struct device *device) {
    memset(p, 0, sizeof *p);
    TRY(device_alloc_pinned(device, 2 * STAGE_INTS * sizeof(int32_t), &p->staging));
    TRY(event_create(device, &p->staged[0]));
    return event_create(device, &p->staged[1]);
}

void prefill_destroy(struct prefill_buffers *p, struct device *device) {
    event_destroy(p->staged[0]);
    event_destroy(p->staged[1]);
    if (p->staging) device_free_pinned(device, p->staging);
    memset(p, 0, sizeof *p);
}

/* tokens, positions and slot lie behind one another, so that one copy fills all three. */
int prefill_layout(struct prefill_buffers *p, const struct device *device, struct pool *pool) {
    void *slice;
    p->workspace_bytes = device_kind(device) == DEVICE_CUDA ? WORKSPACE_BYTES : 0;
    TRY(pool_slice(pool, POOL_SCRATCH, "workspace", p->workspace_bytes, &p->workspace));
    TRY(pool_slice(pool, POOL_SCRATCH, "prefill inputs", STAGE_INTS * sizeof(int32_t), &slice));
    if (!slice) return 0; /* a plan */
    int32_t *ints = slice;
    p->tokens = ints;
    p->positions = ints + PREFILL_CHUNK_MAX;
    p->slot = ints + 2 * PREFILL_CHUNK_MAX;
    return 0;
}

/* The first `count` rows of the inputs. */
static struct rows chunk_rows(const struct prefill_buffers *p, int count) {
    return (struct rows){
        .batch = 1,
        .q_len = count,
        .prefill = true,
        .tokens = p->tokens,
        .positions = p->positions,
        .row_slot = p->slot,
        .page_table = p->page_table,
        .pages_per_slot = p->pages_per_slot,
    };
}

int prefill_clear(struct prefill_buffers *p, struct stream *s) {
    p->live = chunk_rows(p, 1);
    return stream_fill(s, p->tokens, 0, STAGE_INTS * sizeof(int32_t));
}

static int stage_chunk(struct prefill_buffers *p, struct stream *s, int32_t slot, const int32_t *tokens, int first,
                       int count) {
    p->turn ^= 1;
    int32_t *stage = (int32_t *)p->staging + p->turn * STAGE_INTS;
    if (!event_is_done(p->staged[p->turn])) TRY(event_wait(p->staged[p->turn]));
    memset(stage, 0, PREFILL_CHUNK_MAX * sizeof *stage);
    memcpy(stage, tokens + first, (size_t)count * sizeof *stage);
    for (int i = 0; i < PREFILL_CHUNK_MAX; i++) stage[PREFILL_CHUNK_MAX + i] = i < count ? first + i : -1;
    stage[2 * PREFILL_CHUNK_MAX] = slot;
    TRY(stream_copy(s, p->tokens, stage, STAGE_INTS * sizeof *stage));
    return event_record(p->staged[p->turn], s);
}

/* --- graphs ----------------------------------------------------------------------------------------------- */

int model_add_prefill_graphs(struct model *m, struct prefill_buffers *p, struct graph_set *set, int kind) {
    m->prefill_graphs = set, m->prefill_kind = kind, m->prefill_inputs = p;
    for (int rows = prefill_chunk(m->device); rows > 0; rows -= PREFILL_PAD) TRY(graph_set_add_single(set, kind, rows));
    return 0;
}

int model_build_prefill(struct model *m, struct stream *s, int count) {
    const struct rows padded = chunk_rows(m->prefill_inputs, count);
    return pass_run(&m->passes[LOGITS_NONE], m->ops, s, &padded, &m->prefill_inputs->live);
}

static int run_chunk(struct model *m, struct stream *s, struct prefill_buffers *p, int count) {
    p->live = chunk_rows(p, count);
    p->live.prefill = !p->row_invariant;
    if (!m->prefill_graphs || p->row_invariant) return model_forward(m, s, &p->live, LOGITS_NONE, NULL);
    const int padded = (count + PREFILL_PAD - 1) / PREFILL_PAD * PREFILL_PAD;
    return graph_set_launch(m->prefill_graphs, (struct graph_key){m->prefill_kind, 1, padded}, s);
}

int model_prefill_chunk(struct model *m, struct stream *s, struct prefill_buffers *p, int32_t slot,
                        const int32_t *tokens, int *first, int last) {
    const int chunk = prefill_chunk(m->device), most = p->row_invariant ? m->limits.graph_rows : chunk;
    int end = (*first / chunk + 1) * chunk;
    if (end > last) end = last;
    if (end > *first + most) end = *first + most;
    TRY(stage_chunk(p, s, slot, tokens, *first, end - *first));
    TRY(run_chunk(m, s, p, end - *first));
    *first = end;
    return 0;
}
