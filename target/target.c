#include "target/target.h"

#include "base/err.h"

static int build(void *user, struct stream *stream, struct graph_key key) {
    const struct target *t = user;
    const struct round_state *b = t->round;
    TRY(round_load_block(stream, &(struct round_load){*b, key.batch, key.q_len - 1}));
    struct rows rows = {
        .batch = key.batch,
        .q_len = key.q_len,
        .tokens = b->target_tokens,
        .positions = b->target_positions,
        .row_slot = b->row_slot,
        .page_table = t->page_table,
        .pages_per_slot = t->pages_per_slot,
    };
    return model_forward(t->model, stream, &rows, LOGITS_ALL, b->target_logits);
}

int target_create_graphs(struct target *t, const struct graph_set_options *options, int k_max) {
    static const char *const kinds[] = {[TARGET_VERIFY] = "verify", [TARGET_DECODE] = "decode"};
    struct graph_set_options o = *options;
    o.name = "target", o.build = build, o.user = t;
    o.kind_names = kinds, o.kind_count = TARGET_GRAPH_KINDS;
    TRY(graph_set_create(&t->graphs, &o));
    for (int k = k_max; k >= 1; k--) TRY(model_add_graphs(t->model, t->graphs, TARGET_VERIFY, o.max_batch, k + 1));
    return model_add_graphs(t->model, t->graphs, TARGET_DECODE, o.max_batch, 1);
}

int target_score(struct target *t, struct stream *stream, int batch, int k) {
    struct graph_key key = {k > 0 ? TARGET_VERIFY : TARGET_DECODE, batch, k + 1};
    return graph_set_launch(t->graphs, key, stream);
}
