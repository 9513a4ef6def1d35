/* A model's cache: what it keeps of every sequence, layer by layer, behind one interface.
 *
 * The engine lays it out once, says how far passes may have settled a sequence, and asks where its next pass has to begin. A kind of
 * cache is a table of functions. Paged keys and values: a position's cell follows from the page table, so that what a round wrote and did
 * not accept lies past the length and is written over, and a pass may begin anywhere. With recurrent states besides
 * (model/recurrence.h) passes settle on the device what is accepted, and a history that is cut to before that is ingested again from its
 * beginning.
 *
 * Belongs to one thread. Which pages are whose: model/kv_pages.h. */
#ifndef DUET_MODEL_CACHE_H
#define DUET_MODEL_CACHE_H

#include "graphs/pool.h"
#include "model/config.h"
#include "model/recurrence.h"

/* What keys and values are kept as: f32 on the host and the weights' 16-bit type on CUDA; or FP8, half of that and less, which makes
 * another model of it (model/kv_pages.h). */
enum kv_numbers { KV_AUTO, KV_FP8 };

struct cache;

struct cache_kind {
    const char *name;
    int (*layout)(struct cache *, struct pool *);
    void (*settle)(struct cache *, int slot, int n); /* NULL: nothing is ever settled */
    int (*resume)(struct cache *, int slot, int n);  /* NULL: anywhere */
    void (*close)(struct cache *);
};
extern const struct cache_kind cache_paged, cache_hybrid;

struct cache_sizes {
    int pages;     /* of keys and values, page 0 included */
    int slots;     /* of sequences, the dummy's included */
    int kept_rows; /* of a recurrent layer (recurrence_kept_rows) */
};

struct cache {
    const struct cache_kind *kind;
    const struct model_config *config;
    const char *owner; /* "target", "draft": in names of slices */
    enum dtype type;
    struct cache_sizes sizes;
    int32_t hidden_width; /* numbers that are kept of a position's hidden row; 0: none are */
    char *hidden;         /* [pages, KV_PAGE, hidden_width], of hidden_type */
    enum dtype hidden_type;
    char *k, *v;              /* all layers' */
    size_t start[LAYERS_MAX]; /* where a layer's begin in each, in bytes */
    size_t bytes;             /* of k, and of v */
    /* of recurrent layers */
    float *states, *kept;          /* one layer's behind the other's */
    struct recurrence_mark *marks; /* [slots] device */
    int32_t *settled;              /* [slots] host: as far as a slot's states may be settled */
};

/* Cuts its memory. */
static inline int cache_layout(struct cache *c, const struct cache_sizes *sizes, struct pool *pool) {
    c->sizes = *sizes;
    return c->kind->layout(c, pool);
}
static inline void cache_close(struct cache *c) {
    if (c->kind && c->kind->close) c->kind->close(c);
}
/* A pass is enqueued behind which the first n positions of `slot` may be settled, and no more. */
static inline void cache_settle(struct cache *c, int slot, int n) {
    if (c->kind->settle) c->kind->settle(c, slot, n);
}
/* The next pass of `slot` is to begin at position n at the latest; returns where it has to. */
static inline int cache_resume(struct cache *c, int slot, int n) {
    return c->kind->resume ? c->kind->resume(c, slot, n) : n;
}

/* Keys and values of a layer, its own or those that it shares with an earlier one. */
struct kv_layer cache_layer(const struct cache *, int layer);
struct hidden_rows cache_hidden(const struct cache *);
struct recurrent_layer cache_recurrent_layer(const struct cache *, int layer);
size_t cache_page_bytes(const struct cache *,
                        int layer); /* of a layer's keys in one page; 0 where it has none of its own */
size_t cache_hidden_page_bytes(const struct cache *); /* of a page's hidden rows; 0: none are kept */
uint64_t cache_bytes_per_token(const struct cache *);

#endif
