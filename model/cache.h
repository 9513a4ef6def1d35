/* A model's cache: what it keeps of every sequence, layer by layer, behind one interface.
 *
 * The engine lays it out once, commits after each round what was accepted, and truncates when a history is cut. A kind of cache is a
 * table of functions; paged keys and values are the first. There a position's cell follows from the page table, so that what a
 * round wrote and did not accept lies past the length and is written over: commit does nothing, and truncate keeps all. A cache
 * that cannot go back (recurrent state) says at truncate how much it kept, and the rest is ingested again.
 *
 * Belongs to one thread. Which pages are whose: model/kv_pages.h. */
#ifndef DUET_MODEL_CACHE_H
#define DUET_MODEL_CACHE_H

#include "graphs/pool.h"
#include "model/config.h"
#include "model/operands.h"

/* What keys and values are kept as: f32 on the host and the weights' 16-bit type on CUDA; or FP8, half of that and less, which makes
 * another model of it (model/kv_pages.h). */
enum kv_numbers { KV_AUTO, KV_FP8 };

struct cache;

struct cache_kind {
    const char *name;
    int (*layout)(struct cache *, struct pool *);
    int (*commit)(struct cache *, struct stream *, int batch);
    int (*truncate)(struct cache *, int slot, int n);
};
extern const struct cache_kind cache_paged;

struct cache {
    const struct cache_kind *kind;
    const struct model_config *config;
    const char *owner; /* "target", "draft": in names of slices */
    enum dtype type;
    int pages;
    char *k, *v;              /* all layers' */
    size_t start[LAYERS_MAX]; /* where a layer's begin in each, in bytes */
    size_t bytes;             /* of k, and of v */
};

/* Cuts its memory for so many pages. */
static inline int cache_layout(struct cache *c, int pages, struct pool *pool) {
    c->pages = pages;
    return c->kind->layout(c, pool);
}
/* In stream order behind acceptance of the first `batch` rows. Neither allocates nor synchronises. */
static inline int cache_commit(struct cache *c, struct stream *stream, int batch) {
    return c->kind->commit ? c->kind->commit(c, stream, batch) : 0;
}
/* The history of `slot` is cut to n positions; returns how many of these the cache still holds. */
static inline int cache_truncate(struct cache *c, int slot, int n) {
    return c->kind->truncate ? c->kind->truncate(c, slot, n) : n;
}

/* Keys and values of a layer, its own or those that it shares. */
struct kv_layer cache_layer(const struct cache *, int layer);
size_t cache_page_bytes(const struct cache *,
                        int layer); /* of a layer's keys in one page; 0 where it has none of its own */
uint64_t cache_bytes_per_token(const struct cache *);

#endif
