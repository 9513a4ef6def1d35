/* The tests' own launches between the sampler's, so that rounds of the made-up models follow each other on the device and
 * nobody waits: requests are dealt to the slots, rows placed, logits looked up, state spoilt for the controls.
 *
 * The bodies are the same on the host (chain_host.c) and on a GPU (chain_cuda.cu). */
#ifndef DUET_TESTS_CHAIN_OPS_H
#define DUET_TESTS_CHAIN_OPS_H

#include <math.h>
#include <stdbool.h>

#include "round/state.h"

enum { CHAIN_BATCH_MAX = 64 };

/* Each slot of 1..batch that is not live, in the order of the rows of the round before, takes the next request of the deck.
 * Then the live ones get rows, in an order that moves by one each round; the rest is padding, at least one row. */
struct chain_deal {
    struct slot *slots;      /* [batch + 1] */
    int32_t *row_slot;       /* [batch + 1] */
    const struct slot *deck; /* [end] */
    int32_t *next;           /* of the deck */
    int32_t *round;          /* counted here, so that many rounds can be one graph */
    int32_t end, batch;
    int32_t *history; /* [batch + 1, capacity] where the request's first tokens go too; NULL: nowhere */
    int32_t capacity;
    const int32_t *prefix; /* [2, length of a new request] these tokens, by the pending one */
};

DUET_INLINE void chain_put_history(int32_t *history, const int32_t *prefix, const struct slot *slot) {
    for (int i = 0; i < slot->length; i++) history[i] = prefix[slot->last[1] * slot->length + i];
}

DUET_INLINE int chain_slot_at(int i, int round, int batch) {
    return 1 + (i + round) % batch;
}

DUET_INLINE void chain_deal_run(const struct chain_deal *op) {
    int batch = op->batch, round = (*op->round)++, rows = 0;
    uint64_t live = 0; /* by slot - 1 */
    for (int i = 0; i < batch; i++) live |= (uint64_t)(op->slots[1 + i].status == SLOT_LIVE) << i;
    for (int i = 0; i < batch; i++) {
        int slot = chain_slot_at(i, round + batch - 1, batch);
        if (live >> (slot - 1) & 1 || *op->next == op->end) continue;
        op->slots[slot] = op->deck[(*op->next)++];
        if (op->history) chain_put_history(op->history + slot * op->capacity, op->prefix, &op->slots[slot]);
        live |= (uint64_t)1 << (slot - 1);
    }
    for (int i = 0; i < batch; i++) {
        int slot = chain_slot_at(i, round, batch);
        if (live >> (slot - 1) & 1) op->row_slot[rows++] = slot;
    }
    for (; rows <= batch; rows++) op->row_slot[rows] = 0;
}

/* Logits of `count` rows: those of tokens[i * step] at positions[i * step]. */
struct chain_gather {
    const float *table; /* [2, ids, width] by the position's parity and the token */
    int32_t ids, width;
    const int32_t *tokens, *positions;
    int32_t step, count;
    float *logits; /* [count, stride], of each row the first `vocab` written */
    int32_t stride, vocab;
};

/* Element `at` of [count, vocab]; NaN after a token that the model does not have. */
DUET_INLINE void chain_gather_run(const struct chain_gather *op, int at) {
    int row = at / op->vocab, id = at % op->vocab;
    int token = op->tokens[row * op->step], parity = op->positions[row * op->step] & 1;
    bool is_known = token >= 0 && token < op->ids;
    op->logits[row * op->stride + id] = is_known ? op->table[(parity * op->ids + token) * op->width + id] : NAN;
}

/* --- the sampler's state spoilt ------------------------------------------------------------------------------------ */

enum chain_fault {
    CHAIN_NO_FAULT,
    CHAIN_OTHER_HOT,     /* the 1 of a one-hot q stands at another id than the proposed one */
    CHAIN_NEXT_POSITION, /* every q becomes the one of the next position */
    CHAIN_NEXT_SLOT,     /* every slot's q becomes that of the next slot: q by row where rows have moved */
    CHAIN_FLAT,          /* q is stored unsharpened: drawn at T, kept at T = 1 */
    CHAIN_UNFILTERED, /* the draft draws from all ids; the target, and q at acceptance, have the best CHAIN_TOP_K alone */
    CHAIN_PEEK        /* nothing is spoilt, but K is chosen by what was drafted behind a rejection */
};
enum { CHAIN_TOP_K = 3 };

