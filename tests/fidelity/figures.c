/* The figures of acceptance: recomputed from what callbacks saw, and what they foretell against what was measured. */
#include <math.h>
#include <string.h>

#include "tests/fidelity/fidelity.h"
#include "tests/support/support.h"

enum { TEXTS = 8, K = 4 };

/* --- recomputed ------------------------------------------------------------------------------------------------------ */

struct recount {
    int64_t rounds, emitted, accepted, cut, histogram[K + 1];
    int kept, cut_at;
    bool done;
};

static void listen(void *user, struct token_block *block) {
    struct recount *r = user;
    if (r->cut_at > 0 && r->kept + block->count >= r->cut_at) block->keep = r->cut_at - r->kept, block->stop = true;
    r->kept += block->keep;
    r->rounds++, r->emitted += block->keep, r->cut += block->count - block->keep;
    r->accepted += block->accepted, r->histogram[block->accepted]++;
    r->done = block->stop || block->finish != FINISH_NONE;
}

static bool agrees(const struct recount *r, const struct acceptance *a) {
    return a->rounds == r->rounds && a->emitted == r->emitted && a->cut == r->cut && a->accepted == r->accepted &&
           a->drafted == K * r->rounds && memcmp(a->histogram, r->histogram, sizeof r->histogram) == 0 &&
           acceptance_draft_rate(a) == (double)r->accepted / (double)(K * r->rounds) &&
           acceptance_mean_length(a) == 1 + (double)r->accepted / (double)r->rounds &&
           acceptance_alpha(a) == (double)a->accepted / (double)(a->accepted + a->rejected);
}

static void add_recount(struct fidelity *f) {
    struct pair pair = quick_pair();
    int64_t rounds = 0;
    bool holds = true;
    for (int rule = 0; rule < 3; rule++)
        for (int i = 0; i < (f->small ? 3 : TEXTS); i++) {
            struct engine_options o = pair_options(&pair, K, 1);
            o.accept = (enum accept_rule)rule, o.pipeline = 1 + i % 2, o.threads = 1;
            struct engine *e = must_open(&o);
            struct recount r = {.cut_at = i % 3 ? 0 : 21};
            struct request request = text_request(e, story_starts[i], f->small ? 40 : 120);
            struct generation g = request.generation;
            g.sampling.temperature = 0.8f, g.seed = (uint64_t)i, g.on_tokens = listen, g.user = &r;
            struct sequence *s;
            int running;
            ck_ok(engine_open(e, 200, &s));
            ck_ok(engine_generate(e, s, request.prompt.data, (int)request.prompt.len, &g));
            while (!r.done) ck_ok(engine_step(e, &running));
            holds = holds && agrees(&r, engine_sequence_stats(s));
            rounds += r.rounds;
            free_requests(&request, 1);
            engine_destroy(e);
        }
    fidelity_add(f, holds, "figures: the report is what the callbacks saw, every rule",
                 text("%s rounds", count_text(rounds)), holds ? "equal" : "other sums", "equal");
}

/* --- foretold ---------------------------------------------------------------------------------------------------------- */

static struct acceptance measure(const struct fidelity *f, const struct pair *pair, enum accept_rule rule,
                                 float temperature) {
    struct request requests[TEXTS];
    struct answer answers[TEXTS];
    struct engine_options o = pair_options(pair, K, TEXTS);
    o.accept = rule, o.threads = 1;
    struct engine *e = must_open(&o);
    int64_t due = fidelity_size(f, 1500, 60);
    for (uint64_t turn = 0; engine_stats(e)->rounds < due; turn++) {
        for (int i = 0; i < TEXTS; i++) {
            requests[i] = text_request(e, story_starts[i], f->small ? 30 : 150);
            requests[i].generation.sampling.temperature = temperature;
            requests[i].generation.seed = turn * TEXTS + (uint64_t)i;
        }
        run_requests(e, requests, TEXTS, answers);
        free_answers(answers, TEXTS);
        free_requests(requests, TEXTS);
    }
    struct acceptance a = *engine_stats(e);
    engine_destroy(e);
    return a;
}

struct worst {
    int64_t rounds;
    int runs;
    double alpha_sd, length, gain, expected_sd;
};

/* Of the mean number of accepted tokens a round. */
static double deviation(const struct acceptance *a) {
    double rounds = (double)a->rounds, mean = (double)a->accepted / rounds, variance = 0;
    for (int i = 0; i <= K; i++) variance += (i - mean) * (i - mean) * (double)a->histogram[i] / rounds;
    return sqrt(variance / rounds);
}

static void add_run(struct worst *w, const struct acceptance *a, enum accept_rule rule) {
    double n = (double)a->evaluated;
    w->rounds += a->rounds, w->runs++;
    w->gain = fmin(w->gain, acceptance_expected(a, ACCEPT_BLOCK) - acceptance_expected(a, ACCEPT_TOKEN));
    if (rule != ACCEPT_COUPLED) {
        double error = (double)a->accepted / (double)a->rounds - acceptance_expected(a, rule);
        w->expected_sd = fmax(w->expected_sd, fabs(error) / deviation(a));
    }
    if (rule != ACCEPT_TOKEN) return;
    w->alpha_sd = fmax(w->alpha_sd, fabs(acceptance_alpha(a) - acceptance_alpha_tv(a)) / sqrt(0.25 / n));
    double ratio = acceptance_mean_length(a) / acceptance_predicted_length(acceptance_alpha_tv(a), K);
    w->length = fmax(w->length, fabs(ratio - 1));
}

static void add_foretold(struct fidelity *f) {
    struct pair pairs[PAIRS_MAX];
    struct worst w = {.gain = INFINITY};
    int count = test_pairs(pairs);
    static const float temperatures[] = {0.7f, 1.0f};
    if (f->small) pairs[0] = quick_pair(), count = 1;
    for (int i = 0; i < count; i++)
        for (int t = f->small; t < 2; t++)
            for (int rule = 0; rule < 3; rule++) {
                struct acceptance a = measure(f, &pairs[i], (enum accept_rule)rule, temperatures[t]);
                add_run(&w, &a, (enum accept_rule)rule);
            }
    const char *sample = text("%d runs, %s rounds", w.runs, count_text(w.rounds));
    double tolerance = f->small ? 0.25 : 0.1;
    fidelity_add(f, w.alpha_sd < 5, "figures: alpha is alpha_tv on real pairs", sample,
                 text("largest error %.1f sd", w.alpha_sd), "5 sd");
    fidelity_add(f, w.expected_sd < 5, "figures: accepted tokens a round are the expected ones on real pairs", sample,
                 text("largest error %.1f sd", w.expected_sd), "5 sd");
    fidelity_add(f, w.length < tolerance, "figures: predicted tokens a round, from alpha_tv, against measured", sample,
                 text("largest error %.1f %%", 100 * w.length), text("%.0f %%", 100 * tolerance));
    fidelity_add(f, w.gain >= 0, "figures: block expects at least token's length on the same blocks", sample,
                 text("least gain %+.3f a round", w.gain), ">= 0");
}

void fidelity_figures(struct fidelity *f) {
    add_recount(f);
    add_foretold(f);
}
