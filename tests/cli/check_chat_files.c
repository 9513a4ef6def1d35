/* Files of `duet chat`: what /read, /save and /load do, and the report of a chat. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

#define GREEDY "--temperature", "0", "-n", "16", "--stop", "\n"
/* Short passes on one thread: other suites may run beside this one. */
#define CHAT(input, ...) program_run_at(80, input, ARGUMENTS("chat", "--threads", "1", __VA_ARGS__))

START_TEST(a_file_that_was_read_stands_in_front_of_the_next_question)
{
    char script[600];
    text_to_file(temp_path("note.txt"), "The cat is black.\nIt sleeps.");
    snprintf(script, sizeof script, "/read %s\n/undo\n/read %s\nWho sleeps?\nWhy?\n", temp_path("note.txt"),
             temp_path("note.txt"));
    struct program given = CHAT("\"\"\"The cat is black.\nIt sleeps.\nWho sleeps?\"\"\"\nWhy?\n", GREEDY);
    struct program read = CHAT(script, GREEDY);
    program_expect_status(&read, 0);
    ck_assert_str_eq(buf_text(&given.out), buf_text(&read.out));
    program_free(&given);
    program_free(&read);
}
END_TEST

START_TEST(a_file_that_is_no_text_or_too_long_is_not_read)
{
    char script[900];
    struct buf longer = {0};
    for (int i = 0; i < 200; i++) buf_puts(&longer, "cat ");
    text_to_file(temp_path("long.txt"), buf_text(&longer));
    text_to_file(temp_path("bytes"), "\xff\xfe");
    snprintf(script, sizeof script, "/read %s\n/read %s\n/read %s\n/read\nWhat is the sun?\n", temp_path("long.txt"),
             temp_path("bytes"), temp_dir());
    struct program expected = CHAT("What is the sun?\n", GREEDY, "--ctx", "96");
    struct program r = CHAT(script, GREEDY, "--ctx", "96");
    ck_assert_int_eq(r.status, 1);
    ck_assert_int_eq(count_lines(&r.err), 4);
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "tokens do not fit, the context holds 96"));
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "is not text in UTF-8"));
    ck_assert_str_eq(buf_text(&r.out), buf_text(&expected.out));
    buf_free(&longer);
    program_free(&expected);
    program_free(&r);
}
END_TEST

START_TEST(a_name_of_nothing_in_quotes_is_asked_for)
{
    struct program r = CHAT("/save \"\"\n/load ''\n/read \"\"\n", GREEDY);
    ck_assert_int_eq(r.status, 1);
    ck_assert_int_eq(count_lines(&r.err), 3);
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "/save: which file?"));
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "/load: which file?"));
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "/read: which file?"));
    program_free(&r);
}
END_TEST

/* Under a name with a space, in quotes of either kind. */
START_TEST(a_saved_chat_is_a_batch_line_and_loads_again)
{
    char script[512], path[256];
    snprintf(path, sizeof path, "%s", temp_path("a chat.json"));
    snprintf(script, sizeof script, "/system You are kind.\nWhat is the sun?\n/save \"%s\"\nAnd the moon?\n", path);
    struct program saved = CHAT(script, GREEDY);
    program_expect_status(&saved, 0);
    cJSON *object;
    ck_ok(json_parse_file(&object, path));
    const cJSON *messages = json_get(object, "messages");
    ck_assert_int_eq(cJSON_GetArraySize(messages), 3);
    struct buf role = {0}, text = {0}, raw = {0};
    ck_assert(json_string(json_get(cJSON_GetArrayItem(messages, 2), "content"), &text));
    ck_assert(json_string(json_get(cJSON_GetArrayItem(messages, 0), "role"), &role));
    ck_assert_str_eq(buf_text(&role), "system");
    ck_assert_int_eq(strncmp(buf_text(&saved.out), buf_text(&text), text.len), 0);
    text_of_file(path, &raw);
    ck_assert_int_eq(count_lines(&raw), 1);
    snprintf(script, sizeof script, "Something else\n/load '%s'\nAnd the moon?\n", path);
    struct program loaded = CHAT(script, GREEDY);
    program_expect_status(&loaded, 0);
    ck_assert_str_eq(strchr(buf_text(&loaded.out), '\n') + 1, strchr(buf_text(&saved.out), '\n') + 1);
    cJSON_Delete(object);
    buf_free(&role);
    buf_free(&text);
    buf_free(&raw);
    program_free(&saved);
    program_free(&loaded);
}
END_TEST

