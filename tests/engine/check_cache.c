/* The caches after rounds: equal to a fresh prefill, whatever was accepted; nobody writes pages that are not theirs. */
#include <string.h>

#include "engine/internal.h"
#include "tests/support/engine_support.h"
#include "tests/support/kv_support.h"
#include "tests/support/support.h"

static const char long_prompt[] =
    "Once upon a time there was a little girl named Lily. She had a red ball and a small dog. Every day she went to "
    "the park with her mom, and the dog ran after the ball until the sun went down behind the big green trees.";

static struct request sampled(const struct engine *e, const char *text, int max_tokens, float temperature) {
    struct request r = text_request(e, text, max_tokens);
    r.generation.sampling.temperature = temperature;
    r.generation.ignore_end = true;
    return r;
}

/* --- cache contents ------------------------------------------------------------------------------------------ */

struct mix {
    int none, some, all;
};

static struct mix mix_of(const struct acceptance *a, int k) {
    struct mix m = {.none = (int)a->histogram[0], .all = (int)a->histogram[k]};
    for (int i = 1; i < k; i++) m.some += (int)a->histogram[i];
    return m;
}

/* Loop index: K = 1..6; then FP8 with K = 2 and 5. */
START_TEST(caches_equal_a_fresh_prefill_after_every_kind_of_round)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    const int k = _i <= 6 ? _i : 3 * (_i - 7) + 2;
    struct engine_options options = pair_options(&pairs[0], k, 1);
    options.pipeline = 1 + _i % 2;
    options.kv = _i <= 6 ? KV_AUTO : KV_FP8;
    struct engine *e = must_open_exact(&options), *fresh = must_open_exact(&options);
    struct sequence *s;
    ck_ok(engine_open(e, 400, &s));
    struct request r = sampled(e, long_prompt, 7, 0.6f);
    for (int turn = 0; turn < (test_is_small() ? 8 : 12);
         turn++) { /* ends after 0, some and all accepted, at changing offsets */
        r.generation.seed = (uint64_t)turn;
        r.generation.max_tokens = 7 + turn % 4;
        struct answer a = run_turn(e, s, &r);
        must_equal_fresh_prefill(e, s, fresh, "after a turn");
        ids_free(&a.ids);
        r.prompt.len = 2;
    }
    struct mix m = mix_of(engine_sequence_stats(s), k);
    ck_assert_msg(m.none > 0 && m.all > 0 && (k == 1 || m.some > 0), "rounds with none %d, some %d, all %d", m.none,
                  m.some, m.all);
    free_requests(&r, 1);
    engine_destroy(fresh);
    engine_destroy(e);
}
END_TEST

static void ignore_tokens(void *user, struct token_block *block) {
    (void)user, (void)block;
}

START_TEST(draft_equal_to_target_accepts_everything_for_a_thousand_rounds)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct pair self = self_pair(&pairs[0]);
    struct engine_options options = pair_options(&self, 3, 4);
    struct engine *e = must_open_exact(&options);
    enum { REQUESTS = 5 };
    struct request requests[REQUESTS];
    struct answer answers[REQUESTS];
    static const char *const texts[REQUESTS] = {"Once", "Tom", "A dog", "Lily", "The sun"};
    for (int i = 0; i < REQUESTS; i++)
        requests[i] = sampled(e, texts[i], test_is_small() ? 104 : 804, i < 3 ? 0 : 0.8f);
    run_requests(e, requests, REQUESTS, answers);
    const struct acceptance *a = engine_stats(e);
    ck_assert_int_ge(a->rounds, test_is_small() ? 125 : 1000);
    ck_assert_int_eq(a->rejected, 0);
    ck_assert(acceptance_alpha(a) == 1);
    free_requests(requests, REQUESTS);
    free_answers(answers, REQUESTS);
    engine_destroy(e);
}
END_TEST

