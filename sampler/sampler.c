/* What does not depend on the device: buffers, checks, seeds, launch counts. */
#include "sampler/sampler.h"

#include <errno.h>
#include <math.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/err.h"
#include "sampler/internal.h"

enum { VOCAB_MAX = 1 << 20 }; /* a purpose's numbers in the Philox offset */

int sampling_check(const struct sampling *s) {
    if (!(s->temperature >= 0 && isfinite(s->temperature)))
        return err_set(ERR_USAGE, "temperature is %g, expected 0 or more", (double)s->temperature);
    if (s->top_k < 0) return err_set(ERR_USAGE, "top_k is %d, expected 0 (off) or more", s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return err_set(ERR_USAGE, "top_p is %g, expected above 0 and at most 1 (off)", (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p < 1))
        return err_set(ERR_USAGE, "min_p is %g, expected 0 (off) or more and below 1", (double)s->min_p);
    return 0;
}

const char *accept_rule_name(enum accept_rule rule) {
    static const char *const names[] = {"token", "coupled", "block"};
    return names[rule];
}

static int check_sizes(const struct sampler_buffers *b) {
    if (b->max_batch < 1 || b->slots < 2 || b->end_count < 0)
        return err_set(ERR_INTERNAL, "sampler: %d rows, %d slots and %d end ids", b->max_batch, b->slots, b->end_count);
    if (b->k_max < 0 || b->k_max > K_MAX) return err_set(ERR_LIMIT, "k is %d, expected 0 to %d", b->k_max, (int)K_MAX);
    if (b->vocab_target < 1 || b->vocab_target > VOCAB_MAX || b->vocab_draft < 0 || b->vocab_draft > VOCAB_MAX)
        return err_set(ERR_LIMIT, "vocabularies of %d and %d tokens, expected at most %d", b->vocab_target,
                       b->vocab_draft, (int)VOCAB_MAX);
    if (b->target_stride < b->vocab_target || b->draft_stride < b->vocab_draft)
        return err_set(ERR_INTERNAL, "sampler: rows of %d and %d logits for %d and %d tokens", b->target_stride,
                       b->draft_stride, b->vocab_target, b->vocab_draft);
    if (b->rule < ACCEPT_TOKEN || b->rule > ACCEPT_BLOCK)
        return err_set(ERR_USAGE, "rule of acceptance %d, expected 0 to 2", (int)b->rule);
    if (b->vocab_draft == 0 && b->k_max > 0) return err_set(ERR_INTERNAL, "sampler: k is %d without a draft", b->k_max);
    return 0;
}

enum slice {
    SLOTS,
    ROW_SLOTS,
    END_IDS,
    DRAFT_TOKENS,
    DRAFT_POSITIONS,
    DRAFTED,
    DRAFT_LOGITS,
    P_DRAFT,
    TARGET_TOKENS,
    TARGET_POSITIONS,
    TARGET_LOGITS,
    P_TARGET,
    RECORDS,
    OVERLAP,
    VERDICTS,
    EXCHANGE,
    SLICES
};

int sampler_layout(struct sampler_buffers *b, struct pool *pool) {
    TRY(check_sizes(b));
    size_t slots = (size_t)b->slots, rows = (size_t)b->max_batch, k = (size_t)b->k_max;
    size_t draft_rows = b->vocab_draft > 0 ? rows : 0, block = rows * (k + 1);
    const struct {
        const char *name;
        size_t bytes;
    } slices[SLICES] = {
        [SLOTS] = {"slots", slots * sizeof *b->slot},
        [ROW_SLOTS] = {"row slots", rows * sizeof *b->row_slot},
        [END_IDS] = {"end ids", (size_t)b->end_count * sizeof *b->end_ids},
        [DRAFT_TOKENS] = {"draft tokens", draft_rows * 2 * sizeof *b->draft_tokens},
        [DRAFT_POSITIONS] = {"draft positions", draft_rows * 2 * sizeof *b->draft_positions_in},
        [DRAFTED] = {"drafted", slots * k * sizeof *b->drafted},
        [DRAFT_LOGITS] = {"draft logits", draft_rows * (size_t)b->draft_stride * sizeof(float)},
        [P_DRAFT] = {"p_draft", slots * k * (size_t)b->vocab_draft * sizeof(float)},
        [TARGET_TOKENS] = {"target tokens", block * sizeof *b->target_tokens},
        [TARGET_POSITIONS] = {"target positions", block * sizeof *b->target_positions},
        [TARGET_LOGITS] = {"target logits", block * (size_t)b->target_stride * sizeof(float)},
        [P_TARGET] = {"p_target", block * (size_t)b->vocab_target * sizeof(float)},
        [RECORDS] = {"round records", rows * sizeof *b->records},
        [OVERLAP] = {"overlap sums", block * sizeof *b->overlap},
        [VERDICTS] = {"verdicts", block * sizeof *b->verdicts},
        [EXCHANGE] = {"sampler teams", (block < SAMPLER_TEAMS ? block : SAMPLER_TEAMS) * sizeof *b->exchange},
    };
    void *at[SLICES];
    for (int i = 0; i < SLICES; i++) TRY(pool_slice(pool, slices[i].name, slices[i].bytes, &at[i]));
    b->slot = at[SLOTS], b->row_slot = at[ROW_SLOTS], b->end_ids = at[END_IDS];
    b->draft_tokens = at[DRAFT_TOKENS], b->draft_positions_in = at[DRAFT_POSITIONS], b->drafted = at[DRAFTED];
    b->draft_logits = at[DRAFT_LOGITS], b->p_draft = at[P_DRAFT];
    b->target_tokens = at[TARGET_TOKENS], b->target_positions = at[TARGET_POSITIONS];
    b->target_logits = at[TARGET_LOGITS], b->p_target = at[P_TARGET], b->records = at[RECORDS];
    b->overlap = at[OVERLAP], b->verdicts = at[VERDICTS], b->exchange = at[EXCHANGE];
    return 0;
}

int sampler_check_shape(const char *what, const struct sampler_buffers *b, int batch, int k) {
    if (batch >= 1 && batch <= b->max_batch && k >= 0 && k <= b->k_max) return 0;
    return err_set(ERR_INTERNAL, "sampler %s: batch %d and k %d, expected at most %d and %d", what, batch, k,
                   b->max_batch, b->k_max);
}

/* A draw is one launch; accept is one on the host. On CUDA it is two, p_target and the rule, and between them, for blocks of
 * more than one token, what the carries leave of p_target. */
int sampler_launches(const struct device *device, const struct sampler_buffers *b, int k) {
    if (device_kind(device) != DEVICE_CUDA) return k + 1;
    return k + (is_by_block(b) && k > 1 ? 3 : 2);
}

/* --- seeds ------------------------------------------------------------------------------------------------ */

static const uint64_t seed_mask = ((uint64_t)1 << 53) - 1;

/* Every step is one-to-one on 53 bits: xor of a right shift, odd factors and sums modulo 2^53. */
static uint64_t mix_53(uint64_t z) {
    z ^= z >> 27;
    z = z * 0xBF58476D1CE4E5B9u & seed_mask;
    z ^= z >> 25;
    z = z * 0x94D049BB133111EBu & seed_mask;
    return z ^ z >> 28;
}

uint64_t seed_for_record(uint64_t run_seed, uint64_t record) {
    uint64_t base = mix_53(run_seed & seed_mask) + mix_53(run_seed >> 53);
    return mix_53((base + record * 0x9E3779B97F4A7C15u) & seed_mask);
}

uint64_t seed_random(void) {
    uint64_t seed;
    ssize_t got;
    do got = getrandom(&seed, sizeof seed, 0);
    while (got < 0 && errno == EINTR);
    if (got != sizeof seed) seed = mix_53((uint64_t)clock_us() & seed_mask); /* a kernel without getrandom */
    return seed & seed_mask;
}
