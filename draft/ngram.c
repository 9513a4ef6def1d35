#include "draft/ngram.h"

#include <stdlib.h>

#include "base/err.h"
#include "draft/ngram_internal.h"

struct ngram {
    struct proposer base;
    struct history_store store;
};

static struct ngram *ngram_of(struct proposer *p) {
    return (struct ngram *)p;
}

int ngram_search(struct stream *stream, const struct ngram_search *op) {
    TRY(round_check_shape("ngram_search", &op->b, op->batch, op->k));
    bool on_gpu = device_kind(stream_device(stream)) == DEVICE_CUDA;
    return on_gpu ? ngram_search_cuda(stream, op) : ngram_search_host(stream, op);
}

/* --- memory ----------------------------------------------------------------------------------------------- */

static void close_ngram(struct proposer *p) {
    history_destroy(&ngram_of(p)->store);
    free(p);
}

static int open_ngram(struct proposer **out, const struct proposer_world *world, const struct proposer_options *o) {
    if (o->vocab)
        return err_set(ERR_USAGE, "draft vocabulary '%s': n-gram lookup has no head that could be cut", o->vocab);
    if (o->checkpoint) return err_set(ERR_USAGE, "%s: n-gram lookup has no files", checkpoint_name(o->checkpoint));
    struct ngram *g = calloc(1, sizeof *g);
    if (!g) return err_set(ERR_MEMORY, "out of memory for the n-gram lookup");
    g->base.ops = &proposer_ngram, g->base.world = world;
    g->base.vocab = world->vocab, g->base.positions = INT32_MAX;
    int rc = history_create(&g->store, world->device);
    if (rc != 0)
        close_ngram(&g->base);
    else
        *out = &g->base;
    return rc;
}

static int layout(struct proposer *p, const struct model_limits *limits, struct pool *pool) {
    return history_layout(&ngram_of(p)->store, p->world->slots, limits, pool);
}

/* --- rounds ----------------------------------------------------------------------------------------------- */

static int begin(struct proposer *p, struct stream *stream, const struct proposer_turn *t) {
    return history_begin(&ngram_of(p)->store, stream, t);
}

/* The shortest suffix that a search looks for occurs before. Without a branch, which vectors would not do: 8,000 tokens take 2 us. */
static bool finds(const struct proposer *p, const int32_t *tokens, int length) {
    _Static_assert(NGRAM_LEAST == 2, "a suffix is its last two tokens");
    int32_t found = 0;
    (void)p;
    for (int i = 2; i < length; i++)
        found |= (tokens[i - 2] == tokens[length - 2]) & (tokens[i - 1] == tokens[length - 1]);
    return found;
}

static int propose(struct proposer *p, struct stream *stream, const struct proposer_round *r) {
    TRY(ngram_search(stream, &(struct ngram_search){*p->world->round, ngram_of(p)->store.history, r->batch, r->k}));
    return marks_add(r->marks, stream);
}

static int accepted(struct proposer *p, struct stream *stream, const struct proposer_round *r) {
    const struct history_rows rows = {.b = *p->world->round, .history = ngram_of(p)->store.history, .batch = r->batch};
    return history_append(stream, &rows);
}

static int warm_up(struct proposer *p, struct stream *stream, int batch) {
    const struct proposer_round r = {.batch = batch, .k = p->world->round->k_max};
    TRY(propose(p, stream, &r));
    return accepted(p, stream, &r);
}

static void launches(const struct proposer *p, int k, int *graphs, int *kernels) {
    (void)p;
    *graphs = 0;
    *kernels = k > 0 ? 2 : 1;
}

const struct proposer_ops proposer_ngram = {
    .word = "ngram",
    .title = "n-gram",
    .open = open_ngram,
    .close = close_ngram,
    .layout = layout,
    .warm_up = warm_up,
    .begin = begin,
    .finds = finds,
    .propose = propose,
    .accepted = accepted,
    .launches = launches,
};