START_TEST(k_may_change_also_to_zero_between_rounds)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct pair self = self_pair(&pairs[0]);
    struct engine_options options = pair_options(&self, 4, 1);
    for (int pipeline = 1; pipeline <= 2; pipeline++) {
        options.pipeline = pipeline;
        struct engine *e = must_open_exact(&options), *fresh = must_open_exact(&options);
        struct sequence *s;
        ck_ok(engine_open(e, 600, &s));
        struct request r = sampled(e, long_prompt, 400, 0);
        static const int ks[] = {4, 0, 1, 0, 0, 3, 2, 0, 4};
        for (int turn = 0; turn < 9; turn++) {
            ck_ok(engine_set_k(e, ks[turn]));
            r.generation.max_tokens = 13;
            struct answer a = run_turn(e, s, &r);
            ids_free(&a.ids);
            r.prompt.len = 1;
        }
        ck_assert_int_gt(engine_stats(e)->rounds, 0);
        ck_assert_int_gt(engine_stats(e)->plain_rounds, 0);
        ck_assert_int_eq(engine_stats(e)->rejected, 0); /* the draft's cache never starves */
        ck_ok(engine_set_k(e, 4));
        struct answer a = run_turn(e, s, &r);
        must_equal_fresh_prefill(e, s, fresh, "after changes of k");
        ids_free(&a.ids);
        free_requests(&r, 1);
        engine_destroy(fresh);
        engine_destroy(e);
    }
}
END_TEST

/* Two rounds deep: a plain round in flight is one of the answers that take part in it. */
START_TEST(a_plain_round_of_others_makes_no_draft_lag)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 4, 2);
    options.pipeline = 2;
    struct engine *e = must_open_exact(&options);
    struct sequence *old, *new;
    struct request r = sampled(e, "Once", 60, 0);
    int running;
    r.generation.on_tokens = ignore_tokens;
    ck_ok(engine_open(e, 100, &old));
    ck_ok(engine_open(e, 100, &new));
    ck_ok(engine_set_k(e, 0));
    ck_ok(engine_generate(e, old, r.prompt.data, (int)r.prompt.len, &r.generation));
    for (int i = 0; i < 4; i++) ck_ok(engine_step(e, &running));
    ck_ok(engine_generate(e, new, r.prompt.data, (int)r.prompt.len, &r.generation));
    ck_assert(round_plain_in_flight(old));
    ck_assert(!round_plain_in_flight(new));
    free_requests(&r, 1);
    engine_destroy(e);
}
END_TEST

/* Answers of two turns, of prompts that are unequally long, whose drafts read nothing until the second is half written. Loop index:
 * rounds in flight. */
START_TEST(rows_that_catch_up_together_have_the_caches_of_a_fresh_prefill)
{
    enum { ROWS = 5, FIRST = 9, SECOND = 24 };
    static const int prompts[ROWS] = {3, 245, 12, 13, 30};
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 4, ROWS);
    options.pipeline = _i;
    struct engine *e = must_open_exact(&options), *fresh = must_open_exact(&options);
    struct sequence *rows[ROWS];
    int running;
    for (int i = 0; i < ROWS; i++) ck_ok(engine_open(e, 320, &rows[i]));
    for (int turn = 0; turn < 2; turn++) {
        ck_ok(engine_set_k(e, 0));
        for (int i = 0; i < ROWS; i++) {
            struct request r = filler_request(i, turn == 0 ? prompts[i] : 2 + i, turn == 0 ? FIRST : SECOND);
            r.generation.ignore_end = true, r.generation.on_tokens = ignore_tokens;
            ck_ok(engine_generate(e, rows[i], r.prompt.data, (int)r.prompt.len, &r.generation));
            free_requests(&r, 1);
        }
        ck_ok(probe_ingest(e));
        for (int i = 0; turn == 1 && i < SECOND / 2; i++) ck_ok(engine_step(e, &running));
        if (turn == 1) ck_ok(engine_set_k(e, 4));
        do ck_ok(engine_step(e, &running));
        while (running > 0);
    }
    ck_assert_int_gt(engine_stats(e)->rounds, 0);
    for (int i = 0; i < ROWS; i++) must_equal_fresh_prefill(e, rows[i], fresh, "a row that caught up");
    engine_destroy(fresh);
    engine_destroy(e);
}
END_TEST

static bool any_lags(const struct engine *e, const struct proposer_row *rows, int count) {
    for (int i = 0; i < count; i++)
        if (proposer_lags(e->proposer, rows[i].slot, rows[i].length, false) > 0) return true;
    return false;
}

