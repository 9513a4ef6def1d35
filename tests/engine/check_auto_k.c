/* --k auto: the choice, worked by hand and over made-up rounds; and that texts do not notice it. Times are given, never measured,
 * but where the claim holds for any. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/auto_k.h"
#include "engine/internal.h"
#include "engine/probe.h"
#include "tests/support/engine_support.h"
#include "tests/support/kv_support.h"
#include "tests/support/support.h"

/* --- the choice ------------------------------------------------------------------------------------------- */

START_TEST(best_has_the_most_tokens_a_millisecond)
{
    const double tokens[] = {1, 1.8, 2.4, 2.8}, cheap[] = {1, 1.5, 1.9, 2.4}, dear[] = {1, 1.9, 2.5, 3};
    ck_assert_int_eq(auto_k_best(tokens, cheap, 3, 0), 2); /* 1, 1.2, 1.26, 1.17 */
    ck_assert_int_eq(auto_k_best(tokens, dear, 3, 3), 0);  /* 1, 0.95, 0.96, 0.93 */
    const double close[] = {1, 1.5, 1.9, 2.22};
    ck_assert_int_eq(auto_k_best(tokens, close, 3, 3), 3); /* 2 is better than 3, but by 0.2 % */
    const double useless[] = {1, 1, 1, 1}, dearer[] = {1, 1.02, 1.02, 1.02};
    ck_assert_int_eq(auto_k_best(useless, dearer, 3, 2), 0); /* plain decoding, for less */
}
END_TEST

static struct round_record record(int k, int accepted, int evaluated) {
    return (struct round_record){.live = 1, .status = SLOT_LIVE, .k = k, .accepted = accepted, .evaluated = evaluated};
}

START_TEST(acceptance_is_counted_by_position)
{
    struct auto_k_estimate e = {0};
    const struct round_record rounds[] = {
        record(3, 3, 3), /* all */
        record(3, 1, 2), /* the second was rejected */
        record(1, 1, 1), /* no second one was offered */
        record(0, 0, 0), /* nor a first */
        {.live = 1,
         .status = SLOT_END,
         .k = 3,
         .accepted = 1,
         .evaluated = 1}, /* an end says nothing of what is behind it */
    };
    for (int i = 0; i < 5; i++) auto_k_learn(&e, &rounds[i], 3, 1 << 30);
    const float reached[] = {5, 4 - 1, 1, 0}, kept[] = {4, 1, 1, 0};
    for (int j = 0; j < 4; j++) {
        ck_assert_msg(e.reached[j] == reached[j] && e.kept[j] == kept[j], "position %d: %g of %g", j, (double)e.kept[j],
                      (double)e.reached[j]);
    }
}
END_TEST

/* What was drafted behind a rejection comes from random numbers that the next round uses again. */
START_TEST(nothing_but_accepted_tokens_is_looked_at)
{
    struct auto_k_estimate one = {0}, other = {0};
    struct round_record r = record(4, 1, 2);
    auto_k_learn(&one, &r, 4, 32);
    r.overlap_sum = 1.5f, r.coupled_sum = 1, r.expected_token = 3, r.expected_block = 3.5f;
    memset(r.tokens, 7, sizeof r.tokens);
    auto_k_learn(&other, &r, 4, 32);
    ck_assert_int_eq(memcmp(&one, &other, sizeof one), 0);
}
END_TEST

START_TEST(times_follow_the_rounds_and_no_outlier)
{
    struct auto_k a;
    ck_ok(auto_k_create(&a, 1, 4));
    for (int i = 0; i < 600; i++) {
        const int k = i % 5;
        auto_k_time(&a, 1, k, 2 + 0.5 * k);
        if (i == 300) auto_k_time(&a, 1, k, 1000);
    }
    for (int k = 0; k <= 4; k++) ck_assert_double_eq_tol(auto_k_ms(&a, 1, k), 2 + 0.5 * k, 0.1);
    auto_k_destroy(&a);
}
END_TEST

/* --- made-up rounds --------------------------------------------------------------------------------------- */

/* One row; a drafted token is kept with probability alpha, by numbers that are always the same. */
struct game {
    struct auto_k a;
    struct auto_k_estimate row;
    uint32_t state;
    double ms, tokens;
    double expected;       /* of the last round, by auto_k_ran */
    int rounds[K_MAX + 1]; /* by K */
};

