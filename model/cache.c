#include "model/cache.h"

#include <stdio.h>

#include "base/err.h"

size_t cache_page_bytes(const struct cache *c, int layer) {
    const struct layer_config *l = &c->config->layer[layer];
    if (l->kv_layer != layer) return 0;
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

static int slice(struct cache *c, struct pool *pool, const char *what, char **out) {
    char name[POOL_NAME_MAX];
    void *at;
    snprintf(name, sizeof name, "%s %s", c->owner, what);
    TRY(pool_slice(pool, POOL_CACHE, name, c->bytes, &at));
    *out = at;
    return 0;
}

/* The pages of each layer in turn. */
static int layout_paged(struct cache *c, struct pool *pool) {
    c->bytes = 0;
    for (int l = 0; l < c->config->layers; l++) {
        c->start[l] = c->bytes;
        c->bytes += (size_t)c->pages * cache_page_bytes(c, l);
    }
    const bool is_fp8 = c->type == DTYPE_FP8;
    TRY(slice(c, pool, is_fp8 ? "FP8 keys" : "keys", &c->k));
    return slice(c, pool, is_fp8 ? "FP8 values" : "values", &c->v);
}

const struct cache_kind cache_paged = {.name = "paged keys and values", .layout = layout_paged};
