/* What does not depend on the device: sizes, buffers, checks. */
#include "round/state.h"

#include <stdlib.h>

#include "base/err.h"
#include "round/internal.h"

enum { VOCAB_MAX = 1 << 20 }; /* a purpose's numbers in the Philox offset */

const char *accept_rule_name(enum accept_rule rule) {
    static const char *const names[] = {"token", "coupled", "block"};
    return names[rule];
}

/* --- memory ----------------------------------------------------------------------------------------------- */

static int check_sizes(const struct round_state *b) {
    if (b->max_batch < 1 || b->slots < 2 || b->end_count < 0)
        return err_set(ERR_INTERNAL, "round: %d rows, %d slots and %d end ids", b->max_batch, b->slots, b->end_count);
    if (b->k_max < 0 || b->k_max > K_MAX) return err_set(ERR_LIMIT, "k is %d, expected 0 to %d", b->k_max, (int)K_MAX);
    if (b->vocab_target < 1 || b->vocab_target > VOCAB_MAX || b->vocab_draft < 0 || b->vocab_draft > VOCAB_MAX)
        return err_set(ERR_LIMIT, "vocabularies of %d and %d tokens, expected at most %d", b->vocab_target,
                       b->vocab_draft, (int)VOCAB_MAX);
    if (b->target_stride < b->vocab_target || (b->draft_stride != 0 && b->draft_stride < b->vocab_draft))
        return err_set(ERR_INTERNAL, "round: rows of %d and %d logits for %d and %d tokens", b->target_stride,
                       b->draft_stride, b->vocab_target, b->vocab_draft);
    if (b->draft_is_cut && b->vocab_draft > b->vocab_target)
        return err_set(ERR_INTERNAL, "round: a draft cut to %d ids, of %d", b->vocab_draft, b->vocab_target);
    if (b->rule < ACCEPT_TOKEN || b->rule > ACCEPT_BLOCK)
        return err_set(ERR_USAGE, "rule of acceptance %d, expected 0 to 2", (int)b->rule);
    if (b->vocab_draft == 0 && b->k_max > 0) return err_set(ERR_INTERNAL, "round: k is %d without a draft", b->k_max);
    return 0;
}

enum slice {
    SLOTS,
    ROW_SLOTS,
    END_IDS,
    SEEN,
    DRAFT_IDS,
    DRAFT_INDEX,
    DRAFT_TOKENS,
    DRAFT_POSITIONS,
    DRAFT_SEES,
    DRAFTED,
    OFFERED,
    DRAFT_LOGITS,
    P_DRAFT,
    TARGET_TOKENS,
    TARGET_POSITIONS,
    TARGET_LOGITS,
    P_TARGET,
    RECORDS,
    SLICES
};