/* Of a draft that has read nothing of so many tokens. */
START_TEST(a_few_tokens_of_many_rows_are_few_passes)
{
    enum { ROWS = 8, LONG = 150 };
    static const int32_t tokens[LONG] = {3, 4, 5};
    static const struct {
        int rows, shortest, longest, passes;
    } cases[] = {{1, LONG, LONG, 1}, {ROWS, 2, 2, 1}, {ROWS, 12, 12, 1},
                 {ROWS, 33, 40, 2},  {2, 20, 90, 2},  {ROWS, 3, LONG, 2}};
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 2, ROWS);
    struct engine *e = must_open(&options);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct proposer_row rows[ROWS];
        int passes = 0;
        for (int i = 0; i < cases[c].rows; i++) {
            rows[i] = (struct proposer_row){1 + i, tokens, (i == 0 ? cases[c].longest : cases[c].shortest) + 1, 0};
            const struct proposer_turn turn = {1 + i, LONG, tokens, 0, rows[i].length};
            ck_ok(proposer_begin(e->proposer, e->stream, &turn));
        }
        for (; any_lags(e, rows, cases[c].rows); passes++)
            ck_ok(proposer_ingest(e->proposer, e->stream, rows, cases[c].rows));
        ck_assert_msg(passes == cases[c].passes, "%d rows that lack %d, and one %d, take %d passes", cases[c].rows,
                      cases[c].shortest, cases[c].longest, passes);
    }
    engine_destroy(e);
}
END_TEST

struct switching {
    struct engine *engine;
    int tokens, blocks;
    bool done;
};

static void switch_k(void *user, struct token_block *block) {
    struct switching *w = user;
    w->tokens += block->count;
    w->done = block->finish != FINISH_NONE;
    ck_ok(engine_set_k(w->engine, w->blocks++ % 5));
}

START_TEST(k_may_change_inside_an_answer)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct pair self = self_pair(&pairs[0]);
    struct engine_options options = pair_options(&self, 4, 1);
    for (int pipeline = 1; pipeline <= 2; pipeline++) {
        options.pipeline = pipeline;
        struct engine *e = must_open_exact(&options);
        struct sequence *s;
        ck_ok(engine_open(e, 400, &s));
        struct request r = sampled(e, "Once upon a time", 200, 0);
        struct switching w = {.engine = e};
        r.generation.on_tokens = switch_k, r.generation.user = &w;
        ck_ok(engine_generate(e, s, r.prompt.data, (int)r.prompt.len, &r.generation));
        int running;
        while (!w.done) ck_ok(engine_step(e, &running));
        ck_assert_int_eq(w.tokens, 200);
        ck_assert_int_eq(engine_stats(e)->rejected, 0);
        ck_assert_int_gt(engine_stats(e)->plain_rounds, 0);
        free_requests(&r, 1);
        engine_destroy(e);
    }
}
END_TEST

START_TEST(a_second_turn_accepts_like_a_cold_prefill_of_the_same_ids)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 4, 1);
    struct engine *e = must_open_exact(&options);
    struct sequence *s, *cold;
    ck_ok(engine_open(e, 500, &s));
    struct request first = sampled(e, long_prompt, 30, 0.8f), second = sampled(e, " Then the dog", 60, 0.8f);
    struct answer a = run_turn(e, s, &first);
    struct request whole = sampled(e, "", 60, 0.8f);
    int n;
    const int32_t *tokens = engine_tokens(s, &n);
    ids_append(&whole.prompt, tokens, (size_t)n);
    ids_append(&whole.prompt, second.prompt.data, second.prompt.len);
    engine_reset_sequence_stats(s);
    struct answer warm = run_turn(e, s, &second);
    engine_close(e, s);
    ck_ok(engine_open(e, 500, &cold));
    struct answer fresh = run_turn(e, cold, &whole);
    must_equal(&warm, &fresh, "second turn");
    ck_assert_int_eq(warm.stats.accepted, fresh.stats.accepted);
    ck_assert_int_eq(warm.stats.rounds, fresh.stats.rounds);
    ids_free(&a.ids), ids_free(&warm.ids), ids_free(&fresh.ids);
    free_requests(&first, 1), free_requests(&second, 1), free_requests(&whole, 1);
    engine_destroy(e);
}
END_TEST

START_TEST(an_undone_turn_leaves_nothing_in_the_draft_s_cache)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct pair self = self_pair(&pairs[0]);
    struct engine_options options = pair_options(&self, 4, 1);
    struct engine *e = must_open_exact(&options), *fresh = must_open_exact(&options);
    struct sequence *s;
    int n;
    ck_ok(engine_open(e, 400, &s));
    struct request first = sampled(e, long_prompt, 40, 0), other = sampled(e, "Tom", 20, 0);
    struct answer a = run_turn(e, s, &first);
    engine_tokens(s, &n);
    ck_ok(engine_truncate(e, s, n - 30)); /* another text takes these positions, in a plain turn */
    ck_ok(engine_set_k(e, 0));
    struct answer b = run_turn(e, s, &other);
    ck_ok(engine_set_k(e, 4));
    struct answer c = run_turn(e, s, &other);
    ck_assert_int_eq(c.stats.rejected, 0);
    must_equal_fresh_prefill(e, s, fresh, "after an undo");
    ids_free(&a.ids), ids_free(&b.ids), ids_free(&c.ids);
    free_requests(&first, 1), free_requests(&other, 1);
    engine_destroy(fresh);
    engine_destroy(e);
}
END_TEST

