#include "draft/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "draft/history.h"
#include "draft/vocab.h"
#include "target/vocabulary.h"

/* Of a slot: the cache is right for positions 0..known-1 at least; where the current turn begins; how many tokens a round's first pass has
 * to go through, of a head of the target. */
struct cache_state {
    int known, turn, behind;
};

struct draft {
    struct proposer base;
    struct history_store store; /* of a head of the target */
    struct cache_state *caches; /* [S] */
    struct prefill_span *spans; /* [S] */
};

static struct draft *draft_of(struct proposer *p) {
    return (struct draft *)p;
}

/* A head of the target, which has no vocabulary and no inputs of its own. */
static bool is_target_head(const struct proposer *p) {
    return p->ops == &proposer_mtp || p->ops == &proposer_eagle || p->ops == &proposer_assistant ||
           p->ops == &proposer_block;
}

/* One pass drafts all tokens of a round. */
static bool drafts_blocks(const struct proposer *p) {
    return p->ops == &proposer_block;
}

/* Its own passes write its keys. An assistant has none, and those of a head that drafts blocks are written by the target's passes: there is
 * nothing to catch up with. */
static bool has_cache(const struct proposer *p) {
    return p->ops != &proposer_assistant && !drafts_blocks(p);
}

/* Its first pass reads more than the last tokens. */
static bool keeps_history(const struct proposer *p) {
    return is_target_head(p) && !drafts_blocks(p);
}

/* --- the pair --------------------------------------------------------------------------------------------- */

/* Ids that both maps have: those of the shorter one, and where both have names these must agree. */
static int compare_vocabularies(struct proposer *p, const struct tokenizer *tokenizer, int size,
                                const struct checkpoint *own) {
    const struct proposer_world *w = p->world;
    int common;
    p->vocab = size < w->vocab ? size : w->vocab;
    if (!w->tokenizer || !tokenizer) return 0;
    int rc = tokenizer_compare(w->tokenizer, tokenizer, &common);
    return rc != 0 ? err_prefix(rc, "%s and %s", checkpoint_name(w->target_checkpoint), checkpoint_name(own)) : 0;
}

static int open_vocabulary(struct proposer *p, int rows, const struct checkpoint *own) {
    struct tokenizer *tokenizer;
    int size;
    int rc = vocabulary_open(&tokenizer, &size, rows, own);
    if (rc == 0) rc = compare_vocabularies(p, tokenizer, size, own);
    tokenizer_free(tokenizer);
    return rc;
}

/* Special tokens that a chat's answers end with, and those that part thoughts from the rest. A template that duet does not know says nothing. */
static void add_tokens_of_chats(const struct proposer_world *w, struct ids *always) {
    struct chat_template *chat = NULL;
    struct ids turn = {0};
    if (!w->tokenizer || checkpoint_chat_template(w->target_checkpoint, NULL, &chat) != 0 || !chat) return;
    const char *text = chat_template_end_of_turn(chat);
    if (tokenizer_encode(w->tokenizer, text, strlen(text), NULL, &turn) == 0)
        for (size_t i = 0; i < turn.len; i++)
            if (tokenizer_is_special(w->tokenizer, turn.data[i])) ids_push(always, turn.data[i]);
    for (const char *const *mark = chat_template_marks(chat); *mark; mark++) {
        const int32_t id = tokenizer_find(w->tokenizer, *mark, strlen(*mark));
        if (id >= 0) ids_push(always, id);
    }
    ids_free(&turn);
    chat_template_free(chat);
}

/* The ids that the head is cut to, of those of both maps. */
static int choose_ids(struct proposer *p, const char *wish) {
    const struct model_config *target = model_get_config(p->world->target);
    struct ids always = {0};
    ids_append(&always, target->end_ids, (size_t)target->end_count);
    add_tokens_of_chats(p->world, &always);
    const struct draft_vocab_source from = {p->vocab, p->world->tokenizer, &always};
    int rc = draft_vocab_choose(&p->ids, wish, &from);
    ids_free(&always);
    if (rc == 0) p->vocab = (int)p->ids.len;
    return rc;
}

static void close_draft(struct proposer *p) {
    graph_set_destroy(p->graphs);
    model_close(p->model);
    history_destroy(&draft_of(p)->store);
    ids_free(&p->ids);
    free(draft_of(p)->caches);
    free(draft_of(p)->spans);
    free(p);
}

