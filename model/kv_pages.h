/* The page allocator: which pages of the KV arena belong to which slot. Host bookkeeping alone.
 *
 * Both models share page numbers: a page table row serves the target's and the draft's cache. Page 0 is the dummy
 * page of padding rows and is never handed out. Rollback is a length, never a page.
 *
 * What a page holds of a layer's keys, and of its values likewise (kv_part_start, model/operands.h):
 *   f32 or 16 bits   [HKV] of {numbers [PAGE, DH]}
 *   FP8 (KV_FP8)     [HKV] of {E4M3 numbers [PAGE, DH], their scales [PAGE], E8M0}
 * A vector, one position's key or value of one head, is written whole: its numbers and its scale depend on nothing but itself. So
 * positions that were drafted and rejected, and are written over, leave no trace in those beside them, and a sequence's bits do not
 * depend on how its positions were grouped into passes. Which scale, and what zeros, infinities and NaN become: model/fp8.h. */
#ifndef DUET_MODEL_KV_PAGES_H
#define DUET_MODEL_KV_PAGES_H

#include <stdint.h>

struct kv_pages;

int kv_pages_create(struct kv_pages **out, int pages); /* pages in all, page 0 included; allocates */
void kv_pages_destroy(struct kv_pages *);
int kv_pages_free_count(const struct kv_pages *);
static inline int kv_pages_for(int64_t tokens, int page) {
    return (int)((tokens + page - 1) / page);
}
/* Takes `count` pages, ascending, all or none: ERR_BUSY if fewer are free. Each has one owner. */
int kv_pages_take(struct kv_pages *, int count, int32_t *out);
/* One owner more of each: whole pages whose positions are all committed may serve several sequences. ERR_INTERNAL, and no owner more,
 * if one of them is not taken. */
int kv_pages_share(struct kv_pages *, int count, const int32_t *pages);
/* One owner less of each, in any order; a page without owners is free. One that is not taken is left as it is, with an ERR_INTERNAL
 * sentence in err_message. */
void kv_pages_give(struct kv_pages *, int count, const int32_t *pages);

#endif
