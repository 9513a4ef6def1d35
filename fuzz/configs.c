#include "fuzz/configs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POSITIONS = 5 };

static void claim_heads(int32_t heads, int32_t kv_heads, int32_t head_dim) {
    claim(heads >= 1 && kv_heads >= 1 && heads % kv_heads == 0, "%d and %d heads", heads, kv_heads);
    claim(head_dim >= HEAD_DIM_MIN && head_dim <= HEAD_DIM_MAX && head_dim % 2 == 0, "heads of %d", head_dim);
}

static void claim_layer(const struct model_config *c, int l) {
    const struct layer_config *layer = &c->layer[l];
    claim_heads(c->heads, layer->kv_heads, layer->head_dim);
    claim(layer->window >= 0 && layer->hidden >= 1, "a window of %d, a width of %d", layer->window, layer->hidden);
    claim(layer->rope >= 0 && layer->rope < c->ropes, "rope %d of %d", layer->rope, c->ropes);
    claim(c->rope[layer->rope].head_dim == layer->head_dim, "a rope of another head size");
    claim(!layer->has_experts || c->experts >= 1, "experts out of nowhere");
    if (c->drafter.reads_keys) {
        claim(layer->kv_layer < 0, "keys of its own");
        return;
    }
    claim(layer->kv_layer >= 0 && layer->kv_layer <= l, "keys of layer %d", layer->kv_layer);
    const struct layer_config *owner = &c->layer[layer->kv_layer];
    claim(owner->kv_layer == layer->kv_layer, "keys of a layer that has none");
    claim(owner->kv_heads == layer->kv_heads && owner->head_dim == layer->head_dim, "keys of another shape");
}

static void claim_dimensions(const struct model_config *c) {
    claim(c->family && c->architecture && *c->architecture, "no architecture");
    claim(c->vocab >= 1 && c->width >= 1 && c->hidden >= 1 && c->positions >= 1, "a size below 1");
    claim(c->layers >= 1 && c->layers <= LAYERS_MAX && c->ropes >= 1 && c->ropes <= ROPES_MAX, "%d layers", c->layers);
    claim_heads(c->heads, c->kv_heads, c->head_dim);
    for (int l = 0; l < c->layers; l++) claim_layer(c, l);
    claim(c->norm_eps > 0 && c->norm_eps <= 1, "an epsilon of %g", (double)c->norm_eps);
    claim(c->experts_chosen >= 0 && c->experts_chosen <= c->experts, "%d of %d experts", c->experts_chosen, c->experts);
    claim(isfinite(c->attention_scale) && isfinite(c->embedding_scale) && isfinite(c->logits_scale), "a scale");
    claim(isfinite(c->attention_cap) && isfinite(c->logits_cap) && isfinite(c->residual_scale), "a cap");
    /* products that the layout of weights and caches takes */
    int64_t bytes;
    claim(!__builtin_mul_overflow((int64_t)c->vocab * c->width, 4, &bytes), "an embedding too large");
    claim(!__builtin_mul_overflow((int64_t)c->hidden * c->width, 4 * c->layers, &bytes), "an MLP too large");
}

static void claim_ids(const struct model_config *c) {
    claim(c->end_count >= 0 && c->end_count <= END_IDS_MAX, "%d end ids", c->end_count);
    for (int i = 0; i < c->end_count; i++) {
        claim(c->end_ids[i] >= 0 && c->end_ids[i] < c->vocab, "end id %d", c->end_ids[i]);
        claim(i == 0 || c->end_ids[i - 1] < c->end_ids[i], "end id %d does not ascend", c->end_ids[i]);
    }
}

/* Position 0 turns nothing; every pair is a point of a circle, whose radius only scaled types have for themselves. */
static void claim_rope(const struct rope_config *r, int length) {
    size_t pairs = (size_t)r->head_dim / 2;
    float *rope = malloc(POSITIONS * pairs * 2 * sizeof *rope);
    if (!rope) abort();
    claim((r->dims >= 2 || r->type == ROPE_PROPORTIONAL) && r->dims >= 0 && r->dims <= r->head_dim && r->dims % 2 == 0,
          "%d of %d dimensions", r->dims, r->head_dim);
    model_config_rope(r, POSITIONS, length, rope);
    for (size_t i = 0; i < POSITIONS * pairs; i++) {
        const double cosine = rope[2 * i], sine = rope[2 * i + 1];
        const double radius = i % pairs < (size_t)r->dims / 2 ? r->attention_factor : 1;
        claim(fabs(hypot(cosine, sine) - radius) <= 1e-5 * radius, "pair %zu: %g, %g", i, cosine, sine);
        claim(i >= pairs || (cosine == (float)radius && sine == 0), "pair %zu: %g, %g", i, cosine, sine);
    }
    free(rope);
}

void claim_config(const struct model_config *c) {
    claim_dimensions(c);
    claim_ids(c);
    for (int i = 0; i < c->ropes; i++) claim_rope(&c->rope[i], 0), claim_rope(&c->rope[i], c->positions);
}
