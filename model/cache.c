#include "model/cache.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/memory.h"

size_t cache_page_bytes(const struct cache *c, int layer) {
    const struct layer_config *l = &c->config->layer[layer];
    if (l->kv_layer != layer || l->is_recurrent || l->has_no_mixer) return 0;
    return kv_part_start(c->type, 1, l->kv_heads, 0, l->head_dim);
}

uint64_t cache_bytes_per_token(const struct cache *c) {
    uint64_t sum = 0;
    for (int l = 0; l < c->config->layers; l++) sum += 2 * (uint64_t)cache_page_bytes(c, l) / KV_PAGE;
    return sum;
}

struct kv_layer cache_layer(const struct cache *c, int layer) {
    size_t start = c->start[c->config->layer[layer].kv_layer];
    if (!c->k) return (struct kv_layer){.type = c->type}; /* a plan */
    return (struct kv_layer){c->k + start, c->v + start, c->type};
}

static int slice(struct cache *c, struct pool *pool, const char *what, size_t bytes, void **out) {
    char name[POOL_NAME_MAX];
    snprintf(name, sizeof name, "%s %s", c->owner, what);
    return pool_slice(pool, POOL_CACHE, name, bytes, out);
}

size_t cache_hidden_page_bytes(const struct cache *c) {
    return KV_PAGE * (size_t)c->hidden_width * (size_t)dtype_bytes(c->hidden_type);
}

struct hidden_rows cache_hidden(const struct cache *c) {
    return (struct hidden_rows){c->hidden, c->hidden_type};
}

/* The pages of each layer in turn, then those of hidden rows. */
static int layout_paged(struct cache *c, struct pool *pool) {
    c->bytes = 0;
    for (int l = 0; l < c->config->layers; l++) {
        c->start[l] = c->bytes;
        c->bytes += (size_t)c->sizes.pages * cache_page_bytes(c, l);
    }
    const bool is_fp8 = c->type == DTYPE_FP8;
    void *k, *v;
    TRY(slice(c, pool, is_fp8 ? "FP8 keys" : "keys", c->bytes, &k));
    TRY(slice(c, pool, is_fp8 ? "FP8 values" : "values", c->bytes, &v));
    c->k = k, c->v = v;
    if (c->hidden_width == 0) return 0;
    void *hidden;
    TRY(slice(c, pool, "hidden rows", (size_t)c->sizes.pages * cache_hidden_page_bytes(c), &hidden));
    c->hidden = hidden;
    return 0;
}

const struct cache_kind cache_paged = {.name = "paged keys and values", .layout = layout_paged};

/* --- recurrent states ----------------------------------------------------------------------------------------- */

/* Numbers of a layer: its states, and what it keeps of positions. */
static size_t state_numbers(const struct cache *c) {
    const struct recurrent_config *r = &c->config->recurrent;
    return (size_t)c->sizes.slots * (size_t)r->value_heads * (size_t)r->key_dim * (size_t)r->value_dim;
}

static size_t kept_numbers(const struct cache *c) {
    const struct recurrent_config *r = &c->config->recurrent;
    const int record = r->rule == RULE_NONE ? r->value_dim : recurrence_record(r->key_dim, r->value_dim);
    return (size_t)c->sizes.slots * (size_t)r->value_heads * (size_t)c->sizes.kept_rows * (size_t)record;
}

static int recurrent_before(const struct cache *c, int layer) {
    int count = 0;
    for (int l = 0; l < layer; l++) count += c->config->layer[l].is_recurrent;
    return count;
}

struct recurrent_layer cache_recurrent_layer(const struct cache *c, int layer) {
    const size_t index = (size_t)recurrent_before(c, layer);
    if (!c->kept) return (struct recurrent_layer){.kept_rows = c->sizes.kept_rows}; /* a plan */
    return (struct recurrent_layer){c->states ? c->states + index * state_numbers(c) : NULL,
                                    c->kept + index * kept_numbers(c), c->sizes.kept_rows};
}

static int layout_hybrid(struct cache *c, struct pool *pool) {
    const size_t layers = (size_t)recurrent_before(c, c->config->layers), slots = (size_t)c->sizes.slots;
    void *states, *kept, *marks;
    TRY(layout_paged(c, pool));
    TRY(slice(c, pool, "recurrent states", layers * state_numbers(c) * sizeof(float), &states));
    TRY(slice(c, pool, "rows since these", layers * kept_numbers(c) * sizeof(float), &kept));
    TRY(slice(c, pool, "marks of these", slots * sizeof *c->marks, &marks));
    c->states = states, c->kept = kept, c->marks = marks;
    c->settled = memory_resize(c->settled, slots * sizeof *c->settled);
    for (size_t i = 0; i < slots; i++) c->settled[i] = 0;
    return 0;
}

static void settle_hybrid(struct cache *c, int slot, int n) {
    c->settled[slot] = n;
}

static int resume_hybrid(struct cache *c, int slot, int n) {
    return c->settled[slot] <= n ? n : 0;
}

static void close_hybrid(struct cache *c) {
    free(c->settled);
}

const struct cache_kind cache_hybrid = {.name = "paged keys and values, recurrent states",
                                        .layout = layout_hybrid,
                                        .settle = settle_hybrid,
                                        .resume = resume_hybrid,
                                        .close = close_hybrid};
