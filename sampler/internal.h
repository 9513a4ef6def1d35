/* The launches of either device, and what the blocks of a GPU share. */
#ifndef DUET_SAMPLER_INTERNAL_H
#define DUET_SAMPLER_INTERNAL_H

#include "sampler/penalty.h"
#include "sampler/rules.h"
#include "sampler/sampler.h"

int sampler_draw_host(struct stream *, const struct sampler_draw *);
int sampler_draw_cuda(struct stream *, const struct sampler_draw *);
int sampler_penalise_cuda(struct stream *, const struct penalise *, int rows);
int sampler_mark_seen_cuda(struct stream *, const struct mark_seen *);

/* --- the GPU: a row of logits belongs to a team of blocks -------------------------------------------------- */

enum { SAMPLER_TEAMS = 64, TEAM_BLOCKS = 64, TEAM_BINS = 2048 };

/* In device memory; zeros at first. Teams of one block do without. */
struct team_exchange {
    unsigned long long partial[2][TEAM_BLOCKS]; /* of a reduction, in turns */
    unsigned long long histogram[3][TEAM_BINS]; /* in turns: read, added to, cleared */
    uint32_t arrived; /* bit 31 flips when all blocks have; the others are 0 between launches */
    uint32_t unused[63];
};

#endif
