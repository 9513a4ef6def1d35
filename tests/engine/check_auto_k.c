/* --k auto: the choice, worked by hand and over made-up rounds, whose times are given. check_auto_k_texts has what engines do with it. */
#include <math.h>
#include <string.h>

#include "engine/auto_k.h"
#include "tests/support/support.h"
#include "verify/stats.h"

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
    suite_add_tcase(suite, tc);
    return suite;
}
