/* libduet through its header: answers are those of `duet batch`, one ends for whichever reason, pairs may be on any thread, and every wrong
 * call is an error with a sentence. Callbacks: check_api_callbacks. */
#include "lib/duet.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tests/support/api_support.h"
#include "tests/support/damage.h"
#include "tests/support/failing_device.h"
#include "tests/support/faulty_host.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

/* --- what is answered --------------------------------------------------------------------------------------- */

START_TEST(a_prompt_and_messages_are_answered_as_by_batch)
{
    static const char lines[] =
        "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 24, \"ignore_eos\": true}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"What is rain?\"}], \"stop\": \".\"}\n";
    const struct duet_message message = {"user", "What is rain?"};
    const char *const stop = ".";
    struct program p;
    struct duet *d = api_open_pair(2);
    struct duet_request first = api_request(PROMPT, 24, duet_record_seed(9, 1)), second = api_request(NULL, 256, 0);
    struct duet_answer *answers[2];
    second.seed = duet_record_seed(9, 2);
    second.ignore_eos = 0;
    second.messages = &message, second.message_count = 1;
    second.stop = &stop, second.stop_count = 1;
    ck_done(duet_start(d, &first, &answers[0]));
    ck_done(duet_start(d, &second, &answers[1]));
    api_run_all(d);
    program_run(&p, lines, ARGUMENTS("batch", "--seed", "9", "--threads", "1", "--ctx", "512"));
    program_expect_status(&p, 0);
    for (int i = 0; i < 2; i++) {
        cJSON *record = json_line(&p.out, i);
        struct duet_stats stats;
        duet_answer_stats(answers[i], &stats, sizeof stats);
        ck_assert_str_eq(duet_answer_text(answers[i], NULL), get_string(record, "text"));
        ck_assert_int_eq(duet_answer_finish(answers[i]), i == 0 ? DUET_FINISH_LENGTH : DUET_FINISH_STOP);
        ck_assert_int_eq(stats.rounds, (int64_t)get_number(record, "rounds"));
        ck_assert_int_eq(stats.drafted, (int64_t)get_number(record, "drafted"));
        ck_assert_int_eq(stats.accepted, (int64_t)get_number(record, "accepted"));
        ck_assert_int_eq(stats.prompt_tokens, (int64_t)get_number(record, "prompt_tokens"));
        ck_assert_int_eq(stats.completion_tokens, (int64_t)get_number(record, "completion_tokens"));
        cJSON_Delete(record);
        duet_answer_free(answers[i]);
    }
    program_free(&p);
    duet_close(d);
}
END_TEST

struct logprobs {
    int count;
    float least, most;
};

static int look_at_logprob(void *user, const struct duet_token *t) {
    struct logprobs *seen = user;
    seen->count += t->id >= 0;
    if (t->id >= 0 && t->logprob < seen->least) seen->least = t->logprob;
    if (t->id >= 0 && t->logprob > seen->most) seen->most = t->logprob;
    return 0;
}

START_TEST(a_penalty_changes_the_text_and_log_probabilities_come_with_the_tokens)
{
    struct logprobs seen = {0, 0, -100};
    struct duet *d = api_open_pair(1);
    struct duet_request plain = api_request(PROMPT, 40, 5), penalised = plain;
    struct duet_answer *answers[2];
    plain.temperature = penalised.temperature = 0;
    penalised.repetition_penalty = 1.5f;
    penalised.logprobs = 1, penalised.on_token = look_at_logprob, penalised.user = &seen;
    ck_done(duet_generate(d, &plain, &answers[0]));
    ck_done(duet_generate(d, &penalised, &answers[1]));
    ck_assert(!api_same_ids(answers[0], answers[1]));
    ck_assert_int_eq(seen.count, 40);
    ck_assert(seen.least < -0.1f && seen.least > -20 && seen.most <= 0);
    duet_answer_free(answers[0]), duet_answer_free(answers[1]);
    duet_close(d);
}
END_TEST

START_TEST(more_answers_than_run_at_once_wait_and_are_what_each_is_alone)
{
    enum { ANSWERS = 5 };
    struct duet *d = api_open_pair(2);
    struct duet_answer *answers[ANSWERS];
    struct duet_stats sum, one;
    int64_t tokens = 0, rounds = 0;
    int32_t running;
    for (int i = 0; i < ANSWERS; i++) {
        struct duet_request r = api_request(PROMPT, 6 + 5 * i, (uint64_t)i);
        ck_done(duet_start(d, &r, &answers[i]));
        ck_assert_int_eq(duet_answer_finish(answers[i]), DUET_RUNNING);
    }
    ck_done(duet_step(d, &running));
    ck_assert_int_eq(running, ANSWERS);
    api_run_all(d);
    for (int i = 0; i < ANSWERS; i++) {
        struct duet_request r = api_request(PROMPT, 6 + 5 * i, (uint64_t)i);
        struct duet_answer *alone;
        duet_answer_stats(answers[i], &one, sizeof one);
        ck_assert_int_eq(one.completion_tokens, 6 + 5 * i);
        tokens += one.completion_tokens, rounds += one.rounds;
        if (i == 0) duet_get_stats(d, &sum, sizeof sum);
        ck_done(duet_generate(d, &r, &alone));
        ck_assert(api_same_ids(answers[i], alone));
        duet_answer_free(alone);
        duet_answer_free(answers[i]);
    }
    ck_assert_int_eq(sum.completion_tokens, tokens);
    ck_assert_int_eq(sum.rounds, rounds);
    duet_close(d);
}
END_TEST

