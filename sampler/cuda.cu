/* The sampler's launches on CUDA but accept: the same bits as host.c from the same logits.
 *
 * A draw is one launch, each row on a team of blocks (cuda_team.cuh, cuda_distribution.cuh); the loads are one thread an
 * input. Bytes of a draw: 4 V of logits read, 4 V of p written. Built without contraction (--fmad=false): fused operations
 * are spelled out. */
#include "sampler/cuda_accept.cuh"
#include "sampler/cuda_distribution.cuh"

/* --- draw ------------------------------------------------------------------------------------------------- */

/* Writes p and draws from it; -1 for a row without a distribution. */
__device__ static int draw_id(struct team &t, struct scratch &s, const struct slot &slot, const float *logits, int n,
                              struct rule_stream from, float *p) {
    const struct part part = part_of(t, s, n, p);
    const struct top top = find_top(t, s, part, logits);
    if (top.id < 0) {
        mark_bad(t, p);
        return -1;
    }
    if (slot.sampling.temperature == 0) {
        store_one_hot(part, p, top.id);
        return top.id;
    }
    const float sum = make_weights(t, s, slot.sampling, part, n, top.logit);
#pragma unroll 4
    for (int i = threadIdx.x; i < part.count; i += THREADS) p[part.first + i] = part.x[i] = part.x[i] / sum;
    __syncthreads(); /* the race takes ids four by four */
    const u64 best =
        race_ids(part.first, part.first + part.count, slot.key, from, [&](int id) { return part.x[id - part.first]; });
    return winner_of(reduce_team<larger>(t, s, best));
}

__global__ void __launch_bounds__(THREADS, 2) draw_kernel(const struct sampler_draw op, const struct shape shape) {
    __shared__ struct scratch s;
    const struct sampler_buffers &b = op.b;
    struct team t = team_join(b.exchange, shape);
    for (int row = t.index; row < op.batch; row += t.count) {
        const int at = b.row_slot[row];
        const struct slot &slot = b.slot[at];
        const int position = slot.length + op.index;
        const bool is_live = slot.status == SLOT_LIVE, is_inert = !is_live || position >= b.draft_positions;
        int drawn = -1;
        if (is_live)
            drawn = draw_id(t, s, slot, b.draft_logits + (size_t)row * b.draft_stride, b.vocab_draft,
                            rule_stream(b.rule, slot.length, op.index, PHILOX_DRAFT_DRAW), draft_row(&b, at, op.index));
        if (t.member != 0 || threadIdx.x != 0) continue;
        if (is_live) b.drafted[at * b.k_max + op.index] = drawn;
        b.draft_tokens[row] = is_inert ? 0 : id_or_zero(drawn, b.vocab_draft);
        b.draft_positions_in[row] = is_inert ? -1 : position;
    }
}

/* --- inputs ----------------------------------------------------------------------------------------------- */

__global__ void load_pending_kernel(const struct sampler_load op) {
    const struct sampler_buffers &b = op.b;
    const int at = blockIdx.x * blockDim.x + threadIdx.x, i = at % 2;
    if (at >= 2 * op.batch) return;
    const struct slot &slot = b.slot[b.row_slot[at / 2]];
    const int position = slot.length - 2 + i;
    const bool is_inert = slot.status != SLOT_LIVE || position < 0 || position >= b.draft_positions;
    b.draft_tokens[at] = is_inert ? 0 : id_or_zero(slot.last[i], b.vocab_draft);
    b.draft_positions_in[at] = is_inert ? -1 : position;
}

__global__ void load_block_kernel(const struct sampler_load op) {
    const struct sampler_buffers &b = op.b;
    const int at = blockIdx.x * blockDim.x + threadIdx.x, j = at % (op.k + 1);
    if (at >= op.batch * (op.k + 1)) return;
    const int s = b.row_slot[at / (op.k + 1)];
    const struct slot &slot = b.slot[s];
    const bool is_live = slot.status == SLOT_LIVE;
    const int id = j == 0 ? slot.last[1] : b.drafted[s * b.k_max + j - 1];
    b.target_tokens[at] = is_live ? id_or_zero(id, b.vocab_target) : 0;
    b.target_positions[at] = is_live ? slot.length - 1 + j : -1;
}

/* --- the table -------------------------------------------------------------------------------------------- */

enum { LOAD_THREADS = 128 };

static int load_pending(struct stream *stream, const struct sampler_load *op) {
    TRY(sampler_check_shape("load_pending", &op->b, op->batch, 0));
    load_pending_kernel<<<divide_up(2 * op->batch, LOAD_THREADS), LOAD_THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "load_pending", sizeof *op);
}

static int draw(struct stream *stream, const struct sampler_draw *op) {
    TRY(sampler_check_shape("draw", &op->b, op->batch, op->index + 1));
    return launch_rows<draw_kernel>(stream, "draw", op, op->batch, op->b.vocab_draft);
}

static int load_block(struct stream *stream, const struct sampler_load *op) {
    TRY(sampler_check_shape("load_block", &op->b, op->batch, op->k));
    int blocks = divide_up(op->batch * (op->k + 1), LOAD_THREADS);
    load_block_kernel<<<blocks, LOAD_THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "load_block", sizeof *op);
}

extern "C" const struct sampler_ops *sampler_cuda(void) {
    static const struct sampler_ops ops = {load_pending, draw, load_block, cuda_accept};
    return &ops;
}