static void game_open(struct game *g, int k_max, float ms_a_token) {
    float ms[K_MAX + 1];
    *g = (struct game){.state = 1};
    ck_ok(auto_k_create(&g->a, 1, k_max));
    for (int k = 0; k <= k_max; k++) ms[k] = 1 + ms_a_token * (float)k;
    auto_k_fix(&g->a, ms);
}

static bool is_kept(struct game *g, double alpha) {
    g->state = g->state * 1664525u + 1013904223u;
    return (g->state >> 8) * 0x1p-24 < alpha;
}

static int play_round(struct game *g, double alpha) {
    double tokens[K_MAX + 1] = {0};
    auto_k_expect(&g->a, &g->row, tokens);
    const int k = auto_k_choose(&g->a, 1, tokens, 0);
    g->expected = auto_k_ran(&g->a, 1, k);
    int accepted = 0;
    while (accepted < k && is_kept(g, alpha)) accepted++;
    const struct round_record r = record(k, accepted, accepted + (accepted < k));
    auto_k_learn(&g->row, &r, k, 32);
    auto_k_learn(&g->a.all, &r, k, 256);
    g->ms += auto_k_ms(&g->a, 1, k);
    g->tokens += 1 + accepted;
    g->rounds[k]++;
    return k;
}

static void play(struct game *g, double alpha, int rounds) {
    memset(g->rounds, 0, sizeof g->rounds);
    g->ms = g->tokens = 0;
    for (int i = 0; i < rounds; i++) play_round(g, alpha);
}

static double best_rate(double alpha, int k_max, double ms_a_token) {
    double best = 0;
    for (int k = 0; k <= k_max; k++) best = fmax(best, acceptance_predicted_length(alpha, k) / (1 + ms_a_token * k));
    return best;
}

START_TEST(a_draft_that_is_never_right_costs_at_most_1_percent)
{
    struct game g;
    game_open(&g, 8, 0.2f);
    play(&g, 0, 50); /* learns it */
    ck_assert_int_eq(g.a.k, 0);
    play(&g, 0, 5000);
    ck_assert_int_lt(g.rounds[0], 5000); /* trials go on */
    ck_assert_double_le(g.ms, 1.01 * 5000);
    auto_k_destroy(&g.a);
}
END_TEST

START_TEST(trials_come_the_sooner_the_less_they_cost)
{
    int trials[2];
    for (int i = 0; i < 2; i++) {
        struct game g;
        game_open(&g, 8, i ? 0.05f : 0.4f);
        play(&g, 0, 4000);
        trials[i] = g.a.trials;
        ck_assert_double_le(g.ms, 1.005 * 4000 + 5);
        auto_k_destroy(&g.a);
    }
    ck_assert_msg(trials[1] > 2 * trials[0] && trials[0] > 1, "%d trials at 0.4 ms a token, %d at 0.05", trials[0],
                  trials[1]);
}
END_TEST

START_TEST(a_draft_that_is_always_right_gets_k_max)
{
    struct game g;
    game_open(&g, 8, 0.1f);
    play(&g, 1, 100);
    ck_assert_int_eq(g.a.k, 8);
    auto_k_destroy(&g.a);
}
END_TEST

START_TEST(a_draft_that_is_too_dear_is_not_used)
{
    struct game g;
    game_open(&g, 8, 1.2f);
    play(&g, 0.95, 300);
    play(&g, 0.95, 1000);
    ck_assert_int_eq(g.a.k, 0);
    ck_assert_int_ge(g.rounds[0], 980);
    auto_k_destroy(&g.a);
}
END_TEST

/* Loop index: alpha in tenths. */
START_TEST(the_rate_is_near_that_of_the_best_fixed_k)
{
    const double alpha = _i / 10.0, cost = 0.15;
    struct game g;
    game_open(&g, 8, (float)cost);
    play(&g, alpha, 100);
    play(&g, alpha, 10000);
    double share = g.tokens / g.ms / best_rate(alpha, 8, cost);
    ck_assert_msg(share > 0.96, "alpha %g: %.3f of the best rate", alpha, share);
    auto_k_destroy(&g.a);
}
END_TEST

START_TEST(it_comes_back_when_drafts_are_right_again)
{
    struct game g;
    game_open(&g, 8, 0.15f);
    play(&g, 0, 400);
    ck_assert_int_eq(g.a.k, 0);
    play(&g, 0.9, 400);
    ck_assert_int_gt(g.a.k, 2);
    play(&g, 0.9, 400);
    ck_assert_double_ge(g.tokens / g.ms, 0.95 * best_rate(0.9, 8, 0.15));
    play(&g, 0, 400); /* and goes again */
    ck_assert_int_eq(g.a.k, 0);
    auto_k_destroy(&g.a);
}
END_TEST

