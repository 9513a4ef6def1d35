/* How a pass lists the ops of layers that are recurrent: linear attention and short convolutions. */
#include "model/builder.h"

static struct recurrence_step *steps(struct builder *b) {
    return (struct recurrence_step *)(void *)builder_scratch(b, SCRATCH_STEPS,
                                                             sizeof(struct recurrence_step) / sizeof(float));
}

void build_steps(struct builder *b) {
    struct op_steps *op = &pass_add(b->pass, OP_STEPS)->steps;
    op->marks = b->m->cache.marks;
    op->steps = steps(b);
}

/* Of Mamba 2: the gate, x, B, C, and each head's step. */
static void place_mamba_heads(struct op_linear_attention *op, const struct recurrent_config *r) {
    const int share = r->value_heads / r->key_heads, keys = r->key_heads * r->key_dim,
              values = r->value_heads * r->value_dim;
    op->z = op->v = (struct heads_at){0, share * r->value_dim, r->value_dim}, op->v.first = values;
    op->k = op->q = (struct heads_at){2 * values, r->key_dim, 0}, op->q.first += keys;
    op->a = op->b = (struct heads_at){2 * (values + keys), share, 1};
    op->conv_k = values, op->conv_q = values + keys;
}

/* One behind the other, or of each key head all together. */
static void place_delta_heads(struct op_linear_attention *op, const struct recurrent_config *r) {
    const int share = r->value_heads / r->key_heads, keys = r->key_heads * r->key_dim, value = share * r->value_dim,
              values = r->key_heads * value, all = 2 * (keys + values), group = 2 * (r->key_dim + value),
              dim = r->value_dim, heads = r->key_heads;
    const struct heads_at v = r->is_tiled ? (struct heads_at){2 * keys, dim, heads * dim}
                                          : (struct heads_at){2 * keys, value, dim},
                          b = r->is_tiled ? (struct heads_at){all, 1, heads} : (struct heads_at){all, share, 1};
    op->q = (struct heads_at){0, r->key_dim, 0}, op->k = (struct heads_at){keys, r->key_dim, 0};
    op->v = op->z = v, op->z.first += values;
    op->b = op->a = b, op->a.first += r->value_heads;
    if (r->qkvz_by_head) {
        op->q = (struct heads_at){0, group, 0}, op->k = (struct heads_at){r->key_dim, group, 0};
        op->v = (struct heads_at){2 * r->key_dim, group, dim};
        op->z = (struct heads_at){2 * r->key_dim + value, group, dim};
    }
    if (r->ba_by_head)
        op->b = (struct heads_at){all, 2 * share, 1}, op->a = (struct heads_at){all + share, 2 * share, 1};
    op->conv_k = keys, op->conv_v = 2 * keys;
}

static void build_group_norm(struct builder *b, struct buffer h, const struct norm *norm, int width, int groups) {
    struct op_group_norm *op = &pass_add(b->pass, OP_GROUP_NORM)->group_norm;
    op->norm = *norm;
    op->width = width, op->group = width / groups;
    op->h = h;
}

/* A short convolution likewise. */
static void build_short_conv(struct builder *b, int layer) {
    const struct layer *l = &b->m->layers[layer];
    const int32_t width = b->c->width;
    static const struct weight none;
    const float *in = build_products(b, l->inputs, 1, &l->attn_norm, SCRATCH_RECURRENT)->out;
    struct op_short_conv *op = &pass_add(b->pass, OP_SHORT_CONV)->short_conv;
    op->steps = steps(b);
    op->inputs = in, op->width = width;
    op->conv = l->conv;
    op->state = cache_recurrent_layer(&b->m->cache, layer);
    const struct buffer out = op->out = builder_feed(b, SCRATCH_ATTENDED, (size_t)width);
    build_project(b, out, &l->wo, &none);
}

static void build_linear_attention(struct builder *b, int layer) {
    const struct layer *l = &b->m->layers[layer];
    const struct recurrent_config *r = &b->c->recurrent;
    static const struct weight none;
    const struct op_products *inputs = build_products(b, l->inputs, PRODUCTS_MAX, &l->attn_norm, SCRATCH_RECURRENT);
    const float *in = inputs->out;
    const int stride = inputs->stride;
    struct op_linear_attention *op = &pass_add(b->pass, OP_LINEAR_ATTENTION)->linear_attention;
    op->steps = steps(b);
    op->inputs = in, op->stride = stride;
    op->rule = r->rule;
    if (r->rule == RULE_DELTA)
        place_delta_heads(op, r), op->norm = l->state_norm;
    else
        place_mamba_heads(op, r);
    op->conv = l->conv, op->conv_bias = l->conv_bias;
    op->a_log = l->a_log, op->dt_bias = l->dt_bias, op->skip = l->skip;
    op->key_heads = r->key_heads, op->value_heads = r->value_heads;
    op->key_dim = r->key_dim, op->value_dim = r->value_dim;
    op->is_tiled = r->is_tiled, op->is_rate = r->is_rate;
    op->state = cache_recurrent_layer(&b->m->cache, layer);
    const struct buffer out = op->out = builder_feed(b, SCRATCH_ATTENDED, (size_t)(r->value_heads * r->value_dim));
    if (r->rule == RULE_DECAY) build_group_norm(b, out, &l->state_norm, r->value_heads * r->value_dim, r->key_heads);
    build_project(b, out, &l->wo, &none);
}

void build_recurrent_block(struct builder *b, int layer) {
    if (b->c->recurrent.rule == RULE_NONE)
        build_short_conv(b, layer);
    else
        build_linear_attention(b, layer);
}
