/* Answers in channels and the date that their template states, from outside: `duet chat` and `duet batch` with --template gpt-oss. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tests/support/engine_support.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

#define DATE     "2025-06-28"
#define GPT_OSS  "--template", "gpt-oss", "--temperature", "0"
#define QUESTION "What is (x)?"
#define LINE     "{\"messages\": [{\"role\": \"user\", \"content\": \"" QUESTION "\"}]}\n"

static struct program run(const char *input, const char *const *arguments) {
    struct program p;
    program_run(&p, input, arguments);
    return p;
}

/* A model that answers "\n# Other://///", where the slash is the mark that a message begins behind. */
static const char *model_in_channels(void) {
    const char *dir = copy_model_with(asset_path("target"), "channels", "vocab_size", 4096);
    char command[8192];
    snprintf(command, sizeof command,
             "sed -i 's#\"{\": 93#\"<|channel|>\": 93#; s#\"/\": 17#\"<|message|>\": 17#' %s/tokenizer.json", dir);
    ck_assert_int_eq(system(command), 0);
    return dir;
}

START_TEST(what_stands_before_a_message_is_no_text_of_an_answer)
{
    const char *dir = model_in_channels();
    struct program batch =
                       run(LINE, ARGUMENTS("batch", "--target", dir, "--k", "0", "-n", "8", "--date", DATE, GPT_OSS)),
                   whole = run(LINE, ARGUMENTS("batch", "--k", "0", "-n", "8", "--date", DATE, GPT_OSS)),
                   chat = run("", ARGUMENTS("chat", "--target", dir, "--k", "0", "-n", "8", "--date", DATE, GPT_OSS,
                                            "-p", QUESTION));
    program_expect_status(&batch, 0);
    program_expect_status(&whole, 0);
    program_expect_status(&chat, 0);
    cJSON *record = json_line(&batch.out, 0), *other = json_line(&whole.out, 0);
    ck_assert_int_eq(cJSON_GetArraySize(json_get(record, "ids")), 8);
    ck_assert(cJSON_Compare(json_get(record, "ids"), json_get(other, "ids"), true));
    ck_assert_str_eq(get_string(other, "text"), "\n# Other:///");
    ck_assert_str_eq(get_string(record, "text"), "<|message|><|message|>");
    ck_assert_str_eq(buf_text(&chat.out), "<|message|><|message|>\n");
    cJSON_Delete(record);
    cJSON_Delete(other);
    program_free(&batch);
    program_free(&whole);
    program_free(&chat);
}
END_TEST

/* Of the first token, behind a prompt that states the date. */
static double log_probability(const char *template, const char *date, const char *effort) {
    struct program p = run("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"logprobs\": true}\n",
                           ARGUMENTS("batch", "-n", "1", "--template", template, "--temperature", "0", "--date", date,
                                     "--reasoning-effort", effort));
    program_expect_status(&p, 0);
    cJSON *record = json_line(&p.out, 0);
    const double log_p = cJSON_GetArrayItem(json_get(record, "logprobs"), 0)->valuedouble;
    cJSON_Delete(record);
    program_free(&p);
    return log_p;
}

START_TEST(date_and_effort_are_part_of_a_prompt_that_states_them)
{
    const double log_p = log_probability("gpt-oss", DATE, "medium");
    ck_assert_double_eq(log_probability("gpt-oss", DATE, "medium"), log_p);
    ck_assert_double_ne(log_probability("gpt-oss", "1999-12-31", "medium"), log_p);
    ck_assert_double_ne(log_probability("gpt-oss", DATE, "high"), log_p);
    ck_assert_double_eq(log_probability("chatml", DATE, "low"), log_probability("chatml", "1999-12-31", "high"));
}
END_TEST

/* Loop index: the command. */
START_TEST(what_is_no_date_is_refused)
{
    static const char *const commands[] = {"chat", "batch", "bench", "tune"};
    struct program p = run(LINE, ARGUMENTS(commands[_i], GPT_OSS, "--date", "2025-02-29"));
    program_expect_error(&p, 2, "--date: '2025-02-29' is no date, expected one like 2026-11-30");
    program_free(&p);
}
END_TEST

Suite *check_chat_channels(void);
Suite *check_chat_channels(void) {
    Suite *suite = suite_create("chat_channels");
    TCase *tc = tcase_create("channels");
    tcase_add_test(tc, what_stands_before_a_message_is_no_text_of_an_answer);
    tcase_add_test(tc, date_and_effort_are_part_of_a_prompt_that_states_them);
    tcase_add_loop_test(tc, what_is_no_date_is_refused, 0, 4);
    suite_add_tcase(suite, tc);
    return suite;
}
