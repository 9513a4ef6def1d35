/* Graphs: what a round launches, the same tokens with and without them, nothing captured or allocated after start-up. */
#include "tests/fidelity/fidelity.h"
#include "tests/support/support.h"

enum { TEXTS = STORY_STARTS, K = 4 };

static struct engine_options options_of(int k, int batch) {
    struct pair pair = quick_pair();
    struct engine_options o = pair_options(&pair, k, batch);
    o.threads = 1;
    o.context = 256;
    return o;
}

/* --- launches --------------------------------------------------------------------------------------------------- */

static void add_launches(struct fidelity *f, bool ngram) {
    struct pair quick = quick_pair(), pair = ngram ? ngram_pair(&quick) : quick;
    uint64_t rounds = 0;
    bool holds = true;
    int most = f->small ? 3 : 12;
    for (int k = 0; k <= most; k++) {
        struct engine_options o = options_of(k, 1 + k % 5);
        o.draft = k > 0 && !ngram ? test_checkpoint(pair.draft) : NULL, o.proposer = k > 0 && ngram ? pair.draft : NULL;
        o.pipeline = 1 + k % 2;
        struct engine *e = must_open(&o);
        uint64_t graphs, kernels, ran = count_round_launches(e, &graphs, &kernels);
        int due_graphs, due_kernels;
        engine_launches(e, k, &due_graphs, &due_kernels);
        holds = holds && ran > 0 && graphs == ran * (uint64_t)due_graphs && kernels == ran * (uint64_t)due_kernels;
        holds = holds && due_graphs == (k > 0 && !ngram ? k + 1 : 1);
        rounds += ran;
        engine_destroy(e);
    }
    fidelity_add(f, holds,
                 ngram ? "graphs: a round with n-gram lookup replays 1 and launches what is documented"
                       : "graphs: a round replays K + 1 and launches what is documented",
                 text("K 0 to %d, %llu rounds", most, (unsigned long long)rounds), holds ? "equal" : "other counts",
                 "equal");
}

/* --- the same tokens --------------------------------------------------------------------------------------------- */

static void make_requests(const struct engine *e, struct request *requests, int tokens) {
    for (int i = 0; i < TEXTS; i++) {
        requests[i] = text_request(e, story_starts[i], tokens + 3 * i);
        requests[i].generation.ignore_end = true;
        requests[i].generation.seed = 40 + (uint64_t)i;
        if (i % 3) requests[i].generation.sampling = (struct sampling){0.9f, 0.95f, 0, 0, 1};
    }
}

static int64_t answer_texts(const struct engine_options *o, int tokens, struct answer *answers) {
    struct request requests[TEXTS];
    int64_t sum = 0;
    struct engine *e = must_open(o);
    make_requests(e, requests, tokens);
    run_requests(e, requests, TEXTS, answers);
    for (int i = 0; i < TEXTS; i++) sum += (int64_t)answers[i].ids.len;
    free_requests(requests, TEXTS);
    engine_destroy(e);
    return sum;
}

static void add_modes(struct fidelity *f) {
    static const int batches[] = {1, 3, 8, 12};
    int64_t tokens = 0;
    int engines = 0, length = test_device_is_host() ? 100 : 40; /* a GPU waits for every launch of debug */
    if (f->small) length = 8;
    for (int b = f->small ? 2 : 0; b < (f->small ? 3 : 4); b++)
        for (int rule = 0; rule < (f->small ? 1 : 3); rule++) {
            struct answer off[TEXTS], got[TEXTS];
            struct engine_options o = options_of(K, batches[b]);
            o.accept = (enum accept_rule)rule;
            o.graphs = GRAPHS_OFF;
            answer_texts(&o, length, off);
            for (int mode = 0; mode < 2; mode++, engines++) {
                o.graphs = mode ? GRAPHS_DEBUG : GRAPHS_ON;
                tokens += answer_texts(&o, length, got);
                for (int i = 0; i < TEXTS; i++) must_equal(&got[i], &off[i], mode ? "graphs debug" : "graphs on");
                free_answers(got, TEXTS);
            }
            free_answers(off, TEXTS);
        }
    fidelity_add(f, true, "graphs: on, debug and off give the same tokens, every rule",
                 text("%d engines, %s tokens", engines, count_text(tokens)), "tokens that differ: 0", "0");
}

