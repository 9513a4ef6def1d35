/* The round: what it launches, when answers end, what is counted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/engine_support.h"
#include "tests/support/support.h"

static struct engine *open_pair(int k, int batch, int pipeline) {
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], k, batch);
    options.pipeline = pipeline;
    return must_open(&options);
}

static struct request story(const struct engine *e, int max_tokens) {
    struct request r = text_request(e, "Once upon a time there was a", max_tokens);
    r.generation.ignore_end = true;
    return r;
}

/* --- launches --------------------------------------------------------------------------------------------------- */

/* Loop index: K = 0..5; then FP8 keys and values with K = 3. */
START_TEST(a_round_launches_the_documented_numbers)
{
    const int k = _i <= 5 ? _i : 3;
    const struct pair pair = quick_pair();
    struct engine_options options = pair_options(&pair, 3, 3);
    if (_i > 5) options.kv = KV_FP8, options.pipeline = 2;
    struct engine *e = _i > 5 ? must_open(&options) : open_pair(k, 3, 1 + k % 2);
    struct request requests[3];
    struct answer answers[3];
    int graphs, kernels;
    for (int i = 0; i < 3; i++) requests[i] = story(e, 30);
    engine_launches(e, k, &graphs, &kernels);
    ck_assert_int_eq(graphs, k > 0 ? k + 1 : 1);
    run_requests(e, requests, 3, answers);
    uint64_t graph_launches, kernel_launches, rounds = count_round_launches(e, &graph_launches, &kernel_launches);
    ck_assert_uint_gt(rounds, 0);
    ck_assert_uint_eq(graph_launches, rounds * (uint64_t)graphs);
    ck_assert_uint_eq(kernel_launches, rounds * (uint64_t)kernels);
    ck_assert_uint_eq(engine_counts(e).target.eager_fallbacks + engine_counts(e).draft.eager_fallbacks, 0);
    free_requests(requests, 3), free_answers(answers, 3);
    engine_destroy(e);
}
END_TEST

/* Between rounds a GPU copies nothing while their rows stay: records are written where the host reads them. And with two rounds in flight a
 * first step collects none. */
START_TEST(rounds_of_the_same_rows_copy_nothing)
{
    struct engine *e = open_pair(3, 2, 2);
    struct request request = story(e, 60);
    struct sequence *s[2];
    struct answer got[2] = {0};
    int running = 1;
    for (int i = 0; i < 2; i++) {
        struct generation g = request.generation;
        g.on_tokens = keep_tokens, g.user = &got[i];
        ck_ok(engine_open(e, 128, &s[i]));
        ck_ok(engine_generate(e, s[i], request.prompt.data, (int)request.prompt.len, &g));
        ck_ok(engine_step(e, &running)); /* its rows, for the first time */
        ck_assert_uint_eq(engine_counts(e).rounds - engine_counts(e).collected, 1);
        const uint64_t rounds = engine_counts(e).rounds, copies = engine_counts(e).stream.copies;
        for (int step = 0; step < 4; step++) ck_ok(engine_step(e, &running));
        ck_assert_uint_eq(engine_counts(e).rounds - rounds, 4);
        ck_assert_uint_eq(engine_counts(e).stream.copies, copies);
    }
    while (running > 0) ck_ok(engine_step(e, &running));
    must_equal(&got[1], &got[0], "of rows that come and go");
    free_answers(got, 2), free_requests(&request, 1);
    engine_destroy(e);
}
END_TEST

START_TEST(nothing_is_allocated_or_captured_after_start_up)
{
    struct engine *e = open_pair(4, 5, 2);
    struct engine_counts before = engine_counts(e);
    enum { REQUESTS = 12 };
    struct request requests[REQUESTS];
    struct answer answers[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) requests[i] = story(e, 10 + (test_is_small() ? 2 : 17) * i);
    run_requests(e, requests, REQUESTS, answers);
    for (int k = 0; k <= 4; k++) {
        ck_ok(engine_set_k(e, k));
        free_answers(answers, REQUESTS);
        run_requests(e, requests, REQUESTS, answers);
    }
    struct engine_counts after = engine_counts(e);
    ck_assert_uint_gt(after.rounds, test_is_small() ? 100 : 500);
    ck_assert_uint_eq(before.device_allocations, after.device_allocations);
    ck_assert_uint_eq(before.stream.captures, after.stream.captures);
    ck_assert_uint_eq(before.target.captures + before.draft.captures, after.target.captures + after.draft.captures);
    ck_assert_uint_eq(after.target.eager_fallbacks + after.draft.eager_fallbacks, 0);
    free_requests(requests, REQUESTS);
    free_answers(answers, REQUESTS);
    engine_destroy(e);
}
END_TEST

