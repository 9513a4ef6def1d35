/* Sequences: slots, pages, histories, and the start and end of an answer. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "engine/internal.h"

int engine_open(struct engine *e, int reserve_tok, struct sequence **out) {
    *out = NULL;
    if (reserve_tok < 1) return err_set(ERR_USAGE, "a sequence of %d tokens", reserve_tok);
    int capacity = reserve_tok < e->context ? reserve_tok : e->context;
    int pages = kv_pages_for((int64_t)capacity + e->k_max + 1, KV_PAGE);
    struct sequence *s = calloc(1, sizeof *s);
    int32_t *list = calloc((size_t)pages, sizeof *list);
    if (!s || !list) {
        free(list);
        free(s);
        return err_set(ERR_MEMORY, "out of memory for a sequence");
    }
    s->engine = e, s->pages = list, s->page_count = pages, s->capacity = capacity;
    s->next_open = e->open;
    e->open = s;
    *out = s;
    return 0;
}

static void unlink_open(struct engine *e, const struct sequence *s) {
    struct sequence **at = &e->open;
    while (*at != s) at = &(*at)->next_open;
    *at = s->next_open;
}

void engine_close(struct engine *e, struct sequence *s) {
    if (!s) return;
    scheduler_forget(s);
    unlink_open(e, s);
    if (s->slot > 0) {
        kv_pages_give(e->kv_pages, s->page_count, s->pages);
        e->slots[s->slot] = NULL;
    }
    ids_free(&s->tokens);
    free(s->pages);
    free(s);
}

/* --- the start of an answer ------------------------------------------------------------------------------- */

static int check_request(const struct engine *e, const struct sequence *s, const int32_t *ids, int n,
                         const struct generation *g) {
    if (engine_is_running(s)) return err_set(ERR_USAGE, "an answer of this sequence is still running");
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

int engine_generate(struct engine *e, struct sequence *s, const int32_t *ids, int n, const struct generation *g) {
    TRY(check_request(e, s, ids, n, g));
    s->old_length = (int)s->tokens.len;
    ids_append(&s->tokens, ids, (size_t)n);
    s->generation = *g;
    s->finish = FINISH_NONE;
    s->serial = ++e->next_serial;
    s->pending_rounds = 0;
    s->has_begun = false;
    int64_t limit = (int64_t)s->tokens.len + g->max_tokens;
    s->limit = limit < s->capacity ? (int)limit : s->capacity;
    scheduler_enqueue(s);
    return 0;
}

static int find_slot(const struct engine *e) {
    for (int slot = 1; slot <= e->max_batch; slot++)
        if (!e->slots[slot]) return slot;
    return 0;
}

bool sequence_place(struct sequence *s) {
    struct engine *e = s->engine;
    if (s->slot > 0) return true;
    int slot = find_slot(e);
    if (slot == 0 || kv_pages_free_count(e->kv_pages) < s->page_count) return false;
    (void)kv_pages_take(e->kv_pages, s->page_count, s->pages); /* there are enough */
    s->slot = slot;
    e->slots[slot] = s;
    return true;
}

static int stage_pages(struct engine *e, struct sequence *s) {
    struct slot_staging *stage = &e->staging[s->slot];
    if (!event_is_done(stage->sent)) TRY(event_wait(stage->sent));
    memset(stage->page_row, 0, (size_t)e->pages_per_slot * sizeof *stage->page_row);
    memcpy(stage->page_row, s->pages, (size_t)s->page_count * sizeof *stage->page_row);
    int32_t *row = e->page_table + (size_t)s->slot * (size_t)e->pages_per_slot;
    return stream_copy(e->stream, row, stage->page_row, (size_t)e->pages_per_slot * sizeof *row);
}

/* A turn starts at the old n-1 whatever else the cache holds, so that prefill's numbers depend on the tokens and turn boundaries
 * alone. What an end in between leaves in the cache lies past the history, or is what the history says. */
int sequence_start(struct sequence *s) {
    struct engine *e = s->engine;
    struct proposer_turn turn = {s->slot, s->capacity, s->tokens.data, s->old_length, (int)s->tokens.len};
    int first = s->old_length > 0 ? s->old_length - 1 : 0;
    if (s->cached > first) s->cached = first;
    s->cached = cache_resume(model_get_cache(e->target_model), s->slot, s->cached);
    TRY(stage_pages(e, s));
    TRY(model_open_sequence(e->target_model, e->stream, s->slot, s->capacity));
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

/* Which ids the history has, where they are penalised; rounds add theirs. */
static int stage_seen(struct sequence *s) {
    struct engine *e = s->engine;
    uint32_t *seen = e->staging[s->slot].seen;
    size_t words = (size_t)e->state.seen_words, bytes = words * sizeof *seen;
    if (!sequence_is_penalised(s)) return 0;
    memset(seen, 0, bytes);
    for (size_t i = 0; i < s->tokens.len; i++) seen[s->tokens.data[i] / 32] |= 1u << s->tokens.data[i] % 32;
    return stream_copy(e->stream, e->state.seen + (size_t)s->slot * words, seen, bytes);
}

int sequence_begin(struct sequence *s) {
    struct engine *e = s->engine;
    struct slot_staging *stage = &e->staging[s->slot];
    if (!event_is_done(stage->sent)) TRY(event_wait(stage->sent));
    TRY(stage_seen(s));
    *stage->slot = slot_state(s);
    TRY(stream_copy(e->stream, &e->state.slot[s->slot], stage->slot, sizeof *stage->slot));
    s->has_begun = true;
    return event_record(stage->sent, e->stream);
}

/* --- the end, and histories ------------------------------------------------------------------------------- */

/* Rounds in flight are dropped when they are collected; the slot leaves the row map. */
void engine_stop(struct engine *e, struct sequence *s) {
    if (!engine_is_running(s)) return;
    scheduler_forget(s);
    if (!s->has_begun) engine_truncate(e, s, s->old_length);
}

enum finish engine_finish(const struct sequence *s) {
    return s->finish;
}

int engine_finish_error(const struct sequence *s) {
    const struct engine_options *o = &s->engine->options;
    const bool is_own_head = s->is_draft_bad && !o->draft;
    return err_set(ERR_NUMERIC, "%s: the %s gave non-finite logits",
                   checkpoint_name(s->is_draft_bad && o->draft ? o->draft : o->target),
                   is_own_head       ? "head that drafts"
                   : s->is_draft_bad ? "draft"
                                     : "target");
}

bool engine_is_running(const struct sequence *s) {
    return s->phase != PHASE_IDLE;
}

int engine_ingested(const struct sequence *s, int *all) {
    *all = (int)s->tokens.len - 1;
    return s->cached;
}

int engine_truncate(struct engine *e, struct sequence *s, int n) {
    (void)e;
    if (engine_is_running(s)) return err_set(ERR_USAGE, "an answer of this sequence is still running");
    if (n < 0 || (size_t)n > s->tokens.len)
        return err_set(ERR_USAGE, "cannot cut a history of %zu tokens to %d", s->tokens.len, n);
    s->tokens.len = (size_t)n;
    if (s->cached > n) s->cached = n;
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
