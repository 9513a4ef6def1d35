/* The round: propose K, score K+1, accept; and the ring that brings its results back.
 *
 * Nothing here waits for the device but round_collect, which waits for a round that was enqueued earlier. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/internal.h"

/* --- enqueue ---------------------------------------------------------------------------------------------- */

/* A row is live for the next round unless the rounds in flight are sure to end it. */
bool round_wants(const struct sequence *s) {
    return s && s->phase == PHASE_DECODING && (int)s->tokens.len + s->pending_rounds < s->limit;
}

bool round_plain_in_flight(const struct sequence *s) {
    const struct engine *e = s->engine;
    if (s->pending_rounds == 0) return false;
    for (uint64_t r = e->collected; r < e->enqueued; r++)
        if (e->rounds[r % (ROUNDS_IN_FLIGHT_MAX + 1)].k == 0) return true;
    return false;
}

/* K of the next round: 0 once every row is past the proposer's last position (the device decides row by row and alike). */
static int round_k(const struct engine *e) {
    if (e->k == 0) return 0;
    for (int slot = 1; slot <= e->max_batch; slot++)
        if (round_wants(e->slots[slot]) && (int)e->slots[slot]->tokens.len <= e->state.draft_positions) return e->k;
    return 0;
}

/* The row map, unless the device has it: a copy between two graphs takes as long as several kernels. */
static int send_rows(struct engine *e, const int32_t *rows) {
    const size_t bytes = (size_t)e->max_batch * sizeof *rows;
    if (!e->rows_sent || memcmp(e->rows_sent, rows, bytes) != 0)
        TRY(stream_copy(e->stream, e->state.row_slot, rows, bytes));
    e->rows_sent = rows;
    return 0;
}

static int pack_rows(struct engine *e, struct round *r) {
    r->rows = 0;
    e->state.penalises = e->gives_logprobs = false;
    for (int slot = 1; slot <= e->max_batch; slot++) {
        struct sequence *s = e->slots[slot];
        if (!round_wants(s)) continue;
        r->row_slot[r->rows++] = slot;
        s->pending_rounds++;
        cache_settle(model_get_cache(e->target_model), slot, (int)s->tokens.len - 1);
        e->state.penalises |= sequence_is_penalised(s);
        e->gives_logprobs |= s->generation.logprobs;
    }
    for (int row = r->rows; row < e->max_batch; row++) r->row_slot[row] = 0;
    return send_rows(e, r->row_slot);
}

/* `batch` follows from the rows. Marks, where the round is timed: the start, those of the proposer, after the target's replay, after acceptance. */
int round_run(struct engine *e, struct proposer_round r) {
    r.batch = graph_set_bucket(e->target.graphs, r.rows);
    TRY(marks_add(r.marks, e->stream));
    TRY(proposer_propose(e->proposer, e->stream, &r));
    TRY(target_score(&e->target, e->stream, r.batch, r.k));
    TRY(marks_add(r.marks, e->stream));
    TRY(engine_accept(e, r.batch, r.k));
    TRY(proposer_accepted(e->proposer, e->stream, &r));
    return marks_add(r.marks, e->stream);
}

/* Acceptance writes its records where the host reads them. */
static int run_into(struct engine *e, struct round *r) {
    struct round_record *const own = e->state.records;
    e->state.records = r->records;
    int rc = round_run(e, (struct proposer_round){
                              .k = r->k, .slots = r->row_slot, .rows = r->rows, .marks = r->timed ? &r->marks : NULL});
    e->state.records = own;
    return rc;
}

int round_enqueue(struct engine *e) {
    struct round *r = &e->rounds[e->enqueued % (ROUNDS_IN_FLIGHT_MAX + 1)];
    struct stream_counts before = stream_counts(e->stream);
    int64_t start_us = clock_us();
    r->k = round_k(e);
    r->timed = e->timing > 0 && e->enqueued % (uint64_t)e->timing == 0;
    marks_restart(&r->marks);
    TRY(pack_rows(e, r));
    TRY(auto_enqueue(e, r));
    TRY(run_into(e, r));
    if (r->spanned) TRY(span_end(e, &r->span));
    TRY(event_record(r->done, e->stream));
    e->enqueued++;
    e->rounds_by_k[r->k]++;
    auto_enqueued(e, r);
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
        .logprobs = s->generation.logprobs ? r->logprobs : NULL,
        .count = r->emitted,
        .accepted = r->accepted,
        .keep = r->emitted,
        .ended = r->status == SLOT_END,
        .finish = finish_of(r->status),
    };
    if (block.finish != FINISH_NONE) s->phase = PHASE_IDLE;
    s->finish = block.finish, s->is_draft_bad = r->is_draft_bad;
    s->generation.on_tokens(s->generation.user, &block);
    if (block.keep < block.count) cut_tokens(s, block.count - block.keep);
    if (block.keep < block.count || block.stop) s->phase = PHASE_IDLE;
    s->cached = (int)s->tokens.len - 1;
}

/* The part of a round that ends at mark i + 1, the border after round_run's i-th piece of work, of `pieces`: the proposer's, which
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

int round_collect(struct engine *e) {
    struct round *r = &e->rounds[e->collected % (ROUNDS_IN_FLIGHT_MAX + 1)];
    int64_t start_us = clock_us();
    TRY(event_wait(r->done));
    e->wait_us += clock_us() - start_us;
    TRY(read_marks(e, r));
    TRY(auto_collected(e, r));
    e->collected++;
    for (int row = 0; row < r->rows; row++) {
        const struct round_record *record = &r->records[row];
        struct sequence *s = e->slots[record->slot];
        if (!s || s->serial != record->serial) continue;
        s->pending_rounds--;
        if (s->phase == PHASE_IDLE || !record->live) continue;
        auto_learn(s, r, record);
        deliver(s, record);
        proposer_collected(e->proposer, s->slot, (int)s->tokens.len, r->k);
    }
    return 0;
}