/* --- ends --------------------------------------------------------------------------------------------------------- */

START_TEST(exactly_max_tokens_come_out_for_every_number)
{
    for (int k = 0; k <= 6; k += 3) {
        struct engine *e = open_pair(k, 4, 1 + k % 2);
        struct request requests[20];
        struct answer answers[20];
        for (int i = 0; i < 20; i++) requests[i] = story(e, i + 1);
        run_requests(e, requests, 20, answers);
        for (int i = 0; i < 20; i++) {
            ck_assert_uint_eq(answers[i].ids.len, (size_t)i + 1);
            ck_assert_int_eq(answers[i].finish, FINISH_LENGTH);
        }
        free_requests(requests, 20);
        free_answers(answers, 20);
        engine_destroy(e);
    }
}
END_TEST

START_TEST(the_last_position_of_the_context_is_usable_and_no_more)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct answer expected = {0};
    for (int k = 0; k <= 8; k += test_is_small() ? 4 : 1) {
        struct engine_options options = pair_options(&pairs[0], k, 1);
        options.context = 64;
        struct engine *e = must_open(&options);
        struct request r = story(e, 1000);
        struct answer a;
        run_requests(e, &r, 1, &a);
        ck_assert_uint_eq(r.prompt.len + a.ids.len, 64);
        ck_assert_int_eq(a.finish, FINISH_LENGTH);
        if (k == 0) expected = a;
        must_equal(&a, &expected, "at the context's end");
        if (k > 0) ids_free(&a.ids);
        free_requests(&r, 1);
        engine_destroy(e);
    }
    ids_free(&expected.ids);
}
END_TEST

START_TEST(the_model_s_own_last_position_is_usable)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    int32_t ids[1020];
    for (int i = 0; i < 1020; i++) ids[i] = 300 + i % 50;
    struct answer answers[2];
    for (int k = 0; k <= 4; k += 4) {
        struct engine_options options = pair_options(&pairs[0], k, 1);
        struct engine *e = must_open(&options);
        ck_assert_int_eq(engine_info(e).context, 1024);
        struct request r = ids_request(ids, 1020, 100);
        r.generation.ignore_end = true;
        run_requests(e, &r, 1, &answers[k / 4]);
        ck_assert_uint_eq(answers[k / 4].ids.len, 4);
        free_requests(&r, 1);
        engine_destroy(e);
    }
    must_equal(&answers[1], &answers[0], "at the model's last position");
    free_answers(answers, 2);
}
END_TEST

START_TEST(the_corner_of_batch_k_and_context_runs)
{
    enum { BATCH = 8, K = 16, CONTEXT = 300 };
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], K, BATCH);
    options.context = CONTEXT;
    options.pipeline = 2;
    struct engine *e = must_open(&options);
    int32_t ids[CONTEXT];
    for (int i = 0; i < CONTEXT; i++) ids[i] = 300 + i % 60;
    struct request requests[BATCH];
    struct answer answers[BATCH];
    for (int i = 0; i < BATCH; i++) { /* the longest prompt first: one token fits behind it */
        requests[i] = ids_request(ids, (size_t)(CONTEXT - 1 - i * 6), CONTEXT);
        requests[i].generation.ignore_end = true;
    }
    run_requests(e, requests, BATCH, answers);
    for (int i = 0; i < BATCH; i++) ck_assert_uint_eq(answers[i].ids.len, (size_t)(1 + i * 6));
    ck_assert_uint_eq(engine_counts(e).target.eager_fallbacks + engine_counts(e).draft.eager_fallbacks, 0);
    free_requests(requests, BATCH);
    free_answers(answers, BATCH);
    engine_destroy(e);
}
END_TEST

static struct answer answer_alone(struct engine *e, const struct request *request) {
    struct answer answer;
    run_requests(e, request, 1, &answer);
    return answer;
}

