/* The caches of both models: equal to a fresh prefill, whatever was accepted; nobody writes pages that are not theirs. */
#include "tests/fidelity/fidelity.h"
#include "tests/support/kv_support.h"
#include "tests/support/support.h"

static const char story[] = "Once upon a time there was a little girl named Lily. She had a red ball and a small dog.";

static struct engine_options options_of(const struct pair *pair, int k, int batch) {
    struct engine_options o = pair_options(pair, k, batch);
    o.threads = 1;
    o.context = 512;
    return o;
}

static struct request tell(const struct engine *e, int max_tokens, float temperature, uint64_t seed) {
    struct request r = text_request(e, story, max_tokens);
    r.generation.sampling.temperature = temperature;
    r.generation.seed = seed;
    r.generation.ignore_end = true;
    return r;
}

/* --- equal to a fresh prefill --------------------------------------------------------------------------------------- */

struct watched {
    struct engine *engine;
    int k_max, blocks; /* K changes after every block if k_max > 0 */
    bool done;
};

static void change_k(void *user, struct token_block *block) {
    struct watched *w = user;
    w->done = block->finish != FINISH_NONE;
    if (w->k_max > 0) ck_ok(engine_set_k(w->engine, (w->blocks++ * 3 + 1) % (w->k_max + 1)));
}

static void run_changing(struct engine *e, struct sequence *s, struct request *r, int k_max) {
    struct watched w = {.engine = e, .k_max = k_max};
    int running;
    r->generation.on_tokens = change_k, r->generation.user = &w;
    ck_ok(engine_generate(e, s, r->prompt.data, (int)r->prompt.len, &r->generation));
    while (!w.done) ck_ok(engine_step(e, &running));
    if (k_max > 0) ck_ok(engine_set_k(e, k_max));
}

/* Turns of few tokens, so that they end after rounds of every kind; a comparison after each. */
static void add_prefill(struct fidelity *f, bool k_changes, bool ngram) {
    struct pair quick = quick_pair(), pair = ngram ? ngram_pair(&quick) : quick;
    int turns = 0, most = f->small ? 3 : 8;
    int64_t rounds = 0;
    for (int k = f->small ? 3 : 1; k <= most; k++) {
        struct engine_options o = options_of(&pair, k, 1);
        o.pipeline = 1 + k % 2;
        o.accept = (enum accept_rule)(k % 3);
        struct engine *e = must_open_exact(&o), *fresh = must_open_exact(&o);
        struct sequence *s;
        ck_ok(engine_open(e, 400, &s));
        for (int turn = 0; turn < (f->small ? 3 : 10); turn++, turns++) {
            struct request r = tell(e, 7 + turn % 4, 0.6f, (uint64_t)turn);
            if (turn > 0) r.prompt.len = 2;
            if (k_changes) {
                run_changing(e, s, &r, k);
                r.prompt.len = 1; /* rounds of 0 leave the draft behind; it catches up */
            }
            run_changing(e, s, &r, 0);
            must_equal_fresh_prefill(e, s, fresh, "after a turn");
            free_requests(&r, 1);
        }
        rounds += engine_sequence_stats(s)->rounds + engine_sequence_stats(s)->plain_rounds;
        engine_destroy(fresh);
        engine_destroy(e);
    }
    fidelity_add(f, true,
                 ngram       ? "caches: equal to a fresh prefill while K changes every round, n-gram"
                 : k_changes ? "caches: equal to a fresh prefill while K changes every round"
                             : "caches: equal to a fresh prefill after any round, every rule",
                 text("%d turns, %s rounds", turns, count_text(rounds)), "bits that differ: 0", "0");
}

/* --- a draft equal to the target --------------------------------------------------------------------------------------- */

static void add_self(struct fidelity *f, bool k_changes) {
    struct pair quick = quick_pair(), self = self_pair(&quick);
    int64_t due = fidelity_size(f, 1000, 60), rounds = 0, rejected = 0;
    struct engine_options o = options_of(&self, 4, 2);
    struct engine *e = must_open_exact(&o);
    for (uint64_t turn = 0; rounds < due; turn++) {
        struct sequence *s;
        struct request r = tell(e, 300, k_changes && turn % 2 ? 0.8f : 0, turn);
        ck_ok(engine_open(e, 450, &s));
        run_changing(e, s, &r, k_changes ? 4 : 0);
        rounds += engine_sequence_stats(s)->rounds, rejected += engine_sequence_stats(s)->rejected;
        engine_close(e, s);
        free_requests(&r, 1);
    }
    engine_destroy(e);
    fidelity_add(f, rejected == 0,
                 k_changes ? "caches: draft = target, K changes every round, 0 too: all accepted"
                           : "caches: draft = target at T = 0: all accepted",
                 text("%s rounds", count_text(rounds)), text("rejected: %lld", (long long)rejected), "0");
}

/* --- pages --------------------------------------------------------------------------------------------------------------- */

enum { FILLERS = 5 };

