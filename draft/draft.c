#include "draft/draft.h"

#include "base/err.h"

static int build(void *user, struct stream *stream, struct graph_key key) {
    const struct draft *d = user;
    const struct sampler_buffers *b = d->buffers;
    if (key.role == GRAPH_DRAFT_FIRST) TRY(d->sampler->load_pending(stream, &(struct sampler_load){*b, key.batch, 0}));
    struct rows rows = {
        .batch = key.batch,
        .q_len = key.q_len,
        .tokens = b->draft_tokens,
        .positions = b->draft_positions_in,
        .row_slot = b->row_slot,
        .page_table = d->page_table,
        .pages_per_slot = d->pages_per_slot,
    };
    return model_forward(d->model, stream, &rows, LOGITS_LAST, b->draft_logits);
}

int draft_create_graphs(struct draft *d, const struct graph_set_options *options) {
    struct graph_set_options o = *options;
    o.name = "draft", o.build = build, o.user = d;
    TRY(graph_set_create(&d->graphs, &o));
    TRY(graph_set_add(d->graphs, GRAPH_DRAFT_FIRST, 2));
    return graph_set_add(d->graphs, GRAPH_DRAFT_STEP, 1);
}

int draft_propose(struct draft *d, struct stream *stream, int batch, int k, struct marks *marks) {
    for (int i = 0; i < k; i++) {
        struct graph_key key = {i == 0 ? GRAPH_DRAFT_FIRST : GRAPH_DRAFT_STEP, batch, i == 0 ? 2 : 1};
        TRY(graph_set_launch(d->graphs, key, stream));
        TRY(marks_add(marks, stream));
        TRY(d->sampler->draw(stream, &(struct sampler_draw){*d->buffers, batch, i}));
        TRY(marks_add(marks, stream));
    }
    return 0;
}
