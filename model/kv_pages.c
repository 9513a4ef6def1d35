#include "model/kv_pages.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/err.h"

/* The free pages are a heap, the lowest on top; owners[p]: of page p, 0 where it is free; page 0 always has one. */
struct kv_pages {
    int pages, free;
    int32_t *heap; /* [free] of [pages] */
    int32_t owners[];
};

static void swap(int32_t *a, int32_t *b) {
    int32_t c = *a;
    *a = *b, *b = c;
}

static void push(struct kv_pages *p, int32_t page) {
    int at = p->free++;
    p->heap[at] = page;
    for (; at > 0 && p->heap[at] < p->heap[(at - 1) / 2]; at = (at - 1) / 2) swap(&p->heap[at], &p->heap[(at - 1) / 2]);
}

static int32_t pop(struct kv_pages *p) {
    const int32_t top = p->heap[0];
    p->heap[0] = p->heap[--p->free];
    for (int at = 0, child; (child = 2 * at + 1) < p->free; at = child) {
        if (child + 1 < p->free && p->heap[child + 1] < p->heap[child]) child++;
        if (p->heap[at] <= p->heap[child]) break;
        swap(&p->heap[at], &p->heap[child]);
    }
    return top;
}

int kv_pages_create(struct kv_pages **out, int pages) {
    *out = NULL;
    if (pages < 1) return err_set(ERR_USAGE, "a KV arena of %d pages has no page 0", pages);
    struct kv_pages *p = calloc(1, sizeof *p + (size_t)pages * sizeof *p->owners);
    int32_t *heap = calloc((size_t)pages, sizeof *heap);
    if (!p || !heap) {
        free(p);
        free(heap);
        return err_set(ERR_MEMORY, "out of memory for the bookkeeping of %d KV pages", pages);
    }
    p->pages = pages;
    p->heap = heap;
    p->owners[0] = 1;
    for (int page = 1; page < pages; page++) push(p, page);
    *out = p;
    return 0;
}

void kv_pages_destroy(struct kv_pages *p) {
    if (p) free(p->heap);
    free(p);
}

int kv_pages_free_count(const struct kv_pages *p) {
    return p->free;
}

int kv_pages_take(struct kv_pages *p, int count, int32_t *out) {
    if (count < 0) return err_set(ERR_INTERNAL, "%d KV pages asked for", count);
    if (count > p->free) return err_set(ERR_BUSY, "%d KV pages are needed, %d are free", count, p->free);
    for (int i = 0; i < count; i++) {
        out[i] = pop(p);
        p->owners[out[i]] = 1;
    }
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
        push(p, page);
    }
}
