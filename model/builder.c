#include "model/builder.h"

#include <math.h>
#include <string.h>

#include "model/families/family.h"

float *builder_scratch(struct builder *b, enum scratch kind, size_t per_row) {
    struct model *m = b->m;
    if (per_row > m->scratch_per_row[kind]) m->scratch_per_row[kind] = per_row;
    return m->scratch[kind];
}

/* The residual stream [T, D]. */
static float *residual(struct builder *b) {
    return builder_scratch(b, SCRATCH_RESIDUAL, (size_t)b->c->width);
}

float *builder_output(struct builder *b) {
    return builder_scratch(b, SCRATCH_OUTPUT, (size_t)b->c->width);
}

struct buffer builder_feed(struct builder *b, enum scratch kind, size_t per_row) {
    return (struct buffer){builder_scratch(b, kind, per_row), b->m->type};
}

static struct buffer normed(struct builder *b) {
    return builder_feed(b, SCRATCH_NORMED, (size_t)b->c->width);
}

static bool is_on_cuda(const struct builder *b) {
    return device_kind(b->m->device) == DEVICE_CUDA;
}

struct op_embed *build_embed(struct builder *b) {
    struct op_embed *op = &pass_add(b->pass, OP_EMBED)->embed;
    op->table = b->m->embedding;
    op->scale = b->c->embedding_scale;
    op->out = residual(b);
    return op;
}

static struct rope rope_of(const struct builder *b, int layer) {
    const struct model *m = b->m;
    int index = b->c->layer[layer].rope;
    const struct rope_config *r = &b->c->rope[index];
    bool has_long = rope_has_long(r);
    const int next = b->c->drafter.reads_keys; /* a query is of the token behind the last key */
    return (struct rope){
        .table = m->rope[index],
        .positions = m->limits.rope_positions,
        .queries = r->query_beta != 0 ? m->limits.rope_positions : next,
        .dims = r->type == ROPE_PROPORTIONAL ? r->head_dim : r->dims,
        .pairs_neighbours = r->pairs_neighbours,
        .choice = has_long ? m->rope_choice : NULL,
    };
}

/* --- hidden rows for a head that proposes tokens --------------------------------------------------------------- */

struct op_keep *build_keep(struct builder *b, const struct cache *of, const float *x, const struct norm *norm) {
    struct op_keep *op = &pass_add(b->pass, OP_KEEP)->keep;
    op->x = x, op->norm = *norm;
    op->width = of->hidden_width;
    op->hidden = cache_hidden(of);
    return op;
}

struct op_project *build_project(struct builder *b, struct buffer h, const struct weight *w,
                                 const struct weight *bias) {
    struct op_project *op = &pass_add(b->pass, OP_PROJECT)->project;
    op->h = h, op->w = *w, op->bias = *bias;
    op->scale = b->c->residual_scale;
    op->x = residual(b);
    return op;
}

/* The keys and values that a head which drafts blocks has of the positions of a pass, of each of its layers. There is no op for these alone:
 * what stands for queries is made of the keys' matrix, and nobody reads it. */
static void build_context(struct builder *b, const struct model *head, float *x) {
    struct builder own = {(struct model *)head, &head->config, b->pass};
    for (int l = 0; l < head->config.layers; l++) {
        const struct layer *layer = &head->layers[l];
        struct op_qkv *op = build_qkv(&own, l);
        op->x = x, op->norm = head->hidden_norm;
        op->wq = layer->wk, op->bq = layer->bk, op->q_norm = layer->k_norm;
        op->heads = op->kv_heads;
    }
}

