/* K that K_AUTO takes by acceptance, from round to round: distributions, joint distributions and whole texts. */
#include <math.h>
#include <stdio.h>

#include "engine/probe.h"
#include "tests/fidelity/fidelity.h"
#include "tests/support/chain_support.h"
#include "tests/support/support.h"

enum { K = 4, DIFFERENT = 3 };

/* --- distributions -------------------------------------------------------------------------------------------------- */

struct sum {
    double least_next, least_joint, z, tv, expected_tv;
    int64_t tokens, rounds_by_k[CHAIN_K_MAX + 1];
    int cells;
};

static void run_cell(struct sum *s, const struct chain_run *run) {
    static struct chain_tally t;
    chain_drive(run, &t);
    struct chain_chances c = chain_chances(&t);
    const double z = distance_z(&c.distance);
    s->cells++;
    s->tokens += t.emitted;
    s->least_next = fmin(s->least_next, c.next);
    s->least_joint = fmin(s->least_joint, fmin(c.after_two, fmin(c.pairs, c.triples)));
    if (z > s->z) s->z = z, s->tv = distance_tv(&c.distance), s->expected_tv = distance_expected_tv(&c.distance);
    for (int k = 0; k <= K; k++) s->rounds_by_k[k] += t.rounds_by_k[k];
}

/* How many K, 0 among them, had a hundredth of the rounds at least; 0 if 0 had not. */
static int different(const int64_t *rounds_by_k, int k_max) {
    int64_t all = 0;
    int count = 0;
    for (int k = 0; k <= k_max; k++) all += rounds_by_k[k];
    for (int k = 0; k <= k_max; k++) count += 100 * rounds_by_k[k] >= all;
    return 100 * rounds_by_k[0] >= all ? count : 0;
}

/* Drafts and costs that are near the point where speculation pays, with one row, which K follows closely, and with many. */
static void run_rule(struct fidelity *f, enum accept_rule rule) {
    const char *name = accept_rule_name(rule);
    static const struct {
        enum chain_draft draft;
        double ms_per_token;
        int batch;
    } cells[] = {
        {CHAIN_GOOD, 0.4, 1}, {CHAIN_GOOD, 0.3, 2}, {CHAIN_BAD, 0.2, 1}, {CHAIN_NGRAM, 0.25, 1}, {CHAIN_GOOD, 0.3, 8}};
    struct sum s = {.least_next = 1, .least_joint = 1, .z = -INFINITY};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        run_cell(&s, &(struct chain_run){.rule = rule,
                                         .k = K,
                                         .batch = cells[i].batch,
                                         .sampling = {1, 1, 0, 0, 1},
                                         .draft = cells[i].draft,
                                         .tokens = fidelity_size(f, 1000000, 60000),
                                         .chooses_k = true,
                                         .ms_per_token = cells[i].ms_per_token});
    char sample[48];
    snprintf(sample, sizeof sample, "%d cells, %s tokens", s.cells, count_text(s.tokens));
    fidelity_add(f, s.least_next > 1e-6, text("auto, %s: each token follows p", name), sample,
                 text("worst p = %.1e", s.least_next), "p > 1e-06");
    fidelity_add(f, s.least_joint > 1e-6, text("auto, %s: pairs and triples of tokens follow p", name), sample,
                 text("worst p = %.1e", s.least_joint), "p > 1e-06");
    fidelity_add(f, s.z < 5, text("auto, %s: total variation distance is sampling error", name), sample,
                 text("worst %.5f, due %.5f: %.1f sd", s.tv, s.expected_tv, s.z), "5 sd above due");
    fidelity_add(f, different(s.rounds_by_k, K) >= DIFFERENT, text("auto, %s: K did change, 0 among them", name),
                 sample, text("%d K with 1 %% of rounds", different(s.rounds_by_k, K)), "3");
}