START_TEST(past_the_draft_s_last_position_answers_go_on_plainly)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct pair shorter = {"short draft", pairs[0].target,
                           copy_model_with(pairs[0].draft, "short", "max_position_embeddings", 100)};
    struct engine_options options = pair_options(&shorter, 4, 3);
    options.context = 300;
    struct engine *plain = open_pair(0, 1, 1), *e = must_open(&options);
    const int fewer = test_is_small() ? 100 : 0;
    struct request requests[3] = {story(e, 250 - fewer), story(e, 60), story(e, 200 - fewer)};
    struct answer got[3];
    run_requests(e, requests, 3, got);
    for (int i = 0; i < 3; i++) {
        struct answer expected = answer_alone(plain, &requests[i]);
        must_equal(&got[i], &expected, "past the draft's limit");
        ids_free(&expected.ids);
    }
    ck_assert_int_gt(engine_stats(e)->plain_rounds, 0);
    ck_assert_int_gt(engine_stats(e)->accepted, 0);
    struct sequence *s; /* back below the limit the draft is of use again */
    ck_ok(engine_open(e, 300, &s));
    struct answer first = run_turn(e, s, &requests[0]);
    ck_ok(engine_truncate(e, s, 60));
    engine_reset_sequence_stats(s);
    struct request more = ids_request((int32_t[]){300}, 1, 30);
    struct answer second = run_turn(e, s, &more);
    ck_assert_int_eq(second.stats.plain_rounds, 0);
    ids_free(&first.ids), ids_free(&second.ids);
    free_requests(requests, 3), free_requests(&more, 1), free_answers(got, 3);
    engine_destroy(e);
    engine_destroy(plain);
}
END_TEST

static int first_index(const struct ids *ids, int32_t id) {
    for (size_t i = 0; i < ids->len; i++)
        if (ids->data[i] == id) return (int)i;
    return -1;
}

/* The end id of a copy of the target is a token that it does produce. Loop index: which, so that the end comes at
 * changing offsets of a block. */
START_TEST(nothing_follows_an_end_id_at_any_offset)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 4, 1);
    struct engine *e = must_open(&options);
    struct request r = story(e, 60);
    struct answer free_run;
    run_requests(e, &r, 1, &free_run);
    engine_destroy(e);
    int32_t end_id = free_run.ids.data[12 + _i];
    int end_at = first_index(&free_run.ids, end_id);
    struct pair ending = {"end", copy_model_with(pairs[0].target, "end", "eos_token_id", end_id), pairs[0].draft};
    for (int k = 0; k <= 5; k += test_is_small() ? 2 : 1) {
        options = pair_options(&ending, k, 1);
        e = must_open(&options);
        r.generation.ignore_end = false;
        struct answer a;
        run_requests(e, &r, 1, &a);
        ck_assert_int_eq(a.finish, FINISH_STOP);
        ck_assert_uint_eq(a.ids.len, (size_t)end_at + 1);
        ck_assert_int_eq(a.ids.data[end_at], end_id);
        ck_assert_int_eq((int)a.stats.emitted, end_at + 1);
        ck_assert_int_eq((int)(a.stats.accepted + a.stats.rounds + a.stats.plain_rounds) >= end_at + 1, 1);
        r.generation.ignore_end = true;
        struct answer ignoring;
        run_requests(e, &r, 1, &ignoring);
        must_equal(&ignoring, &free_run, "with ignore_end");
        ids_free(&a.ids), ids_free(&ignoring.ids);
        engine_destroy(e);
    }
    ids_free(&free_run.ids);
    free_requests(&r, 1);
}
END_TEST

START_TEST(a_cut_keeps_exactly_the_tokens_before_it_and_the_next_turn_is_right)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    for (int pipeline = 1; pipeline <= 2; pipeline++)
        for (int cut = 1; cut <= 12; cut += test_is_small() ? 4 : 1) {
            struct answer first[2], second[2];
            for (int k = 0; k <= 4; k += 4) {
                struct engine_options options = pair_options(&pairs[0], k, 2);
                options.pipeline = pipeline;
                struct engine *e = must_open(&options);
                struct sequence *s;
                ck_ok(engine_open(e, 300, &s));
                struct request r = story(e, 100), next = text_request(e, " Then", 20);
                r.cut_at = cut;
                first[k / 4] = run_turn(e, s, &r);
                ck_assert_uint_eq(first[k / 4].ids.len, (size_t)cut);
                ck_assert_int_eq((int)engine_sequence_stats(s)->emitted, cut);
                second[k / 4] = run_turn(e, s, &next);
                free_requests(&r, 1), free_requests(&next, 1);
                engine_destroy(e);
            }
            must_equal(&first[1], &first[0], "cut answer");
            must_equal(&second[1], &second[0], "the turn after a cut");
            free_answers(first, 2), free_answers(second, 2);
        }
}
END_TEST