/* The rows before a layer, if they are read, beside those before earlier ones; the last of them are joined by the head's matrix and kept. */
static void build_taps(struct builder *b, int layer) {
    static const struct weight none;
    static const struct norm plain;
    const struct model *head = b->m->tapped_by;
    const int32_t width = b->c->width;
    const int taps = head ? head->config.drafter.tap_count : 0;
    for (int i = 0; i < taps; i++) {
        if (head->config.drafter.taps[i] != layer) continue;
        struct op_tap *op = &pass_add(b->pass, OP_TAP)->tap;
        op->x = residual(b);
        op->width = width, op->first = i * width, op->stride = taps * width;
        op->out = builder_feed(b, SCRATCH_TAPPED, (size_t)taps * (size_t)width);
        if (i < taps - 1) continue;
        struct op_project *joined = build_project(b, op->out, &head->join, &none);
        joined->stores = true, joined->scale = 1;
        joined->x = builder_scratch(b, SCRATCH_TAPPED_JOINED, (size_t)head->config.width);
        if (head->config.drafter.block > 0)
            build_context(b, head, joined->x);
        else
            build_keep(b, &b->m->cache, joined->x, &plain);
    }
}

static struct kv_layer keys_of(const struct builder *b, int layer) {
    const int of = ~b->c->layer[layer].kv_layer;
    return b->c->drafter.reads_keys ? cache_layer(&b->m->of->cache, of) : cache_layer(&b->m->cache, layer);
}

/* --- attention and MLP --------------------------------------------------------------------------------------- */

/* Of each head its dimensions, then those of its gate. */
static float *gated_queries(struct builder *b, int layer) {
    const size_t q = (size_t)b->c->heads * (size_t)b->c->layer[layer].head_dim;
    return b->c->queries_gated ? builder_scratch(b, SCRATCH_GATED_QUERIES, 2 * q) : NULL;
}

struct op_qkv *build_qkv(struct builder *b, int layer) {
    const struct layer *l = &b->m->layers[layer];
    const struct layer_config *lc = &b->c->layer[layer];
    size_t q = (size_t)b->c->heads * (size_t)lc->head_dim, kv = (size_t)lc->kv_heads * (size_t)lc->head_dim;
    build_taps(b, layer);
    struct op_qkv *op = &pass_add(b->pass, OP_QKV)->qkv;
    op->x = residual(b);
    op->norm = l->attn_norm;
    op->wq = l->wq, op->wk = l->wk, op->wv = l->wv;
    op->bq = l->bq, op->bk = l->bk, op->bv = l->bv;
    op->q_norm = l->q_norm, op->k_norm = l->k_norm, op->v_norm = l->v_norm;
    op->norms_behind_rope = b->c->norms_behind_rope, op->norms_all_heads = b->c->norms_all_heads;
    op->rope = rope_of(b, layer);
    op->width = b->c->width, op->heads = b->c->heads;
    op->kv_heads = lc->kv_heads, op->head_dim = lc->head_dim;
    op->kv = keys_of(b, layer);
    op->normed = normed(b);
    op->q = builder_scratch(b, SCRATCH_QUERIES, q);
    op->gated_q = gated_queries(b, layer);
    op->kv_rows = builder_scratch(b, SCRATCH_KV_ROWS, 2 * kv);
    return op;
}

struct op_attention *build_attention(struct builder *b, int layer) {
    const struct model *m = b->m;
    const struct layer_config *lc = &b->c->layer[layer];
    size_t heads = (size_t)b->c->heads, q = heads * (size_t)lc->head_dim;
    bool has_parts = !m->ops || /* planned for: some GPUs need them */
                     (m->ops->attention_needs_partials && m->ops->attention_needs_partials(m->device, lc->head_dim));
    struct op *eager = pass_add(b->pass, OP_ATTENTION);
    struct op_attention *op = &eager->attention;
    eager->is_eager = true; /* in prefill its grid is that of the rows that are there */
    op->q = builder_scratch(b, SCRATCH_QUERIES, q);
    op->kv = keys_of(b, layer);
    op->out = builder_feed(b, SCRATCH_ATTENDED, q);
    if (has_parts)
        op->partials = builder_scratch(b, SCRATCH_PARTS, heads * ATTENTION_PARTS * ((size_t)lc->head_dim + 2));
    op->scale = b->c->attention_scale, op->cap = b->c->attention_cap;
    op->sinks = m->layers[layer].sinks;
    op->window = lc->window;
    op->heads = b->c->heads, op->kv_heads = lc->kv_heads, op->head_dim = lc->head_dim;
    return op;
}