static int open_own_model(struct proposer *p, const struct proposer_options *o) {
    struct model_config config;
    struct model_numbers numbers = o->numbers;
    TRY(checkpoint_config(o->checkpoint, &config));
    TRY(open_vocabulary(p, config.vocab, o->checkpoint));
    p->inputs = p->vocab;
    p->positions = config.positions;
    p->first = 2;
    if (o->vocab) TRY(choose_ids(p, o->vocab));
    if (o->vocab) numbers.head_ids = &p->ids;
    return model_open(&p->model, o->checkpoint, "draft", numbers, p->world->device);
}

/* Its files may have cut it. */
static int take_head_ids(struct proposer *p) {
    const int rows = model_logits_width(p->model);
    TRY(model_head_ids(p->model, p->world->vocab, &p->ids));
    if (p->ids.len > 0 || rows < p->vocab) p->vocab = rows;
    return 0;
}

/* No longer than rounds need, so that its positions are those of verification. Its head is the target's. */
static int size_block(struct proposer *p, const struct proposer_options *o) {
    struct model_config config;
    TRY(checkpoint_config(o->checkpoint, &config));
    if (o->vocab)
        return err_set(ERR_USAGE, "draft vocabulary '%s': the head of %s is the target's, and is not cut", o->vocab,
                       checkpoint_name(o->checkpoint));
    const int32_t wanted = p->world->k_max + 1;
    p->block = p->first = config.drafter.block < wanted ? config.drafter.block : wanted;
    p->mask = config.drafter.mask_id;
    if (p->mask >= model_get_config(p->world->target)->vocab)
        return err_set(ERR_FORMAT, "%s: mask_token_id is %d, an id that %s does not have",
                       checkpoint_name(o->checkpoint), p->mask, checkpoint_name(p->world->target_checkpoint));
    p->shift = 0, p->stays = false, p->positions = INT32_MAX;
    return 0;
}

/* Ids that a cut may keep: a head in files of its own may have fewer than the target. */
static int limit_to_head(struct proposer *p, const struct checkpoint *own) {
    struct model_config config;
    if (!own) return 0;
    TRY(checkpoint_config(own, &config));
    if (config.drafter.head_vocab < p->vocab) p->vocab = config.drafter.head_vocab;
    return 0;
}

static int open_head(struct proposer *p, const struct proposer_options *o) {
    struct model_numbers numbers = o->numbers;
    p->vocab = p->inputs = p->world->vocab;
    p->positions = model_get_config(p->world->target)->positions;
    p->first = has_cache(p) ? p->world->k_max + 1 : 1, p->shift = 1, p->stays = !has_cache(p);
    if (drafts_blocks(p)) TRY(size_block(p, o));
    if (o->vocab) TRY(limit_to_head(p, o->checkpoint));
    if (o->vocab) TRY(choose_ids(p, o->vocab));
    if (o->vocab) numbers.head_ids = &p->ids;
    TRY(history_create(&draft_of(p)->store, p->world->device));
    TRY(model_open_head(&p->model, p->world->target, o->checkpoint, "draft", numbers));
    return o->vocab ? 0 : take_head_ids(p);
}

static int fill_in(struct draft *d, const struct proposer_options *o) {
    struct proposer *p = &d->base;
    d->caches = calloc((size_t)p->world->slots, sizeof *d->caches);
    d->spans = calloc((size_t)p->world->slots, sizeof *d->spans);
    if (!d->caches || !d->spans) return err_set(ERR_MEMORY, "out of memory for %d slots", p->world->slots);
    TRY(is_target_head(p) ? open_head(p, o) : open_own_model(p, o));
    p->stride = model_logits_width(p->model);
    return 0;
}

static int open_as(const struct proposer_ops *ops, struct proposer **out, const struct proposer_world *world,
                   const struct proposer_options *o) {
    struct draft *d = calloc(1, sizeof *d);
    if (!d) return err_set(ERR_MEMORY, "out of memory for the draft");
    d->base.ops = ops, d->base.world = world;
    int rc = fill_in(d, o);
    if (rc != 0)
        close_draft(&d->base);
    else
        *out = &d->base;
    return rc;
}

static int open_draft(struct proposer **out, const struct proposer_world *world, const struct proposer_options *o) {
    struct model_config config;
    TRY(checkpoint_config(o->checkpoint, &config));
    if (drafter_is_cut(&config.drafter, config.vocab) && o->vocab)
        return err_set(ERR_USAGE, "draft vocabulary '%s': the head of %s is cut to %d ids already", o->vocab,
                       checkpoint_name(o->checkpoint), (int)config.drafter.head_vocab);
    const struct proposer_ops *head = config.drafter.reads_keys  ? &proposer_assistant
                                      : config.drafter.block > 0 ? &proposer_block
                                                                 : &proposer_eagle;
    return open_as(config.drafter.is_there ? head : &proposer_model, out, world, o);
}

