/* The round: propose K, score K+1, accept; and the ring that brings its results back.
 *
 * Nothing here waits for the device but collect_round, which waits for a round that was enqueued earlier. */
#include "base/clock.h"
#include "base/err.h"
#include "engine/internal.h"

/* --- enqueue ---------------------------------------------------------------------------------------------- */

/* A row is live for the next round unless the rounds in flight are sure to end it. */
static bool wants_round(const struct sequence *s) {
    return s && s->running && (int)s->tokens.len + s->pending_rounds < s->limit;
}

/* K of the next round: 0 once every row is past the proposer's last position (the device decides row by row and alike). */
static int round_k(const struct engine *e) {
    if (e->k == 0) return 0;
    for (int slot = 1; slot <= e->max_batch; slot++)
        if (wants_round(e->slots[slot]) && (int)e->slots[slot]->tokens.len <= e->state.draft_positions) return e->k;
    return 0;
}

static int pack_rows(struct engine *e, struct round *r) {
    r->rows = 0;
    for (int slot = 1; slot <= e->max_batch; slot++) {
        if (!wants_round(e->slots[slot])) continue;
        r->row_slot[r->rows++] = slot;
        e->slots[slot]->pending_rounds++;
    }
    for (int row = r->rows; row < e->max_batch; row++) r->row_slot[row] = 0;
    return stream_copy(e->stream, e->state.row_slot, r->row_slot, (size_t)e->max_batch * sizeof *r->row_slot);
}

/* Marks, where the round is timed: the start, those of the proposer, after the target's replay, after acceptance. */
static int run_round(struct engine *e, int rows, int k, struct marks *marks) {
    int batch = graph_set_bucket(e->target.graphs, rows);
    TRY(marks_add(marks, e->stream));
    TRY(proposer_propose(e->proposer, e->stream, batch, k, marks));
    TRY(target_score(&e->target, e->stream, batch, k));
    TRY(marks_add(marks, e->stream));
    TRY(engine_accept(e, batch, k));
    TRY(proposer_accepted(e->proposer, e->stream, batch));
    return marks_add(marks, e->stream);
}

static int enqueue_round(struct engine *e) {
    struct round *r = &e->rounds[e->enqueued % (ROUNDS_IN_FLIGHT_MAX + 1)];
    struct stream_counts before = stream_counts(e->stream);
    int64_t start_us = clock_us();
    r->k = round_k(e);
    r->timed = e->timing > 0 && e->enqueued % (uint64_t)e->timing == 0;
    marks_restart(&r->marks);
    TRY(pack_rows(e, r));
    TRY(run_round(e, r->rows, r->k, r->timed ? &r->marks : NULL));
    TRY(stream_copy(e->stream, r->records, e->state.records, (size_t)r->rows * sizeof *r->records));
    TRY(event_record(r->done, e->stream));
    e->enqueued++;
    e->host_us += clock_us() - start_us;
    struct stream_counts after = stream_counts(e->stream);
    e->graph_launches += after.graph_launches - before.graph_launches;
    e->kernel_launches += after.kernel_launches - before.kernel_launches;
    return 0;
}

/* --- collect ---------------------------------------------------------------------------------------------- */

static enum finish finish_of(int32_t status) {
    switch (status) {
    case SLOT_END:
        return FINISH_STOP;
    case SLOT_LENGTH:
        return FINISH_LENGTH;
    case SLOT_ERROR:
        return FINISH_ERROR;
    default:
        return FINISH_NONE;
    }
}

static void cut_tokens(struct sequence *s, int tokens) {
    s->tokens.len -= (size_t)tokens;
    acceptance_cut(&s->stats, tokens);
    acceptance_cut(&s->engine->stats, tokens);
}

