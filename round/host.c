/* The inputs of graphs on the host device. */
#include "round/internal.h"

static int run_load_pending(const void *args) {
    const struct round_load *op = args;
    const struct round_state *b = &op->b;
    for (int row = 0; row < op->batch; row++) {
        const struct slot *slot = &b->slot[b->row_slot[row]];
        for (int i = 0; i < 2; i++) {
            int position = slot->length - 2 + i;
            bool inert = slot->status != SLOT_LIVE || position < 0 || position >= b->draft_positions;
            b->draft_tokens[2 * row + i] = inert ? 0 : id_or_zero(slot->last[i], b->vocab_input);
            b->draft_positions_in[2 * row + i] = inert ? -1 : position;
        }
    }
    return 0;
}

static int run_load_masks(const void *args) {
    const struct round_load *op = args;
    const struct round_state *b = &op->b;
    for (int at = 0; at < op->batch * b->draft_block; at++) {
        const struct slot *slot = &b->slot[b->row_slot[at / b->draft_block]];
        const int i = at % b->draft_block, position = round_block_position(slot, i);
        b->draft_tokens[at] = position < 0 ? 0 : i > 0 ? b->draft_mask : id_or_zero(slot->last[1], b->vocab_input);
        b->draft_positions_in[at] = position;
        b->draft_sees[at] = round_block_position(slot, b->draft_block - 1);
    }
    return 0;
}

static int run_load_block(const void *args) {
    const struct round_load *op = args;
    const struct round_state *b = &op->b;
    for (int row = 0; row < op->batch; row++) {
        int s = b->row_slot[row];
        const struct slot *slot = &b->slot[s];
        bool live = slot->status == SLOT_LIVE;
        for (int j = 0; j <= op->k; j++) {
            int id = j == 0 ? slot->last[1] : b->drafted[s * b->k_max + j - 1];
            size_t at = (size_t)row * (size_t)(op->k + 1) + (size_t)j;
            b->target_tokens[at] = live ? id_or_zero(id, b->vocab_target) : 0;
            b->target_positions[at] = live ? slot->length - 1 + j : -1;
        }
    }
    return 0;
}

int round_load_pending_host(struct stream *stream, const struct round_load *op) {
    return stream_run_host(stream, run_load_pending, op, sizeof *op);
}

int round_load_masks_host(struct stream *stream, const struct round_load *op) {
    return stream_run_host(stream, run_load_masks, op, sizeof *op);
}

int round_load_block_host(struct stream *stream, const struct round_load *op) {
    return stream_run_host(stream, run_load_block, op, sizeof *op);
}
