/* Speculation, batching, graphs and the pipeline change speed and nothing else: greedy text is equal token for token. */
#include <stdio.h>
#include <string.h>

#include "tests/support/engine_support.h"
#include "tests/support/support.h"

static const char *const prompts[] = {
    "Once upon a time",
    "Tom had a red ball.",
    "The little frog",
    "Lily went to the park with her mom.",
    "One day",
    "A cat and a dog",
    "There was a big tree",
    "She said, \"Hello!\"",
    "Ben ran to",
    "The sun",
};
enum { PROMPTS = sizeof prompts / sizeof *prompts };

static int tokens(void) {
    return test_is_small() ? 10 : 40;
}

static void run_prompts(const struct engine_options *options, int count, struct answer *answers) {
    struct engine *e = must_open(options);
    struct request requests[PROMPTS];
    for (int i = 0; i < count; i++) {
        requests[i] = text_request(e, prompts[i], tokens() + (test_is_small() ? 1 : 3) * i);
        requests[i].generation.ignore_end = i % 2;
    }
    run_requests(e, requests, count, answers);
    free_requests(requests, count);
    engine_destroy(e);
}

static void must_equal_all(const struct answer *got, const struct answer *expected, int count, const char *what) {
    for (int i = 0; i < count; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s, prompt %d", what, i);
        must_equal(&got[i], &expected[i], name);
    }
}

/* Loop index: the pair. */
START_TEST(greedy_text_is_the_same_for_every_k_and_batch)
{
    struct pair pairs[PAIRS_MAX];
    if (_i >= test_pairs(pairs)) {
        skip("no test data beside the checkout");
        return;
    }
    struct answer expected[PROMPTS], got[PROMPTS];
    struct engine_options plain = pair_options(&pairs[_i], 0, 1);
    run_prompts(&plain, PROMPTS, expected);
    static const int batches[] = {1, 2, 5, 10};
    for (int b = 0; b < 4; b += test_is_small() ? 3 : 1)
        for (int k = 0; k <= 8; k += test_is_small() ? 3 : 1) {
            struct engine_options options = pair_options(&pairs[_i], k, batches[b]);
            int count = batches[b] == 1 ? 2 : PROMPTS;
            char what[128];
            snprintf(what, sizeof what, "%s, k %d, batch %d", pairs[_i].name, k, batches[b]);
            run_prompts(&options, count, got);
            must_equal_all(got, expected, count, what);
            free_answers(got, count);
        }
    free_answers(expected, PROMPTS);
}
END_TEST

/* Loop index: 0..8 = mode * 3 + policy. */
START_TEST(graph_modes_and_buckets_give_the_same_tokens)
{
    static const enum bucket_policy policies[] = {BUCKETS_POW2, BUCKETS_STEP8, BUCKETS_EXACT};
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct answer expected[PROMPTS], got[PROMPTS];
    struct engine_options options = pair_options(&pairs[0], 3, 5);
    options.graphs = GRAPHS_OFF;
    run_prompts(&options, PROMPTS, expected);
    options.graphs = (enum graph_mode)(_i / 3);
    options.buckets = policies[_i % 3];
    options.pipeline = 1 + _i % 2;
    run_prompts(&options, PROMPTS, got);
    must_equal_all(got, expected, PROMPTS, "graphs");
    free_answers(expected, PROMPTS);
    free_answers(got, PROMPTS);
}
END_TEST

static void run_sampled(const struct engine_options *options, const int *order, int count, struct answer *by_prompt) {
    struct engine *e = must_open(options);
    struct request requests[PROMPTS];
    struct answer answers[PROMPTS];
    for (int i = 0; i < count; i++) {
        requests[i] = text_request(e, prompts[order[i]], tokens());
        requests[i].generation.sampling.temperature = 0.9f;
        requests[i].generation.seed = 1000 + (uint64_t)order[i];
    }
    run_requests(e, requests, count, answers);
    for (int i = 0; i < count; i++) by_prompt[order[i]] = answers[i];
    free_requests(requests, count);
    engine_destroy(e);
}

START_TEST(same_seed_gives_the_same_text_in_any_slot_beside_any_neighbours)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct answer expected[PROMPTS], got[PROMPTS];
    const int forward[PROMPTS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, mixed[PROMPTS] = {5, 2, 9, 7, 0, 3, 8, 6, 1, 4};
    struct engine_options alone = pair_options(&pairs[0], 4, 1), beside = pair_options(&pairs[0], 4, 3);
    run_sampled(&alone, forward, PROMPTS, expected);
    for (int pipeline = 1; pipeline <= 2; pipeline++) {
        beside.pipeline = pipeline;
        run_sampled(&beside, mixed, PROMPTS, got);
        must_equal_all(got, expected, PROMPTS, "mixed order, batch 3");
        free_answers(got, PROMPTS);
    }
    free_answers(expected, PROMPTS);
}
END_TEST

