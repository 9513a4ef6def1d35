/* Draws on CUDA: the same bits as host.c from the same logits.
 *
 * A draw is one launch, each row on a team of blocks (cuda_team.cuh, cuda_distribution.cuh). Bytes: 4 V of logits read, 4 V of
 * p written. Built without contraction (--fmad=false): fused operations are spelled out. */
#include "sampler/cuda_distribution.cuh"

/* Writes the part of p that has these weights; the best of its race. */
template <bool FAST>
__device__ static u64 store_p(const struct part &part, const struct scratch &s, float *p, float sum, const int32_t *ids,
                              const struct race &race) {
    struct divisor by = divisor_of(sum);
    const int end = part.first + part.count;
    const u64 best = race_ids(race, part.first, end, ids, [&](float(&x)[4], int i) {
        load_p<FAST>(x, part, s, i - part.first, by);
        store_four<FAST>(p, i, end, x);
    });
    store_tiny(part, p, by);
    return best;
}

/* Writes p and draws from it; -1 for a row without a distribution. */
__device__ static int draw_id(struct team &t, struct scratch &s, const struct round_state &b, const struct slot &slot,
                              const float *logits, struct rule_stream from, float *p) {
    const int n = b.vocab_draft;
    const struct part part = part_of_rows(t, s, n, logits, p, slot.sampling.temperature);
    if (slot.sampling.temperature == 0) {
        const struct top top = find_top<true>(t, s, part, logits);
        if (top.id < 0) return mark_bad(t, p), -1;
        store_one_hot(part, p, top.id);
        return round_draft_id(&b, top.id);
    }
    const struct top top = find_top<false>(t, s, part, logits);
    if (top.id < 0) return mark_bad(t, p), -1;
    const float sum = make_weights(t, s, slot.sampling, part, n, top.logit);
    const int32_t *ids = b.draft_is_cut ? b.draft_ids : nullptr;
    struct race race = {slot.key, from, RACE_FLOOR, 0};
    const int end = part.first + part.count;
    u64 best = part.is_fast ? store_p<true>(part, s, p, sum, ids, race) : store_p<false>(part, s, p, sum, ids, race);
    best = reduce_team<larger>(t, s, best);
    if (is_settled(best, race.floor)) return winner_of(best);
    race.floor = 0;
    best = race_ids(race, part.first, end, ids, [&](float(&x)[4], int i) { load_four<false>(x, p, i, end); });
    return winner_of(reduce_team<larger>(t, s, best));
}

__global__ void __launch_bounds__(THREADS, BLOCKS) draw_kernel(const struct sampler_draw op, const struct shape shape) {
    __shared__ struct scratch s;
    const struct round_state &b = op.b;
    struct team t = team_join(op.sampler.exchange, shape);
    for (int row = t.index; row < op.batch; row += t.count) {
        const int at = b.row_slot[row];
        const struct slot &slot = b.slot[at];
        const bool is_live = slot.status == SLOT_LIVE;
        const int position = is_live ? rule_position(&b, slot.length, op.index) : -1;
        int drawn = -1;
        if (is_live)
            drawn =
                draw_id(t, s, b, slot, round_draft_logits(&b, row, op.index),
                        rule_stream(b.rule, slot.length, op.index, PHILOX_DRAFT_DRAW), round_p_draft(&b, at, op.index));
        if (t.member != 0 || threadIdx.x != 0) continue;
        if (is_live) {
            b.drafted[at * b.k_max + op.index] = drawn;
            b.offered[at] = rule_offered(&b, slot.length, op.index);
        }
        b.draft_tokens[row] = position < 0 ? 0 : id_or_zero(drawn, b.vocab_input);
        b.draft_positions_in[row] = position;
    }
}

int sampler_draw_cuda(struct stream *stream, const struct sampler_draw *op) {
    return launch_rows<draw_kernel>(stream, "draw", op, op->batch, op->b.vocab_draft, true);
}
