/* The engine on a GPU, where the host's suites do not reach: larger batches, memory after start-up, long runs. */
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"
#include "tests/engine_support.h"
#include "tests/support.h"

static const char *const texts[] = {"Once upon a time",
                                    "Tom had a red ball.",
                                    "The little frog",
                                    "One day",
                                    "A cat and a dog",
                                    "There was",
                                    "She said",
                                    "The sun",
                                    "Lily",
                                    "Ben ran to"};
enum { TEXTS = sizeof texts / sizeof *texts };

static void run_texts(const struct engine_options *options, int count, int tokens, float temperature,
                      struct answer *answers) {
    struct engine *e = must_open(options);
    struct request requests[TEXTS];
    for (int i = 0; i < count; i++) {
        requests[i] = text_request(e, texts[i], tokens + 5 * i);
        requests[i].generation.ignore_end = true;
        requests[i].generation.sampling.temperature = temperature;
        requests[i].generation.seed = 40 + (uint64_t)i;
    }
    run_requests(e, requests, count, answers);
    free_requests(requests, count);
    engine_destroy(e);
}

static void must_equal_all(const struct answer *got, const struct answer *expected, int count, const char *what) {
    for (int i = 0; i < count; i++) must_equal(&got[i], &expected[i], what);
}

START_TEST(greedy_text_is_the_same_for_every_k_at_batch_10)
{
    struct pair pairs[PAIRS_MAX];
    struct answer expected[TEXTS], got[TEXTS];
    test_pairs(pairs);
    for (int k = 0; k <= 8; k++) {
        struct engine_options options = pair_options(&pairs[0], k, k == 0 ? 1 : 10);
        char what[64];
        snprintf(what, sizeof what, "k %d, batch 10", k);
        run_texts(&options, TEXTS, 120, 0, k == 0 ? expected : got);
        if (k > 0) must_equal_all(got, expected, TEXTS, what), free_answers(got, TEXTS);
    }
    free_answers(expected, TEXTS);
}
END_TEST

/* Races between kernels show as bits that change from run to run. */
START_TEST(a_thousand_rounds_twice_give_the_same_tokens)
{
    struct pair pairs[PAIRS_MAX];
    struct answer expected[TEXTS], got[TEXTS];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 4, 2);
    for (int run = 0; run < 2; run++) run_texts(&options, TEXTS, 400, 0.9f, run == 0 ? expected : got);
    must_equal_all(got, expected, TEXTS, "second run");
    options.graphs = GRAPHS_OFF;
    free_answers(got, TEXTS);
    run_texts(&options, TEXTS, 400, 0.9f, got);
    must_equal_all(got, expected, TEXTS, "without graphs");
    free_answers(got, TEXTS), free_answers(expected, TEXTS);
}
END_TEST

/* Loop index: the mode of graphs. */
START_TEST(free_memory_is_the_same_before_and_after_a_run)
{
    struct pair pairs[PAIRS_MAX];
    uint64_t before, after, total;
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 4, 5);
    options.graphs = (enum graph_mode)_i;
    struct engine *e = must_open(&options);
    struct request requests[TEXTS];
    struct answer answers[TEXTS];
    for (int i = 0; i < TEXTS; i++) {
        requests[i] = text_request(e, texts[i], 60 + i);
        requests[i].generation.sampling =
            (struct sampling){i % 2 ? 0.8f : 0, i % 3 ? 0.9f : 1, i % 4 ? 0 : 0.1f, i % 5 * 10};
    }
    ck_ok(device_memory(e->device, &before, &total));
    run_requests(e, requests, TEXTS, answers);
    ck_ok(device_memory(e->device, &after, &total));
    ck_assert_msg(before == after, "%lld bytes of GPU memory went", (long long)(before - after));
    free_requests(requests, TEXTS), free_answers(answers, TEXTS);
    engine_destroy(e);
}
END_TEST

Suite *check_engine_cuda(void);
Suite *check_engine_cuda(void) {
    Suite *suite = suite_create("engine_cuda");
    TCase *tc = tcase_create("engine_cuda");
    tcase_add_test(tc, greedy_text_is_the_same_for_every_k_at_batch_10);
    tcase_add_test(tc, a_thousand_rounds_twice_give_the_same_tokens);
    tcase_add_loop_test(tc, free_memory_is_the_same_before_and_after_a_run, 0, 3);
    suite_add_tcase(suite, tc);
    return suite;
}
