/* The forward pass, once for every family and device: five ops a layer over the table of model/ops.h. */
#include <math.h>

#include "base/err.h"
#include "model/model_internal.h"

static int attend(struct model *m, struct stream *s, const struct rows *rows, int index, bool only_cache) {
    const struct model_config *c = &m->config;
    const struct layer *l = &m->layers[index];
    struct op_qkv qkv = {
        .rows = *rows,
        .x = m->x,
        .norm = l->attn_norm,
        .wq = l->wq,
        .wk = l->wk,
        .wv = l->wv,
        .bq = l->bq,
        .bk = l->bk,
        .bv = l->bv,
        .q_norm = l->q_norm,
        .k_norm = l->k_norm,
        .rope = m->rope,
        .rope_positions = m->limits.rope_positions,
        .eps = c->norm_eps,
        .width = c->width,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .kv = model_kv(m, index),
        .normed = m->normed,
        .q = m->q,
        .kv_rows = m->kv_rows,
    };
    TRY(m->ops->qkv(s, &qkv));
    if (only_cache) return 0;
    struct op_attention attention = {
        .rows = *rows,
        .q = m->q,
        .kv = qkv.kv,
        .out = m->attended,
        .partials = m->partials,
        .scale = 1.0f / sqrtf((float)c->head_dim),
        .window = c->window,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
    };
    TRY(m->ops->attention(s, &attention));
    return m->ops->project(s, &(struct op_project){.rows = *rows, .h = m->attended, .w = l->wo, .x = m->x});
}

static int feed_forward(struct model *m, struct stream *s, const struct rows *rows, int index) {
    const struct model_config *c = &m->config;
    const struct layer *l = &m->layers[index];
    struct op_gate_up gate_up = {
        .rows = *rows,
        .x = m->x,
        .norm = l->mlp_norm,
        .gate = l->gate,
        .up = l->up,
        .eps = c->norm_eps,
        .width = c->width,
        .hidden = c->hidden,
        .normed = m->normed,
        .gated = m->gated,
        .h = m->h,
    };
    TRY(m->ops->gate_up(s, &gate_up));
    return m->ops->project(s, &(struct op_project){.rows = *rows, .h = m->h, .w = l->down, .x = m->x});
}

int model_forward(struct model *m, struct stream *s, const struct rows *rows, enum logits_rows which, float *logits) {
    const struct model_config *c = &m->config;
    int rows_max = rows->prefill ? m->limits.max_rows : m->limits.graph_rows;
    if (rows_count(rows) > rows_max)
        return err_set(ERR_INTERNAL, "%s: a pass of %d rows, planned for %d", m->name, rows_count(rows), rows_max);
    TRY(m->ops->embed(s, &(struct op_embed){.rows = *rows, .table = m->embedding, .out = m->x}));
    for (int l = 0; l < c->layers; l++) {
        bool only_cache = which == LOGITS_NONE && l == c->layers - 1;
        TRY(attend(m, s, rows, l, only_cache));
        if (!only_cache) TRY(feed_forward(m, s, rows, l));
    }
    if (which == LOGITS_NONE) return 0;
    struct op_logits op = {
        .rows = *rows,
        .x = m->x,
        .norm = m->norm,
        .w = m->head,
        .eps = c->norm_eps,
        .width = c->width,
        .vocab = c->vocab,
        .last_only = which == LOGITS_LAST,
        .normed = m->normed,
        .logits = logits,
    };
    return m->ops->logits(s, &op);
}
