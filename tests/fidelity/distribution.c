/* Emitted tokens against the exact distribution: every depth, temperature, filter, batch and draft, pairwise. */
#include <math.h>
#include <stdlib.h>

#include "tests/fidelity/fidelity.h"
#include "tests/fidelity/pairwise.h"
#include "tests/support/chain_support.h"
#include "tests/support/support.h"

static const float temperatures[] = {0.3f, 0.7f, 1.0f, 1.5f};
static const struct sampling filters[] = {
    {0, 1, 0, 0, 1}, {0, 1, 0, 4, 1}, {0, 0.85f, 0, 0, 1}, {0, 1, 0.1f, 0, 1}, {0, 0.9f, 0.03f, 6, 1},
};
/* K 1 to 8, K 0 to 6 in turn, and K 3 with a draft whose positions end inside the requests. */
static const int depths[] = {1, 2, 3, 4, 5, 6, 7, 8, -6, 3}, batches[] = {1, 2, 4, 8};
enum { TEMPERATURES = 4, FILTERS = 5, DEPTHS = 10, BATCHES = 4, RULES = 3 };

static int64_t tokens_of(const struct fidelity *f) {
    return fidelity_size(f, 1000000, 3000);
}

/* What many cells gave. */
struct cells {
    int count;
    int64_t tokens, accepted;
    double least_next, least_joint; /* chances */
    double z, tv, expected_tv;      /* of the cell with the largest distance */
    double length_error;          /* of accepted tokens a round against the expected ones: the largest, in deviations */
    double least_identical_alpha; /* of a draft equal to the target */
    double least_gain, least_excess; /* of block's expectation over token's; of alpha over coupled's bound */
};

/* Accepted tokens a round less the expected ones, in deviations of the mean. */
static double length_error(const struct acceptance *a, enum accept_rule rule) {
    double rounds = (double)a->rounds, mean = (double)a->accepted / rounds, variance = 0;
    for (int i = 0; i <= K_MAX; i++) variance += (i - mean) * (i - mean) * (double)a->histogram[i] / rounds;
    double error = fabs(mean - acceptance_expected(a, rule));
    return error < 1e-5 ? 0 : error / sqrt(fmax(variance, 1 / rounds) / rounds);
}

static void add_figures(struct cells *c, const struct chain_run *run, const struct acceptance *a) {
    if (a->evaluated == 0) return;
    if (run->draft == CHAIN_SAME) c->least_identical_alpha = fmin(c->least_identical_alpha, acceptance_alpha(a));
    if (run->rule != ACCEPT_COUPLED) c->length_error = fmax(c->length_error, length_error(a, run->rule));
    c->least_gain = fmin(c->least_gain, (a->expected_block - a->expected_token) / (double)a->rounds);
    double deviation = sqrt(0.25 / (double)a->evaluated);
    c->least_excess = fmin(c->least_excess, (acceptance_alpha(a) - acceptance_alpha_coupled(a)) / deviation);
}

static void add_cell(struct cells *c, const struct chain_run *run, const struct chain_tally *t) {
    struct chain_chances chances = chain_chances(t);
    double joint = fmin(chances.after_two, fmin(chances.pairs, chances.triples)), z = distance_z(&chances.distance);
    c->count++;
    c->tokens += t->emitted;
    c->accepted += t->stats.accepted;
    c->least_next = fmin(c->least_next, chances.next);
    c->least_joint = fmin(c->least_joint, joint);
    if (z > c->z)
        c->z = z, c->tv = distance_tv(&chances.distance), c->expected_tv = distance_expected_tv(&chances.distance);
    add_figures(c, run, &t->stats);
}

static struct cells no_cells(void) {
    return (struct cells){.least_next = 1,
                          .least_joint = 1,
                          .z = -INFINITY,
                          .least_identical_alpha = 1,
                          .least_gain = INFINITY,
                          .least_excess = INFINITY};
}