struct chain_spoil {
    struct round_state b;
    enum chain_fault fault;
    bool is_drafted; /* after the last drafted token of a round, else before the first */
};

DUET_INLINE float *chain_q(const struct round_state *b, int slot) {
    return b->p_draft + slot * b->k_max * b->vocab_draft;
}

/* Or back again. */
DUET_INLINE void chain_move_ones(const struct round_state *b, bool back) {
    for (int row = 0; row < b->slots * b->k_max; row++) {
        int id = b->drafted[row];
        float *q = b->p_draft + row * b->vocab_draft;
        if (id >= 0) q[id] = back, q[(id + 1) % b->vocab_draft] = !back;
    }
}

DUET_INLINE void chain_rotate(const struct round_state *b) {
    int row = b->k_max * b->vocab_draft;
    for (int i = 0; i < row; i++) {
        float first = chain_q(b, 1)[i];
        for (int slot = 1; slot + 1 < b->slots; slot++) chain_q(b, slot)[i] = chain_q(b, slot + 1)[i];
        chain_q(b, b->slots - 1)[i] = first;
    }
}

DUET_INLINE void chain_normalise(float *q, int vocab) {
    float sum = 0;
    for (int id = 0; id < vocab; id++) sum += q[id];
    for (int id = 0; id < vocab && sum > 0; id++) q[id] /= sum;
}

/* An id stays if fewer than CHAIN_TOP_K are above it. */
DUET_INLINE void chain_filter(float *q, int vocab) {
    uint64_t kept = 0;
    for (int id = 0; id < vocab; id++) {
        int above = 0;
        for (int other = 0; other < vocab; other++) above += q[other] > q[id];
        kept |= (uint64_t)(above < CHAIN_TOP_K) << id;
    }
    for (int id = 0; id < vocab; id++)
        if (!(kept >> id & 1)) q[id] = 0;
}

DUET_INLINE void chain_spoil_run(const struct chain_spoil *op) {
    const struct round_state *b = &op->b;
    int vocab = b->vocab_draft, rows = b->slots * b->k_max;
    if (op->fault == CHAIN_UNFILTERED)
        for (int slot = 1; slot < b->slots; slot++) b->slot[slot].sampling.top_k = op->is_drafted ? CHAIN_TOP_K : 0;
    if (op->fault == CHAIN_OTHER_HOT) chain_move_ones(b, !op->is_drafted);
    if (!op->is_drafted) return;
    if (op->fault == CHAIN_NEXT_SLOT) chain_rotate(b);
    for (int i = 0; op->fault == CHAIN_NEXT_POSITION && i < (rows - 1) * vocab; i++)
        b->p_draft[i] = b->p_draft[i + vocab];
    for (int row = 0; op->fault >= CHAIN_FLAT && row < rows; row++) {
        float *q = b->p_draft + row * vocab;
        for (int id = 0; op->fault == CHAIN_FLAT && id < vocab; id++) q[id] = powf(q[id], 0.7f);
        if (op->fault == CHAIN_UNFILTERED) chain_filter(q, vocab);
        chain_normalise(q, vocab);
    }
}

/* --- launches ------------------------------------------------------------------------------------------------------- */

struct chain_ops {
    int (*deal)(struct stream *, const struct chain_deal *);
    int (*gather)(struct stream *, const struct chain_gather *);
    int (*spoil)(struct stream *, const struct chain_spoil *);
};
const struct chain_ops *chain_host(void);
const struct chain_ops *chain_cuda(void); /* NULL in a build without CUDA */
static inline const struct chain_ops *chain_ops_for(const struct device *d) {
    return device_kind(d) == DEVICE_CUDA ? chain_cuda() : chain_host();
}

#endif
