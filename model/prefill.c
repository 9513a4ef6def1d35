/* Prefill: a sequence's known tokens into a cache, in chunks cut at absolute multiples of the device's chunk, so that
 * the numbers depend on the sequence's tokens and turn boundaries alone; or a few tokens of each of several sequences.
 *
 * Where kernels differ by the rows, or graphs are replayed, a chunk is padded to one of a few sizes by rows without a position, and
 * attention runs over the rows that are there; with graphs eagerly, between the captured pieces. */
#include <string.h>

#include "base/err.h"
#include "model/model_internal.h"

enum { STAGE_INTS = 3 * PREFILL_CHUNK_MAX };

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

/* tokens, positions and slots lie behind one another, so that one copy fills all three. */
int prefill_layout(struct prefill_buffers *p, const struct device *device, struct pool *pool) {
    void *slice;
    p->workspace_bytes = device_kind(device) == DEVICE_CUDA ? WORKSPACE_BYTES : 0;
    TRY(pool_slice(pool, POOL_SCRATCH, "workspace", p->workspace_bytes, &p->workspace));
    TRY(pool_slice(pool, POOL_SCRATCH, "prefill inputs", STAGE_INTS * sizeof(int32_t), &slice));
    if (!slice) return 0; /* a plan */
    int32_t *ints = slice;
    p->tokens = ints;
    p->positions = ints + PREFILL_CHUNK_MAX;
    p->slots = ints + 2 * PREFILL_CHUNK_MAX;
    return 0;
}

/* The first rows of the inputs. */
static struct rows input_rows(const struct prefill_buffers *p, int batch, int q_len) {
    return (struct rows){
        .batch = batch,
        .q_len = q_len,
        .prefill = batch == 1 && !p->row_invariant,
        .standing = ROWS_KNOWN,
        .tokens = p->tokens,
        .positions = p->positions,
        .row_slot = p->slots,
        .page_table = p->page_table,
        .pages_per_slot = p->pages_per_slot,
    };
}

int prefill_clear(struct prefill_buffers *p, struct stream *s) {
    p->live = input_rows(p, 1, 1);
    return stream_fill(s, p->tokens, 0, STAGE_INTS * sizeof(int32_t));
}

/* Of a graph row of q_len the last rows are the span's; no other row of the inputs has a position. */
static void put_span(int32_t *stage, int row, int q_len, const struct prefill_span *span) {
    const int length = span->last - span->first, at = (row + 1) * q_len - length;
    memcpy(stage + at, span->tokens + span->first, (size_t)length * sizeof *stage);
    for (int i = 0; i < length; i++) stage[PREFILL_CHUNK_MAX + at + i] = span->first + i;
    stage[2 * PREFILL_CHUNK_MAX + row] = span->slot;
}

static int stage_spans(struct prefill_buffers *p, struct stream *s, const struct prefill_span *spans, int count,
                       int q_len) {
    p->turn ^= 1;
    int32_t *stage = (int32_t *)p->staging + p->turn * STAGE_INTS;
    if (!event_is_done(p->staged[p->turn])) TRY(event_wait(p->staged[p->turn]));
    memset(stage, 0, STAGE_INTS * sizeof *stage);
    for (int i = 0; i < PREFILL_CHUNK_MAX; i++) stage[PREFILL_CHUNK_MAX + i] = -1;
    for (int row = 0; row < count; row++) put_span(stage, row, q_len, &spans[row]);
    TRY(stream_copy(s, p->tokens, stage, STAGE_INTS * sizeof *stage));
    return event_record(p->staged[p->turn], s);
}

/* --- graphs ----------------------------------------------------------------------------------------------- */

int model_add_prefill_graphs(struct model *m, struct prefill_buffers *p, struct graph_set *set, int kind) {
    m->prefill_graphs = set, m->prefill_kind = kind, m->prefill_inputs = p;
    for (int rows = prefill_chunk(m->device); rows >= PREFILL_PAD_LEAST;
         rows = rows > PREFILL_PAD ? rows - PREFILL_PAD : rows / 2)
        TRY(graph_set_add_single(set, kind, rows));
    return 0;
}

static int run_padded(const struct model *m, struct stream *s, const struct prefill_buffers *p, int count) {
    const struct rows padded = input_rows(p, 1, count);
    return pass_run(&m->passes[LOGITS_NONE], m->ops, s, &padded, &p->live);
}

int model_build_prefill(struct model *m, struct stream *s, int count) {
    return run_padded(m, s, m->prefill_inputs, count);
}

static int run_chunk(struct model *m, struct stream *s, struct prefill_buffers *p, int count) {
    p->live = input_rows(p, 1, count);
    if (p->row_invariant) return model_forward(m, s, &p->live, LOGITS_NONE, NULL);
    const int padded = prefill_padded(count);
    if (m->prefill_graphs)
        return graph_set_launch(m->prefill_graphs, (struct graph_key){m->prefill_kind, 1, padded}, s);
    /* Where kernels differ by the rows, only those of these sizes are loaded. */
    return m->ops->kernel_class ? run_padded(m, s, p, padded) : model_forward(m, s, &p->live, LOGITS_NONE, NULL);
}

int model_prefill_chunk(struct model *m, struct stream *s, struct prefill_buffers *p, int32_t slot,
                        const int32_t *tokens, int *first, int last) {
    const int chunk = prefill_chunk(m->device), most = p->row_invariant ? m->limits.graph_rows : chunk;
    int end = (*first / chunk + 1) * chunk;
    if (end > last) end = last;
    if (end > *first + most) end = *first + most;
    const struct prefill_span span = {slot, tokens, *first, end};
    TRY(stage_spans(p, s, &span, 1, end - *first));
    TRY(run_chunk(m, s, p, end - *first));
    cache_settle(&m->cache, slot, end - 1);
    *first = end;
    return 0;
}

/* --- several sequences ------------------------------------------------------------------------------------ */

int prefill_q_len(const struct model *m, int count) {
    const int rows = m->limits.graph_rows < PREFILL_CHUNK_MAX ? m->limits.graph_rows : PREFILL_CHUNK_MAX;
    return rows / count < PREFILL_SPAN_MAX ? rows / count : PREFILL_SPAN_MAX;
}

int model_prefill_spans(struct model *m, struct stream *s, struct prefill_buffers *p, const struct prefill_span *spans,
                        int count, int q_len) {
    struct rows rows = input_rows(p, count, q_len);
    rows.prefill = false;
    TRY(stage_spans(p, s, spans, count, q_len));
    for (int i = 0; i < count; i++)
        if (spans[i].last > spans[i].first) cache_settle(&m->cache, spans[i].slot, spans[i].last - 1);
    return model_forward(m, s, &rows, LOGITS_NONE, NULL);
}

int model_warm_up_spans(struct model *m, struct stream *s, struct prefill_buffers *p, int batch) {
    static const int32_t tokens[PREFILL_SPAN_MAX];
    struct prefill_span spans[PREFILL_CHUNK_MAX];
    uint64_t done = 0;
    for (int count = 2; m->ops->kernel_class && count <= batch; count++)
        for (int q_len = 1; q_len <= prefill_q_len(m, count); q_len++) {
            const uint64_t bit = (uint64_t)1 << m->ops->kernel_class(count * q_len) % 64;
            spans[0] = spans[count - 1] = (struct prefill_span){0, tokens, 0, q_len};
            for (int i = 1; i < count - 1; i++) spans[i] = spans[0];
            if (!(done & bit)) TRY(model_prefill_spans(m, s, p, spans, count, q_len));
            done |= bit;
        }
    return 0;
}