static int open_mtp(struct proposer **out, const struct proposer_world *world, const struct proposer_options *o) {
    if (o->checkpoint)
        return err_set(ERR_USAGE, "%s: the target's own head proposes, and has no other files",
                       checkpoint_name(o->checkpoint));
    return open_as(&proposer_mtp, out, world, o);
}

/* Rows that catch up together are more than those of a round. */
static int layout(struct proposer *p, const struct model_limits *limits, struct pool *pool) {
    struct model_limits own = *limits;
    const int chunk = prefill_chunk(p->world->device), rows = (p->world->slots - 1) * PREFILL_SPAN_MAX,
              most = rows < chunk ? rows : chunk;
    if (has_cache(p) && own.graph_rows < most) own.graph_rows = most;
    if (keeps_history(p)) TRY(history_layout(&draft_of(p)->store, p->world->slots, limits, pool));
    return model_layout(p->model, &own, pool);
}

static int upload(struct proposer *p, struct stream *stream, const struct progress *progress) {
    TRY(model_upload(p->model, stream, progress));
    return p->ids.len > 0 ? round_set_draft_ids(p->world->round, stream, p->ids.data) : 0;
}

/* --- the cache -------------------------------------------------------------------------------------------- */

/* Positions that it must hold before a round: all but those of DRAFT_FIRST, as far as the model can go. */
static int wanted(const struct proposer *p, int length) {
    const int first = length - p->first - p->shift;
    return first < p->positions ? first : p->positions;
}

static int most_positions(const struct proposer *p, int length) {
    return length < p->positions ? length : p->positions;
}

/* With no round in flight. */
static void count_behind(const struct proposer *p, struct cache_state *c, int length) {
    c->behind = length - p->shift - c->known;
}

/* A turn starts at the old n-2 whatever else the cache holds, so that prefill's numbers depend on the tokens and turn boundaries
 * alone. What was cut off lies behind that. */
static int begin(struct proposer *p, struct stream *stream, const struct proposer_turn *t) {
    struct cache_state *c = &draft_of(p)->caches[t->slot];
    c->turn = most_positions(p, t->old_length > 1 ? t->old_length - 2 : 0);
    if (c->known > c->turn) c->known = c->turn;
    c->known = cache_resume(model_get_cache(p->model), t->slot, c->known);
    count_behind(p, c, t->length);
    if (keeps_history(p)) TRY(history_begin(&draft_of(p)->store, stream, t));
    return model_open_sequence(p->model, stream, t->slot, t->room);
}

/* A plain round in flight will make the cache lag: how far is known only once it is read. */
static int lags(const struct proposer *p, int slot, int length, bool plain_in_flight) {
    if (!has_cache(p)) return 0;
    const int known = ((const struct draft *)p)->caches[slot].known;
    return known < wanted(p, length) ? wanted(p, length) - known : plain_in_flight && known < p->positions;
}

/* What a row lacks up to positions 0..n-2, but no further than to the turn. What an end in between leaves lies past the history, or is
 * what the history says. A head of the target goes no further than that has. */
static struct prefill_span lacking(struct proposer *p, const struct proposer_row *row) {
    const struct cache_state *c = &draft_of(p)->caches[row->slot];
    int last = c->known < c->turn ? c->turn : most_positions(p, row->length - 1);
    if (is_target_head(p) && last > row->scored) last = row->scored;
    return (struct prefill_span){row->slot, row->tokens + p->shift, c->known, last > c->known ? last : c->known};
}

static int length_of(const struct prefill_span *s) {
    return s->last - s->first;
}

static int ingest_chunk(struct proposer *p, struct stream *stream, const struct prefill_span *s) {
    int *known = &draft_of(p)->caches[s->slot].known;
    return model_prefill_chunk(p->model, stream, p->world->prefill, s->slot, s->tokens, known, s->last);
}

/* The first q_len tokens of what each lacks. */
static int ingest_some(struct proposer *p, struct stream *stream, struct prefill_span *spans, int count, int q_len) {
    for (int i = 0; i < count; i++) {
        struct prefill_span *s = &spans[i];
        if (length_of(s) > q_len) s->last = s->first + q_len;
        draft_of(p)->caches[s->slot].known = s->last;
    }
    return model_prefill_spans(p->model, stream, p->world->prefill, spans, count, q_len);
}

