#include "draft/draft.h"

#include "base/err.h"

static int build(void *user, struct stream *stream, struct graph_key key) {
    const struct draft *d = user;
    const struct round_state *b = d->round;
    if (key.kind == DRAFT_FIRST) TRY(round_load_pending(stream, &(struct round_load){*b, key.batch, 0}));
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
    static const char *const kinds[] = {[DRAFT_FIRST] = "draft_first", [DRAFT_STEP] = "draft_step"};
    struct graph_set_options o = *options;
    o.name = "draft", o.build = build, o.user = d;
    o.kind_names = kinds, o.kind_count = DRAFT_GRAPH_KINDS;
    TRY(graph_set_create(&d->graphs, &o));
    TRY(model_add_graphs(d->model, d->graphs, DRAFT_FIRST, o.max_batch, 2));
    return model_add_graphs(d->model, d->graphs, DRAFT_STEP, o.max_batch, 1);
}

int draft_propose(struct draft *d, struct stream *stream, int batch, int k, struct marks *marks) {
    for (int i = 0; i < k; i++) {
        struct graph_key key = {i == 0 ? DRAFT_FIRST : DRAFT_STEP, batch, i == 0 ? 2 : 1};
        TRY(graph_set_launch(d->graphs, key, stream));
        TRY(marks_add(marks, stream));
        TRY(sampler_draw(stream, &(struct sampler_draw){*d->round, *d->sampler, batch, i}));
        TRY(marks_add(marks, stream));
    }
    return 0;
}
