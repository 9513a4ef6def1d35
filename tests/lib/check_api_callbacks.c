/* Callbacks of libduet: they see every token once, end answers, their own and others', and may free them; what they may not do is
 * refused. */
#include <pthread.h>
#include <string.h>

#include "base/buf.h"
#include "lib/duet.h"
#include "tests/support/api_support.h"
#include "tests/support/support.h"

/* What a callback has seen. */
struct seen {
    struct buf text;
    struct ids ids;
    int64_t drafted;
    size_t most; /* tokens; then it ends the answer */
    struct duet *pair;
    struct duet_answer *cancels;
};

static int see(void *user, const struct duet_token *token) {
    struct seen *s = user;
    ck_assert_int_eq(token->text[token->size], 0);
    ck_assert(utf8_is_valid(token->text, token->size));
    buf_append(&s->text, token->text, token->size);
    if (token->id >= 0) ids_push(&s->ids, token->id);
    s->drafted += token->drafted;
    if (s->cancels) duet_cancel(s->cancels);
    return s->ids.len == s->most;
}

static void must_have_seen(const struct seen *s, const struct duet_answer *a) {
    size_t count;
    const int32_t *ids = duet_answer_ids(a, &count);
    ck_assert_str_eq(buf_text(&s->text), duet_answer_text(a, NULL));
    ck_assert_uint_eq(s->ids.len, count);
    ck_assert(memcmp(ids, s->ids.data, count * sizeof *ids) == 0);
}

static void seen_free(struct seen *s) {
    buf_free(&s->text);
    ids_free(&s->ids);
}

START_TEST(callbacks_see_every_token_once_and_where_it_came_from)
{
    struct duet *d = api_open_pair(1);
    struct seen s = {0};
    struct duet_request r = api_request(PROMPT, 40, 3);
    const char *const stop = " never said, but perhaps begun";
    struct duet_answer *a;
    struct duet_stats stats;
    r.temperature = 0;
    r.stop = &stop, r.stop_count = 1; /* what it holds back is shown in the end */
    r.on_token = see, r.user = &s;
    ck_done(duet_generate(d, &r, &a));
    must_have_seen(&s, a);
    duet_answer_stats(a, &stats, sizeof stats);
    ck_assert_int_eq(s.ids.len, 40);
    ck_assert_int_gt(stats.accepted, 0);
    ck_assert_int_eq(s.drafted, stats.accepted);
    ck_assert_int_gt(stats.first_token_us, 0);
    ck_assert_int_ge(stats.duration_us, stats.first_token_us);
    duet_answer_free(a);
    seen_free(&s);
    duet_close(d);
}
END_TEST

START_TEST(a_callback_ends_an_answer_behind_the_token_that_it_has_seen)
{
    struct duet *d = api_open_pair(1);
    struct duet_request r = api_request(PROMPT, 60, 4);
    struct duet_answer *whole, *cut;
    ck_done(duet_generate(d, &r, &whole));
    for (size_t most = 1; most <= 6; most++) {
        struct seen s = {.most = most};
        size_t count, all;
        r.on_token = see, r.user = &s;
        ck_done(duet_generate(d, &r, &cut));
        ck_assert_int_eq(duet_answer_finish(cut), DUET_FINISH_CANCELLED);
        must_have_seen(&s, cut);
        const int32_t *ids = duet_answer_ids(cut, &count);
        ck_assert_uint_eq(count, most);
        ck_assert(memcmp(ids, duet_answer_ids(whole, &all), count * sizeof *ids) == 0);
        seen_free(&s);
        duet_answer_free(cut);
    }
    duet_answer_free(whole);
    duet_close(d);
}
END_TEST

static void *cancel(void *answer) {
    duet_cancel(answer);
    return NULL;
}

