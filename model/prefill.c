/* Prefill: a sequence's known tokens into a cache, in chunks cut at absolute multiples of the device's chunk, so that
 * the numbers depend on the sequence's tokens and turn boundaries alone. */
#include <string.h>

#include "base/err.h"
#include "model/model_internal.h"

enum { STAGE_INTS = 2 * PREFILL_CHUNK_MAX + 1, WORKSPACE_BYTES = 32 << 20 };

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
    TRY(pool_slice(pool, "prefill workspace", p->workspace_bytes, &p->workspace));
    TRY(pool_slice(pool, "prefill inputs", STAGE_INTS * sizeof(int32_t), &slice));
    if (!slice) return 0; /* a plan */
    int32_t *ints = slice;
    p->tokens = ints;
    p->positions = ints + PREFILL_CHUNK_MAX;
    p->slot = ints + 2 * PREFILL_CHUNK_MAX;
    return 0;
}

static int stage_chunk(struct prefill_buffers *p, struct stream *s, int32_t slot, const int32_t *tokens, int first,
                       int count) {
    p->turn ^= 1;
    int32_t *stage = (int32_t *)p->staging + p->turn * STAGE_INTS;
    if (!event_is_done(p->staged[p->turn])) TRY(event_wait(p->staged[p->turn]));
    memcpy(stage, tokens + first, (size_t)count * sizeof *stage);
    for (int i = 0; i < count; i++) stage[PREFILL_CHUNK_MAX + i] = first + i;
    stage[2 * PREFILL_CHUNK_MAX] = slot;
    TRY(stream_copy(s, p->tokens, stage, STAGE_INTS * sizeof *stage));
    return event_record(p->staged[p->turn], s);
}

int model_prefill(struct model *m, struct stream *s, struct prefill_buffers *p, int32_t slot, const int32_t *tokens,
                  int first, int last) {
    const int chunk = prefill_chunk(m->device), rows_max = p->row_invariant ? m->limits.graph_rows : chunk;
    while (first < last) {
        if (p->interrupted && p->interrupted()) return err_set(ERR_INTERRUPTED, "interrupted");
        int end = (first / chunk + 1) * chunk;
        if (end > last) end = last;
        if (end > first + rows_max) end = first + rows_max;
        TRY(stage_chunk(p, s, slot, tokens, first, end - first));
        struct rows rows = {
            .batch = 1,
            .q_len = end - first,
            .prefill = !p->row_invariant,
            .tokens = p->tokens,
            .positions = p->positions,
            .row_slot = p->slot,
            .page_table = p->page_table,
            .pages_per_slot = p->pages_per_slot,
        };
        TRY(model_forward(m, s, &rows, LOGITS_NONE, NULL));
        first = end;
    }
    return 0;
}