/* h times the sigmoid of a gate [T, stride], of one number. */
static struct op_gate *build_gate(struct builder *b, struct buffer h, int width, const float *gate, int stride) {
    struct op_gate *op = &pass_add(b->pass, OP_GATE)->gate;
    op->gate = gate, op->stride = stride;
    op->group = 1;
    op->width = width, op->h = h;
    return op;
}

/* Attention times the sigmoid of what lies behind each head of q. */
static void build_attention_gate(struct builder *b, int layer) {
    const int dim = b->c->layer[layer].head_dim, q = b->c->heads * dim;
    const float *gated = gated_queries(b, layer);
    struct op_gate *op =
        build_gate(b, builder_feed(b, SCRATCH_ATTENDED, (size_t)q), q, gated ? gated + dim : NULL, 2 * q);
    op->group = dim, op->apart = 2 * dim;
}

struct op_project *build_output(struct builder *b, int layer) {
    const struct layer *l = &b->m->layers[layer];
    size_t q = (size_t)b->c->heads * (size_t)b->c->layer[layer].head_dim;
    return build_project(b, builder_feed(b, SCRATCH_ATTENDED, q), &l->wo, &l->bo);
}

struct op_gate_up *build_gate_up(struct builder *b, int layer) {
    const struct layer *l = &b->m->layers[layer];
    size_t hidden = (size_t)b->c->layer[layer].hidden;
    struct op_gate_up *op = &pass_add(b->pass, OP_GATE_UP)->gate_up;
    op->x = residual(b);
    op->norm = l->mlp_norm;
    op->gate = l->gate, op->up = l->up, op->bias = l->gate_bias;
    op->activation = b->c->activation;
    op->width = b->c->width, op->hidden = b->c->layer[layer].hidden;
    op->normed = normed(b);
    op->gated = is_on_cuda(b) ? builder_scratch(b, SCRATCH_GATED, 2 * hidden) : NULL;
    op->h = builder_feed(b, SCRATCH_MLP, hidden);
    return op;
}

struct op_project *build_down(struct builder *b, int layer) {
    const struct layer *l = &b->m->layers[layer];
    size_t hidden = (size_t)b->c->layer[layer].hidden;
    return build_project(b, builder_feed(b, SCRATCH_MLP, hidden), &l->down, &l->down_bias);
}

struct op_add_norm *build_add_norm(struct builder *b, const struct norm *norm) {
    struct op_add_norm *op = &pass_add(b->pass, OP_ADD_NORM)->add_norm;
    op->y = builder_output(b);
    op->norm = *norm;
    op->scale = op->last_scale = 1;
    op->width = b->c->width, op->parts = 1;
    op->x = residual(b);
    return op;
}

static struct op_add_norm *follow(struct builder *b, struct op_project *op, const struct norm *norm) {
    op->stores = true;
    op->x = builder_output(b);
    return build_add_norm(b, norm);
}

struct op_add_norm *build_normed_output(struct builder *b, int layer) {
    return follow(b, build_output(b, layer), &b->m->layers[layer].post_attn_norm);
}

struct op_add_norm *build_normed_down(struct builder *b, int layer) {
    return follow(b, build_down(b, layer), &b->m->layers[layer].post_mlp_norm);
}

/* Side by side, behind a norm. */
struct op_products *build_products(struct builder *b, const struct weight *w, int count, const struct norm *norm,
                                   enum scratch out) {
    struct op_products *op = &pass_add(b->pass, OP_PRODUCTS)->products;
    op->x = residual(b), op->norm = *norm;
    for (int i = 0; i < count; i++) op->w[i] = w[i], op->stride += w[i].rows;
    op->width = b->c->width;
    op->normed = normed(b);
    op->out = builder_scratch(b, out, (size_t)op->stride);
    return op;
}

