/* The ops of the made-up layer, one by one and as a list. */
#include <math.h>

#include "tests/support/mini.h"
#include "tests/support/support.h"

static float or_one(float scale) {
    return scale != 0 ? scale : 1;
}

struct buffer mini_buffer(const struct mini *m, void *data) {
    return (struct buffer){data, m->kv.type};
}

struct op_embed mini_embed(const struct mini *m, struct rows rows) {
    return (struct op_embed){
        .rows = rows, .table = m->embedding, .scale = or_one(m->shape.embedding_scale), .out = m->x};
}

struct op_qkv mini_qkv(const struct mini *m, struct rows rows) {
    const struct mini_shape *s = &m->shape;
    return (struct op_qkv){
        .rows = rows,
        .x = m->x,
        .norm = m->norm,
        .wq = m->wq,
        .wk = m->wk,
        .wv = m->wv,
        .bq = m->bq,
        .bk = m->bk,
        .bv = m->bv,
        .q_norm = m->q_norm,
        .k_norm = m->k_norm,
        .v_norm = m->v_norm,
        .norms_behind_rope = s->norms_behind_rope,
        .norms_all_heads = s->norms_all_heads,
        .rope = {.table = m->rope,
                 .positions = s->pages_per_slot * KV_PAGE,
                 .queries = s->has_query_rope && !s->has_rope_choice ? s->pages_per_slot * KV_PAGE : 0,
                 .dims = s->rope_dims > 0 ? s->rope_dims : s->head_dim,
                 .pairs_neighbours = s->pairs_neighbours,
                 .choice = m->rope_choice},
        .width = s->width,
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .kv = m->kv,
        .normed = mini_buffer(m, m->normed),
        .q = m->q,
        .kv_rows = m->kv_rows};
}

struct op_attention mini_attention(const struct mini *m, struct rows rows) {
    const struct mini_shape *s = &m->shape;
    return (struct op_attention){.rows = rows,
                                 .q = m->q,
                                 .kv = m->kv,
                                 .out = mini_buffer(m, m->attended),
                                 .partials = m->partials,
                                 .scale = s->attention_scale != 0 ? s->attention_scale : 1 / sqrtf((float)s->head_dim),
                                 .cap = s->attention_cap,
                                 .sinks = m->sinks,
                                 .heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .head_dim = s->head_dim,
                                 .window = s->window};
}

static struct op_project project(const struct mini *m, struct rows rows, float *h, struct weight w,
                                 struct weight bias) {
    const bool stores = m->shape.norms != NORMS_BEFORE;
    return (struct op_project){.rows = rows,
                               .h = mini_buffer(m, h),
                               .w = w,
                               .bias = bias,
                               .scale = or_one(m->shape.residual_scale),
                               .stores = stores,
                               .x = stores ? m->output : m->x};
}

struct op_project mini_project(const struct mini *m, struct rows rows) {
    return project(m, rows, m->attended, m->wo, m->bo);
}

struct op_project mini_down(const struct mini *m, struct rows rows) {
    return project(m, rows, m->h, m->down, m->down_bias);
}

struct op_add_norm mini_add_norm(const struct mini *m, struct rows rows, const struct norm *norm) {
    return (struct op_add_norm){.rows = rows,
                                .y = m->output,
                                .norm = *norm,
                                .scale = or_one(m->shape.residual_scale),
                                .last_scale = 1,
                                .width = m->shape.width,
                                .parts = 1,
                                .x = m->x};
}

struct op_gate_up mini_gate_up(const struct mini *m, struct rows rows) {
    return (struct op_gate_up){.rows = rows,
                               .x = m->x,
                               .norm = m->mlp_norm,
                               .gate = m->gate,
                               .up = m->up,
                               .bias = m->gate_bias,
                               .activation = m->shape.activation,
                               .width = m->shape.width,
                               .hidden = m->shape.hidden,
                               .normed = mini_buffer(m, m->normed),
                               .gated = m->gated,
                               .h = mini_buffer(m, m->h)};
}