START_TEST(a_catch_up_that_costs_more_than_trials_may_is_put_off)
{
    struct game g;
    double tokens[9] = {0};
    game_open(&g, 8, 0.2f);
    play(&g, 0, 50);
    while (g.a.trial > 0) play_round(&g, 0);
    auto_k_expect(&g.a, &g.row, tokens);
    for (int i = 0; i < 3000; i++) {
        ck_assert_int_eq(auto_k_choose(&g.a, 1, tokens, 20), 0);
        auto_k_ran(&g.a, 1, 0);
    }
    for (int i = 0; i < 5000 && auto_k_choose(&g.a, 1, tokens, 20) == 0; i++) auto_k_ran(&g.a, 1, 0);
    ck_assert_int_gt(auto_k_choose(&g.a, 1, tokens, 20), 0); /* after some 4,200 */
    auto_k_destroy(&g.a);
}
END_TEST

/* Two rows. While the proposer finds nothing for either, nothing is tried; what was learned before is not forgotten. */
START_TEST(where_nothing_is_found_nothing_is_tried)
{
    struct game g;
    double tokens[9] = {0};
    game_open(&g, 8, 0.05f);
    play(&g, 0.9, 100);
    const struct auto_k_estimate before = g.row;
    const double credit = g.a.credit;
    for (int i = 0; i < 2; i++) auto_k_expect(&g.a, NULL, tokens);
    for (int k = 0; k <= 8; k++) ck_assert_double_eq(tokens[k], 2);
    for (int i = 0; i < 5000; i++) {
        ck_assert_int_eq(auto_k_choose(&g.a, 1, tokens, 0), 0);
        auto_k_ran(&g.a, 1, 0);
        auto_k_pass(&g.row);
    }
    ck_assert_double_ge(g.a.credit, credit);
    ck_assert(memcmp(&before, &g.row, sizeof before) == 0);
    auto_k_expect(&g.a, &g.row, tokens);
    ck_assert_int_gt(auto_k_choose(&g.a, 1, tokens, 0), 5);
    auto_k_destroy(&g.a);
}
END_TEST

/* --- times that are not as they seemed ---------------------------------------------------------------------- */

/* Rounds take `ms`, but what was measured at start-up is `start` times that; every third one is disturbed. */
static void play_measured(struct game *g, double alpha, const double *ms, int rounds) {
    memset(g->rounds, 0, sizeof g->rounds);
    for (int i = 0; i < rounds; i++) {
        const int k = play_round(g, alpha);
        auto_k_time(&g->a, 1, k, is_kept(g, 1.0 / 3) ? 2.5 * ms[k] : ms[k]);
    }
}

static void game_open_measured(struct game *g, const double *ms, const double *start) {
    *g = (struct game){.state = 1};
    ck_ok(auto_k_create(&g->a, 1, 5));
    for (int k = 0; k <= 5; k++) g->a.start_ms[6 + k] = (float)(ms[k] * start[k]); /* bucket 1 */
}

/* Speculative rounds wait for something that their own times leave out. */
START_TEST(what_trials_wait_for_is_paid_for)
{
    enum { ROUNDS = 20000 };
    const double ms[] = {1, 1.2, 1.4, 1.6, 1.8, 2}, start[] = {1, 1, 1, 1, 1, 1}, waiting = 0.6;
    struct game g;
    double passed = 0;
    game_open_measured(&g, ms, start);
    for (int i = 0; i < ROUNDS; i++) {
        const int k = play_round(&g, 0);
        const double took = ms[k] + (k > 0 ? waiting : 0);
        auto_k_time(&g.a, 1, k, ms[k]);
        if (auto_k_is_billing(&g.a)) auto_k_settle(&g.a, 1, k, g.expected, took);
        passed += took;
    }
    ck_assert_int_gt(g.a.trials, 10);
    ck_assert_double_le(passed, ROUNDS * 1.005);
    auto_k_destroy(&g.a);
}
END_TEST