/* --- figures ------------------------------------------------------------------------------------------------------ */

START_TEST(figures_add_up_over_a_run)
{
    struct engine *e = open_pair(4, 3, 2);
    enum { REQUESTS = 9 };
    struct request requests[REQUESTS];
    struct answer answers[REQUESTS];
    int64_t tokens = 0, rounds = 0, histogram = 0, weighted = 0;
    for (int i = 0; i < REQUESTS; i++) {
        requests[i] = story(e, 20 + i);
        requests[i].generation.sampling.temperature = 0.8f;
        requests[i].generation.seed = (uint64_t)i;
        requests[i].cut_at = i % 3 == 0 ? 15 : 0;
    }
    run_requests(e, requests, REQUESTS, answers);
    const struct acceptance *a = engine_stats(e);
    for (int i = 0; i < REQUESTS; i++) tokens += (int64_t)answers[i].ids.len, rounds += answers[i].stats.rounds;
    for (int i = 0; i <= 4; i++) histogram += a->histogram[i], weighted += i * a->histogram[i];
    ck_assert_int_eq(a->emitted, tokens);
    ck_assert_int_eq(a->rounds, rounds);
    ck_assert_int_eq(histogram, rounds);
    ck_assert_int_eq(weighted, a->accepted);
    ck_assert_int_eq(a->drafted, 4 * rounds);
    ck_assert_int_eq(a->evaluated, a->accepted + a->rejected);
    ck_assert_int_le(a->emitted + a->cut, a->accepted + a->rounds);
    free_requests(requests, REQUESTS);
    free_answers(answers, REQUESTS);
    engine_destroy(e);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------------------------------- */

START_TEST(refusals_name_the_reason_and_change_nothing)
{
    struct engine *e = open_pair(2, 1, 1);
    struct sequence *s, *other;
    struct answer a = {0};
    ck_ok(engine_open(e, 2000, &s));
    ck_assert_int_eq(engine_open(e, 0, &other), ERR_USAGE);
    struct request r = story(e, 5);
    struct generation g = r.generation;
    int n;
    ck_assert_int_eq(engine_generate(e, s, NULL, 0, &g), ERR_USAGE);
    int32_t *many = calloc(1024, sizeof *many);
    ck_assert_int_eq(engine_generate(e, s, many, 1024, &g), ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(err_message(), "context"));
    ck_assert_ptr_nonnull(strstr(err_message(), "1024"));
    ck_assert_int_eq(engine_generate(e, s, (int32_t[]){5, 4096}, 2, &g), ERR_FORMAT);
    ck_assert_int_eq(engine_generate(e, s, (int32_t[]){-1}, 1, &g), ERR_FORMAT);
    g.max_tokens = 0;
    ck_assert_int_eq(engine_generate(e, s, (int32_t[]){5}, 1, &g), ERR_USAGE);
    g.max_tokens = 1, g.sampling.top_p = 2;
    ck_assert_int_eq(engine_generate(e, s, (int32_t[]){5}, 1, &g), ERR_USAGE);
    engine_tokens(s, &n);
    ck_assert_int_eq(n, 0);
    ck_assert_int_eq(engine_set_k(e, 3), ERR_USAGE);
    a = run_turn(e, s, &r);
    ck_assert_uint_eq(a.ids.len, 5);
    ids_free(&a.ids);
    free(many);
    free_requests(&r, 1);
    engine_destroy(e);
}
END_TEST

/* A copy of the target whose last weight is NaN. */
static const char *copy_with_nan(const char *dir) {
    static char path[4096];
    char command[32768];
    snprintf(path, sizeof path, "%s/nan", temp_dir());
    snprintf(command, sizeof command,
             "mkdir -p %s && cp %s/*.json %s/model.safetensors %s && chmod u+w %s/* && "
             "truncate -s -2 %s/model.safetensors && printf '\\377\\177' >> %s/model.safetensors",
             path, dir, dir, path, path, path, path);
    ck_assert_int_eq(system(command), 0);
    return path;
}

/* Loop index: K. */
START_TEST(non_finite_logits_end_the_answer_with_an_error_and_no_token)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct pair broken = {"NaN target", copy_with_nan(pairs[0].target), pairs[0].draft};
    struct engine_options options = pair_options(&broken, _i, 2);
    struct engine *e = must_open(&options);
    struct request requests[3] = {story(e, 20), story(e, 20), story(e, 20)};
    struct answer answers[3];
    run_requests(e, requests, 3, answers);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(answers[i].finish, FINISH_ERROR);
        ck_assert_uint_eq(answers[i].ids.len, 0);
    }
    free_requests(requests, 3);
    free_answers(answers, 3);
    engine_destroy(e);
}
END_TEST

