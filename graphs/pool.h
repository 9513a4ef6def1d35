/* The one memory pool: plan, allocate, cut named slices, seal.
 *
 * Modules describe their memory once, as a function that asks a pool for named slices. The engine runs
 * these functions twice: on a planning pool, which only adds up (and is what `duet inspect --memory`
 * prints), then on the real pool of exactly that size. After pool_seal nothing can be cut any more. Graphs
 * are legal because no address ever moves; pool_generation changes with every pool that is allocated or
 * reset, is stored in each graph, and is checked at replay. */
#ifndef DUET_GRAPHS_POOL_H
#define DUET_GRAPHS_POOL_H

#include "graphs/device.h"

struct pool;

enum { POOL_ALIGN = 256, POOL_NAME_MAX = 48 };

/* What a slice is for, where a plan is added up by uses. */
enum pool_use { POOL_SCRATCH, POOL_WEIGHTS, POOL_CACHE, POOL_LOGITS, POOL_USES };

struct pool_slice_info {
    char name[POOL_NAME_MAX];
    enum pool_use use;
    size_t bytes; /* as asked for; the slice occupies this rounded up to POOL_ALIGN */
    size_t offset;
};

/* A pool without memory: slices get NULL addresses and are added up. Allocates (host heap). */
int pool_create_plan(struct pool **out);
/* A pool of `bytes` device memory in one arena. Allocates; ERR_MEMORY says how much was asked for. */
int pool_create(struct device *, size_t bytes, struct pool **out);
/* Gives the memory back and starts over with `bytes` of new memory: no slices, not sealed, a new generation, so
 * that graphs over the old addresses refuse to run. Allocates; on error the pool is as before. */
int pool_reset(struct pool *, size_t bytes);
void pool_destroy(struct pool *);

/* Cuts the next slice; *out is a device address (NULL in a plan), 256-byte aligned, zeroed by the arena.
 * bytes 0 gives NULL and no slice. ERR_LIMIT past the end, ERR_INTERNAL after the seal, for a name used before or
 * a name of POOL_NAME_MAX bytes or more. */
int pool_slice(struct pool *, enum pool_use, const char *name, size_t bytes, void **out);

void pool_seal(struct pool *);
bool pool_is_sealed(const struct pool *);
bool pool_is_plan(const struct pool *);
size_t pool_used(const struct pool *);         /* bytes, alignment included */
size_t pool_size(const struct pool *);         /* bytes of the arena; pool_used for a plan */
uint64_t pool_generation(const struct pool *); /* unique in the process; 0 for a plan */
/* Do all of [address, address + bytes) lie in slices that were cut? */
bool pool_owns(const struct pool *, const void *address, size_t bytes);

int pool_slice_count(const struct pool *);
struct pool_slice_info pool_slice_at(const struct pool *, int index);

#endif