/* A trial at the end of a long answer; the next one's plain rounds have a short context. */
START_TEST(a_trial_is_not_settled_by_rounds_of_the_next_answer)
{
    const double ms[] = {1, 1.2, 1.4, 1.6, 1.8, 2}, start[] = {1, 1, 1, 1, 1, 1};
    struct game g;
    game_open_measured(&g, ms, start);
    while (!(g.a.bill.ms > 0)) {
        const int k = play_round(&g, 0);
        if (auto_k_is_billing(&g.a)) auto_k_settle(&g.a, 1, k, g.expected, ms[k]);
    }
    const double credit = g.a.credit;
    auto_k_joined(&g.a);
    for (int i = 0; i < 2 * AUTO_SETTLING_ROUNDS; i++)
        if (auto_k_is_billing(&g.a)) auto_k_settle(&g.a, 1, 0, 0, 0.5);
    ck_assert_double_eq(g.a.credit, credit);
    ck_assert_double_eq(g.a.bill.ms, 0);
    auto_k_destroy(&g.a);
}
END_TEST

/* Loop index: which K seemed dearer than it is. */
START_TEST(a_k_that_seemed_too_dear_is_measured_and_taken)
{
    const double cheap_5[] = {1, 1.9, 2.5, 3, 3.4, 2}, cheap_0[] = {0.4, 1.5, 1.7, 1.9, 2.1, 2.3};
    const double start[][6] = {{1, 1, 1, 1, 1, 2}, {2.5, 1, 1, 1, 1, 1}};
    struct game g;
    game_open_measured(&g, _i ? cheap_0 : cheap_5, start[_i]);
    play_measured(&g, _i ? 0.5 : 0.7, _i ? cheap_0 : cheap_5, 20000);
    play_measured(&g, _i ? 0.5 : 0.7, _i ? cheap_0 : cheap_5, 1000);
    ck_assert_msg(g.rounds[_i ? 0 : 5] > 900, "K = %d in %d rounds", _i ? 0 : 5, g.rounds[_i ? 0 : 5]);
    auto_k_destroy(&g.a);
}
END_TEST

/* Rounds of a batch that keeps what it is expected to; returns in how many K was `k`. */
static int run_rounds(struct auto_k *a, const double *ms, int rounds, int k) {
    const double tokens[] = {1, 1.8, 2.44, 2.95, 3.36, 3.69}; /* alpha 0.8 */
    int of_k = 0;
    for (int i = 0; i < rounds; i++) {
        const int chosen = auto_k_choose(a, 1, tokens, 0);
        auto_k_ran(a, 1, chosen);
        auto_k_time(a, 1, chosen, ms[chosen]);
        of_k += chosen == k;
    }
    return of_k;
}

/* K = 3 is the best by 4 %; then that of K = 1, by 3 %. */
START_TEST(a_k_that_nearly_pays_is_measured_again_soon)
{
    const double before[] = {1, 1.4, 1.92, 2.21, 2.8, 3.4}, after[] = {1, 1.31, 1.92, 2.21, 2.8, 3.4};
    const double all_alike[] = {1, 1, 1, 1, 1, 1};
    struct game g;
    game_open_measured(&g, before, all_alike);
    run_rounds(&g.a, before, 2000, 3);
    ck_assert_int_gt(run_rounds(&g.a, before, 256, 3), 235);
    run_rounds(&g.a, after, 384, 1);
    ck_assert_int_gt(run_rounds(&g.a, after, 256, 1), 235);
    auto_k_destroy(&g.a);
}
END_TEST

/* --- many rows ----------------------------------------------------------------------------------------------- */

/* Tokens that a row expects if each drafted one is kept by the chance alpha. */
static void add_row(double *tokens, double alpha, int k) {
    for (int j = 0; j <= k; j++) tokens[j] += acceptance_predicted_length(alpha, j);
}

/* Of a row's own k at most the round's, none gives more tokens than the round's, at no less time. */
START_TEST(a_row_that_accepts_little_wants_no_k_of_its_own)
{
    const double ms[] = {1, 1.2, 1.4, 1.6, 1.8, 2};
    double together[6] = {0}, low[6] = {0}, high[6] = {0};
    add_row(low, 0.2, 5), add_row(high, 0.9, 5);
    add_row(together, 0.2, 5), add_row(together, 0.9, 5);
    const int k = auto_k_best(together, ms, 5, 0);
    ck_assert_int_gt(k, auto_k_best(low, ms, 5, 0));
    ck_assert_int_le(k, auto_k_best(high, ms, 5, 0));
    for (int of_low = 0; of_low < k; of_low++) ck_assert_double_lt(low[of_low] + high[k], together[k]);
}
END_TEST

