#include "graphs/pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct pool {
    struct device *device; /* NULL: a plan */
    char *arena;
    size_t size, used; /* used is a multiple of POOL_ALIGN */
    uint64_t generation;
    bool sealed;
    struct pool_slice_info *slices; /* [count] */
    int count, cap;
};

static uint64_t next_generation(void) {
    static _Atomic uint64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

int pool_create_plan(struct pool **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return err_set(ERR_MEMORY, "no memory for a pool plan");
    return 0;
}

int pool_create(struct device *d, size_t bytes, struct pool **out) {
    TRY(pool_create_plan(out));
    (*out)->device = d;
    int rc = pool_reset(*out, bytes);
    if (rc != 0) {
        pool_destroy(*out);
        *out = NULL;
    }
    return rc;
}

int pool_reset(struct pool *p, size_t bytes) {
    if (!p->device) return err_set(ERR_INTERNAL, "pool_reset of a plan");
    void *arena;
    int rc = device_alloc_arena(p->device, bytes, &arena);
    if (rc != 0) return err_prefix(rc, "memory pool");
    device_free_arena(p->device, p->arena, p->size);
    p->arena = arena;
    p->size = bytes;
    p->used = 0;
    p->count = 0;
    p->sealed = false;
    p->generation = next_generation();
    return 0;
}

void pool_destroy(struct pool *p) {
    if (!p) return;
    if (p->device) device_free_arena(p->device, p->arena, p->size);
    free(p->slices);
    free(p);
}

static int check_slice(const struct pool *p, const char *name) {
    if (p->sealed) return err_set(ERR_INTERNAL, "pool slice '%s' was asked for after the seal", name);
    if (strlen(name) >= POOL_NAME_MAX)
        return err_set(ERR_INTERNAL, "pool slice '%s': the name is longer than %d bytes", name, POOL_NAME_MAX - 1);
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->slices[i].name, name) == 0) return err_set(ERR_INTERNAL, "pool slice '%s' was cut before", name);
    return 0;
}

static int append_slice(struct pool *p, enum pool_use use, const char *name, size_t bytes) {
    if (p->count == p->cap) {
        int cap = p->cap ? 2 * p->cap : 64;
        struct pool_slice_info *slices = realloc(p->slices, (size_t)cap * sizeof *slices);
        if (!slices) return err_set(ERR_MEMORY, "no memory for the pool's table of %d slices", cap);
        p->slices = slices;
        p->cap = cap;
    }
    struct pool_slice_info *slice = &p->slices[p->count++];
    memset(slice, 0, sizeof *slice);
    memcpy(slice->name, name, strlen(name));
    slice->use = use;
    slice->bytes = bytes;
    slice->offset = p->used;
    return 0;
}

int pool_slice(struct pool *p, enum pool_use use, const char *name, size_t bytes, void **out) {
    *out = NULL;
    TRY(check_slice(p, name));
    size_t limit = p->device ? p->size : SIZE_MAX, left = limit - p->used;
    size_t padding = (POOL_ALIGN - bytes % POOL_ALIGN) % POOL_ALIGN;
    if (bytes > left || padding > left - bytes)
        return err_set(ERR_LIMIT, "pool slice '%s' needs %zu bytes, %zu of %zu are left", name, bytes, left, limit);
    if (bytes == 0) return 0;
    TRY(append_slice(p, use, name, bytes));
    if (p->device) *out = p->arena + p->used;
    p->used += bytes + padding;
    return 0;
}

void pool_seal(struct pool *p) {
    p->sealed = true;
}

bool pool_is_sealed(const struct pool *p) {
    return p->sealed;
}

bool pool_is_plan(const struct pool *p) {
    return !p->device;
}

size_t pool_used(const struct pool *p) {
    return p->used;
}

size_t pool_size(const struct pool *p) {
    return p->device ? p->size : p->used;
}

uint64_t pool_generation(const struct pool *p) {
    return p->generation;
}

bool pool_owns(const struct pool *p, const void *address, size_t bytes) {
    if (!p->arena || !address) return false;
    uintptr_t start = (uintptr_t)p->arena, at = (uintptr_t)address;
    return at >= start && at - start < p->used && bytes <= p->used - (at - start);
}

int pool_slice_count(const struct pool *p) {
    return p->count;
}

struct pool_slice_info pool_slice_at(const struct pool *p, int index) {
    return p->slices[index];
}
