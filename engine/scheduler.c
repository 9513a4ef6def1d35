/* The scheduler: which answers wait for a slot, whose prompt is ingested next, and what a step does.
 *
 * First come, first served: an answer that waits for a slot is overtaken by none that waits for one too. Between two rounds
 * little is ingested, so that a long prompt slows down the answers that are being written but does not stop them; those of them
 * whose proposer lags come before new prompts. */
#include "base/err.h"
#include "engine/internal.h"

/* Of one step: one chunk, or so many of which none is longer than this part of one. A short one costs what streaming the weights
 * costs, whatever its rows. */
enum { SHORT_CHUNKS = 4 };

/* --- the queue -------------------------------------------------------------------------------------------- */

void scheduler_enqueue(struct sequence *s) {
    struct sequence **at = &s->engine->queue;
    while (*at) at = &(*at)->next_queued;
    *at = s;
    s->next_queued = NULL;
    s->phase = PHASE_QUEUED;
}

static void leave_queue(struct sequence *s) {
    struct sequence **at = &s->engine->queue;
    while (*at != s) at = &(*at)->next_queued;
    *at = s->next_queued;
}

void scheduler_forget(struct sequence *s) {
    if (s->phase == PHASE_QUEUED) leave_queue(s);
    s->phase = PHASE_IDLE;
}

/* A sequence that keeps its slot between answers waits for none. */
static int admit(struct engine *e) {
    bool is_full = false;
    for (struct sequence *s = e->queue, *next; s; s = next) {
        next = s->next_queued;
        if (s->slot == 0 && is_full) continue;
        if (!sequence_place(s)) {
            is_full = true;
            continue;
        }
        leave_queue(s);
        s->phase = PHASE_INGESTING;
        TRY(sequence_start(s));
    }
    return 0;
}

/* --- ingestion -------------------------------------------------------------------------------------------- */

static int lags(const struct sequence *s, bool plain_in_flight) {
    const struct engine *e = s->engine;
    return e->k > 0 ? proposer_lags(e->proposer, s->slot, (int)s->tokens.len, plain_in_flight) : 0;
}

/* After a change of K. What they lack is known once their rounds are collected. */
static void suspend_lagging(struct engine *e) {
    for (int slot = 1; slot <= e->max_batch; slot++) {
        struct sequence *s = e->slots[slot];
        if (round_wants(s) && lags(s, round_plain_in_flight(s)) > 0) s->phase = PHASE_INGESTING;
    }
}

/* Nothing of it is in flight. */
static bool is_ingesting(const struct sequence *s) {
    return s && s->phase == PHASE_INGESTING && s->pending_rounds == 0;
}

/* `scored`: positions that the target's cache holds. */
static struct proposer_row row_of(const struct sequence *s, int scored) {
    return (struct proposer_row){s->slot, s->tokens.data, (int)s->tokens.len, scored};
}

/* Answers that have begun and whose proposer lags, [count]; *most tokens of one. Those for which it does no longer go on. */
static int rows_behind(struct engine *e, int *most) {
    int count = 0;
    *most = 0;
    for (int slot = 1; slot <= e->max_batch; slot++) {
        struct sequence *s = e->slots[slot];
        if (!is_ingesting(s) || !s->has_begun) continue;
        const int lacking = lags(s, false);
        if (lacking == 0)
            s->phase = PHASE_DECODING;
        else
            e->behind[count++] = row_of(s, (int)s->tokens.len - 1);
        if (lacking > *most) *most = lacking;
    }
    return count;
}

/* Rows that lack a few tokens all catch up at once, since rounds of some of them would cost more; of those that lack many a chunk, which
 * is all that this step ingests. */
static int catch_up(struct engine *e, bool *is_long) {
    int most, count = rows_behind(e, &most);
    *is_long = most > prefill_chunk(e->device) / SHORT_CHUNKS;
    while (count > 0) {
        TRY(proposer_ingest(e->proposer, e->stream, e->behind, count));
        count = rows_behind(e, &most);
        if (*is_long) break;
    }
    return 0;
}

static struct sequence *next_to_begin(const struct engine *e) {
    struct sequence *next = NULL;
    for (int slot = 1; slot <= e->max_batch; slot++) {
        struct sequence *s = e->slots[slot];
        if (is_ingesting(s) && !s->has_begun && (!next || s->serial < next->serial)) next = s;
    }
    return next;
}

/* One chunk into each cache that lacks it; *rows of the target's. */
static int ingest_chunk(struct sequence *s, int *rows) {
    struct engine *e = s->engine;
    const int length = (int)s->tokens.len, first = s->cached;
    e->is_next = false;
    if (s->cached < length - 1)
        TRY(model_prefill_chunk(e->target_model, e->stream, &e->prefill, s->slot, s->tokens.data, &s->cached,
                                length - 1));
    *rows = s->cached - first;
    const struct proposer_row row = row_of(s, s->cached);
    return lags(s, false) > 0 ? proposer_ingest(e->proposer, e->stream, &row, 1) : 0;
}

static int ingest_next(struct sequence *s, int *rows) {
    TRY(ingest_chunk(s, rows));
    if (s->cached < (int)s->tokens.len - 1 || lags(s, false) > 0) return 0;
    s->phase = PHASE_DECODING;
    return sequence_begin(s);
}

int scheduler_ingest(struct engine *e) {
    bool is_long;
    TRY(admit(e));
    TRY(catch_up(e, &is_long));
    const int most = prefill_chunk(e->device) / SHORT_CHUNKS;
    for (int i = 0, rows = 0; !is_long && i < SHORT_CHUNKS && rows <= most; i++) {
        struct sequence *s = next_to_begin(e);
        if (!s) break;
        TRY(ingest_next(s, &rows));
    }
    return 0;
}

/* --- steps ------------------------------------------------------------------------------------------------ */

struct engine_load engine_load(const struct engine *e) {
    struct engine_load load = {0};
    for (const struct sequence *s = e->open; s; s = s->next_open) {
        load.queued += s->phase == PHASE_QUEUED;
        load.ingesting += s->phase == PHASE_INGESTING;
        load.decoding += s->phase == PHASE_DECODING;
    }
    return load;
}

static bool has_rows(const struct engine *e) {
    for (int slot = 1; slot <= e->max_batch; slot++)
        if (round_wants(e->slots[slot])) return true;
    return false;
}

int engine_step(struct engine *e, int *running) {
    TRY(auto_choose(e));
    suspend_lagging(e);
    TRY(scheduler_ingest(e));
    const bool has_round = has_rows(e);
    if (has_round) TRY(round_enqueue(e));
    const uint64_t in_flight = e->enqueued - e->collected;
    if (in_flight > 0 && (!has_round || in_flight >= (uint64_t)e->pipeline)) TRY(round_collect(e));
    const struct engine_load load = engine_load(e);
    *running = load.queued + load.ingesting + load.decoding;
    if (in_flight == 0 && load.queued > 0 && load.queued == *running)
        return err_set(ERR_BUSY, "sequences without an answer hold the slots that %d wait for", load.queued);
    return 0;
}
