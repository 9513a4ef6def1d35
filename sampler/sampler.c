/* What does not depend on the device: checks, scratch, seeds. */
#include "sampler/sampler.h"

#include <errno.h>
#include <math.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/err.h"
#include "sampler/internal.h"

int sampling_check(const struct sampling *s) {
    if (!(s->temperature >= 0 && isfinite(s->temperature)))
        return err_set(ERR_USAGE, "temperature is %g, expected 0 or more", (double)s->temperature);
    if (s->top_k < 0) return err_set(ERR_USAGE, "top_k is %d, expected 0 (off) or more", s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return err_set(ERR_USAGE, "top_p is %g, expected above 0 and at most 1 (off)", (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p < 1))
        return err_set(ERR_USAGE, "min_p is %g, expected 0 (off) or more and below 1", (double)s->min_p);
    const float penalty = s->repetition_penalty;
    if (penalty != 0 && !(penalty >= PENALTY_MIN && penalty <= PENALTY_MAX))
        return err_set(ERR_USAGE, "repetition_penalty is %g, expected %g to %g (1: off)", (double)penalty,
                       (double)PENALTY_MIN, (double)PENALTY_MAX);
    return 0;
}

/* --- launches --------------------------------------------------------------------------------------------- */

int sampler_layout(struct sampler *s, const struct device *device, const struct round_state *b, struct pool *pool) {
    int rows = b->max_batch * (b->k_max + 1), teams = rows < SAMPLER_TEAMS ? rows : SAMPLER_TEAMS;
    void *at = NULL;
    if (device_kind(device) == DEVICE_CUDA)
        TRY(pool_slice(pool, POOL_SCRATCH, "sampler teams", (size_t)teams * sizeof *s->exchange, &at));
    s->exchange = at;
    return 0;
}

int sampler_draw(struct stream *stream, const struct sampler_draw *op) {
    TRY(round_check_shape("draw", &op->b, op->batch, op->index + 1));
    if (op->b.penalises)
        TRY(sampler_penalise(stream,
                             &(struct penalise){op->b, .batch = op->batch, .index = op->index, .of_draft = true}));
    bool on_gpu = device_kind(stream_device(stream)) == DEVICE_CUDA;
    return on_gpu ? sampler_draw_cuda(stream, op) : sampler_draw_host(stream, op);
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
