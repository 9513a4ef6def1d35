#include "draft/model.h"

#include <stdlib.h>

#include "base/err.h"
#include "target/vocabulary.h"

struct draft {
    struct proposer base;
    int *known; /* [S] its cache is right for positions 0..known-1 of a slot at least */
};

static struct draft *draft_of(struct proposer *p) {
    return (struct draft *)p;
}

/* --- the pair --------------------------------------------------------------------------------------------- */

/* Ids that both maps have: those of the shorter one, and where both have names these must agree. */
static int compare_vocabularies(struct proposer *p, const struct tokenizer *tokenizer, int size,
                                const struct checkpoint *own) {
    const struct proposer_world *w = p->world;
    p->vocab = size < w->vocab ? size : w->vocab;
    if (!w->tokenizer || !tokenizer) return 0;
    int rc = tokenizer_compare(w->tokenizer, tokenizer, &p->vocab);
    return rc != 0 ? err_prefix(rc, "%s and %s", checkpoint_name(w->target_checkpoint), checkpoint_name(own)) : 0;
}

static int open_vocabulary(struct proposer *p, const struct checkpoint *own) {
    struct tokenizer *tokenizer;
    int size;
    int rc = vocabulary_open(&tokenizer, &size, p->model, own);
    if (rc == 0) rc = compare_vocabularies(p, tokenizer, size, own);
    tokenizer_free(tokenizer);
    return rc;
}

static void close_draft(struct proposer *p) {
    graph_set_destroy(p->graphs);
    model_close(p->model);
    free(draft_of(p)->known);
    free(p);
}

static int fill_in(struct draft *d, const struct proposer_options *o) {
    struct proposer *p = &d->base;
    d->known = calloc((size_t)p->world->slots, sizeof *d->known);
    if (!d->known) return err_set(ERR_MEMORY, "out of memory for %d slots", p->world->slots);
    TRY(model_open(&p->model, o->checkpoint, "draft", p->world->device));
    TRY(open_vocabulary(p, o->checkpoint));
    p->stride = model_get_config(p->model)->vocab;
    p->positions = model_get_config(p->model)->positions;
    return 0;
}

static int open_draft(struct proposer **out, const struct proposer_world *world, const struct proposer_options *o) {
    struct draft *d = calloc(1, sizeof *d);
    if (!d) return err_set(ERR_MEMORY, "out of memory for the draft");
    d->base.ops = &proposer_model, d->base.world = world;
    int rc = fill_in(d, o);
    if (rc != 0)
        close_draft(&d->base);
    else
        *out = &d->base;
    return rc;
}

static int layout(struct proposer *p, const struct model_limits *limits, struct pool *pool) {
    return model_layout(p->model, limits, pool);
}

static int upload(struct proposer *p, struct stream *stream, const struct progress *progress) {
    return model_upload(p->model, stream, progress);
}

/* --- the cache -------------------------------------------------------------------------------------------- */

/* Positions that it must hold before a round: all but the last two, as far as the model can go. */
static int wanted(const struct proposer *p, int length) {
    return length - 2 < p->positions ? length - 2 : p->positions;
}

/* Positions first..last-1. What an interrupt leaves there lies past the history, or is what the history says. */
static int prefill(struct proposer *p, struct stream *stream, int slot, const int32_t *tokens, int first, int last) {
    return model_prefill(p->model, stream, p->world->prefill, slot, tokens, first, last);
}

/* To positions 0..n-2. A turn starts at the old n-2 whatever else the cache holds, so that prefill's numbers depend on the tokens
 * and turn boundaries alone. */
static int begin(struct proposer *p, struct stream *stream, const struct proposer_turn *t) {
    struct draft *d = draft_of(p);
    int turn = t->old_length > 1 ? t->old_length - 2 : 0, last = t->length - 1;
    TRY(model_open_sequence(p->model, stream, t->slot, t->room));
    if (!t->is_used) return 0;
    if (turn > p->positions) turn = p->positions;
    if (last > p->positions) last = p->positions;
    TRY(prefill(p, stream, t->slot, t->tokens, d->known[t->slot], turn));
    TRY(prefill(p, stream, t->slot, t->tokens, turn, last));
    d->known[t->slot] = last;
    return 0;
}