static void expect_tokens(const struct sequence *s, const struct ids *expected) {
    int n;
    const int32_t *tokens = engine_tokens(s, &n);
    ck_assert_uint_eq((size_t)n, expected->len);
    ck_assert_int_eq(memcmp(tokens, expected->data, expected->len * sizeof *tokens), 0);
}

START_TEST(a_prompt_stopped_after_any_chunk_leaves_history_and_caches_as_they_were)
{
    struct engine_options options = windowed_options(3, 1);
    options.context = 430;
    struct engine *e = must_open_exact(&options), *fresh = must_open_exact(&options);
    struct sequence *s, *never;
    struct request first = filler_request(1, 40, 20), second = filler_request(2, 330, 30);
    struct ids before = {0};
    int n, steps = 0, running;
    ck_ok(engine_open(e, 420, &s));
    struct answer a = run_turn(e, s, &first);
    const int32_t *tokens = engine_tokens(s, &n);
    ids_append(&before, tokens, (size_t)n);
    second.generation.on_tokens = ignore_tokens;
    for (bool begins = false; !begins; steps++) {
        ck_ok(engine_generate(e, s, second.prompt.data, 330, &second.generation));
        for (int i = 0; i < steps; i++) ck_ok(engine_step(e, &running));
        begins = engine_load(e).decoding > 0;
        engine_stop(e, s);
        ck_assert(!engine_is_running(s));
        if (begins) break;
        expect_tokens(s, &before);
        must_equal_fresh_prefill(e, s, fresh, "after a stop");
    }
    ck_assert_int_ge(steps, 2); /* before a slot, and between chunks */
    ck_ok(engine_truncate(e, s, n));
    struct answer got = run_turn(e, s, &second);
    must_equal_fresh_prefill(e, s, fresh, "after the turn");
    ck_ok(engine_open(fresh, 420, &never));
    struct answer b = run_turn(fresh, never, &first), expected = run_turn(fresh, never, &second);
    must_equal(&got, &expected, "after stops");
    ids_free(&a.ids), ids_free(&b.ids), ids_free(&got.ids), ids_free(&expected.ids), ids_free(&before);
    free_requests(&first, 1), free_requests(&second, 1);
    engine_destroy(fresh);
    engine_destroy(e);
}
END_TEST

/* --- pages ---------------------------------------------------------------------------------------------------- */

/* Loop index: what keys and values are kept as. */
START_TEST(nan_in_pages_of_nobody_changes_no_token_and_stays_untouched)
{
    struct engine_options options = windowed_options(3, 5);
    options.context = 400, options.kv = (enum kv_numbers)_i;
    enum { REQUESTS = 3 }; /* bucket 4: one padding row; page edges at 256 inside the answers */
    struct request requests[REQUESTS] = {filler_request(1, 250, 20), filler_request(2, 5, 30),
                                         filler_request(3, 240, 40)};
    struct answer clean[REQUESTS], dirty[REQUESTS];
    struct engine *e = must_open(&options);
    run_requests(e, requests, REQUESTS, clean);
    ck_ok(probe_fill_free_pages(e, 0xff)); /* all ones: NaN in every type */
    run_requests(e, requests, REQUESTS, dirty);
    for (int i = 0; i < REQUESTS; i++) must_equal(&dirty[i], &clean[i], "with NaN pages");
    free_requests(requests, REQUESTS);
    free_answers(clean, REQUESTS);
    free_answers(dirty, REQUESTS);
    engine_destroy(e);
}
END_TEST

START_TEST(pages_that_no_running_row_owns_keep_their_bits)
{
    struct engine_options options = windowed_options(3, 5);
    options.context = 400;
    for (int pipeline = 1; pipeline <= 2; pipeline++) {
        options.pipeline = pipeline;
        struct engine *e = must_open(&options);
        struct sequence *s[3];
        struct request requests[3] = {filler_request(1, 250, 30), filler_request(2, 5, 9), filler_request(3, 100, 60)};
        uint64_t before, after;
        for (int i = 0; i < 3; i++) ck_ok(engine_open(e, 320, &s[i]));
        for (int i = 0; i < 3; i++) must_take_pages(e, s[i], &requests[i]);
        ck_ok(probe_free_pages_checksum(e, &before));
        for (int i = 0; i < 3; i++) {
            struct answer a = run_turn(e, s[i], &requests[i]);
            ids_free(&a.ids);
        }
        ck_ok(probe_free_pages_checksum(e, &after));
        ck_assert_uint_eq(before, after);
        free_requests(requests, 3);
        engine_destroy(e);
    }
}
END_TEST