/* --- texts ------------------------------------------------------------------------------------------------ */

enum { COUNT = 10, K = 5 };

static void ask(const struct engine *e, struct request *requests, float temperature) {
    for (int i = 0; i < COUNT; i++) {
        requests[i] = text_request(e, story_starts[i], (test_is_small() ? 16 : 40) + 2 * i);
        requests[i].generation.sampling.temperature = temperature;
        requests[i].generation.seed = 100 + (uint64_t)i;
    }
}

static void listen(void *user, struct token_block *block) {
    struct answer *a = user;
    ids_append(&a->ids, block->tokens, (size_t)block->count);
    a->finish = block->finish;
}

/* A round of `cheap` tokens takes nearly no time, so that it is chosen. */
static void make_cheap(struct engine *e, int cheap) {
    float ms[K + 1];
    for (int k = 0; k <= K; k++) ms[k] = k == cheap ? 0.01f : 1;
    probe_set_round_times(e, ms);
}

/* All at once; before each step another K becomes the best. Returns how often K changed. */
static int run_while_k_changes(struct engine *e, const struct request *requests, struct answer *answers) {
    struct sequence *open[COUNT];
    int running = 1, changes = 0;
    memset(answers, 0, COUNT * sizeof *answers);
    for (int i = 0; i < COUNT; i++) {
        struct generation g = requests[i].generation;
        g.on_tokens = listen, g.user = &answers[i];
        ck_ok(engine_open(e, 256, &open[i]));
        ck_ok(engine_generate(e, open[i], requests[i].prompt.data, (int)requests[i].prompt.len, &g));
    }
    for (int step = 0, closed = 0; running > 0; step++) {
        const int k = engine_info(e).k;
        make_cheap(e, step * 2 % (K + 1) + step / 3 % 2);
        ck_ok(engine_step(e, &running));
        changes += engine_info(e).k != k;
        for (; closed < COUNT && !engine_is_running(open[closed]); closed++) {
            engine_close(e, open[closed]); /* its slot is for the next in line */
        }
    }
    return changes;
}

static struct engine_options auto_options(const struct pair *pair, int batch) {
    struct engine_options o = pair_options(pair, K, batch);
    o.k = K_AUTO, o.k_max = K;
    return o;
}

static void must_equal_all(const struct answer *got, const struct answer *expected, const char *what) {
    for (int i = 0; i < COUNT; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s, prompt %d", what, i);
        must_equal(&got[i], &expected[i], name);
    }
}

static void compare(const struct engine_options *options, float temperature, const struct answer *expected,
                    const char *what) {
    struct engine *e = must_open(options);
    struct request requests[COUNT];
    struct answer got[COUNT];
    ask(e, requests, temperature);
    run_requests(e, requests, COUNT, got); /* by the times of this machine */
    must_equal_all(got, expected, what);
    free_answers(got, COUNT);
    ck_assert_msg(run_while_k_changes(e, requests, got) > 8, "%s: K hardly changed", what);
    must_equal_all(got, expected, what);
    ck_assert_msg(engine_stats(e)->rounds > 0 && engine_stats(e)->plain_rounds > 0, "%s: no rounds of both kinds",
                  what);
    free_answers(got, COUNT);
    free_requests(requests, COUNT);
    engine_destroy(e);
}

static void expect_plain(const struct pair *pair, float temperature, struct answer *expected) {
    struct engine_options plain = pair_options(pair, 0, 4);
    struct engine *e = must_open(&plain);
    struct request requests[COUNT];
    ask(e, requests, temperature);
    run_requests(e, requests, COUNT, expected);
    free_requests(requests, COUNT);
    engine_destroy(e);
}

/* Loop index: the pair, twice: with its draft model, with n-gram lookup. */
START_TEST(greedy_text_is_that_of_plain_decoding)
{
    struct pair pairs[PAIRS_MAX];
    if (_i / 2 >= test_pairs(pairs)) {
        skip("no test data beside the checkout");
        return;
    }
    struct answer expected[COUNT];
    const struct pair pair = _i % 2 ? ngram_pair(&pairs[_i / 2]) : pairs[_i / 2];
    expect_plain(&pair, 0, expected);
    for (int batch = 1; batch <= 8; batch += test_is_small() ? 3 : 1) {
        struct engine_options o = auto_options(&pair, batch);
        char what[128];
        o.pipeline = 1 + batch % 2;
        o.accept = (enum accept_rule)(batch % 3);
        o.buckets = batch == 5 ? BUCKETS_EXACT : BUCKETS_POW2;
        snprintf(what, sizeof what, "%s, batch %d", pairs[_i / 2].name, batch);
        compare(&o, 0, expected, what);
    }
    free_answers(expected, COUNT);
}
END_TEST

