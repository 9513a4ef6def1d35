/* Draws on CUDA: the same bits as host.c from the same logits.
 *
 * A draw is one launch, each row on a team of blocks (cuda_team.cuh, cuda_distribution.cuh). Bytes: 4 V of logits read, 4 V of
 * p written. Built without contraction (--fmad=false): fused operations are spelled out. */
#include "sampler/cuda_distribution.cuh"

/* Writes p and draws from it; -1 for a row without a distribution. */
__device__ static int draw_id(struct team &t, struct scratch &s, const struct round_state &b, const struct slot &slot,
                              const float *logits, struct rule_stream from, float *p) {
    const int n = b.vocab_draft;
    const struct part part = part_of(t, s, n, p);
    const struct top top = find_top(t, s, part, logits);
    if (top.id < 0) {
        mark_bad(t, p);
        return -1;
    }
    if (slot.sampling.temperature == 0) {
        store_one_hot(part, p, top.id);
        return round_draft_id(&b, top.id);
    }
    const float sum = make_weights(t, s, slot.sampling, part, n, top.logit);
#pragma unroll 4
    for (int i = threadIdx.x; i < part.count; i += THREADS) p[part.first + i] = part.x[i] = part.x[i] / sum;
    __syncthreads(); /* the race takes ids four by four */
    const int end = part.first + part.count;
    const auto value = [&](int i) { return part.x[i - part.first]; };
    const u64 best = b.draft_is_cut ? race_listed(part.first, end, b.draft_ids, slot.key, from, value)
                                    : race_ids(part.first, end, slot.key, from, value);
    return winner_of(reduce_team<larger>(t, s, best));
}

__global__ void __launch_bounds__(THREADS, 2) draw_kernel(const struct sampler_draw op, const struct shape shape) {
    __shared__ struct scratch s;
    const struct round_state &b = op.b;
    struct team t = team_join(op.sampler.exchange, shape);
    for (int row = t.index; row < op.batch; row += t.count) {
        const int at = b.row_slot[row];
        const struct slot &slot = b.slot[at];
        const int position = slot.length + op.index;
        const bool is_live = slot.status == SLOT_LIVE, is_inert = !is_live || position >= b.draft_positions;
        int drawn = -1;
        if (is_live)
            drawn =
                draw_id(t, s, b, slot, b.draft_logits + (size_t)row * b.draft_stride,
                        rule_stream(b.rule, slot.length, op.index, PHILOX_DRAFT_DRAW), round_p_draft(&b, at, op.index));
        if (t.member != 0 || threadIdx.x != 0) continue;
        if (is_live) {
            b.drafted[at * b.k_max + op.index] = drawn;
            b.offered[at] = rule_offered(slot.length, op.index, b.draft_positions);
        }
        b.draft_tokens[row] = is_inert ? 0 : id_or_zero(drawn, b.vocab_input);
        b.draft_positions_in[row] = is_inert ? -1 : position;
    }
}

int sampler_draw_cuda(struct stream *stream, const struct sampler_draw *op) {
    return launch_rows<draw_kernel>(stream, "draw", op, op->batch, op->b.vocab_draft);
}
