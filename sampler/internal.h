/* What the files of the sampler share: checks and cells of a launch; the exchange of blocks on a GPU; on the host, loops over
 * the vocabulary and the distribution made of them. */
#ifndef DUET_SAMPLER_INTERNAL_H
#define DUET_SAMPLER_INTERNAL_H

#include <stdbool.h>

#include "sampler/rules.h"

/* ERR_INTERNAL if a launch asks for more rows or draws than there are buffers for. */
int sampler_check_shape(const char *what, const struct sampler_buffers *, int batch, int k);

/* An id as the input of a model whose map has `vocab` ids. */
DUET_INLINE int id_or_zero(int id, int vocab) {
    return id >= 0 && id < vocab ? id : 0;
}

/* p_draft [vocab_draft] of a slot's drafted token `index`. */
DUET_INLINE float *draft_row(const struct sampler_buffers *b, int slot, int index) {
    return b->p_draft + ((size_t)slot * (size_t)b->k_max + (size_t)index) * (size_t)b->vocab_draft;
}

/* Which walk a round takes; simulated acceptance goes token by token. */
DUET_INLINE bool is_coupled(const struct sampler_buffers *b) {
    return b->rule == ACCEPT_COUPLED && b->simulate_alpha == 0;
}
DUET_INLINE bool is_by_block(const struct sampler_buffers *b) {
    return b->rule == ACCEPT_BLOCK && b->simulate_alpha == 0;
}

/* Does `token` end the slot's answer? */
DUET_INLINE bool is_end(const struct sampler_buffers *b, const struct slot *slot, int token) {
    for (int i = 0; i < b->end_count; i++)
        if (b->end_ids[i] == token) return !slot->ignore_end;
    return false;
}

/* Commits a token; true if the sequence goes on. */
DUET_INLINE bool commit_token(const struct sampler_buffers *b, struct slot *slot, int token) {
    slot->last[0] = slot->last[1];
    slot->last[1] = token;
    slot->length++;
    if (is_end(b, slot, token))
        slot->status = SLOT_END;
    else if (slot->length >= slot->limit)
        slot->status = SLOT_LENGTH;
    return slot->status == SLOT_LIVE;
}

/* What a row in error leaves of its record. */
DUET_INLINE void clear_counts(struct round_record *r) {
    r->emitted = r->accepted = r->rejected = r->evaluated = 0;
    r->overlap_sum = r->coupled_sum = r->expected_token = r->expected_block = 0;
}

/* --- the GPU: a row of logits belongs to a team of blocks -------------------------------------------------- */

enum { SAMPLER_TEAMS = 64, TEAM_BLOCKS = 64, TEAM_BINS = 2048 };

/* In device memory; zeros at first. Teams of one block do without. */
struct team_exchange {
    unsigned long long partial[2][TEAM_BLOCKS]; /* of a reduction, in turns */
    unsigned long long histogram[3][TEAM_BINS]; /* in turns: read, added to, cleared */
    uint32_t arrived; /* bit 31 flips when all blocks have; the others are 0 between launches */
    uint32_t unused[63];
};

/* --- vector.c: plain loops over the vocabulary, built for several CPUs with the same bits --------------- */

struct vector {
    /* The maximum; *finite tells whether every x is finite. */
    float (*max)(const float *x, int n, bool *finite);
    void (*weights)(const float *logits, int n, float max_logit, float temperature, float *weight); /* rule_weight */
    uint64_t (*mass)(const float *x, int n);                     /* sum of rule_mass */
    uint64_t (*mass_min)(const float *x, const float *y, int n); /* of min(x_i, y_i), alike */
    void (*divide)(float *x, int n, float by);
    int (*count_above)(const float *x, int n, float bound); /* x_i > bound */
    void (*zero_below)(float *x, int n, float bound);       /* x_i < bound becomes 0 */
    /* Zeroes the weights of ids that come after (order, id): greater order first, then the lower id. */
    void (*zero_after)(float *weight, const float *logits, int n, uint32_t order, int id);
    /* rule_excess of each id; q is 0 from n_q on. */
    void (*residual)(float carry, const float *p, int n, const float *q, int n_q, float *out);
    /* The sum of rule_mass of these. */
    uint64_t (*mass_excess)(float carry, const float *p, int n, const float *q, int n_q);
    /* The exponential race; -1 if no p is above 0. */
    int (*race)(const float *p, int n, uint64_t key, uint64_t position, int purpose);
};

/* The loops that this CPU can run, best first; NULL past the end. */
const struct vector *vector_at(int index);

/* --- distribution.c -------------------------------------------------------------------------------------- */

/* The filtered, normalised distribution of logits [vocab] in p [vocab]; false for a non-finite logit (p is then
 * not to be used). */
bool distribution_of(const struct vector *, const struct sampling *, const float *logits, int vocab, float *p);

#endif