/* --- experts -------------------------------------------------------------------------------------------------- */

static struct op_logits *build_router(struct builder *b, int layer, const struct norm *norm) {
    const struct layer *l = &b->m->layers[layer];
    struct op_logits *op = &pass_add(b->pass, OP_LOGITS)->logits;
    op->x = residual(b);
    op->norm = *norm;
    op->w = l->router, op->bias = l->router_bias;
    op->scale = b->c->router_scale;
    op->width = b->c->width, op->vocab = b->c->experts;
    op->normed = normed(b);
    op->logits = builder_scratch(b, SCRATCH_ROUTER, (size_t)b->c->experts);
    return op;
}

/* Ids and weights of the chosen, one behind the other for all rows: ids first. */
static int32_t *chosen_ids(struct builder *b) {
    return (int32_t *)builder_scratch(b, SCRATCH_CHOSEN, 2 * (size_t)b->c->experts_chosen);
}

static float *chosen_weights(struct builder *b) {
    int32_t *ids = chosen_ids(b);
    return ids ? (float *)ids + (size_t)b->m->limits.max_rows * (size_t)b->c->experts_chosen : NULL;
}

static struct op_route *build_route(struct builder *b, int layer, const float *logits) {
    struct op_route *op = &pass_add(b->pass, OP_ROUTE)->route;
    op->logits = logits;
    op->experts = b->c->experts, op->chosen = b->c->experts_chosen;
    op->scores = b->c->router_scores, op->renormalise = b->c->router_renormalises;
    op->bias = b->m->layers[layer].choice_bias;
    op->scale = b->c->experts_scale, op->expert_scale = b->m->layers[layer].expert_scale;
    op->ids = chosen_ids(b), op->weights = chosen_weights(b);
    return op;
}

/* The lists of a pass are one allocation: numbers for every row, so that a pass of one row has room for every expert too. */
static int32_t *expert_lists(struct builder *b) {
    return (int32_t *)builder_scratch(b, SCRATCH_LISTS,
                                      EXPERT_LISTS((size_t)b->c->experts, (size_t)b->c->experts_chosen));
}

static struct op_experts_up *build_experts_up(struct builder *b, int layer, const struct norm *norm) {
    const struct layer *l = &b->m->layers[layer];
    struct op_experts_up *op = &pass_add(b->pass, OP_EXPERTS_UP)->experts_up;
    op->x = residual(b);
    op->norm = *norm;
    op->gate = l->expert_gate, op->up = l->expert_up;
    op->gate_bias = l->expert_gate_bias, op->up_bias = l->expert_up_bias;
    op->activation = b->c->activation;
    op->width = b->c->width, op->hidden = b->c->expert_hidden;
    op->experts = b->c->experts, op->chosen = b->c->experts_chosen;
    op->ids = chosen_ids(b), op->lists = expert_lists(b);
    op->normed = normed(b);
    op->h = builder_feed(b, SCRATCH_MLP, (size_t)b->c->experts_chosen * (size_t)b->c->expert_hidden);
    return op;
}

struct op_experts_down *build_experts(struct builder *b, int layer, const struct norm *router_norm,
                                      const struct norm *norm) {
    const struct layer *l = &b->m->layers[layer];
    build_route(b, layer, build_router(b, layer, router_norm)->logits);
    struct buffer h = build_experts_up(b, layer, norm)->h;
    struct op_experts_down *op = &pass_add(b->pass, OP_EXPERTS_DOWN)->experts_down;
    op->h = h;
    op->down = l->expert_down, op->bias = l->expert_down_bias;
    op->ids = chosen_ids(b), op->weights = chosen_weights(b), op->lists = expert_lists(b);
    op->sums = builder_scratch(b, SCRATCH_EXPERTS, (size_t)b->c->experts_chosen * (size_t)b->c->width);
    op->width = b->c->width, op->hidden = b->c->expert_hidden;
    op->experts = b->c->experts, op->chosen = b->c->experts_chosen;
    op->x = residual(b);
    return op;
}

