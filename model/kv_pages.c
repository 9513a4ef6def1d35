#include "model/kv_pages.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/err.h"

/* owners[p]: of page p, 0 where it is free; page 0 always has one. `lowest` is at or below the lowest free page. */
struct kv_pages {
    int pages, free, lowest;
    int32_t owners[];
};

int kv_pages_create(struct kv_pages **out, int pages) {
    *out = NULL;
    if (pages < 1) return err_set(ERR_USAGE, "a KV arena of %d pages has no page 0", pages);
    struct kv_pages *p = calloc(1, sizeof *p + (size_t)pages * sizeof *p->owners);
    if (!p) return err_set(ERR_MEMORY, "out of memory for the bookkeeping of %d KV pages", pages);
    p->pages = pages;
    p->free = pages - 1;
    p->lowest = 1;
    p->owners[0] = 1;
    *out = p;
    return 0;
}

void kv_pages_destroy(struct kv_pages *p) {
    free(p);
}

int kv_pages_free_count(const struct kv_pages *p) {
    return p->free;
}

int kv_pages_take(struct kv_pages *p, int count, int32_t *out) {
    if (count < 0) return err_set(ERR_INTERNAL, "%d KV pages asked for", count);
    if (count > p->free) return err_set(ERR_BUSY, "%d KV pages are needed, %d are free", count, p->free);
    int page = p->lowest;
    for (int i = 0; i < count; page++) {
        if (p->owners[page] > 0) continue;
        p->owners[page] = 1;
        out[i++] = page;
    }
    p->lowest = page;
    p->free -= count;
    return 0;
}

static bool is_taken(const struct kv_pages *p, int32_t page) {
    return page >= 1 && page < p->pages && p->owners[page] > 0;
}

int kv_pages_share(struct kv_pages *p, int count, const int32_t *pages) {
    for (int i = 0; i < count; i++)
        if (!is_taken(p, pages[i])) return err_set(ERR_INTERNAL, "KV page %d is shared but not taken", (int)pages[i]);
    for (int i = 0; i < count; i++) p->owners[pages[i]]++;
    return 0;
}

void kv_pages_give(struct kv_pages *p, int count, const int32_t *pages) {
    for (int i = 0; i < count; i++) {
        int32_t page = pages[i];
        if (!is_taken(p, page)) {
            err_set(ERR_INTERNAL, "KV page %d is given back but not taken", (int)page);
            continue;
        }
        if (--p->owners[page] > 0) continue;
        p->free++;
        if (page < p->lowest) p->lowest = page;
    }
}