/* --- nothing after start-up ---------------------------------------------------------------------------------------- */

static uint64_t growth(const struct engine_counts *a, const struct engine_counts *b) {
    return (b->device_allocations - a->device_allocations) + (b->stream.captures - a->stream.captures) +
           (b->target.captures + b->draft.captures - a->target.captures - a->draft.captures) +
           b->target.eager_fallbacks + b->draft.eager_fallbacks;
}

static void add_steadiness(struct fidelity *f) {
    uint64_t rounds = 0, grown = 0, due = (uint64_t)fidelity_size(f, 10000, 200);
    for (int policy = BUCKETS_POW2; policy <= BUCKETS_STEP8; policy++) {
        struct engine_options o = options_of(K, 10);
        o.buckets = (enum bucket_policy)policy;
        struct engine *e = must_open(&o);
        struct request requests[TEXTS];
        struct answer answers[TEXTS];
        struct engine_counts before = engine_counts(e);
        make_requests(e, requests, 60);
        for (int run = 0; engine_counts(e).rounds < due; run++) {
            ck_ok(engine_set_k(e, (K + run) % (K + 1)));
            run_requests_at_most(e, requests, TEXTS, 1 + run % 10, answers);
            free_answers(answers, TEXTS);
        }
        struct engine_counts after = engine_counts(e);
        rounds += after.rounds, grown += growth(&before, &after);
        free_requests(requests, TEXTS);
        engine_destroy(e);
    }
    fidelity_add(f, grown == 0, "graphs: no capture, allocation or fallback after start-up",
                 text("%s rounds, 2 policies", count_text((int64_t)rounds)),
                 text("captures, allocations: %llu", (unsigned long long)grown), "0");
}

/* --- the corner ------------------------------------------------------------------------------------------------------ */

/* Full batch, the largest K, prompts that leave 1, 2, ... tokens before the context's limit: all rows end in the first
 * rounds, and drafts go past the limit. */
static void add_corner(struct fidelity *f) {
    enum { BATCH = 16, CORNER_K = 16 };
    struct answer plain[BATCH], got[BATCH];
    struct request requests[BATCH];
    uint64_t fallbacks = 0;
    int engines = 0;
    for (int i = 0; i < BATCH; i++) {
        int32_t ids[256];
        for (int j = 0; j < 256; j++) ids[j] = 3 + (i + 7 * j) % 90;
        requests[i] = ids_request(ids, (size_t)(255 - i), 100);
        requests[i].generation.ignore_end = true;
    }
    struct engine_options o = options_of(0, 1);
    struct engine *e = must_open(&o);
    run_requests(e, requests, BATCH, plain);
    engine_destroy(e);
    for (int policy = 0; policy < (f->small ? 1 : 3); policy++, engines++) {
        o = options_of(CORNER_K, BATCH);
        o.buckets = (enum bucket_policy)policy, o.pipeline = 2;
        e = must_open(&o);
        run_requests(e, requests, BATCH, got);
        for (int i = 0; i < BATCH; i++) must_equal(&got[i], &plain[i], "at the corner");
        fallbacks += engine_counts(e).target.eager_fallbacks + engine_counts(e).draft.eager_fallbacks;
        free_answers(got, BATCH);
        engine_destroy(e);
    }
    free_requests(requests, BATCH);
    free_answers(plain, BATCH);
    fidelity_add(f, fallbacks == 0, "graphs: full batch, largest K, longest prompts are captured and right",
                 text("%d policies, batch 16, K 16", engines), text("fallbacks: %llu", (unsigned long long)fallbacks),
                 "0");
}

void fidelity_graphs(struct fidelity *f) {
    add_launches(f, false);
    add_launches(f, true);
    add_modes(f);
    add_steadiness(f);
    add_corner(f);
}