/* The same beside an MLP of the same input, whose output is added behind theirs. */
static void build_experts_and_mlp(struct builder *b, int layer) {
    const struct layer *l = &b->m->layers[layer];
    static const struct weight none;
    struct op_gate_up *gate = build_gate_up(b, layer);
    const struct buffer h = gate->h = builder_feed(b, SCRATCH_SHARED_MLP, (size_t)b->c->layer[layer].hidden);
    if (b->c->shared_is_gated) {
        const float *number = build_products(b, &l->shared_gate, 1, &l->mlp_norm, SCRATCH_SHARED_GATE)->out;
        build_gate(b, h, b->c->layer[layer].hidden, number, 1);
    }
    build_experts(b, layer, &l->mlp_norm, &l->mlp_norm);
    build_project(b, h, &l->down, &none);
}

/* --- the head ------------------------------------------------------------------------------------------------- */

struct op_logits *build_head(struct builder *b) {
    struct op_logits *op = &pass_add(b->pass, OP_LOGITS)->logits;
    op->x = residual(b);
    op->norm = b->m->norm;
    op->w = b->m->head;
    op->scale = b->c->logits_scale, op->cap = b->c->logits_cap;
    op->width = b->c->width, op->vocab = b->m->head.rows;
    op->normed = normed(b);
    return op;
}

void build_attention_block(struct builder *b, int layer) {
    build_qkv(b, layer);
    build_attention(b, layer);
    if (b->c->queries_gated) build_attention_gate(b, layer);
    build_output(b, layer);
}

void build_mlp_block(struct builder *b, int layer) {
    build_gate_up(b, layer);
    build_down(b, layer);
}

/* Both read the rows before either adds to them. */
static void build_parallel_blocks(struct builder *b, int layer) {
    build_qkv(b, layer);
    build_gate_up(b, layer)->norm = b->m->layers[layer].attn_norm;
    build_attention(b, layer);
    build_output(b, layer);
    build_down(b, layer);
}

void build_dense_layers(struct builder *b) {
    build_embed(b);
    for (int l = 0; l < b->c->layers; l++) {
        if (b->c->sublayers_are_parallel) {
            build_parallel_blocks(b, l);
            continue;
        }
        build_attention_block(b, l);
        build_mlp_block(b, l);
    }
    build_head(b);
}

void build_expert_layers(struct builder *b) {
    build_embed(b);
    for (int l = 0; l < b->c->layers; l++) {
        const struct norm *norm = &b->m->layers[l].mlp_norm;
        build_attention_block(b, l);
        build_experts(b, l, norm, norm);
    }
    build_head(b);
}

static void build_mixer(struct builder *b, int layer) {
    const struct layer_config *l = &b->c->layer[layer];
    if (!l->has_no_mixer && !l->is_recurrent) {
        build_attention_block(b, layer);
        return;
    }
    build_taps(b, layer);
    if (l->is_recurrent) build_recurrent_block(b, layer);
}

static void build_mixed_layer(struct builder *b, int layer) {
    const struct layer *l = &b->m->layers[layer];
    build_mixer(b, layer);
    if (b->c->layer[layer].has_no_mlp) return;
    if (!b->c->layer[layer].has_experts)
        build_mlp_block(b, layer);
    else if (l->gate.rows > 0)
        build_experts_and_mlp(b, layer);
    else
        build_experts(b, layer, &l->mlp_norm, &l->mlp_norm);
}

