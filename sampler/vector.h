/* Loops over a vocabulary on the host, and the distribution made of them: what sampler_draw and verify_accept are made of there.
 *
 * Plain loops, built for several CPUs with the same bits (vector.c). */
#ifndef DUET_SAMPLER_VECTOR_H
#define DUET_SAMPLER_VECTOR_H

#include <stdbool.h>

#include "sampler/rules.h"

/* A row of p_draft as it lies beside a row of p_target: the probabilities of ids [0, n), or of those listed, ascending; 0 for
 * all others. */
struct short_row {
    const float *q; /* [n] */
    const int32_t *ids;
    int n;
};

struct vector {
    /* The maximum; *finite tells whether every x is finite. */
    float (*max)(const float *x, int n, bool *finite);
    void (*weights)(const float *logits, int n, float max_logit, float temperature, float *weight); /* rule_weight */
    uint64_t (*mass)(const float *x, int n);                       /* sum of rule_mass */
    uint64_t (*mass_min)(const float *p, int n, struct short_row); /* of min(p_i, q_i), alike */
    void (*divide)(float *x, int n, float by);
    int (*count_above)(const float *x, int n, float bound); /* x_i > bound */
    void (*zero_below)(float *x, int n, float bound);       /* x_i < bound becomes 0 */
    /* Zeroes the weights of ids that come after (order, id): greater order first, then the lower id. */
    void (*zero_after)(float *weight, const float *logits, int n, uint32_t order, int id);
    /* rule_excess of each id. */
    void (*residual)(float carry, const float *p, int n, struct short_row, float *out);
    /* The sum of rule_mass of these. */
    uint64_t (*mass_excess)(float carry, const float *p, int n, struct short_row);
    /* The exponential race of ids [0, n), or of those listed, ascending (NULL: none are): the winner's id; -1 if no p is above 0. */
    int (*race)(const float *p, int n, const int32_t *ids, uint64_t key, uint64_t position, int purpose);
};

/* The loops that this CPU can run, best first; NULL past the end. */
const struct vector *vector_at(int index);

/* The size of a loop over `rows` vocabularies, in multiply-adds, for parallel_run. */
static inline int64_t vector_work(int rows, int vocab) {
    enum { WORK_AN_ID = 8 };
    return (int64_t)rows * vocab * WORK_AN_ID;
}

/* The filtered, normalised distribution of logits [vocab] in p [vocab]; false for a non-finite logit (p is then
 * not to be used). */
bool distribution_of(const struct vector *, const struct sampling *, const float *logits, int vocab, float *p);

#endif
