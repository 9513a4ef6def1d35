/* Texts of one pair under many engines: every K, batch, bucket policy, graph mode and pipeline against plain decoding.
 *
 * A study has prompts of 1 token to the context's limit. A cell answers some of them at once, more than fit, so that rows
 * finish and are replaced beside others, and compares each with the same prompt answered alone. */
#ifndef DUET_TESTS_STUDY_H
#define DUET_TESTS_STUDY_H

#include "tests/fidelity/fidelity.h"

enum { STUDY_PROMPTS = 16, STUDY_K = 16, STUDY_BATCH = 16, STUDY_ENGINES = 9, STUDY_PAIRS_MAX = 40 };

enum study_amount { STUDY_ALL, STUDY_SOME, STUDY_FEW }; /* every (K, batch), a fifth, one for each K */

struct study {
    struct pair pair;
    const char *draft_vocab; /* NULL: the draft's head is whole */
    enum study_amount amount;
    int context;
    bool sampled;
    enum accept_rule rule;
    enum kv_numbers kv;
    struct ids prompts[STUDY_PROMPTS];
    /* Each prompt alone: plainly and by eager launches in [0], and for each K where the text depends on it. */
    struct answer expected[STUDY_K + 1][STUDY_PROMPTS];
    int64_t tokens;
    int cells;
};

/* The pairs of the test data: the embedded one first; returns how many. */
int study_pairs(struct study studies[STUDY_PAIRS_MAX], bool small);
/* Fixtures of every family, and of every format of quantised safetensors: 0 without test data. */
int study_families(struct study studies[STUDY_PAIRS_MAX]);
int study_formats(struct study studies[STUDY_PAIRS_MAX]);

void study_open(struct study *, bool sampled);
void study_close(struct study *);
/* Answers and compares all cells under a rule, which the greedy text does not depend on, nor a coupled one on K; fails the test
 * at the first token that differs. */
void study_run(struct study *, enum accept_rule rule);

#endif