/* Together where that takes fewer passes than a chunk of each, and at most every second row of them is padding. */
static int ingest_chunks(struct proposer *p, struct stream *stream, const struct proposer_row *rows, int count) {
    struct prefill_span *spans = draft_of(p)->spans;
    int longest = 0, all = 0, q_len = prefill_q_len(p->model, count);
    for (int i = 0; i < count; i++) {
        spans[i] = lacking(p, &rows[i]);
        all += length_of(&spans[i]);
        if (length_of(&spans[i]) > length_of(&spans[longest])) longest = i;
    }
    const int most = length_of(&spans[longest]), passes = (most + q_len - 1) / q_len;
    if (passes == 0) return 0;
    q_len = (most + passes - 1) / passes;
    if (passes >= count || passes * q_len * count > 2 * all) return ingest_chunk(p, stream, &spans[longest]);
    return ingest_some(p, stream, spans, count, q_len);
}

static int ingest(struct proposer *p, struct stream *stream, const struct proposer_row *rows, int count) {
    if (!has_cache(p)) return 0;
    TRY(ingest_chunks(p, stream, rows, count));
    for (int i = 0; i < count; i++) count_behind(p, &draft_of(p)->caches[rows[i].slot], rows[i].length);
    return 0;
}

/* After a round that it drafted, every committed token but the last two is sure to be in its cache. */
static void collected(struct proposer *p, int slot, int length, int k) {
    int *known = &draft_of(p)->caches[slot].known;
    if (k == 0 || *known >= wanted(p, length)) return;
    cache_settle(model_get_cache(p->model), slot, *known); /* by a round that may be in flight */
    *known = wanted(p, length);
}

/* --- rounds ----------------------------------------------------------------------------------------------- */

static struct history_rows history_of(const struct proposer *p, int batch, int first) {
    return (struct history_rows){*p->world->round, ((const struct draft *)p)->store.history, batch, first};
}

static int load_first(const struct proposer *p, struct stream *stream, int batch, int first) {
    if (drafts_blocks(p)) return round_load_masks(stream, &(struct round_load){*p->world->round, batch, 0});
    const struct history_rows rows = history_of(p, batch, first);
    if (is_target_head(p)) return history_load(stream, &rows);
    return round_load_pending(stream, &(struct round_load){*p->world->round, batch, 0});
}

static int build(void *user, struct stream *stream, struct graph_key key) {
    const struct proposer *p = user;
    const struct round_state *b = p->world->round;
    if (key.kind == DRAFT_PREFILL) return model_build_prefill(p->model, stream, key.q_len);
    if (key.kind == DRAFT_FIRST) TRY(load_first(p, stream, key.batch, key.q_len));
    struct rows rows = {
        .batch = key.batch,
        .q_len = key.q_len,
        .tokens = b->draft_tokens,
        .positions = b->draft_positions_in,
        .sees = b->draft_sees,
        .row_slot = b->row_slot,
        .page_table = p->world->page_table,
        .pages_per_slot = p->world->pages_per_slot,
        .standing = key.kind == DRAFT_STEP ? ROWS_DRAFTED : ROWS_SCORED,
    };
    return model_forward(p->model, stream, &rows, drafts_blocks(p) ? LOGITS_ALL : LOGITS_LAST, b->draft_logits);
}

static int create_graphs(struct proposer *p, const struct graph_set_options *options) {
    static const char *const kinds[] = {
        [DRAFT_FIRST] = "draft_first", [DRAFT_STEP] = "draft_step", [DRAFT_PREFILL] = "draft_prefill"};
    struct graph_set_options o = *options;
    o.name = "draft", o.build = build, o.user = p;
    o.kind_names = kinds, o.kind_count = DRAFT_GRAPH_KINDS;
    TRY(graph_set_create(&p->graphs, &o));
    struct prefill_buffers *prefill = p->world->prefill;
    if (prefill->replays && has_cache(p)) TRY(model_add_prefill_graphs(p->model, prefill, p->graphs, DRAFT_PREFILL));
    for (int first = has_cache(p) ? 2 : p->first; first <= p->first; first++)
        TRY(model_add_graphs(p->model, p->graphs, DRAFT_FIRST, o.max_batch, first));
    if (!drafts_blocks(p)) TRY(model_add_graphs(p->model, p->graphs, DRAFT_STEP, o.max_batch, 1));
    TRY(graph_set_capture(p->graphs));
    return has_cache(p) ? model_warm_up_spans(p->model, options->stream, prefill, o.max_batch) : 0;
}

