/* N-gram lookup as host and GPU share it; the launches of either device. */
#ifndef DUET_DRAFT_NGRAM_INTERNAL_H
#define DUET_DRAFT_NGRAM_INTERNAL_H

#include "draft/ngram.h"

int ngram_search_host(struct stream *, const struct ngram_search *);
int ngram_search_cuda(struct stream *, const struct ngram_search *);

/* The rank of the occurrence that ends at position `end` < n - 1 of a history t[0..n-1]: longer ones first, then later ones; 0 if
 * it is shorter than NGRAM_LEAST. */
DUET_INLINE uint64_t ngram_rank(const int32_t *t, int n, int end) {
    int length = 0;
    while (length < NGRAM_MOST && length <= end && t[end - length] == t[n - 1 - length]) length++;
    return length < NGRAM_LEAST ? 0 : (uint64_t)length << 32 | (uint32_t)end;
}

/* Tokens that a round of k has after the occurrence of this rank; the first of them lies at ngram_next. */
DUET_INLINE int ngram_next(uint64_t rank) {
    return (int)(uint32_t)rank + 1;
}
DUET_INLINE int ngram_count(uint64_t rank, int n, int k) {
    int left = rank > 0 ? n - ngram_next(rank) : 0;
    return left < k ? left : k;
}

/* Makes `token` (-1: none) drafted token j of a slot. */
DUET_INLINE void ngram_store(const struct round_state *b, int slot, int j, int token) {
    int32_t *drafted = &b->drafted[slot * b->k_max + j];
    float *q = round_p_draft(b, slot, j);
    if (*drafted >= 0) q[*drafted] = 0;
    if (token >= 0) q[token] = 1;
    *drafted = token;
}

#endif
