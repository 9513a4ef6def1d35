/* What the suites of the sampler share: buffers on the host device, a round driven by logits that the test makes up,
 * and the filtered distribution in double by brute force. */
#ifndef DUET_TESTS_SAMPLER_SUPPORT_H
#define DUET_TESTS_SAMPLER_SUPPORT_H

#include <check.h>
#include <stdbool.h>

#include "verify/verify.h"

struct rig {
    struct device *device;
    struct stream *stream;
    struct pool *pool;
    struct round_state b; /* host memory */
    /* Launches get `there`: b on the host; on another device buffers of its own, the twins of b, copied there before a launch
     * of rig_* and back after it. */
    struct round_state there;
    struct sampler sampler; /* and their scratch */
    struct verify verify;
    size_t state_bytes;   /* of the pool */
    struct device *other; /* NULL on the host */
    struct pool *other_pool;
};

/* Sizes in `sizes` as for round_layout (strides of 0: the map's size); end ids are copied. On test_device(). */
void rig_open(struct rig *, const struct round_state *sizes, const int32_t *end_ids, int threads);
void rig_open_on(struct rig *, const char *device, const struct round_state *sizes, const int32_t *end_ids,
                 int threads);
void rig_close(struct rig *);

/* Of sizes with draft_is_cut: the ids [vocab_draft], ascending. */
void rig_cut_draft(struct rig *, const int32_t *ids);

/* A live slot with `n` committed tokens of which `pending` is the last, to emit at most `room` more. */
void rig_start(struct rig *, int slot, int n, int pending, int room, struct sampling, uint64_t key);

/* The made-up models: logits after `token` at `position`. */
typedef void (*logits_fn)(void *user, int token, int position, float *logits);

/* Copies b to the buffers there, and back; nothing on the host. */
void rig_send(struct rig *);
void rig_fetch(struct rig *);

/* One launch each. */
void rig_load_pending(struct rig *, int batch, int k);
void rig_draw(struct rig *, int batch, int index);
void rig_load_block(struct rig *, int batch, int k);
void rig_accept(struct rig *, int batch, int k);

/* Rounds in parts; `batch` rows, row_slot as it is. Logits are made from what the loads wrote. */
void rig_draft(struct rig *, int batch, int k, logits_fn draft, void *user);
void rig_score(struct rig *, int batch, int k, logits_fn target, void *user);

/* Two made-up models that count: the target after token t prefers t + 1; the draft agrees except after `disagree`. */
struct counting {
    int vocab_target, vocab_draft, disagree;
    bool sharp; /* logits of an outright preference, else soft ones that depend on the position too */
};
void counting_target(void *user, int token, int position, float *logits);
void counting_draft(void *user, int token, int position, float *logits);

/* The definition of sampler.h in double precision, by sorting. */
void reference_distribution(const struct sampling *, const float *logits, int vocab, double *p);

#endif
