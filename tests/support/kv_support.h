/* Comparing the caches of two sequences, of one engine or two; engines and requests for tests of caches. */
#ifndef DUET_TESTS_KV_SUPPORT_H
#define DUET_TESTS_KV_SUPPORT_H

#include "engine/probe.h"
#include "tests/support/engine_support.h"

struct kv_owner {
    struct engine *engine;
    const struct sequence *sequence;
};

/* ck_asserts that positions 0..positions-1 hold the same bits in all layers. */
void must_equal_kv(struct kv_owner got, struct kv_owner expected, enum probe_model, int positions, const char *what);
/* The same up to rounding, for kernels that sum in another order: of keys and of values, the difference's norm is at most
 * 0.05 of the layer's root mean square norm, and at any one position `worst` of it. */
void must_be_close_kv(struct kv_owner got, struct kv_owner expected, enum probe_model, int positions, double worst,
                      const char *what);

/* Decoded rows and prefilled ones have the same bits where the kernels sum in the same order: always on the host, on CUDA when
 * prefill takes decoding's kernels too, as it does in this engine. */
struct engine *must_open_exact(const struct engine_options *);
/* The caches of `s` hold what the prefill of a second engine gives, which must_open_exact made and which has no sequences; on
 * CUDA its cuBLAS prefill gives it up to rounding. */
void must_equal_fresh_prefill(struct engine *e, const struct sequence *s, struct engine *fresh, const char *what);

/* The target as its own draft. */
struct pair self_pair(const struct pair *);
/* A pair with a sliding window of 16 where the test data has it, else the embedded one. */
struct engine_options windowed_options(int k, int max_batch);
/* With its first answer a sequence takes its slot and pages: here, without one. */
void must_take_pages(struct engine *e, struct sequence *s, const struct request *);
/* `n` ids that depend on `id`, no end ids. */
struct request filler_request(int id, int n, int max_tokens);

#endif