static void deliver(struct sequence *s, const struct round_record *r) {
    acceptance_add(&s->stats, r);
    acceptance_add(&s->engine->stats, r);
    ids_append(&s->tokens, r->tokens, (size_t)r->emitted);
    struct token_block block = {
        .tokens = r->tokens,
        .count = r->emitted,
        .accepted = r->accepted,
        .keep = r->emitted,
        .ended = r->status == SLOT_END,
        .finish = finish_of(r->status),
    };
    s->running = block.finish == FINISH_NONE;
    s->generation.on_tokens(s->generation.user, &block);
    if (block.keep < block.count) cut_tokens(s, block.count - block.keep);
    if (block.keep < block.count || block.stop) s->running = false;
}

/* The part of a round that ends at mark i + 1, the border after run_round's i-th piece of work, of `pieces`: the proposer's, which
 * takes turns with draws; the target's; acceptance. */
static double *part_of(struct round_times *t, int i, int pieces) {
    if (i == pieces - 2) return &t->verify_ms;
    return i < pieces - 2 && i % 2 == 0 ? &t->draft_ms : &t->sampling_ms;
}

/* The round is done, so its marks are; the ring gives them to another round only after this. */
static int read_marks(struct engine *e, const struct round *r) {
    if (!r->timed) return 0;
    for (int i = 0; i + 1 < r->marks.count; i++) {
        float ms;
        TRY(marks_ms(&r->marks, i, &ms));
        *part_of(&e->times, i, r->marks.count - 1) += (double)ms;
    }
    e->times.rounds++;
    return 0;
}

static int collect_round(struct engine *e) {
    struct round *r = &e->rounds[e->collected % (ROUNDS_IN_FLIGHT_MAX + 1)];
    int64_t start_us = clock_us();
    TRY(event_wait(r->done));
    e->wait_us += clock_us() - start_us;
    TRY(read_marks(e, r));
    e->collected++;
    for (int row = 0; row < r->rows; row++) {
        const struct round_record *record = &r->records[row];
        struct sequence *s = e->slots[record->slot];
        if (!s || s->serial != record->serial) continue;
        s->pending_rounds--;
        if (!s->running || !record->live) continue;
        deliver(s, record);
        proposer_collected(e->proposer, s->slot, (int)s->tokens.len, r->k);
    }
    return 0;
}

/* --- step ------------------------------------------------------------------------------------------------- */

/* Before a round with K > 0: where the proposer lags behind, histories must be known first, so nothing may be in flight. */
static int prepare_proposer(struct engine *e) {
    bool plain = false, behind = false;
    for (uint64_t r = e->collected; r < e->enqueued; r++)
        if (e->rounds[r % (ROUNDS_IN_FLIGHT_MAX + 1)].k == 0) plain = true;
    for (int slot = 1; slot <= e->max_batch; slot++)
        if (wants_round(e->slots[slot]) && proposer_lags(e->proposer, slot, (int)e->slots[slot]->tokens.len, plain))
            behind = true;
    if (!behind) return 0;
    while (e->collected < e->enqueued) TRY(collect_round(e));
    for (int slot = 1; slot <= e->max_batch; slot++) {
        const struct sequence *s = e->slots[slot];
        if (wants_round(s)) TRY(proposer_catch_up(e->proposer, e->stream, slot, s->tokens.data, (int)s->tokens.len));
    }
    return 0;
}

static int count_rows(const struct engine *e) {
    int rows = 0;
    for (int slot = 1; slot <= e->max_batch; slot++) rows += wants_round(e->slots[slot]);
    return rows;
}

int engine_step(struct engine *e, int *running) {
    if (e->k > 0) TRY(prepare_proposer(e));
    bool enqueued = count_rows(e) > 0;
    if (enqueued) TRY(enqueue_round(e));
    uint64_t in_flight = e->enqueued - e->collected;
    if (in_flight > 0 && (!enqueued || in_flight >= (uint64_t)e->pipeline)) TRY(collect_round(e));
    *running = 0;
    for (int slot = 1; slot <= e->max_batch; slot++) *running += e->slots[slot] && e->slots[slot]->running;
    return 0;
}
