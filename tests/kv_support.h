/* Comparing the caches of two sequences, of one engine or two. */
#ifndef DUET_TESTS_KV_SUPPORT_H
#define DUET_TESTS_KV_SUPPORT_H

#include "engine/probe.h"

struct kv_owner {
    struct engine *engine;
    const struct sequence *sequence;
};

/* ck_asserts that positions 0..positions-1 hold the same bits in all layers. */
void must_equal_kv(struct kv_owner got, struct kv_owner expected, enum probe_model, int positions, const char *what);
/* The same up to rounding, for kernels that sum in another order: at every position, of keys and of values, the difference's
 * norm is at most `tolerance` of the layer's root mean square norm. */
void must_be_close_kv(struct kv_owner got, struct kv_owner expected, enum probe_model, int positions, double tolerance,
                      const char *what);

#endif