static void run_cell(const struct fidelity *f, struct cells *c, struct chain_run run) {
    static struct chain_tally t;
    if (run.tokens == 0) run.tokens = tokens_of(f);
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

static void report_acceptance(struct fidelity *f, enum accept_rule rule, const struct cells *c) {
    const char *name = accept_rule_name(rule), *cells = text("%d cells", c->count);
    fidelity_add(f, c->least_identical_alpha == 1, text("%s: a draft equal to the target is always accepted", name),
                 cells, text("least alpha %.6f", c->least_identical_alpha), "1");
    if (rule == ACCEPT_COUPLED)
        fidelity_add(f, c->least_excess > -5, "coupled: alpha is at least (1 - TV) / (1 + TV)", cells,
                     text("least difference %.1f sd", c->least_excess), "-5 sd");
    else
        fidelity_add(f, c->length_error < 5, text("%s: tokens accepted a round are the expected ones", name), cells,
                     text("largest error %.1f sd", c->length_error), "5 sd");
    if (rule == ACCEPT_BLOCK)
        fidelity_add(f, c->least_gain >= -1e-6, "block: expects at least token's accepted tokens on the same blocks",
                     cells, text("least gain %+.4f a round", c->least_gain), ">= 0");
}

static void run_rule(struct fidelity *f, enum accept_rule rule) {
    static struct pairwise array;
    pairwise_make(&array, 6, (const int[]){DEPTHS, CHAIN_DRAFTS, FILTERS, TEMPERATURES, BATCHES, RULES});
    struct cells cells = no_cells();
    for (int i = 0; i < array.count; i++) {
        const int *level = array.cells[i];
        if (level[5] != (int)rule) continue;
        run_cell(f, &cells,
                 (struct chain_run){.rule = rule,
                                    .k = depths[level[0]],
                                    .draft_positions = level[0] == DEPTHS - 1 ? CHAIN_START + 5 : 0,
                                    .draft = (enum chain_draft)level[1],
                                    .sampling = sampling_of(level[3], level[2]),
                                    .batch = batches[level[4]]});
    }
    /* Long at small sizes too: numbers that are used twice bend the next tokens by little. */
    struct chain_run wide = {.rule = rule,
                             .k = 4,
                             .batch = CHAIN_BATCH_MAX,
                             .sampling = {1, 1, 0, 0, 1},
                             .tokens = fidelity_size(f, 1000000, 150000)};
    run_cell(f, &cells, wide);
    report(f, accept_rule_name(rule), &cells);
    report_acceptance(f, rule, &cells);
}

void fidelity_token(struct fidelity *f) {
    run_rule(f, ACCEPT_TOKEN);
}

void fidelity_coupled(struct fidelity *f) {
    run_rule(f, ACCEPT_COUPLED);
}

void fidelity_block(struct fidelity *f) {
    run_rule(f, ACCEPT_BLOCK);
}

/* Proposals that nobody drew, some rows with fewer than K of them or none: every rule. */
void fidelity_ngram(struct fidelity *f) {
    static struct pairwise array;
    pairwise_make(&array, 5, (const int[]){DEPTHS - 1, FILTERS, TEMPERATURES, BATCHES, RULES});
    struct cells cells = no_cells();
    for (int i = 0; i < array.count; i++) {
        const int *level = array.cells[i];
        run_cell(f, &cells,
                 (struct chain_run){.rule = (enum accept_rule)level[4],
                                    .k = depths[level[0]],
                                    .draft = CHAIN_NGRAM,
                                    .sampling = sampling_of(level[2], level[1]),
                                    .batch = batches[level[3]]});
    }
    for (int rule = 0; rule < RULES; rule++)
        run_cell(f, &cells,
                 (struct chain_run){.rule = (enum accept_rule)rule,
                                    .k = 4,
                                    .draft = CHAIN_NGRAM,
                                    .batch = CHAIN_BATCH_MAX,
                                    .sampling = {1, 1, 0, 0, 1},
                                    .tokens = fidelity_size(f, 1000000, 150000)});
    report(f, "n-gram", &cells);
    fidelity_add(f, cells.length_error < 5, "n-gram: tokens accepted a round are the expected ones",
                 text("%d cells", cells.count), text("largest error %.1f sd", cells.length_error), "5 sd");
    fidelity_add(f, cells.accepted > cells.tokens / 10, "n-gram: proposals there were", text("%d cells", cells.count),
                 text("%.1f %% of tokens", 100. * (double)cells.accepted / (double)cells.tokens), "10 %");
}

/* --- without speculation, for comparison -------------------------------------------------------------------------- */

void fidelity_plain(struct fidelity *f) {
    struct cells cells = no_cells();
    for (int temperature = 0; temperature < TEMPERATURES; temperature++)
        for (int filter = 0; filter < FILTERS; filter++)
            run_cell(f, &cells,
                     (struct chain_run){.batch = batches[(temperature + filter) % BATCHES],
                                        .sampling = sampling_of(temperature, filter)});
    report(f, "plain", &cells);
}