/* Loop index: the draft model, n-gram lookup. */
START_TEST(sampled_text_under_coupled_is_that_of_plain_decoding)
{
    struct answer expected[COUNT];
    const struct pair quick = quick_pair(), pair = _i ? ngram_pair(&quick) : quick;
    expect_plain(&pair, 0.9f, expected);
    for (int pipeline = 1; pipeline <= 2; pipeline++) {
        struct engine_options o = auto_options(&pair, 3);
        o.pipeline = pipeline, o.accept = ACCEPT_COUPLED;
        compare(&o, 0.9f, expected, "coupled");
    }
    free_answers(expected, COUNT);
}
END_TEST

static uint64_t rounds_of(const struct engine *e, int k) {
    return engine_counts(e).rounds_by_k[k];
}

/* With a draft that is never right, whose K = 2 stays behind nowhere. */
static void must_leave_a_fixed_k(struct engine *e) {
    for (int turn = 0; turn < 6; turn++) {
        struct request r = text_request(e, story_starts[turn], 60);
        struct answer a;
        probe_set_simulate_alpha(e, 1e-30f);
        ck_ok(engine_set_k(e, turn % 2 ? K_AUTO : 2));
        const uint64_t before = rounds_of(e, 2);
        r.generation.ignore_end = true;
        run_requests(e, &r, 1, &a);
        if (turn > 2 && turn % 2) ck_assert_uint_lt(rounds_of(e, 2) - before, 30);
        free_answers(&a, 1), free_requests(&r, 1);
    }
    ck_ok(engine_set_k(e, 2));
    probe_set_simulate_alpha(e, 0);
}

START_TEST(auto_is_a_k_that_can_be_set)
{
    const struct pair pair = quick_pair();
    struct engine_options o = pair_options(&pair, 3, 2);
    struct engine *e = must_open(&o);
    ck_assert(!engine_info(e).k_auto);
    ck_ok(engine_set_k(e, K_AUTO));
    ck_assert(engine_info(e).k_auto);
    ck_assert_int_eq(engine_set_k(e, 4), ERR_USAGE);
    ck_assert(engine_info(e).k_auto); /* nothing changes */
    ck_ok(engine_set_k(e, 2));
    ck_assert(!engine_info(e).k_auto && engine_info(e).k == 2);
    must_leave_a_fixed_k(e);
    engine_destroy(e);
    o = auto_options(&pair, 1);
    o.k_max = 0;
    e = must_open(&o);
    ck_assert_int_eq(engine_info(e).k_max, AUTO_K_MAX_DEFAULT);
    engine_destroy(e);
    o = pair_options(&pair, 0, 1);
    e = must_open(&o);
    ck_assert_int_eq(engine_set_k(e, K_AUTO), ERR_USAGE);
    engine_destroy(e);
}
END_TEST

/* In mid-answer too, with rounds in flight. */
START_TEST(rounds_are_measured_when_asked_for_and_texts_do_not_notice)
{
    const struct pair pair = quick_pair();
    struct engine_options o = pair_options(&pair, 3, 2);
    struct request request;
    struct answer expected, got = {0};
    struct sequence *s;
    int running = 1;
    o.pipeline = 2;
    struct engine *e = must_open(&o);
    request = text_request(e, story_starts[0], 40);
    run_requests(e, &request, 1, &expected);
    ck_assert(isnan(engine_round_ms(e, 1, 0)));
    request.generation.on_tokens = listen, request.generation.user = &got;
    ck_ok(engine_open(e, 128, &s));
    ck_ok(engine_generate(e, s, request.prompt.data, (int)request.prompt.len, &request.generation));
    for (int step = 0; running > 0; step++) {
        ck_ok(engine_step(e, &running));
        if (step == 3) ck_ok(engine_measure(e));
    }
    must_equal(&got, &expected, "measured in mid-answer");
    for (int k = 0; k <= 3; k++) ck_assert_double_gt(engine_round_ms(e, 2, k), 0);
    ck_assert(isnan(engine_round_ms(e, 1, 4)) && isnan(engine_round_ms(e, 3, 1)));
    free_answers(&got, 1), free_answers(&expected, 1), free_requests(&request, 1);
    engine_destroy(e);
    o = pair_options(&pair, 0, 1);
    e = must_open(&o);
    ck_assert_int_eq(engine_measure(e), ERR_USAGE);
    engine_destroy(e);
}
END_TEST

