/* The inputs of graphs on CUDA, one thread an input: the same bits as host.c. */
#include "graphs/cuda.cuh"
extern "C" {
#include "round/internal.h"
}

enum { THREADS = 128 };

__global__ void load_pending_kernel(const struct round_load op) {
    const struct round_state &b = op.b;
    const int at = blockIdx.x * blockDim.x + threadIdx.x, i = at % 2;
    if (at >= 2 * op.batch) return;
    const struct slot &slot = b.slot[b.row_slot[at / 2]];
    const int position = slot.length - 2 + i;
    const bool is_inert = slot.status != SLOT_LIVE || position < 0 || position >= b.draft_positions;
    b.draft_tokens[at] = is_inert ? 0 : id_or_zero(slot.last[i], b.vocab_input);
    b.draft_positions_in[at] = is_inert ? -1 : position;
}

__global__ void load_masks_kernel(const struct round_load op) {
    const struct round_state &b = op.b;
    const int at = blockIdx.x * blockDim.x + threadIdx.x, i = at % b.draft_block;
    if (at >= op.batch * b.draft_block) return;
    const struct slot &slot = b.slot[b.row_slot[at / b.draft_block]];
    const int position = round_block_position(&slot, i);
    b.draft_tokens[at] = position < 0 ? 0 : i > 0 ? b.draft_mask : id_or_zero(slot.last[1], b.vocab_input);
    b.draft_positions_in[at] = position;
    b.draft_sees[at] = round_block_position(&slot, b.draft_block - 1);
}

__global__ void load_block_kernel(const struct round_load op) {
    const struct round_state &b = op.b;
    const int at = blockIdx.x * blockDim.x + threadIdx.x, j = at % (op.k + 1);
    if (at >= op.batch * (op.k + 1)) return;
    const int s = b.row_slot[at / (op.k + 1)];
    const struct slot &slot = b.slot[s];
    const bool is_live = slot.status == SLOT_LIVE;
    const int id = j == 0 ? slot.last[1] : b.drafted[s * b.k_max + j - 1];
    b.target_tokens[at] = is_live ? id_or_zero(id, b.vocab_target) : 0;
    b.target_positions[at] = is_live ? slot.length - 1 + j : -1;
}

static int blocks_for(int threads) {
    return (threads + THREADS - 1) / THREADS;
}

int round_load_pending_cuda(struct stream *stream, const struct round_load *op) {
    load_pending_kernel<<<blocks_for(2 * op->batch), THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "load_pending", sizeof *op);
}

int round_load_masks_cuda(struct stream *stream, const struct round_load *op) {
    load_masks_kernel<<<blocks_for(op->batch * op->b.draft_block), THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "load_masks", sizeof *op);
}

int round_load_block_cuda(struct stream *stream, const struct round_load *op) {
    load_block_kernel<<<blocks_for(op->batch * (op->k + 1)), THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "load_block", sizeof *op);
}