static void make_fillers(struct request *requests) {
    static const int lengths[FILLERS] = {250, 5, 240, 100, 1};
    for (int i = 0; i < FILLERS; i++) requests[i] = filler_request(i + 1, lengths[i], 20 + 10 * i);
}

/* A padding row beside them; NaN in every page that nobody owns, the dummy page too. */
static void add_nan(struct fidelity *f) {
    int64_t tokens = 0;
    for (int k = f->small ? 3 : 1; k <= (f->small ? 3 : 6); k++) {
        struct engine_options o = windowed_options(k, 5);
        o.context = 400, o.threads = 1;
        struct request requests[FILLERS];
        struct answer clean[FILLERS], dirty[FILLERS];
        make_fillers(requests);
        struct engine *e = must_open(&o);
        run_requests_at_most(e, requests, FILLERS, 3, clean);
        ck_ok(probe_fill_free_pages(e, 0xff)); /* all ones: NaN in every type */
        run_requests_at_most(e, requests, FILLERS, 3, dirty);
        for (int i = 0; i < FILLERS; i++) {
            must_equal(&dirty[i], &clean[i], "with NaN pages");
            tokens += (int64_t)dirty[i].ids.len;
        }
        free_requests(requests, FILLERS), free_answers(clean, FILLERS), free_answers(dirty, FILLERS);
        engine_destroy(e);
    }
    fidelity_add(f, true, "caches: NaN in pages of nobody and of padding changes no token",
                 text("%s tokens", count_text(tokens)), "tokens that differ: 0", "0");
}

/* Five sequences hold pages of each other's neighbourhood; while some answer, the free pages keep their checksum. */
static void add_checksums(struct fidelity *f) {
    int changed = 0, answers = 0;
    for (int pipeline = 1; pipeline <= 2; pipeline++)
        for (int rule = 0; rule < (f->small ? 1 : 3); rule++) {
            struct engine_options o = windowed_options(3, 5);
            o.context = 400, o.threads = 1, o.pipeline = pipeline, o.accept = (enum accept_rule)rule;
            struct engine *e = must_open(&o);
            struct sequence *s[3];
            struct request requests[FILLERS];
            uint64_t before, after;
            make_fillers(requests);
            for (int i = 0; i < 3; i++) ck_ok(engine_open(e, 320, &s[i]));
            for (int i = 0; i < 3; i++) must_take_pages(e, s[i], &requests[i]);
            ck_ok(probe_free_pages_checksum(e, &before));
            for (int i = 0; i < 3; i++, answers++) {
                struct answer a = run_turn(e, s[i], &requests[i]);
                ck_ok(probe_free_pages_checksum(e, &after));
                changed += after != before;
                ids_free(&a.ids);
            }
            free_requests(requests, FILLERS);
            engine_destroy(e);
        }
    fidelity_add(f, changed == 0, "caches: pages that no running row owns keep their checksum",
                 text("%d answers", answers), text("changed: %d", changed), "0");
}

/* Answers dropped with a round in flight, beside one that goes on; all pages come back and the next answer is right. */
static void add_drops(struct fidelity *f) {
    struct pair pair = quick_pair();
    struct engine_options o = options_of(&pair, 4, 3);
    o.pipeline = 2;
    struct engine *e = must_open(&o);
    struct request r = tell(e, 40, 0, 1);
    struct answer expected, got;
    int pages = probe_free_page_count(e), drops = (int)fidelity_size(f, 500, 24), lost = 0, running;
    run_requests(e, &r, 1, &expected);
    struct watched unused = {.engine = e};
    r.generation.on_tokens = change_k, r.generation.user = &unused;
    for (int i = 0; i < drops; i++) {
        struct sequence *s[2];
        for (int j = 0; j < 2; j++) {
            ck_ok(engine_open(e, 200, &s[j]));
            ck_ok(engine_generate(e, s[j], r.prompt.data, (int)r.prompt.len, &r.generation));
        }
        for (int step = 0; step < i % 7; step++) ck_ok(engine_step(e, &running));
        engine_close(e, s[i % 2]);
        ck_ok(engine_step(e, &running));
        engine_close(e, s[1 - i % 2]);
        lost += probe_free_page_count(e) != pages;
        if (i % 8 != 0) continue;
        run_requests(e, &r, 1, &got);
        must_equal(&got, &expected, "after dropped answers");
        ids_free(&got.ids);
    }
    ids_free(&expected.ids);
    free_requests(&r, 1);
    engine_destroy(e);
    fidelity_add(f, lost == 0, "caches: no page is lost when answers are dropped in mid-round",
                 text("%d answers dropped", 2 * drops), text("times pages were missing: %d", lost), "0");
}

void fidelity_caches(struct fidelity *f) {
    add_prefill(f, false, false);
    add_prefill(f, true, false);
    add_prefill(f, true, true);
    add_self(f, false);
    add_self(f, true);
    add_nan(f);
    add_checksums(f);
    add_drops(f);
}