/* --- ends --------------------------------------------------------------------------------------------------- */

/* Among answers of one token by chance there are first bytes of characters: U+FFFD, when nothing follows. */
START_TEST(a_stop_string_that_the_end_of_an_answer_brings_is_its_reason)
{
    const char *const stop = "\xef\xbf\xbd";
    struct duet *d = api_open_pair(1);
    struct duet_request r = api_request("Once", 1, 0);
    int cut = 0;
    r.stop = &stop, r.stop_count = 1, r.temperature = 1000;
    for (r.seed = 1; r.seed <= 200; r.seed++) {
        struct duet_answer *a;
        size_t n;
        ck_done(duet_generate(d, &r, &a));
        ck_assert_ptr_null(strstr(duet_answer_text(a, &n), stop));
        if (n == 0) ck_assert_int_eq(duet_answer_finish(a), DUET_FINISH_STOP);
        cut += n == 0;
        duet_answer_free(a);
    }
    ck_assert_int_ge(cut, 4);
    duet_close(d);
}
END_TEST

static void *generate_elsewhere(void *pair) {
    struct duet_request r = api_request(PROMPT, 8, 6);
    struct duet_answer *a;
    return duet_generate(pair, &r, &a) == 0 ? a : NULL;
}

static void *close_elsewhere(void *pair) {
    duet_close(pair);
    return NULL;
}

static void *in_a_thread(void *(*run)(void *), void *user) {
    pthread_t thread;
    void *result;
    ck_assert_int_eq(pthread_create(&thread, NULL, run, user), 0);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    return result;
}

START_TEST(a_pair_has_its_gpu_selected_on_whichever_thread_steps_it)
{
    failing_device = (struct failing_device){.watches = true};
    struct duet *d = api_open_pair(1);
    struct duet_answer *here = generate_elsewhere(d), *elsewhere = in_a_thread(generate_elsewhere, d);
    ck_assert_ptr_nonnull(here);
    ck_assert_ptr_nonnull(elsewhere);
    ck_assert(api_same_ids(here, elsewhere));
    in_a_thread(close_elsewhere, d);
    ck_assert_int_eq(failing_device.astray, 0);
    ck_assert_int_eq(failing_device.live, 0);
    failing_device.watches = false;
    duet_answer_free(here);
    duet_answer_free(elsewhere);
}
END_TEST

START_TEST(answers_are_cancelled_while_they_wait_freed_while_they_run_and_outlive_their_pair)
{
    struct duet *d = api_open_pair(1);
    struct duet_request r = api_request(PROMPT, 300, 7);
    struct duet_answer *running_one, *waiting, *third;
    int32_t running;
    ck_done(duet_start(d, &r, &running_one));
    ck_done(duet_start(d, &r, &waiting));
    ck_done(duet_start(d, &r, &third));
    ck_done(duet_step(d, &running));
    duet_cancel(waiting);
    ck_done(duet_step(d, &running));
    ck_assert_int_eq(running, 2);
    ck_assert_int_eq(duet_answer_finish(waiting), DUET_FINISH_CANCELLED);
    ck_assert_str_eq(duet_answer_text(waiting, NULL), "");
    duet_answer_free(running_one);
    for (size_t count = 0; count == 0; (void)duet_answer_ids(third, &count)) ck_done(duet_step(d, &running));
    duet_close(d);
    ck_assert_int_eq(duet_answer_finish(third), DUET_FINISH_CANCELLED);
    ck_assert_uint_gt(strlen(duet_answer_text(third, NULL)), 0);
    duet_answer_free(third);
    duet_answer_free(waiting);
    duet_answer_free(NULL);
    duet_close(NULL);
}
END_TEST