START_TEST(a_saved_chat_has_the_turns_that_the_context_dropped)
{
    char script[1024], path[256];
    snprintf(path, sizeof path, "%s", temp_path("long.json"));
    snprintf(script, sizeof script, "What is the sun?\nAnd the moon?\nAnd a star?\nAnd the sea?\n/save %s\n", path);
    struct program saved = CHAT(script, GREEDY, "--ctx", "64");
    program_expect_status(&saved, 0);
    cJSON *object;
    struct buf text = {0};
    ck_ok(json_parse_file(&object, path));
    const cJSON *messages = json_get(object, "messages");
    ck_assert_int_eq(cJSON_GetArraySize(messages), 8);
    ck_assert(json_string(json_get(cJSON_GetArrayItem(messages, 0), "content"), &text));
    ck_assert_str_eq(buf_text(&text), "What is the sun?");
    buf_clear(&text);
    ck_assert(json_string(json_get(cJSON_GetArrayItem(messages, 1), "content"), &text));
    ck_assert_int_eq(strncmp(buf_text(&saved.out), buf_text(&text), text.len), 0);
    snprintf(script, sizeof script, "/load %s\nGo on.\n/save! %s\n", path, path);
    struct program loaded = CHAT(script, GREEDY, "--ctx", "64");
    program_expect_status(&loaded, 0);
    cJSON_Delete(object);
    ck_ok(json_parse_file(&object, path));
    ck_assert_int_eq(cJSON_GetArraySize(json_get(object, "messages")), 10);
    cJSON_Delete(object);
    buf_free(&text);
    program_free(&saved);
    program_free(&loaded);
}
END_TEST

START_TEST(save_overwrites_nothing_unless_told_to)
{
    char script[900], path[256];
    struct buf text = {0};
    snprintf(path, sizeof path, "%s", temp_path("mine.json"));
    text_to_file(path, "mine");
    snprintf(script, sizeof script, "What is the sun?\n/save %s\n", path);
    struct program refused = CHAT(script, GREEDY);
    ck_assert_int_eq(refused.status, 1);
    ck_assert_ptr_nonnull(strstr(buf_text(&refused.err), "mine.json is there already; /save! FILE overwrites it\n"));
    text_of_file(path, &text);
    ck_assert_str_eq(buf_text(&text), "mine");
    snprintf(script, sizeof script, "What is the sun?\n/save! %s\n/load %s\n", path, path);
    struct program saved = CHAT(script, GREEDY);
    program_expect_status(&saved, 0);
    buf_free(&text);
    program_free(&refused);
    program_free(&saved);
}
END_TEST

START_TEST(the_alpha_report_is_written_at_the_end)
{
    char option[300], path[256];
    snprintf(path, sizeof path, "%s", temp_path("alpha.json"));
    snprintf(option, sizeof option, "--alpha-report=%s", path);
    struct program r = CHAT("What is the sun?\nAnd the moon?\n", GREEDY, "--k", "3", option);
    ck_assert_int_eq(r.status, 0);
    cJSON *object;
    int64_t k, drafted, rounds;
    ck_ok(json_parse_file(&object, path));
    ck_assert(json_int(json_get(object, "k"), &k) && json_int(json_get(object, "drafted"), &drafted));
    ck_assert(json_int(json_get(object, "rounds"), &rounds));
    ck_assert_int_eq(k, 3);
    ck_assert_int_gt(rounds, 3);
    ck_assert_int_eq(drafted, 3 * rounds);
    cJSON_Delete(object);
    program_free(&r);
}
END_TEST

/* On a line of its own, though what was printed may still be in a buffer. */
START_TEST(an_alpha_report_to_standard_output_follows_the_answer)
{
    struct program r;
    program_run(&r, "",
                ARGUMENTS("chat", "-p", "What is the sun?", "-q", "-n", "4", "--seed", "1", "--alpha-report=-"));
    program_expect_status(&r, 0);
    ck_assert_int_eq(count_lines(&r.out), 2);
    ck_assert_ptr_nonnull(strstr(buf_text(&r.out), "\n{\"accept\": "));
    cJSON_Delete(json_line(&r.out, 1));
    program_free(&r);
}
END_TEST

Suite *check_chat_files(void);
Suite *check_chat_files(void) {
    Suite *suite = suite_create("chat files");
    TCase *tc = tcase_create("files");
    tcase_add_test(tc, a_file_that_was_read_stands_in_front_of_the_next_question);
    tcase_add_test(tc, a_file_that_is_no_text_or_too_long_is_not_read);
    tcase_add_test(tc, a_name_of_nothing_in_quotes_is_asked_for);
    tcase_add_test(tc, a_saved_chat_is_a_batch_line_and_loads_again);
    tcase_add_test(tc, a_saved_chat_has_the_turns_that_the_context_dropped);
    tcase_add_test(tc, save_overwrites_nothing_unless_told_to);
    tcase_add_test(tc, the_alpha_report_is_written_at_the_end);
    tcase_add_test(tc, an_alpha_report_to_standard_output_follows_the_answer);
    suite_add_tcase(suite, tc);
    return suite;
}
