/* Whole texts: greedy ones are those of plain decoding, sampled ones those of the same seed alone. */
#include <stdio.h>
#include <string.h>

#include "tests/fidelity/study.h"
#include "tests/support.h"

/* One row over the studies [first, end) of the test data. */
static void run_studies(struct fidelity *f, const char *claim, bool sampled, int first, int end) {
    static struct study studies[STUDY_PAIRS_MAX];
    int count = study_pairs(studies, f->small), cells = 0;
    int64_t tokens = 0;
    if (end > count) end = count;
    if (first >= end) {
        fidelity_skip(f, claim, "no test data beside the checkout");
        return;
    }
    for (int i = first; i < end; i++) {
        study_open(&studies[i], sampled);
        study_run(&studies[i], 0);
        cells += studies[i].cells, tokens += studies[i].tokens;
        study_close(&studies[i]);
    }
    fidelity_add(f, true, claim, text("%d cells, %s tokens", cells, count_text(tokens)), "tokens that differ: 0", "0");
}

void fidelity_greedy(struct fidelity *f) {
    run_studies(f, "greedy: any K, batch, slot, graphs: the embedded pair", false, 0, 1);
    run_studies(f, "greedy: any K, batch, slot, graphs: pairs of trained models", false, 1, PAIRS_MAX);
    if (!f->small)
        run_studies(f, "greedy: any K, batch, slot, graphs: every family", false, PAIRS_MAX, STUDY_PAIRS_MAX);
}

void fidelity_sampled(struct fidelity *f) {
    run_studies(f, "sampled, same seed and K: any batch, slot, graphs: trained models", true, f->small ? 1 : 0,
                PAIRS_MAX);
}