static int draw(struct proposer *p, struct stream *stream, int batch, int index) {
    const struct proposer_world *w = p->world;
    return sampler_draw(stream, &(struct sampler_draw){*w->round, *w->sampler, batch, index});
}

/* What a round's tokens leave for the next one's first pass. */
static void fall_behind(struct proposer *p, const struct proposer_round *r) {
    for (int row = 0; r->slots && row < r->rows; row++) {
        int *behind = &draft_of(p)->caches[r->slots[row]].behind;
        *behind = r->k > 0 ? r->k + 1 : *behind + 1;
    }
}

static int accepted(struct proposer *p, struct stream *stream, const struct proposer_round *r) {
    const struct history_rows rows = history_of(p, r->batch, 0);
    fall_behind(p, r);
    return keeps_history(p) ? history_append(stream, &rows) : 0;
}

static int warm_up(struct proposer *p, struct stream *stream, int batch) {
    TRY(draw(p, stream, batch, 0));
    return accepted(p, stream, &(struct proposer_round){.batch = batch});
}

/* Its row of token t[1] is the first. */
static bool finds(const struct proposer *p, const int32_t *tokens, int length) {
    (void)tokens;
    return length > p->shift;
}

/* Tokens of a row in DRAFT_FIRST. */
static int first_of(const struct proposer *p, const struct proposer_round *r) {
    if (drafts_blocks(p)) return p->first;
    int first = r->slots ? 2 : r->k + 1;
    for (int row = 0; r->slots && row < r->rows; row++) {
        const int behind = ((const struct draft *)p)->caches[r->slots[row]].behind;
        if (first < behind) first = behind;
    }
    return first < p->first ? first : p->first;
}

static int draw_block(struct proposer *p, struct stream *stream, const struct proposer_round *r) {
    const int count = r->k < p->block - 1 ? r->k : p->block - 1;
    for (int i = 0; i < count; i++) TRY(draw(p, stream, r->batch, i));
    return marks_add(r->marks, stream);
}

static int propose(struct proposer *p, struct stream *stream, const struct proposer_round *r) {
    for (int i = 0; i < r->k; i++) {
        struct graph_key key = {i == 0 ? DRAFT_FIRST : DRAFT_STEP, r->batch, i == 0 ? first_of(p, r) : 1};
        TRY(graph_set_launch(p->graphs, key, stream));
        TRY(marks_add(r->marks, stream));
        if (drafts_blocks(p)) return draw_block(p, stream, r);
        TRY(draw(p, stream, r->batch, i));
        TRY(marks_add(r->marks, stream));
    }
    return 0;
}

static void launches(const struct proposer *p, int k, int *graphs, int *kernels) {
    const bool is_block = drafts_blocks(p);
    *graphs = is_block && k > 0 ? 1 : k;
    *kernels = is_block && k > p->block - 1 ? p->block - 1 : k;
    *kernels += is_target_head(p) && !is_block;
}

/* Five that share all but how they are opened. The first, which a directory asks for, becomes one of the next three where that holds a head. */
#define DRAFT_FUNCTIONS                                                                                           \
    .close = close_draft, .layout = layout, .upload = upload, .create_graphs = create_graphs, .warm_up = warm_up, \
    .begin = begin, .lags = lags, .ingest = ingest, .finds = finds, .propose = propose, .accepted = accepted,     \
    .collected = collected, .launches = launches

const struct proposer_ops proposer_model = {
    .title = "draft model", .has_model = true, .open = open_draft, DRAFT_FUNCTIONS};
const struct proposer_ops proposer_eagle = {
    .title = "EAGLE-3 head", .has_model = true, .open = open_draft, DRAFT_FUNCTIONS};
const struct proposer_ops proposer_assistant = {
    .title = "assistant", .has_model = true, .open = open_draft, DRAFT_FUNCTIONS};
const struct proposer_ops proposer_block = {
    .title = "DFlash head", .has_model = true, .open = open_draft, DRAFT_FUNCTIONS};
const struct proposer_ops proposer_mtp = {
    .word = "mtp", .title = "MTP head", .has_model = true, .open = open_mtp, DRAFT_FUNCTIONS};