struct op_gate_up mini_input_gate(const struct mini *m, struct rows rows) {
    struct op_gate_up op = mini_gate_up(m, rows);
    op.norm = (struct norm){0};
    op.gate = m->input_gate, op.up = op.bias = (struct weight){0};
    op.times = m->inputs ? m->inputs + m->shape.layer_inputs : NULL; /* of the second of two layers */
    op.times_stride = 2 * m->shape.layer_inputs;
    op.hidden = m->shape.layer_inputs;
    return op;
}

struct op_logits mini_router(const struct mini *m, struct rows rows) {
    return (struct op_logits){.rows = rows,
                              .x = m->x,
                              .norm = m->router_norm,
                              .w = m->router,
                              .bias = m->router_bias,
                              .scale = m->shape.chosen > 2 ? 0.25f : 1,
                              .width = m->shape.width,
                              .vocab = m->shape.experts,
                              .normed = mini_buffer(m, m->normed),
                              .logits = m->router_logits};
}

struct op_route mini_route(const struct mini *m, struct rows rows) {
    return (struct op_route){.rows = rows,
                             .logits = m->router_logits,
                             .experts = m->shape.experts,
                             .chosen = m->shape.chosen,
                             .scores = m->shape.scores,
                             .bias = m->choice_bias,
                             .renormalise = m->shape.renormalises,
                             .scale = 1,
                             .expert_scale = m->expert_scale,
                             .ids = m->expert_ids,
                             .weights = m->expert_weights};
}

struct op_experts_up mini_experts_up(const struct mini *m, struct rows rows) {
    return (struct op_experts_up){.rows = rows,
                                  .x = m->x,
                                  .norm = m->mlp_norm,
                                  .gate = m->expert_gate.experts,
                                  .up = m->expert_up.experts,
                                  .gate_bias = m->expert_gate_bias.experts,
                                  .up_bias = m->expert_up_bias.experts,
                                  .activation = m->shape.activation,
                                  .width = m->shape.width,
                                  .hidden = m->shape.hidden,
                                  .experts = m->shape.experts,
                                  .chosen = m->shape.chosen,
                                  .ids = m->expert_ids,
                                  .lists = m->expert_lists,
                                  .normed = mini_buffer(m, m->normed),
                                  .h = mini_buffer(m, m->expert_h)};
}

struct op_experts_down mini_experts_down(const struct mini *m, struct rows rows) {
    const bool stores = m->shape.experts_beside;
    return (struct op_experts_down){.rows = rows,
                                    .h = mini_buffer(m, m->expert_h),
                                    .down = m->expert_down.experts,
                                    .bias = m->expert_down_bias.experts,
                                    .ids = m->expert_ids,
                                    .weights = m->expert_weights,
                                    .lists = m->expert_lists,
                                    .sums = m->expert_sums,
                                    .width = m->shape.width,
                                    .hidden = m->shape.hidden,
                                    .experts = m->shape.experts,
                                    .chosen = m->shape.chosen,
                                    .stores = stores,
                                    .x = stores ? m->output : m->x};
}

struct op_logits mini_logits(const struct mini *m, struct rows rows) {
    return (struct op_logits){.rows = rows,
                              .x = m->x,
                              .norm = m->head_norm,
                              .w = m->head,
                              .bias = m->head_bias,
                              .scale = or_one(m->shape.logits_scale),
                              .cap = m->shape.logits_cap,
                              .width = m->shape.width,
                              .vocab = m->shape.vocab,
                              .normed = mini_buffer(m, m->normed),
                              .logits = m->logits};
}

/* --- the layer as a list ---------------------------------------------------------------------------------- */

/* What follows a sublayer whose output lies beside the residual stream. */
static void add_norm(struct pass *pass, const struct mini *m, struct rows rows, const struct norm *norm) {
    if (m->shape.norms != NORMS_BEFORE) pass_add(pass, OP_ADD_NORM)->add_norm = mini_add_norm(m, rows, norm);
}