/* The argument of docs/CORRECTNESS.md, and what becomes of a choice that breaks it. */
static void refuse_peeking(struct fidelity *f) {
    struct sum s = {.least_next = 1, .least_joint = 1, .z = -INFINITY};
    run_cell(&s, &(struct chain_run){.k = K,
                                     .batch = 1,
                                     .sampling = {1, 1, 0, 0, 1},
                                     .tokens = f->small ? 150000 : 1000000, /* fewer would not tell */
                                     .chooses_k = true,
                                     .ms_per_token = 0.3,
                                     .fault = CHAIN_PEEK});
    const double p = fmin(s.least_next, s.least_joint);
    fidelity_add(f, p < 1e-12, "control: K by what was drafted behind a rejection is refused",
                 text("%s tokens", count_text(s.tokens)), text("p = %.1e", p), "p < 1e-12");
}

/* --- texts ----------------------------------------------------------------------------------------------------------- */

static void make_requests(const struct engine *e, struct request *requests, int count, float temperature) {
    for (int i = 0; i < count; i++) {
        requests[i] = text_request(e, story_starts[i], 40 + 3 * i);
        requests[i].generation.sampling.temperature = temperature;
        requests[i].generation.seed = 500 + (uint64_t)i;
        requests[i].generation.ignore_end = true;
    }
}

/* Of the pair, plain and with the K that auto takes; returns how many K there were. */
static int compare_texts(const struct pair *pair, enum accept_rule rule, float temperature, int64_t *tokens) {
    enum { COUNT = 8 };
    struct request requests[COUNT];
    struct answer expected[COUNT], got[COUNT];
    float ms[K + 1];
    int64_t rounds_by_k[K + 1];
    for (int k = 0; k <= K; k++) ms[k] = 1 + 0.35f * (float)k;
    struct engine_options o = pair_options(pair, 0, 4);
    o.threads = 1;
    struct engine *e = must_open(&o);
    make_requests(e, requests, COUNT, temperature);
    run_requests(e, requests, COUNT, expected);
    engine_destroy(e);
    o = pair_options(pair, K, 2);
    o.threads = 1, o.k = K_AUTO, o.k_max = K, o.accept = rule;
    e = must_open(&o);
    probe_set_round_times(e, ms);
    run_requests(e, requests, COUNT, got);
    for (int i = 0; i < COUNT; i++) {
        must_equal(&got[i], &expected[i], text("%s, %s, prompt %d", pair->name, accept_rule_name(rule), i));
        *tokens += (int64_t)got[i].ids.len;
    }
    const struct engine_counts counts = engine_counts(e);
    for (int k = 0; k <= K; k++) rounds_by_k[k] = (int64_t)counts.rounds_by_k[k];
    engine_destroy(e);
    free_requests(requests, COUNT), free_answers(expected, COUNT), free_answers(got, COUNT);
    return different(rounds_by_k, K);
}

static void compare_pairs(struct fidelity *f) {
    struct pair pairs[PAIRS_MAX];
    const int count = test_pairs(pairs);
    int most = 0, cells = 0;
    int64_t tokens = 0;
    for (int i = 0; i < 2 * count; i++) {
        const struct pair pair = i % 2 ? ngram_pair(&pairs[i / 2]) : pairs[i / 2];
        for (int rule = 0; rule <= ACCEPT_BLOCK; rule++, cells++) {
            const float temperature = rule == ACCEPT_COUPLED ? 0.9f : 0;
            most = (int)fmax(most, compare_texts(&pair, (enum accept_rule)rule, temperature, &tokens));
        }
    }
    fidelity_add(f, most >= DIFFERENT, "auto: greedy texts, and coupled ones of a seed, are plain decoding's",
                 text("%d cells, %s tokens", cells, count_text(tokens)), "tokens that differ: 0", "0");
}

void fidelity_auto_token(struct fidelity *f) {
    run_rule(f, ACCEPT_TOKEN);
    refuse_peeking(f);
}
void fidelity_auto_coupled(struct fidelity *f) {
    run_rule(f, ACCEPT_COUPLED);
}
void fidelity_auto_block(struct fidelity *f) {
    run_rule(f, ACCEPT_BLOCK);
}
void fidelity_auto_texts(struct fidelity *f) {
    compare_pairs(f);
}
