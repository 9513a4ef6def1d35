#include "draft/proposer.h"

#include <string.h>

#include "base/err.h"
#include "draft/model.h"
#include "draft/ngram.h"

static const struct proposer_ops *const proposers[] = {
    &proposer_model,
    &proposer_mtp,
    &proposer_ngram,
};

const struct proposer_ops *proposer_of_word(const char *word) {
    for (size_t i = 0; i < sizeof proposers / sizeof *proposers; i++)
        if (proposers[i]->word && strcmp(proposers[i]->word, word) == 0) return proposers[i];
    return NULL;
}

int proposer_open(struct proposer **out, const struct proposer_world *world, const struct proposer_options *options) {
    const struct proposer_ops *ops = options->word ? proposer_of_word(options->word) : &proposer_model;
    *out = NULL;
    if (!ops) return err_set(ERR_USAGE, "there is no proposer '%s'", options->word);
    return ops->open(out, world, options);
}

void proposer_close(struct proposer *p) {
    if (p) p->ops->close(p);
}

int proposer_layout(struct proposer *p, const struct model_limits *limits, struct pool *pool) {
    return p && p->ops->layout ? p->ops->layout(p, limits, pool) : 0;
}

int proposer_upload(struct proposer *p, struct stream *stream, const struct progress *progress) {
    return p && p->ops->upload ? p->ops->upload(p, stream, progress) : 0;
}

int proposer_create_graphs(struct proposer *p, const struct graph_set_options *options) {
    return p && p->ops->create_graphs ? p->ops->create_graphs(p, options) : 0;
}

int proposer_warm_up(struct proposer *p, struct stream *stream, int batch) {
    return p && p->ops->warm_up ? p->ops->warm_up(p, stream, batch) : 0;
}

int proposer_begin(struct proposer *p, struct stream *stream, const struct proposer_turn *turn) {
    return p && p->ops->begin ? p->ops->begin(p, stream, turn) : 0;
}

int proposer_lags(const struct proposer *p, int slot, int length, bool plain_in_flight) {
    return p && p->ops->lags ? p->ops->lags(p, slot, length, plain_in_flight) : 0;
}

int proposer_ingest(struct proposer *p, struct stream *stream, const struct proposer_row *rows, int count) {
    return p && p->ops->ingest && count > 0 ? p->ops->ingest(p, stream, rows, count) : 0;
}

bool proposer_finds(const struct proposer *p, const int32_t *tokens, int length) {
    return p && (!p->ops->finds || p->ops->finds(p, tokens, length));
}

int proposer_propose(struct proposer *p, struct stream *stream, const struct proposer_round *r) {
    return p && r->k > 0 ? p->ops->propose(p, stream, r) : 0;
}

int proposer_accepted(struct proposer *p, struct stream *stream, const struct proposer_round *r) {
    return p && p->ops->accepted ? p->ops->accepted(p, stream, r) : 0;
}

void proposer_collected(struct proposer *p, int slot, int length, int k) {
    if (p && p->ops->collected) p->ops->collected(p, slot, length, k);
}

void proposer_launches(const struct proposer *p, int k, int *graphs, int *kernels) {
    *graphs = *kernels = 0;
    if (p) p->ops->launches(p, k, graphs, kernels);
}