/* (norm(W x) + embedding) / 2, for two layers. */
static void list_layer_inputs(struct pass *pass, const struct mini *m, struct rows rows) {
    const int p = m->shape.layer_inputs;
    struct op_embed *embed = &pass_add(pass, OP_EMBED)->embed;
    *embed = mini_embed(m, rows);
    embed->table = m->layer_embedding, embed->scale = 0.5f, embed->out = m->inputs;
    struct op_logits *projection = &pass_add(pass, OP_LOGITS)->logits;
    *projection = mini_logits(m, rows);
    projection->norm = (struct norm){0}, projection->w = m->layer_projection, projection->bias = (struct weight){0};
    projection->scale = 0.5f, projection->cap = 0, projection->vocab = 2 * p, projection->logits = m->projected;
    struct op_add_norm *add = &pass_add(pass, OP_ADD_NORM)->add_norm;
    *add = mini_add_norm(m, rows, &m->input_norm);
    add->y = m->projected, add->x = m->inputs, add->width = p, add->parts = 2, add->last_scale = 0.5f;
}

static void list_experts(struct pass *pass, const struct mini *m, struct rows rows) {
    pass_add(pass, OP_LOGITS)->logits = mini_router(m, rows);
    pass_add(pass, OP_ROUTE)->route = mini_route(m, rows);
    pass_add(pass, OP_EXPERTS_UP)->experts_up = mini_experts_up(m, rows);
    pass_add(pass, OP_EXPERTS_DOWN)->experts_down = mini_experts_down(m, rows);
}

static void list_mlp(struct pass *pass, const struct mini *m, struct rows rows) {
    const bool is_beside = m->shape.experts_beside;
    if (m->shape.experts > 0 && !is_beside) {
        list_experts(pass, m, rows);
        return;
    }
    pass_add(pass, OP_GATE_UP)->gate_up = mini_gate_up(m, rows);
    pass_add(pass, OP_PROJECT)->project = mini_down(m, rows);
    if (!is_beside) {
        add_norm(pass, m, rows, &m->post_mlp_norm);
        return;
    }
    struct op_add_norm *dense = &pass_add(pass, OP_ADD_NORM)->add_norm;
    *dense = mini_add_norm(m, rows, &m->post_dense_norm);
    dense->x = m->dense, dense->stores = true;
    list_experts(pass, m, rows);
    struct op_add_norm *both = &pass_add(pass, OP_ADD_NORM)->add_norm;
    *both = mini_add_norm(m, rows, &m->post_expert_norm);
    both->x = m->dense;
    struct op_add_norm *add = &pass_add(pass, OP_ADD_NORM)->add_norm;
    *add = mini_add_norm(m, rows, &m->post_mlp_norm);
    add->y = m->dense, add->layer_scale = m->layer_scale;
}

static void list_layer(struct pass *pass, const struct mini *m, struct rows rows) {
    pass_add(pass, OP_EMBED)->embed = mini_embed(m, rows);
    if (m->shape.layer_inputs > 0) list_layer_inputs(pass, m, rows);
    pass_add(pass, OP_QKV)->qkv = mini_qkv(m, rows);
    pass_add(pass, OP_ATTENTION)->attention = mini_attention(m, rows);
    pass_add(pass, OP_PROJECT)->project = mini_project(m, rows);
    add_norm(pass, m, rows, &m->post_attn_norm);
    list_mlp(pass, m, rows);
    if (m->shape.layer_inputs > 0) {
        pass_add(pass, OP_GATE_UP)->gate_up = mini_input_gate(m, rows);
        pass_add(pass, OP_PROJECT)->project = mini_down(m, rows);
        pass->ops[pass->count - 1].project.w = m->input_projection;
        add_norm(pass, m, rows, &m->post_input_norm);
    }
    pass_add(pass, OP_LOGITS)->logits = mini_logits(m, rows);
}

int mini_forward(struct lab *lab, const struct mini *m, struct rows rows) {
    struct pass pass = {0};
    list_layer(&pass, m, rows);
    pass_tell_neighbours(&pass);
    const int count = pass.count;
    ck_ok(pass_run(&pass, ops_for(lab->device), lab->stream, &rows, NULL));
    pass_free(&pass);
    return count;
}