static void cut_to(struct proposer *p, int slot, int length) {
    int *known = &draft_of(p)->known[slot];
    if (*known > length) *known = length;
}

/* A plain round in flight will make the cache lag: how far is known only once it is read. */
static bool lags(const struct proposer *p, int slot, int length, bool plain_in_flight) {
    return plain_in_flight || ((const struct draft *)p)->known[slot] < wanted(p, length);
}

static int catch_up(struct proposer *p, struct stream *stream, int slot, const int32_t *tokens, int length) {
    int *known = &draft_of(p)->known[slot], last = wanted(p, length);
    if (*known >= last) return 0;
    TRY(prefill(p, stream, slot, tokens, *known, last));
    *known = last;
    return 0;
}

/* After a round that it drafted, every committed token but the last two is sure to be in its cache. */
static void collected(struct proposer *p, int slot, int length, int k) {
    int *known = &draft_of(p)->known[slot];
    if (k > 0 && *known < wanted(p, length)) *known = wanted(p, length);
    cut_to(p, slot, length);
}

/* --- rounds ----------------------------------------------------------------------------------------------- */

static int build(void *user, struct stream *stream, struct graph_key key) {
    const struct proposer *p = user;
    const struct round_state *b = p->world->round;
    if (key.kind == DRAFT_FIRST) TRY(round_load_pending(stream, &(struct round_load){*b, key.batch, 0}));
    struct rows rows = {
        .batch = key.batch,
        .q_len = key.q_len,
        .tokens = b->draft_tokens,
        .positions = b->draft_positions_in,
        .row_slot = b->row_slot,
        .page_table = p->world->page_table,
        .pages_per_slot = p->world->pages_per_slot,
    };
    return model_forward(p->model, stream, &rows, LOGITS_LAST, b->draft_logits);
}

static int create_graphs(struct proposer *p, const struct graph_set_options *options) {
    static const char *const kinds[] = {[DRAFT_FIRST] = "draft_first", [DRAFT_STEP] = "draft_step"};
    struct graph_set_options o = *options;
    o.name = "draft", o.build = build, o.user = p;
    o.kind_names = kinds, o.kind_count = DRAFT_GRAPH_KINDS;
    TRY(graph_set_create(&p->graphs, &o));
    TRY(model_add_graphs(p->model, p->graphs, DRAFT_FIRST, o.max_batch, 2));
    TRY(model_add_graphs(p->model, p->graphs, DRAFT_STEP, o.max_batch, 1));
    return graph_set_capture(p->graphs);
}

static int draw(struct proposer *p, struct stream *stream, int batch, int index) {
    const struct proposer_world *w = p->world;
    return sampler_draw(stream, &(struct sampler_draw){*w->round, *w->sampler, batch, index});
}

static int warm_up(struct proposer *p, struct stream *stream, int batch) {
    return draw(p, stream, batch, 0);
}

static int propose(struct proposer *p, struct stream *stream, int batch, int k, struct marks *marks) {
    for (int i = 0; i < k; i++) {
        struct graph_key key = {i == 0 ? DRAFT_FIRST : DRAFT_STEP, batch, i == 0 ? 2 : 1};
        TRY(graph_set_launch(p->graphs, key, stream));
        TRY(marks_add(marks, stream));
        TRY(draw(p, stream, batch, i));
        TRY(marks_add(marks, stream));
    }
    return 0;
}

static void launches(const struct proposer *p, int k, int *graphs, int *kernels) {
    (void)p;
    *graphs = *kernels = k;
}

const struct proposer_ops proposer_model = {
    .title = "draft model",
    .open = open_draft,
    .close = close_draft,
    .layout = layout,
    .upload = upload,
    .create_graphs = create_graphs,
    .warm_up = warm_up,
    .begin = begin,
    .truncate = cut_to,
    .lags = lags,
    .catch_up = catch_up,
    .propose = propose,
    .collected = collected,
    .launches = launches,
};
