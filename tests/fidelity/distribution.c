/* Emitted tokens against the exact distribution: every depth, temperature, filter, batch and draft, pairwise. */
#include <math.h>
#include <stdlib.h>

#include "tests/chain_lab.h"
#include "tests/fidelity/fidelity.h"
#include "tests/fidelity/pairwise.h"
#include "tests/support.h"

static const float temperatures[] = {0.3f, 0.7f, 1.0f, 1.5f};
static const struct sampling filters[] = {
    {0, 1, 0, 0}, {0, 1, 0, 4}, {0, 0.85f, 0, 0}, {0, 1, 0.1f, 0}, {0, 0.9f, 0.03f, 6},
};
static const int depths[] = {1, 2, 3, 4, 5, 6, 7, 8, -6}, batches[] = {1, 2, 4, 8};
enum { TEMPERATURES = 4, FILTERS = 5, DEPTHS = 9, BATCHES = 4, RULES = 1 };

/* Where each launch is a round trip with copies, cells give tokens in proportion to their rows. */
static int64_t tokens_of(const struct fidelity *f, int batch) {
    int64_t tokens = fidelity_size(f, 1000000, 3000);
    return test_device_is_host() || batch > 8 ? tokens : tokens * batch / 256;
}

/* What many cells gave. */
struct cells {
    int count;
    int64_t tokens;
    double least_next, least_joint, z, tv,
        expected_tv;        /* chances: the least; distances: of the cell with the largest z */
    double alpha_error;     /* the largest, in standard deviations */
    double identical_alpha; /* the least acceptance of a draft equal to the target */
};

static void add_cell(struct cells *c, const struct chain_run *run, const struct chain_tally *t) {
    struct chain_chances chances = chain_chances(t);
    double joint = fmin(chances.after_two, fmin(chances.pairs, chances.triples));
    if (c->count++ == 0) *c = (struct cells){1, 0, 1, 1, -INFINITY, 0, 0, 0, 1};
    c->tokens += t->emitted;
    c->least_next = fmin(c->least_next, chances.next);
    c->least_joint = fmin(c->least_joint, joint);
    if (distance_z(&chances.distance) > c->z) {
        c->z = distance_z(&chances.distance);
        c->tv = distance_tv(&chances.distance), c->expected_tv = distance_expected_tv(&chances.distance);
    }
    if (t->evaluated == 0) return;
    double n = (double)t->evaluated, alpha = (double)t->accepted / n, overlap = t->overlap_sum / n;
    c->alpha_error = fmax(c->alpha_error, fabs(alpha - overlap) / sqrt(0.25 / n));
    if (run->draft == CHAIN_SAME) c->identical_alpha = fmin(c->identical_alpha, alpha);
}

static void run_cell(const struct fidelity *f, struct cells *c, struct chain_run run) {
    static struct chain_tally t;
    run.tokens = tokens_of(f, run.batch);
    chain_drive(&run, &t);
    add_cell(c, &run, &t);
}

static void report(struct fidelity *f, const char *name, const struct cells *c) {
    const char *sample = text("%d cells, %s tokens", c->count, count_text(c->tokens));
    fidelity_add(f, c->least_next > 1e-6, text("%s: each token follows p at every depth", name), sample,
                 text("worst p = %.1e", c->least_next), "p > 1e-06");
    fidelity_add(f, c->least_joint > 1e-6, text("%s: pairs and triples of tokens follow p", name), sample,
                 text("worst p = %.1e", c->least_joint), "p > 1e-06");
    fidelity_add(f, c->z < 5, text("%s: total variation distance is sampling error", name), sample,
                 text("worst %.5f, due %.5f: %.1f sd", c->tv, c->expected_tv, c->z), "5 sd above due");
}

/* --- speculation -------------------------------------------------------------------------------------------------- */

static struct sampling sampling_of(int temperature, int filter) {
    struct sampling s = filters[filter];
    s.temperature = temperatures[temperature];
    return s;
}

static void run_rule(struct fidelity *f, int rule, const char *name) {
    static struct pairwise array;
    pairwise_make(&array, 6, (const int[]){DEPTHS, CHAIN_DRAFTS, FILTERS, TEMPERATURES, BATCHES, RULES});
    struct cells cells = {0};
    for (int i = 0; i < array.count; i++) {
        const int *level = array.cells[i];
        if (level[5] != rule) continue;
        run_cell(f, &cells,
                 (struct chain_run){.rule = rule,
                                    .k = depths[level[0]],
                                    .draft = (enum chain_draft)level[1],
                                    .sampling = sampling_of(level[3], level[2]),
                                    .batch = batches[level[4]]});
    }
    struct chain_run wide = {.rule = rule, .k = 4, .batch = CHAIN_BATCH_MAX, .sampling = {1, 1, 0, 0}};
    run_cell(f, &cells, wide);
    report(f, name, &cells);
    fidelity_add(f, cells.identical_alpha == 1, text("%s: a draft equal to the target is always accepted", name),
                 text("%d cells", cells.count), text("least alpha %.6f", cells.identical_alpha), "1");
    if (rule == 0)
        fidelity_add(f, cells.alpha_error < 5, "token: the share accepted is the overlap of p and q",
                     text("%d cells", cells.count), text("largest error %.1f sd", cells.alpha_error), "5 sd");
}

void fidelity_token(struct fidelity *f) {
    run_rule(f, 0, "token");
}

/* --- without speculation, for comparison -------------------------------------------------------------------------- */

void fidelity_plain(struct fidelity *f) {
    struct cells cells = {0};
    for (int temperature = 0; temperature < TEMPERATURES; temperature++)
        for (int filter = 0; filter < FILTERS; filter++)
            run_cell(f, &cells,
                     (struct chain_run){.batch = batches[(temperature + filter) % BATCHES],
                                        .sampling = sampling_of(temperature, filter)});
    report(f, "plain", &cells);
}