START_TEST(a_device_that_fails_ends_all_answers_with_its_sentence)
{
    struct duet *d = api_open_pair(2);
    struct duet_request r = api_request(PROMPT, 50, 8);
    struct duet_answer *answers[2], *none;
    int32_t running = 2;
    int rc = DUET_OK;
    for (int i = 0; i < 2; i++) ck_done(duet_start(d, &r, &answers[i]));
    faulty_host.fail_at = faulty_host.records + 3;
    while (rc == DUET_OK && running > 0) rc = duet_step(d, &running);
    ck_assert_int_eq(rc, DUET_ERR_DEVICE);
    ck_assert_int_eq(running, 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(duet_answer_finish(answers[i]), DUET_FINISH_ERROR);
        ck_assert_str_eq(duet_answer_error(answers[i]), duet_error());
        duet_answer_free(answers[i]);
    }
    faulty_host.fail_at = faulty_host.records + 1;
    ck_assert_int_eq(duet_generate(d, &r, &none), DUET_ERR_DEVICE);
    ck_assert_ptr_null(none);
    duet_close(d);
}
END_TEST

/* --- wrong calls -------------------------------------------------------------------------------------------- */

START_TEST(a_wrong_request_is_an_error_that_names_it)
{
    static const int32_t beyond[] = {1, 1 << 20};
    static const struct duet_message nobody = {"nobody", "x"}, unwritten = {"user", NULL};
    static const char *const broken = "\xff";
    struct duet *d = api_open_pair(1);
    struct duet_answer *a;
    const struct duet_request good = api_request(PROMPT, 4, 1), none = api_request(NULL, 4, 1);
    struct duet_request r;
#define ck_wrong(from, change, code, part)             \
    do {                                               \
        r = from;                                      \
        change;                                        \
        ck_refused(duet_start(d, &r, &a), code, part); \
        ck_assert_ptr_null(a);                         \
    } while (0)
    ck_wrong(none, (void)0, DUET_ERR_USAGE, "0 prompts");
    ck_wrong(good, r.messages = &nobody, DUET_ERR_USAGE, "2 prompts");
    ck_wrong(good, r.prompt = broken, DUET_ERR_USAGE, "not valid UTF-8");
    ck_wrong(good, (r.stop = &broken, r.stop_count = 1), DUET_ERR_USAGE, "stop: not valid UTF-8");
    ck_wrong(good, r.max_tokens = 0, DUET_ERR_USAGE, "max_tokens is 0");
    ck_wrong(good, r.temperature = -1, DUET_ERR_USAGE, "temperature");
    ck_wrong(good, r.repetition_penalty = 1e-39f, DUET_ERR_USAGE, "repetition_penalty is 1e-39, expected 0.01 to 100");
    ck_wrong(good, r.repetition_penalty = 3e38f, DUET_ERR_USAGE, "repetition_penalty is 3e+38, expected 0.01 to 100");
    ck_wrong(good, r.size = 3, DUET_ERR_USAGE, "duet_request_init");
    ck_wrong(good, r.size = sizeof r + 8, DUET_ERR_USAGE, "duet_request_init");
    ck_wrong(none, (r.messages = &nobody, r.message_count = 1), DUET_ERR_USAGE, "message 1: role 'nobody'");
    ck_wrong(none, (r.messages = &unwritten, r.message_count = 1), DUET_ERR_USAGE, "message 1: content");
    ck_wrong(none, r.messages = &nobody, DUET_ERR_USAGE, "");
    ck_wrong(none, r.prompt_ids = beyond, DUET_ERR_USAGE, "empty prompt");
    ck_wrong(none, (r.prompt_ids = beyond, r.prompt_id_count = 2), DUET_ERR_FORMAT, "outside the vocabulary");
#undef ck_wrong
    int32_t *many = calloc(600, sizeof *many);
    r = none;
    r.prompt_ids = many, r.prompt_id_count = 600;
    ck_refused(duet_start(d, &r, &a), DUET_ERR_LIMIT, "context");
    free(many);
    r = good;
    ck_done(duet_generate(d, &r, &a)); /* and none of it has harmed the pair */
    duet_answer_free(a);
    duet_close(d);
}
END_TEST

START_TEST(a_pair_that_cannot_be_opened_is_an_error_that_says_why)
{
    struct duet_options good, o;
    struct duet *d;
    duet_options_init(&good, sizeof good);
#define ck_wrong(change, code, part)               \
    do {                                           \
        o = good;                                  \
        change;                                    \
        ck_refused(duet_open(&d, &o), code, part); \
        ck_assert_ptr_null(d);                     \
    } while (0)
    ck_wrong(o.target = "/nowhere", DUET_ERR_IO, "/nowhere");
    ck_wrong(o.assets = "/nowhere", DUET_ERR_IO, "/nowhere");
    ck_wrong(o.draft = "/nowhere", DUET_ERR_USAGE, "needs a target");
    ck_wrong(o.k = 64, DUET_ERR_USAGE, "k is 64");
    ck_wrong(o.batch = 0, DUET_ERR_USAGE, "batch is 0");
    ck_wrong(o.threads = -1, DUET_ERR_USAGE, "threads");
    ck_wrong(o.accept = 3, DUET_ERR_USAGE, "accept is 3");
    ck_wrong(o.device = "abacus", DUET_ERR_USAGE, "abacus");
    ck_wrong(o.chat_template = "none such", DUET_ERR_USAGE, "none such");
    ck_wrong(o.date = "2026-02-30", DUET_ERR_USAGE, "'2026-02-30' is no date");
    ck_wrong(o.reasoning_effort = "some", DUET_ERR_USAGE, "reasoning_effort is 'some'");
    ck_wrong(o.size = sizeof o + 8, DUET_ERR_USAGE, "duet_options_init");
#undef ck_wrong
}
END_TEST