/* Loop index: target or draft. */
START_TEST(a_model_with_non_finite_logits_is_named)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct pair broken = pairs[0];
    const char **model = _i == 0 ? &broken.target : &broken.draft;
    *model = copy_with_nan(*model);
    struct engine_options options = pair_options(&broken, 2, 1);
    struct engine *e = must_open(&options);
    struct request r = story(e, 20);
    struct sequence *s;
    char sentence[4200];
    ck_ok(engine_open(e, 200, &s));
    struct answer a = run_turn(e, s, &r);
    ck_assert_int_eq(engine_finish(s), FINISH_ERROR);
    ck_assert_int_eq(engine_finish_error(s), ERR_NUMERIC);
    snprintf(sentence, sizeof sentence, "%s: the %s gave non-finite logits", *model, _i == 0 ? "target" : "draft");
    ck_assert_str_eq(err_message(), sentence);
    free_answers(&a, 1);
    free_requests(&r, 1);
    engine_destroy(e);
}
END_TEST

START_TEST(a_broken_pair_is_refused_by_name)
{
    struct pair pairs[PAIRS_MAX];
    struct engine *e;
    if (test_pairs(pairs) < 3) {
        skip("no test data beside the checkout");
        return;
    }
    struct pair mixed = {"mixed", pairs[0].target, pairs[1].draft};
    struct engine_options options = pair_options(&mixed, 4, 1);
    ck_assert_int_ne(engine_create(&e, &options), 0);
    ck_assert_ptr_null(e);
    ck_assert_ptr_nonnull(strstr(err_message(), pairs[1].draft));
    options = pair_options(&pairs[0], 4, 1);
    options.target = test_checkpoint("/nonexistent");
    ck_assert_int_eq(engine_create(&e, &options), ERR_IO);
    ck_assert_ptr_nonnull(strstr(err_message(), "/nonexistent"));
    options = pair_options(&pairs[0], 4, 1);
    options.context = 1025;
    ck_assert_int_eq(engine_create(&e, &options), ERR_USAGE);
}
END_TEST

DEVICE_SUITE(check_rounds);
Suite *check_rounds(void) {
    Suite *suite = suite_create("rounds");
    TCase *tc = tcase_create("rounds");
    tcase_add_loop_test(tc, a_round_launches_the_documented_numbers, 0, 7);
    tcase_add_test(tc, rounds_of_the_same_rows_copy_nothing);
    tcase_add_test(tc, nothing_is_allocated_or_captured_after_start_up);
    tcase_add_test(tc, exactly_max_tokens_come_out_for_every_number);
    tcase_add_test(tc, the_last_position_of_the_context_is_usable_and_no_more);
    tcase_add_test(tc, the_model_s_own_last_position_is_usable);
    tcase_add_test(tc, the_corner_of_batch_k_and_context_runs);
    tcase_add_test(tc, past_the_draft_s_last_position_answers_go_on_plainly);
    tcase_add_loop_test(tc, nothing_follows_an_end_id_at_any_offset, 0, 6);
    tcase_add_test(tc, a_cut_keeps_exactly_the_tokens_before_it_and_the_next_turn_is_right);
    tcase_add_test(tc, figures_add_up_over_a_run);
    tcase_add_test(tc, refusals_name_the_reason_and_change_nothing);
    tcase_add_loop_test(tc, non_finite_logits_end_the_answer_with_an_error_and_no_token, 0, 3);
    tcase_add_loop_test(tc, a_model_with_non_finite_logits_is_named, 0, 2);
    tcase_add_test(tc, a_broken_pair_is_refused_by_name);
    suite_add_tcase(suite, tc);
    return suite;
}