void build_mixed_layers(struct builder *b) {
    build_embed(b);
    if (b->c->recurrent.value_heads > 0) build_steps(b);
    for (int l = 0; l < b->c->layers; l++) build_mixed_layer(b, l);
    build_head(b);
}

void build_sandwiched_layers(struct builder *b) {
    build_embed(b);
    for (int l = 0; l < b->c->layers; l++) {
        build_qkv(b, l);
        build_attention(b, l);
        build_normed_output(b, l);
        build_gate_up(b, l);
        build_normed_down(b, l);
    }
    build_head(b);
}

/* --- heads that propose more tokens ------------------------------------------------------------------------------ */

/* The embedding of a token beside the hidden row of the position before it. */
struct op_join *build_join(struct builder *b, const float *embedded, struct buffer out) {
    const struct model *m = b->m;
    struct op_join *op = &pass_add(b->pass, OP_JOIN)->join;
    op->x = embedded, op->norm = m->embedding_norm, op->hidden_norm = m->hidden_norm;
    op->width = b->c->width;
    op->hidden = cache_hidden(&m->of->cache);
    op->out = out;
    return op;
}

/* What comes of it, in place of the hidden row of a position that the model has not seen; and the head. */
static void build_next(struct builder *b, const struct norm *norm) {
    struct op_keep *op = build_keep(b, &b->m->of->cache, residual(b), norm);
    op->ahead = 1, op->last_only = true;
    build_head(b);
}

static void build_mtp(struct builder *b) {
    static const struct weight none;
    const float *embedded = build_embed(b)->out;
    const struct buffer joined = builder_feed(b, SCRATCH_JOINED, 2 * (size_t)b->c->width);
    build_join(b, embedded, joined);
    struct op_project *op = build_project(b, joined, &b->m->join, &none);
    op->stores = true, op->scale = 1;
    build_mixed_layer(b, 0);
    build_next(b, &b->m->norm);
}

void build_eagle(struct builder *b) {
    static const struct norm plain;
    const size_t width = 2 * (size_t)b->c->width;
    float *joined = builder_scratch(b, SCRATCH_JOINED, width), *embedded = builder_output(b);
    build_embed(b)->out = embedded;
    struct op_join *join = build_join(b, embedded, (struct buffer){joined, DTYPE_F32});
    join->residual = residual(b), join->norms_residual = b->c->drafter.norms_residual;
    struct op_qkv *op = build_qkv(b, 0);
    op->x = joined, op->norm = plain, op->width = (int32_t)width;
    op->normed = builder_feed(b, SCRATCH_NORMED, width);
    build_attention(b, 0);
    build_output(b, 0);
    build_mlp_block(b, 0);
    build_next(b, &plain);
}

/* --- the passes ----------------------------------------------------------------------------------------------- */

/* The rows that the head reads, for another head. */
static void keep_rows_of_head(struct builder *b) {
    const struct op head = b->pass->ops[--b->pass->count];
    build_keep(b, &b->m->cache, residual(b), &b->m->norm);
    *pass_add(b->pass, head.kind) = head;
}

static void build(struct model *m, struct pass *pass) {
    struct builder b = {m, &m->config, pass};
    if (model_is_own_head(m))
        build_mtp(&b);
    else
        m->config.family->build(&b);
    if (m->cache.hidden_width > 0 && !m->tapped_by) keep_rows_of_head(&b);
}

void model_measure_pass(struct model *m) {
    struct pass pass = {0};
    build(m, &pass);
    pass_free(&pass);
}

void model_build_passes(struct model *m) {
    for (int i = 0; i <= LOGITS_ALL; i++) pass_free(&m->passes[i]);
    build(m, &m->passes[LOGITS_ALL]);
    pass_tell_neighbours(&m->passes[LOGITS_ALL]);
    pass_copy_last_only(&m->passes[LOGITS_LAST], &m->passes[LOGITS_ALL]);
    pass_copy_cache_part(&m->passes[LOGITS_NONE], &m->passes[LOGITS_ALL]);
}