/* Of a trial with which an answer begins: a round or two, and a prompt of 200 tokens that the draft reads before, which is as large as the
 * target. */
START_TEST(what_a_trial_took_has_the_draft_s_catching_up)
{
    struct pair pair = quick_pair();
    pair.draft = pair.target;
    struct engine_options o = pair_options(&pair, 2, 1);
    struct sequence *s;
    int running;
    if (!test_device_is_host()) {
        skip("on a GPU 200 tokens take no longer than a few");
        return;
    }
    o.k = K_AUTO, o.k_max = 1;
    struct engine *e = must_open(&o);
    struct request request = filler_request(1, 200, 20);
    struct answer got = {0};
    request.generation.on_tokens = listen, request.generation.user = &got;
    struct auto_k *a = &e->auto_k;
    a->k = 0, a->trial = 0, a->plain = 100, a->credit = 1000;
    float *ms = a->start_ms + a->k_max + 1; /* of bucket 1 */
    ms[1] = 20 * ms[0];                     /* it does not pay */
    e->k = 0;
    ck_ok(engine_open(e, 256, &s));
    ck_ok(engine_generate(e, s, request.prompt.data, (int)request.prompt.len, &request.generation));
    ck_ok(probe_ingest(e));
    for (int i = 0; i < 15 && !(a->bill.ms > 0); i++) ck_ok(engine_step(e, &running));
    ck_assert_int_eq(a->trials, 1);
    ck_assert_msg(a->bill.ms > 25 * (double)ms[0] && a->bill.expected > 0, "%g plain rounds, %g expected",
                  a->bill.ms / (double)ms[0], a->bill.expected);
    free_answers(&got, 1), free_requests(&request, 1);
    engine_destroy(e);
}
END_TEST

DEVICE_SUITE(check_auto_k);
Suite *check_auto_k(void) {
    Suite *suite = suite_create("auto_k");
    TCase *tc = tcase_create("auto_k");
    tcase_add_test(tc, best_has_the_most_tokens_a_millisecond);
    tcase_add_test(tc, acceptance_is_counted_by_position);
    tcase_add_test(tc, nothing_but_accepted_tokens_is_looked_at);
    tcase_add_test(tc, times_follow_the_rounds_and_no_outlier);
    tcase_add_test(tc, a_draft_that_is_never_right_costs_at_most_1_percent);
    tcase_add_test(tc, trials_come_the_sooner_the_less_they_cost);
    tcase_add_test(tc, a_draft_that_is_always_right_gets_k_max);
    tcase_add_test(tc, a_draft_that_is_too_dear_is_not_used);
    tcase_add_loop_test(tc, the_rate_is_near_that_of_the_best_fixed_k, 0, 10);
    tcase_add_test(tc, it_comes_back_when_drafts_are_right_again);
    tcase_add_test(tc, a_catch_up_that_costs_more_than_trials_may_is_put_off);
    tcase_add_test(tc, where_nothing_is_found_nothing_is_tried);
    tcase_add_test(tc, what_trials_wait_for_is_paid_for);
    tcase_add_test(tc, a_trial_is_not_settled_by_rounds_of_the_next_answer);
    tcase_add_loop_test(tc, a_k_that_seemed_too_dear_is_measured_and_taken, 0, 2);
    tcase_add_test(tc, a_k_that_nearly_pays_is_measured_again_soon);
    tcase_add_test(tc, a_row_that_accepts_little_wants_no_k_of_its_own);
    tcase_add_loop_test(tc, greedy_text_is_that_of_plain_decoding, 0, 2 * PAIRS_MAX);
    tcase_add_loop_test(tc, sampled_text_under_coupled_is_that_of_plain_decoding, 0, 2);
    tcase_add_test(tc, auto_is_a_k_that_can_be_set);
    tcase_add_test(tc, rounds_are_measured_when_asked_for_and_texts_do_not_notice);
    tcase_add_test(tc, what_a_trial_took_has_the_draft_s_catching_up);
    suite_add_tcase(suite, tc);
    return suite;
}
