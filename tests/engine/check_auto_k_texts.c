/* --k auto in an engine: texts do not notice it, it can be set and left, and what it measures. */
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"
#include "engine/probe.h"
#include "tests/support/engine_support.h"
#include "tests/support/kv_support.h"
#include "tests/support/support.h"

enum { COUNT = 10, K = 5 };

static void ask(const struct engine *e, struct request *requests, float temperature) {
    for (int i = 0; i < COUNT; i++) {
        requests[i] = text_request(e, story_starts[i], (test_is_small() ? 16 : 40) + 2 * i);
        requests[i].generation.sampling.temperature = temperature;
        requests[i].generation.seed = 100 + (uint64_t)i;
    }
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
        g.on_tokens = keep_tokens, g.user = &answers[i];
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
    request.generation.on_tokens = keep_tokens, request.generation.user = &got;
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

/* Where what a draft lacks after some plain rounds is more than a whole context. */
START_TEST(rounds_are_measured_in_the_smallest_contexts)
{
    const struct pair pair = quick_pair();
    for (int context = 2; context <= 18; context += 4)
        for (int k_max = 1; k_max <= 8; k_max += 7) {
            struct engine_options o = auto_options(&pair, 2);
            const int32_t prompt = 5;
            struct request request = ids_request(&prompt, 1, context - 1);
            struct answer got;
            o.context = context, o.k_max = k_max;
            struct engine *e = must_open(&o);
            request.generation.ignore_end = true;
            run_requests(e, &request, 1, &got);
            ck_assert_uint_eq(got.ids.len, (size_t)context - 1);
            free_answers(&got, 1), free_requests(&request, 1);
            engine_destroy(e);
        }
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
    request.generation.on_tokens = keep_tokens, request.generation.user = &got;
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

DEVICE_SUITE(check_auto_k_texts);
Suite *check_auto_k_texts(void) {
    Suite *suite = suite_create("auto_k_texts");
    TCase *tc = tcase_create("auto_k_texts");
    tcase_add_loop_test(tc, greedy_text_is_that_of_plain_decoding, 0, 2 * PAIRS_MAX);
    tcase_add_loop_test(tc, sampled_text_under_coupled_is_that_of_plain_decoding, 0, 2);
    tcase_add_test(tc, auto_is_a_k_that_can_be_set);
    tcase_add_test(tc, rounds_are_measured_when_asked_for_and_texts_do_not_notice);
    tcase_add_test(tc, rounds_are_measured_in_the_smallest_contexts);
    tcase_add_test(tc, what_a_trial_took_has_the_draft_s_catching_up);
    suite_add_tcase(suite, tc);
    return suite;
}
