/* Sequences: slots, pages, histories, and the start and end of an answer. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "engine/internal.h"

static void release(struct engine *e, struct sequence *s) {
    if (s->page_count > 0) kv_pages_give(e->kv_pages, s->page_count, s->pages);
    e->slots[s->slot] = NULL;
    ids_free(&s->tokens);
    free(s->pages);
    free(s);
}

static int find_slot(const struct engine *e) {
    for (int slot = 1; slot <= e->max_batch; slot++)
        if (!e->slots[slot]) return slot;
    return 0;
}

int engine_open(struct engine *e, int reserve_tok, struct sequence **out) {
    *out = NULL;
    int slot = find_slot(e);
    if (slot == 0) return err_set(ERR_BUSY, "all %d slots are taken", e->max_batch);
    if (reserve_tok < 1) return err_set(ERR_USAGE, "a sequence of %d tokens", reserve_tok);
    int capacity = reserve_tok < e->context ? reserve_tok : e->context;
    int pages = kv_pages_for((int64_t)capacity + e->k_max + 1, KV_PAGE);
    struct sequence *s = calloc(1, sizeof *s);
    int32_t *list = calloc((size_t)pages, sizeof *list);
    int rc = s && list ? kv_pages_take(e->kv_pages, pages, list) : err_set(ERR_MEMORY, "out of memory for a sequence");
    if (rc != 0) {
        free(list);
        free(s);
        return rc;
    }
    s->engine = e, s->slot = slot, s->pages = list, s->page_count = pages, s->capacity = capacity;
    e->slots[slot] = s;
    proposer_truncate(e->proposer, slot, 0);
    *out = s;
    return 0;
}

void engine_close(struct engine *e, struct sequence *s) {
    if (s) release(e, s);
}

/* --- the start of an answer ------------------------------------------------------------------------------- */

static int check_request(const struct engine *e, const struct sequence *s, const int32_t *ids, int n,
                         const struct generation *g) {
    if (s->running) return err_set(ERR_USAGE, "an answer of this sequence is still running");
    TRY(sampling_check(&g->sampling));
    if (g->max_tokens < 1) return err_set(ERR_USAGE, "max_tokens is %d, at least 1 is needed", g->max_tokens);
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->vocab)
            return err_set(ERR_FORMAT, "token id %d at index %d lies outside the vocabulary of %d", ids[i], i,
                           e->vocab);
    int64_t length = (int64_t)s->tokens.len + n;
    if (length < 1) return err_set(ERR_USAGE, "an empty prompt: there is no token to start from");
    if (length + 1 > s->capacity)
        return err_set(ERR_LIMIT, "%lld tokens and one of the answer do not fit the context of %d tokens",
                       (long long)length, s->capacity);
    return 0;
}

/* Brings what is known of the history to the invariants of a round: the target's cache to 0..n-2, and the proposer. A turn starts
 * at the old n-1 whatever else the cache holds, so that prefill's numbers depend on the tokens and turn boundaries alone. What an
 * interrupt leaves there lies past the history, or is what the history says. */
static int ingest(struct engine *e, struct sequence *s, int old_length) {
    struct proposer_turn turn = {s->slot, s->capacity, s->tokens.data, old_length, (int)s->tokens.len, e->k > 0};
    int first = old_length > 0 ? old_length - 1 : 0, last = turn.length - 1;
    TRY(model_open_sequence(e->target_model, e->stream, s->slot, s->capacity));
    TRY(model_prefill(e->target_model, e->stream, &e->prefill, s->slot, s->tokens.data, first, last));
    return proposer_begin(e->proposer, e->stream, &turn);
}

static struct slot slot_state(const struct sequence *s) {
    const struct generation *g = &s->generation;
    size_t n = s->tokens.len;
    return (struct slot){
        .length = (int32_t)n,
        .last = {n > 1 ? s->tokens.data[n - 2] : -1, s->tokens.data[n - 1]},
        .limit = s->limit,
        .status = SLOT_LIVE,
        .serial = s->serial,
        .ignore_end = g->ignore_end,
        .sampling = g->sampling,
        .key = g->seed,
    };
}

static int stage_pages(struct engine *e, struct sequence *s) {
    struct slot_staging *stage = &e->staging[s->slot];
    if (!event_is_done(stage->sent)) TRY(event_wait(stage->sent));
    memset(stage->page_row, 0, (size_t)e->pages_per_slot * sizeof *stage->page_row);
    memcpy(stage->page_row, s->pages, (size_t)s->page_count * sizeof *stage->page_row);
    int32_t *row = e->page_table + (size_t)s->slot * (size_t)e->pages_per_slot;
    return stream_copy(e->stream, row, stage->page_row, (size_t)e->pages_per_slot * sizeof *row);
}

static int stage_slot(struct engine *e, struct sequence *s) {
    struct slot_staging *stage = &e->staging[s->slot];
    *stage->slot = slot_state(s);
    TRY(stream_copy(e->stream, &e->state.slot[s->slot], stage->slot, sizeof *stage->slot));
    return event_record(stage->sent, e->stream);
}

static int start_answer(struct engine *e, struct sequence *s, int old_length) {
    TRY(stage_pages(e, s));
    TRY(ingest(e, s, old_length));
    return stage_slot(e, s);
}

int engine_generate(struct engine *e, struct sequence *s, const int32_t *ids, int n, const struct generation *g) {
    TRY(check_request(e, s, ids, n, g));
    int old_length = (int)s->tokens.len;
    ids_append(&s->tokens, ids, (size_t)n);
    s->generation = *g;
    s->serial = ++e->next_serial;
    s->pending_rounds = 0;
    int64_t limit = (int64_t)s->tokens.len + g->max_tokens;
    s->limit = limit < s->capacity ? (int)limit : s->capacity;
    int rc = start_answer(e, s, old_length);
    s->running = rc == 0;
    if (rc != 0) s->tokens.len = (size_t)old_length;
    return rc;
}

/* --- the end, and histories ------------------------------------------------------------------------------- */

void engine_stop(struct engine *e, struct sequence *s) {
    (void)e;
    s->running = false; /* its rounds in flight are dropped by collect_round; the slot leaves the row map */
}

bool engine_is_running(const struct sequence *s) {
    return s->running;
}

int engine_truncate(struct engine *e, struct sequence *s, int n) {
    if (s->running) return err_set(ERR_USAGE, "an answer of this sequence is still running");
    if (n < 0 || (size_t)n > s->tokens.len)
        return err_set(ERR_USAGE, "cannot cut a history of %zu tokens to %d", s->tokens.len, n);
    s->tokens.len = (size_t)n;
    proposer_truncate(e->proposer, s->slot, n);
    return 0;
}

const int32_t *engine_tokens(const struct sequence *s, int *n) {
    *n = (int)s->tokens.len;
    return s->tokens.data;
}

const struct acceptance *engine_sequence_stats(const struct sequence *s) {
    return &s->stats;
}

void engine_reset_sequence_stats(struct sequence *s) {
    memset(&s->stats, 0, sizeof s->stats);
}
