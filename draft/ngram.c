#include "draft/ngram.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "draft/ngram_internal.h"
#include "draft/proposer.h"

enum { STAGE_TOK = 2048 };

struct ngram {
    struct proposer base;
    struct ngram_history history;
    int32_t *staging; /* pinned: 2 * STAGE_TOK, used in turn */
    struct event *staged[2];
    int turn;
};

static struct ngram *ngram_of(struct proposer *p) {
    return (struct ngram *)p;
}

/* --- launches --------------------------------------------------------------------------------------------- */

int ngram_search(struct stream *stream, const struct ngram_search *op) {
    TRY(round_check_shape("ngram_search", &op->b, op->batch, op->k));
    bool on_gpu = device_kind(stream_device(stream)) == DEVICE_CUDA;
    return on_gpu ? ngram_search_cuda(stream, op) : ngram_search_host(stream, op);
}

int ngram_append(struct stream *stream, const struct ngram_append *op) {
    TRY(round_check_shape("ngram_append", &op->b, op->batch, 0));
    bool on_gpu = device_kind(stream_device(stream)) == DEVICE_CUDA;
    return on_gpu ? ngram_append_cuda(stream, op) : ngram_append_host(stream, op);
}

/* --- memory ----------------------------------------------------------------------------------------------- */

static void close_ngram(struct proposer *p) {
    struct ngram *g = ngram_of(p);
    for (int i = 0; i < 2; i++) event_destroy(g->staged[i]);
    if (g->staging) device_free_pinned(p->world->device, g->staging);
    free(g);
}

static int fill_in(struct ngram *g) {
    struct device *device = g->base.world->device;
    void *staging;
    TRY(device_alloc_pinned(device, 2 * STAGE_TOK * sizeof *g->staging, &staging));
    g->staging = staging;
    TRY(event_create(device, &g->staged[0]));
    return event_create(device, &g->staged[1]);
}

static int open_ngram(struct proposer **out, const struct proposer_world *world, const struct proposer_options *o) {
    if (o->vocab)
        return err_set(ERR_USAGE, "draft vocabulary '%s': n-gram lookup has no head that could be cut", o->vocab);
    if (o->checkpoint) return err_set(ERR_USAGE, "%s: n-gram lookup has no files", checkpoint_name(o->checkpoint));
    struct ngram *g = calloc(1, sizeof *g);
    if (!g) return err_set(ERR_MEMORY, "out of memory for the n-gram lookup");
    g->base.ops = &proposer_ngram, g->base.world = world;
    g->base.vocab = world->vocab, g->base.positions = INT32_MAX;
    int rc = fill_in(g);
    if (rc != 0)
        close_ngram(&g->base);
    else
        *out = &g->base;
    return rc;
}

static int layout(struct proposer *p, const struct model_limits *limits, struct pool *pool) {
    struct ngram_history *h = &ngram_of(p)->history;
    void *at;
    h->capacity = limits->rope_positions;
    size_t tokens = (size_t)p->world->slots * (size_t)h->capacity;
    TRY(pool_slice(pool, POOL_SCRATCH, "n-gram history", tokens * sizeof *h->tokens, &at));
    h->tokens = at;
    return 0;
}

/* --- rounds ----------------------------------------------------------------------------------------------- */

static int stage(struct ngram *g, struct stream *stream, int32_t *to, const int32_t *tokens, int count) {
    g->turn ^= 1;
    struct event *staged = g->staged[g->turn];
    int32_t *staging = g->staging + g->turn * STAGE_TOK;
    if (!event_is_done(staged)) TRY(event_wait(staged));
    memcpy(staging, tokens, (size_t)count * sizeof *tokens);
    TRY(stream_copy(stream, to, staging, (size_t)count * sizeof *tokens));
    return event_record(staged, stream);
}

/* What was there before is on the device, in stream order: earlier turns were copied, and answers appended. What an answer left
 * past a cut is overwritten. */
static int begin(struct proposer *p, struct stream *stream, const struct proposer_turn *t) {
    struct ngram *g = ngram_of(p);
    int32_t *row = g->history.tokens + (size_t)t->slot * (size_t)g->history.capacity;
    for (int first = t->old_length; first < t->length; first += STAGE_TOK) {
        int left = t->length - first;
        TRY(stage(g, stream, row + first, t->tokens + first, left < STAGE_TOK ? left : STAGE_TOK));
    }
    return 0;
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

static int propose(struct proposer *p, struct stream *stream, int batch, int k, struct marks *marks) {
    TRY(ngram_search(stream, &(struct ngram_search){*p->world->round, ngram_of(p)->history, batch, k}));
    return marks_add(marks, stream);
}

static int accepted(struct proposer *p, struct stream *stream, int batch) {
    return ngram_append(stream, &(struct ngram_append){*p->world->round, ngram_of(p)->history, batch});
}

static int warm_up(struct proposer *p, struct stream *stream, int batch) {
    TRY(propose(p, stream, batch, p->world->round->k_max, NULL));
    return accepted(p, stream, batch);
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
