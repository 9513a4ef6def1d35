/* One rig, driven by the counting models of sampler_support.h: what check_sampler and check_sampler_ends run rounds with. */
#ifndef DUET_TESTS_COUNTING_RIG_H
#define DUET_TESTS_COUNTING_RIG_H

#include "tests/support/sampler_support.h"

enum { V = 40 };

extern struct rig rig;
extern struct counting models;
extern const struct sampling greedy, plain;

/* Opens the rig for models that are sharp and agree. */
void open_with(struct round_state sizes, const int32_t *end_ids, int threads);
void open_default(int max_batch, int k_max); /* maps of V ids, no end ids */
/* A whole round; returns its records. */
const struct round_record *round_of(int batch, int k);

#endif