/* Tokens of a question by the template of a file, which says more the more it is told. */
static int64_t count_prompt(const char *path, const char *date, const char *effort) {
    const struct duet_message message = {"user", "What is rain?"};
    struct duet_options o;
    struct duet *d;
    struct duet_answer *answer;
    struct duet_stats stats;
    struct duet_request r = api_request(NULL, 1, 1);
    duet_options_init(&o, sizeof o);
    o.context = 512, o.threads = 1, o.chat_template = path, o.date = date, o.reasoning_effort = effort;
    r.messages = &message, r.message_count = 1;
    ck_done(duet_open(&d, &o));
    ck_done(duet_start(d, &r, &answer));
    api_run_all(d);
    duet_answer_stats(answer, &stats, sizeof stats);
    duet_answer_free(answer);
    duet_close(d);
    return stats.prompt_tokens;
}

START_TEST(a_template_is_told_the_date_and_the_effort)
{
    char path[256];
    snprintf(path, sizeof path, "%s/told.jinja", temp_dir());
    damage_write_text(path,
                      "{{ 'one two three' if strftime_now is defined and strftime_now('%Y-%m-%d') == '2024-02-29' }}"
                      "{{ 'one two three four five six' if reasoning_effort == 'high' }}"
                      "{% for m in messages %}{{ m.content }}\n{% endfor %}");
    const int64_t plain = count_prompt(path, NULL, NULL);
    ck_assert_int_eq(count_prompt(path, "2026-11-30", "low"), plain);
    const int64_t dated = count_prompt(path, "2024-02-29", "medium"), both = count_prompt(path, "2024-02-29", "high");
    ck_assert_msg(plain < dated && dated < both, "%d, %d and %d tokens", (int)plain, (int)dated, (int)both);
}
END_TEST

START_TEST(a_struct_of_an_older_program_gets_the_defaults_of_what_it_lacks)
{
    struct duet_options o;
    struct duet_info info;
    struct duet *d;
    memset(&o, 0x55, sizeof o); /* what lies behind an older struct */
    duet_options_init(&o, offsetof(struct duet_options, threads));
    o.draft = "ngram";
    ck_done(duet_open(&d, &o));
    memset(&info, 0x55, sizeof info);
    duet_get_info(d, &info, sizeof info);
    ck_assert_int_eq(info.k, 4);
    ck_assert_int_eq(info.batch, 1);
    ck_assert_str_eq(info.proposer, "n-gram");
    duet_get_info(d, &info, offsetof(struct duet_info, k));
    ck_assert_int_eq(info.k, 4);
    memset(&info, 0x55, sizeof info);
    duet_get_info(d, &info, offsetof(struct duet_info, k));
    ck_assert_int_eq(info.k, 0x55555555);
    duet_close(d);
}
END_TEST

Suite *check_api(void);
Suite *check_api(void) {
    Suite *s = suite_create("api");
    TCase *tc = tcase_create("libduet");
    tcase_add_test(tc, a_prompt_and_messages_are_answered_as_by_batch);
    tcase_add_test(tc, a_penalty_changes_the_text_and_log_probabilities_come_with_the_tokens);
    tcase_add_test(tc, more_answers_than_run_at_once_wait_and_are_what_each_is_alone);
    tcase_add_test(tc, a_stop_string_that_the_end_of_an_answer_brings_is_its_reason);
    tcase_add_test(tc, answers_are_cancelled_while_they_wait_freed_while_they_run_and_outlive_their_pair);
    tcase_add_test(tc, a_pair_has_its_gpu_selected_on_whichever_thread_steps_it);
    tcase_add_test(tc, a_device_that_fails_ends_all_answers_with_its_sentence);
    tcase_add_test(tc, a_wrong_request_is_an_error_that_names_it);
    tcase_add_test(tc, a_pair_that_cannot_be_opened_is_an_error_that_says_why);
    tcase_add_test(tc, a_template_is_told_the_date_and_the_effort);
    tcase_add_test(tc, a_struct_of_an_older_program_gets_the_defaults_of_what_it_lacks);
    suite_add_tcase(s, tc);
    return s;
}