START_TEST(a_stopped_answer_keeps_its_pages)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 4, 2);
    options.pipeline = 2;
    struct engine *e = must_open_exact(&options), *fresh = must_open_exact(&options);
    struct sequence *stopped, *other;
    struct request r = sampled(e, long_prompt, 60, 0), next = sampled(e, " Then", 20, 0),
                   big = filler_request(1, 250, 60);
    struct switching w = {.engine = e};
    int running;
    ck_ok(engine_open(e, 400, &stopped));
    struct generation g = r.generation;
    g.on_tokens = switch_k, g.user = &w;
    ck_ok(engine_generate(e, stopped, r.prompt.data, (int)r.prompt.len, &g));
    for (int i = 0; i < 3; i++) ck_ok(engine_step(e, &running));
    engine_stop(e, stopped);
    ck_ok(engine_set_k(e, 4));
    ck_ok(engine_open(e, 400, &other));
    struct answer a = run_turn(e, other, &big), b = run_turn(e, stopped, &next);
    must_equal_fresh_prefill(e, stopped, fresh, "after a stop");
    ids_free(&a.ids), ids_free(&b.ids);
    free_requests(&r, 1), free_requests(&next, 1), free_requests(&big, 1);
    engine_destroy(fresh);
    engine_destroy(e);
}
END_TEST

START_TEST(no_page_is_lost_when_answers_are_dropped_in_mid_round)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 4, 3);
    options.pipeline = 2;
    struct engine *e = must_open(&options);
    int pages = probe_free_page_count(e), running;
    struct request r = sampled(e, "Once upon a time", 60, 0);
    struct answer expected, got;
    run_requests(e, &r, 1, &expected);
    for (int steps = 0; steps < 5; steps++) {
        struct sequence *s;
        ck_ok(engine_open(e, 200, &s));
        struct switching w = {.engine = e};
        struct generation g = r.generation;
        g.on_tokens = switch_k, g.user = &w;
        ck_ok(engine_set_k(e, 4));
        ck_ok(engine_generate(e, s, r.prompt.data, (int)r.prompt.len, &g));
        for (int i = 0; i < steps; i++) ck_ok(engine_step(e, &running));
        engine_close(e, s); /* a round of it may be in flight */
        ck_assert_int_eq(probe_free_page_count(e), pages);
        ck_ok(engine_set_k(e, 4));
        run_requests(e, &r, 1, &got);
        must_equal(&got, &expected, "after a dropped answer");
        ids_free(&got.ids);
    }
    ids_free(&expected.ids);
    free_requests(&r, 1);
    engine_destroy(e);
}
END_TEST

DEVICE_SUITE(check_cache);
Suite *check_cache(void) {
    Suite *suite = suite_create("cache");
    TCase *tc = tcase_create("cache");
    tcase_add_loop_test(tc, caches_equal_a_fresh_prefill_after_every_kind_of_round, 1, 9);
    tcase_add_test(tc, draft_equal_to_target_accepts_everything_for_a_thousand_rounds);
    tcase_add_test(tc, k_may_change_also_to_zero_between_rounds);
    tcase_add_test(tc, a_plain_round_of_others_makes_no_draft_lag);
    tcase_add_loop_test(tc, rows_that_catch_up_together_have_the_caches_of_a_fresh_prefill, 1, 3);
    tcase_add_test(tc, a_few_tokens_of_many_rows_are_few_passes);
    tcase_add_test(tc, k_may_change_inside_an_answer);
    tcase_add_test(tc, a_second_turn_accepts_like_a_cold_prefill_of_the_same_ids);
    tcase_add_test(tc, an_undone_turn_leaves_nothing_in_the_draft_s_cache);
    tcase_add_test(tc, a_prompt_stopped_after_any_chunk_leaves_history_and_caches_as_they_were);
    tcase_add_loop_test(tc, nan_in_pages_of_nobody_changes_no_token_and_stays_untouched, 0, 2);
    tcase_add_test(tc, pages_that_no_running_row_owns_keep_their_bits);
    tcase_add_test(tc, a_stopped_answer_keeps_its_pages);
    tcase_add_test(tc, no_page_is_lost_when_answers_are_dropped_in_mid_round);
    suite_add_tcase(suite, tc);
    return suite;
}