int round_layout(struct round_state *b, struct pool *pool) {
    TRY(check_sizes(b));
    b->seen_words = (b->vocab_target + 31) / 32;
    size_t slots = (size_t)b->slots, rows = (size_t)b->max_batch, k = (size_t)b->k_max;
    size_t listed = b->draft_is_cut ? (size_t)b->vocab_draft : 0, mapped = listed > 0 ? (size_t)b->vocab_target : 0;
    size_t draft_rows = b->draft_stride > 0 ? rows : 0, block = rows * (k + 1);
    size_t first = b->draft_first > 2 ? (size_t)b->draft_first : 2, masks = b->draft_block > 0 ? rows * first : 0,
           logits = draft_rows * (b->draft_block > 0 ? (size_t)b->draft_block : 1);
    const struct {
        const char *name;
        size_t bytes;
        enum pool_use use;
    } slices[SLICES] = {
        [SLOTS] = {"slots", slots * sizeof *b->slot, POOL_SCRATCH},
        [ROW_SLOTS] = {"row slots", rows * sizeof *b->row_slot, POOL_SCRATCH},
        [END_IDS] = {"end ids", (size_t)b->end_count * sizeof *b->end_ids, POOL_SCRATCH},
        [SEEN] = {"ids seen", slots * (size_t)b->seen_words * sizeof *b->seen, POOL_SCRATCH},
        [DRAFT_IDS] = {"draft vocabulary", listed * sizeof *b->draft_ids, POOL_SCRATCH},
        [DRAFT_INDEX] = {"draft vocabulary by id", mapped * sizeof *b->draft_index, POOL_SCRATCH},
        [DRAFT_TOKENS] = {"draft tokens", draft_rows * first * sizeof *b->draft_tokens, POOL_SCRATCH},
        [DRAFT_POSITIONS] = {"draft positions", draft_rows * first * sizeof *b->draft_positions_in, POOL_SCRATCH},
        [DRAFT_SEES] = {"ends of blocks", masks * sizeof *b->draft_sees, POOL_SCRATCH},
        [DRAFTED] = {"drafted", slots * k * sizeof *b->drafted, POOL_SCRATCH},
        [OFFERED] = {"offered", k > 0 ? slots * sizeof *b->offered : 0, POOL_SCRATCH},
        [DRAFT_LOGITS] = {"draft logits", logits * (size_t)b->draft_stride * sizeof(float), POOL_LOGITS},
        [P_DRAFT] = {"p_draft", slots * k * (size_t)b->vocab_draft * sizeof(float), POOL_LOGITS},
        [TARGET_TOKENS] = {"target tokens", block * sizeof *b->target_tokens, POOL_SCRATCH},
        [TARGET_POSITIONS] = {"target positions", block * sizeof *b->target_positions, POOL_SCRATCH},
        [TARGET_LOGITS] = {"target logits", block * (size_t)b->target_stride * sizeof(float), POOL_LOGITS},
        [P_TARGET] = {"p_target", block * (size_t)b->vocab_target * sizeof(float), POOL_LOGITS},
        [RECORDS] = {"round records", rows * sizeof *b->records, POOL_SCRATCH},
    };
    void *at[SLICES];
    for (int i = 0; i < SLICES; i++) TRY(pool_slice(pool, slices[i].use, slices[i].name, slices[i].bytes, &at[i]));
    b->slot = at[SLOTS], b->row_slot = at[ROW_SLOTS], b->end_ids = at[END_IDS], b->seen = at[SEEN];
    b->draft_ids = at[DRAFT_IDS], b->draft_index = at[DRAFT_INDEX];
    b->draft_tokens = at[DRAFT_TOKENS], b->draft_positions_in = at[DRAFT_POSITIONS], b->drafted = at[DRAFTED];
    b->offered = at[OFFERED];
    b->draft_sees = b->draft_block > 0 ? at[DRAFT_SEES] : NULL;
    b->draft_logits = at[DRAFT_LOGITS], b->p_draft = at[P_DRAFT];
    b->target_tokens = at[TARGET_TOKENS], b->target_positions = at[TARGET_POSITIONS];
    b->target_logits = at[TARGET_LOGITS], b->p_target = at[P_TARGET], b->records = at[RECORDS];
    return 0;
}

int round_set_draft_ids(const struct round_state *b, struct stream *stream, const int32_t *ids) {
    const size_t bytes = (size_t)b->vocab_target * sizeof(int32_t);
    int32_t *index = malloc(bytes);
    if (!index) return err_set(ERR_MEMORY, "out of memory for a map of %d ids", b->vocab_target);
    for (int id = 0; id < b->vocab_target; id++) index[id] = -1;
    int rc = 0;
    for (int i = 0; i < b->vocab_draft && rc == 0; i++) {
        if (ids[i] < 0 || ids[i] >= b->vocab_target)
            rc = err_set(ERR_INTERNAL, "round: draft id %d of a map of %d", ids[i], b->vocab_target);
        else
            index[ids[i]] = i;
    }
    if (rc == 0) rc = stream_copy(stream, b->draft_ids, ids, (size_t)b->vocab_draft * sizeof *ids);
    if (rc == 0) rc = stream_copy(stream, b->draft_index, index, bytes);
    if (rc == 0) rc = stream_sync(stream);
    free(index);
    return rc;
}

int round_check_shape(const char *what, const struct round_state *b, int batch, int k) {
    if (batch >= 1 && batch <= b->max_batch && k >= 0 && k <= b->k_max) return 0;
    return err_set(ERR_INTERNAL, "%s: batch %d and k %d, expected at most %d and %d", what, batch, k, b->max_batch,
                   b->k_max);
}

/* --- inputs ----------------------------------------------------------------------------------------------- */

int round_load_pending(struct stream *stream, const struct round_load *op) {
    TRY(round_check_shape("load_pending", &op->b, op->batch, 0));
    bool on_gpu = device_kind(stream_device(stream)) == DEVICE_CUDA;
    return on_gpu ? round_load_pending_cuda(stream, op) : round_load_pending_host(stream, op);
}

int round_load_masks(struct stream *stream, const struct round_load *op) {
    TRY(round_check_shape("load_masks", &op->b, op->batch, 0));
    const bool on_gpu = device_kind(stream_device(stream)) == DEVICE_CUDA;
    return on_gpu ? round_load_masks_cuda(stream, op) : round_load_masks_host(stream, op);
}

int round_load_block(struct stream *stream, const struct round_load *op) {
    TRY(round_check_shape("load_block", &op->b, op->batch, op->k));
    bool on_gpu = device_kind(stream_device(stream)) == DEVICE_CUDA;
    return on_gpu ? round_load_block_cuda(stream, op) : round_load_block_host(stream, op);
}