START_TEST(two_seeds_give_two_texts)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 4, 2);
    struct engine *e = must_open(&options);
    struct request requests[2];
    struct answer answers[2];
    for (int i = 0; i < 2; i++) {
        requests[i] = text_request(e, prompts[0], tokens());
        requests[i].generation.sampling.temperature = 1;
        requests[i].generation.seed = (uint64_t)i;
    }
    run_requests(e, requests, 2, answers);
    ck_assert(answers[0].ids.len != answers[1].ids.len ||
              memcmp(answers[0].ids.data, answers[1].ids.data, answers[0].ids.len * sizeof(int32_t)) != 0);
    free_requests(requests, 2);
    free_answers(answers, 2);
    engine_destroy(e);
}
END_TEST

static void must_answer_as(const struct engine_options *options, int count, const struct answer *expected,
                           const char *what) {
    struct answer got[PROMPTS];
    run_prompts(options, count, got);
    must_equal_all(got, expected, count, what);
    free_answers(got, count);
}

/* Loop index: fp8, int4. A quantised draft proposes other tokens, and a quantised target is another target: each target's text is
 * that of its plain decoding. */
START_TEST(quantised_weights_lose_nothing)
{
    const enum model_weights weights = _i == 0 ? WEIGHTS_FP8 : WEIGHTS_INT4;
    const struct pair pair = quick_pair();
    struct answer expected[PROMPTS];
    struct engine_options options = pair_options(&pair, 0, 3);
    for (int quantises_target = 0; quantises_target <= 1; quantises_target++) {
        options = pair_options(&pair, 0, 3);
        options.target_weights = quantises_target ? weights : WEIGHTS_AS_STORED;
        run_prompts(&options, PROMPTS, expected);
        for (int k = 1; k <= 7; k += 3) {
            options.k = k, options.k_max = 0, options.draft = pair_options(&pair, k, 3).draft;
            options.draft_weights = k == 4 && quantises_target ? WEIGHTS_AS_STORED : weights;
            must_answer_as(&options, PROMPTS, expected, quantises_target ? "quantised target" : "quantised draft");
        }
        free_answers(expected, PROMPTS);
    }
}
END_TEST

/* Loop index: the rule. What a cut draft cannot propose is emitted all the same: K 1 to 7, of few ids, of most, with a quantised
 * draft, and again sampled for the rule that gives plain decoding's text. */
START_TEST(a_cut_draft_loses_nothing)
{
    static const char *const wishes[] = {"3", "40", "300"};
    const struct pair pair = quick_pair();
    const bool is_coupled = _i == ACCEPT_COUPLED;
    struct answer expected[PROMPTS], got[PROMPTS];
    int order[PROMPTS];
    for (int i = 0; i < PROMPTS; i++) order[i] = i;
    for (int is_sampled = 0; is_sampled <= is_coupled; is_sampled++) {
        struct engine_options options = pair_options(&pair, 0, 3);
        int64_t accepted = 0;
        options.accept = (enum accept_rule)_i;
        if (is_sampled)
            run_sampled(&options, order, PROMPTS, expected);
        else
            run_prompts(&options, PROMPTS, expected);
        for (int k = 1; k <= 7; k += test_is_small() ? 2 : 1) {
            options.k = k, options.k_max = 0, options.draft = pair_options(&pair, k, 3).draft;
            options.draft_vocab = wishes[k % 3], options.draft_weights = (enum model_weights)(k / 3);
            if (is_sampled)
                run_sampled(&options, order, PROMPTS, got);
            else
                run_prompts(&options, PROMPTS, got);
            must_equal_all(got, expected, PROMPTS, "a cut draft");
            for (int i = 0; i < PROMPTS; i++) accepted += got[i].stats.accepted;
            free_answers(got, PROMPTS);
        }
        ck_assert_int_gt(accepted, 0);
        free_answers(expected, PROMPTS);
    }
}
END_TEST

/* Loop index: K = 0..7, 0 being compared in slots beside others with one alone. FP8 in both caches: the target with them is another
 * target, whose text is that of its plain decoding. */
START_TEST(fp8_keys_and_values_lose_nothing)
{
    const struct pair pair = quick_pair();
    struct answer expected[PROMPTS];
    struct engine_options options = pair_options(&pair, 0, 1);
    options.kv = KV_FP8;
    run_prompts(&options, PROMPTS, expected);
    options = pair_options(&pair, _i, 3);
    options.kv = KV_FP8, options.pipeline = 1 + _i % 2;
    must_answer_as(&options, PROMPTS, expected, "FP8 keys and values");
    free_answers(expected, PROMPTS);
}
END_TEST

DEVICE_SUITE(check_lossless);
Suite *check_lossless(void) {
    Suite *suite = suite_create("lossless");
    TCase *tc = tcase_create("lossless");
    tcase_add_loop_test(tc, greedy_text_is_the_same_for_every_k_and_batch, 0, PAIRS_MAX);
    tcase_add_loop_test(tc, graph_modes_and_buckets_give_the_same_tokens, 0, 9);
    tcase_add_test(tc, same_seed_gives_the_same_text_in_any_slot_beside_any_neighbours);
    tcase_add_test(tc, two_seeds_give_two_texts);
    tcase_add_loop_test(tc, quantised_weights_lose_nothing, 0, 2);
    tcase_add_loop_test(tc, a_cut_draft_loses_nothing, 0, 3);
    tcase_add_loop_test(tc, fp8_keys_and_values_lose_nothing, 0, 8);
    suite_add_tcase(suite, tc);
    return suite;
}