START_TEST(another_thread_or_another_answer_s_callback_cancels_and_the_others_go_on)
{
    struct duet *d = api_open_pair(3);
    struct seen s = {0};
    struct duet_request endless = api_request(PROMPT, 400, 5), short_one = api_request(PROMPT, 8, 6);
    struct duet_answer *a, *b, *c, *alone;
    pthread_t thread;
    int32_t running;
    ck_done(duet_start(d, &endless, &a));
    ck_done(duet_start(d, &endless, &b));
    s.cancels = b;
    short_one.on_token = see, short_one.user = &s;
    ck_done(duet_start(d, &short_one, &c));
    for (size_t count = 0; count == 0; (void)duet_answer_ids(a, &count)) ck_done(duet_step(d, &running));
    ck_assert_int_eq(pthread_create(&thread, NULL, cancel, a), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_done(duet_step(d, &running));
    ck_assert_int_eq(duet_answer_finish(a), DUET_FINISH_CANCELLED);
    api_run_all(d);
    ck_assert_int_eq(duet_answer_finish(b), DUET_FINISH_CANCELLED);
    ck_assert_int_eq(duet_answer_finish(c), DUET_FINISH_LENGTH);
    short_one.on_token = NULL;
    ck_done(duet_generate(d, &short_one, &alone));
    ck_assert(api_same_ids(c, alone));
    duet_answer_free(alone);
    duet_answer_free(c);
    duet_answer_free(b);
    duet_answer_free(a);
    seen_free(&s);
    duet_close(d);
}
END_TEST

/* --- callbacks that free, close or ask ------------------------------------------------------------------------ */

static int free_both(void *user, const struct duet_token *token) {
    struct duet_answer **both = user;
    (void)token;
    for (int i = 0; i < 2; i++) duet_answer_free(both[i]), both[i] = NULL;
    return 0;
}

START_TEST(a_callback_may_free_its_own_answer_and_others_that_run)
{
    struct duet *d = api_open_pair(2);
    struct duet_request r = api_request(PROMPT, 60, 1);
    struct duet_answer *both[2];
    struct duet_stats stats;
    r.on_token = free_both, r.user = both;
    ck_done(duet_start(d, &r, &both[0]));
    r.on_token = NULL;
    ck_done(duet_start(d, &r, &both[1])); /* in every round behind the one that frees it */
    api_run_all(d);
    ck_assert_ptr_null(both[0]);
    duet_get_stats(d, &stats, sizeof stats);
    ck_assert_int_eq(stats.completion_tokens, 1);
    duet_close(d);
}
END_TEST

/* At the first token, or at the text that was held back for a stop string. */
struct freeing {
    struct duet_answer **answer;
    bool at_held_text;
};

static int free_one(void *user, const struct duet_token *token) {
    struct freeing *f = user;
    if (f->at_held_text && token->id >= 0) return 0;
    duet_answer_free(*f->answer);
    *f->answer = NULL;
    return 0;
}

START_TEST(an_answer_that_a_callback_frees_ends_duet_generate_without_one)
{
    static const char *const stop = " never said, but perhaps begun";
    struct duet *d = api_open_pair(2);
    struct duet_request r = api_request(PROMPT, 60, 1);
    struct duet_answer *a, *other;
    struct freeing own = {&a, false}, late = {&a, true};
    r.on_token = free_one, r.user = &own;
    ck_done(duet_generate(d, &r, &a));
    ck_assert_ptr_null(a);
    r.temperature = 0, r.max_tokens = 40;
    r.stop = &stop, r.stop_count = 1, r.user = &late;
    ck_done(duet_generate(d, &r, &a)); /* where it has something to show in the end */
    if (a) duet_answer_free(a);
    r.on_token = NULL;
    ck_done(duet_generate(d, &r, &a));
    ck_assert_int_eq(duet_answer_finish(a), DUET_FINISH_LENGTH);
    duet_answer_free(a);
    r = api_request(PROMPT, 1, 1);
    r.on_token = free_one, r.user = &own;
    ck_done(duet_start(d, &r, &other)); /* it frees the one that is asked for, in a round of both */
    r.on_token = NULL, r.max_tokens = 60;
    ck_done(duet_generate(d, &r, &a));
    ck_assert_ptr_null(a);
    ck_assert_int_eq(duet_answer_finish(other), DUET_FINISH_LENGTH);
    duet_answer_free(other);
    duet_close(d);
}
END_TEST

static int count_one(void *user, const struct duet_token *token) {
    (void)token;
    ++*(int *)user;
    return 0;
}

/* Though text is held back that may begin a stop string. */
START_TEST(a_pair_that_closes_calls_nobody)
{
    static const char *const stops[] = {"a|", "e|", "n|", "r|", "s|", "t|", "y|", ".|"};
    int steps = 0, kept = 0;
    for (; steps < 12; steps++) {
        struct duet *d = api_open_pair(1);
        struct duet_request r = api_request(PROMPT, 100, 1);
        struct duet_answer *a;
        int32_t running = 1;
        int calls = 0;
        r.stop = stops, r.stop_count = sizeof stops / sizeof *stops, r.temperature = 0;
        r.on_token = count_one, r.user = &calls;
        ck_done(duet_start(d, &r, &a));
        for (int i = 0; i < steps; i++) ck_done(duet_step(d, &running));
        kept = calls;
        duet_close(d);
        ck_assert_int_eq(calls, kept);
        duet_answer_free(a);
    }
    ck_assert_int_gt(kept, 0);
}
END_TEST

static int call_back_in(void *user, const struct duet_token *token) {
    struct seen *s = user;
    struct duet_request r = api_request(PROMPT, 1, 1);
    struct duet_answer *a;
    int32_t running;
    (void)token;
    ck_refused(duet_start(s->pair, &r, &a), DUET_ERR_USAGE, "inside a callback");
    ck_refused(duet_step(s->pair, &running), DUET_ERR_USAGE, "inside a callback");
    return 0;
}

START_TEST(a_callback_that_asks_or_steps_is_refused)
{
    struct seen s = {.pair = api_open_pair(1)};
    struct duet_request r = api_request(PROMPT, 2, 1);
    struct duet_answer *a;
    r.on_token = call_back_in, r.user = &s;
    ck_done(duet_generate(s.pair, &r, &a));
    ck_assert_int_eq(duet_answer_finish(a), DUET_FINISH_LENGTH);
    duet_answer_free(a);
    duet_close(s.pair);
}
END_TEST

Suite *check_api_callbacks(void);
Suite *check_api_callbacks(void) {
    Suite *s = suite_create("api callbacks");
    TCase *tc = tcase_create("libduet");
    tcase_add_test(tc, callbacks_see_every_token_once_and_where_it_came_from);
    tcase_add_test(tc, a_callback_ends_an_answer_behind_the_token_that_it_has_seen);
    tcase_add_test(tc, another_thread_or_another_answer_s_callback_cancels_and_the_others_go_on);
    tcase_add_test(tc, a_callback_may_free_its_own_answer_and_others_that_run);
    tcase_add_test(tc, an_answer_that_a_callback_frees_ends_duet_generate_without_one);
    tcase_add_test(tc, a_pair_that_closes_calls_nobody);
    tcase_add_test(tc, a_callback_that_asks_or_steps_is_refused);
    suite_add_tcase(s, tc);
    return s;
}
