/* `duet tokenize`. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "tests/support/last_program.h"
#include "tests/support/support.h"

START_TEST(tokenize_gives_ids_and_the_decoded_text_of_each_line)
{
    const char *input = "{\"text\": \"Once upon a time\"}\r\n\n{\"text\": \"\"}\n{\"text\": \"a\\u0000b \\u00e9\"}";
    last_run(input, ARGUMENTS("tokenize", asset_path("target")));
    last_expect_ok();
    ck_assert_int_eq(count_lines(&last.out), 3);
    cJSON *first = json_line(&last.out, 0), *second = json_line(&last.out, 1), *third = json_line(&last.out, 2);
    ck_assert_str_eq(get_string(first, "decoded"), "Once upon a time");
    ck_assert_int_gt(cJSON_GetArraySize(json_get(first, "ids")), 1);
    ck_assert_int_eq(cJSON_GetArraySize(json_get(second, "ids")), 0);
    ck_assert_str_eq(get_string(second, "decoded"), "");
    struct buf text = {0};
    ck_assert(json_string(json_get(third, "decoded"), &text));
    ck_assert_uint_eq(text.len, 6);
    ck_assert_mem_eq(text.data, "a\0b \xc3\xa9", 6);
    buf_free(&text);
    cJSON_Delete(first);
    cJSON_Delete(second);
    cJSON_Delete(third);
}
END_TEST

START_TEST(tokenize_special_adds_what_the_post_processor_adds)
{
    const char *dir = shared_path("models/stories260K");
    if (!dir) {
        skip("no shared test data");
        return;
    }
    last_run("{\"text\": \"a\"}\n", ARGUMENTS("tokenize", dir));
    cJSON *plain = json_line(&last.out, 0);
    last_run("{\"text\": \"a\"}\n", ARGUMENTS("tokenize", dir, "--special"));
    cJSON *special = json_line(&last.out, 0);
    ck_assert_int_eq(cJSON_GetArraySize(json_get(special, "ids")), cJSON_GetArraySize(json_get(plain, "ids")) + 1);
    cJSON_Delete(plain);
    cJSON_Delete(special);
}
END_TEST

START_TEST(tokenize_goes_on_after_a_bad_line_and_says_how_many_failed)
{
    last_run("{\"text\": 1}\n{\"text\": \"a\"}\n{\"text\"\n{\"txt\": \"a\"}\n",
             ARGUMENTS("tokenize", asset_path("target")));
    ck_assert_int_eq(last.status, 1);
    ck_assert_int_eq(count_lines(&last.out), 4);
    cJSON *bad = json_line(&last.out, 0), *good = json_line(&last.out, 1), *broken = json_line(&last.out, 2),
          *without = json_line(&last.out, 3);
    ck_assert_ptr_nonnull(strstr(get_string(bad, "error"), "line 1: 'text' must be a string"));
    ck_assert_ptr_nonnull(json_get(good, "ids"));
    ck_assert_ptr_nonnull(strstr(get_string(broken, "error"), "line 3: "));
    ck_assert_str_eq(get_string(without, "error"), "line 4: no 'text'");
    ck_assert_str_eq(buf_text(&last.err), "duet: 3 of 4 lines failed\n");
    cJSON_Delete(bad);
    cJSON_Delete(good);
    cJSON_Delete(broken);
    cJSON_Delete(without);
}
END_TEST

START_TEST(ids_are_written_over_no_file_unless_forced)
{
    char path[256];
    struct buf text = {0};
    snprintf(path, sizeof path, "%s", temp_path("ids"));
    text_to_file(path, "mine\n");
    last_run("{\"text\": \"a\"}\n", ARGUMENTS("tokenize", asset_path("target"), "-o", path));
    last_expect_error(2, "ids: is not empty (--force writes over it)");
    text_of_file(path, &text);
    ck_assert_str_eq(buf_text(&text), "mine\n");
    last_run("{\"text\": \"a\"}\n", ARGUMENTS("tokenize", asset_path("target"), "-o", path, "--force"));
    last_expect_ok();
    buf_clear(&text);
    text_of_file(path, &text);
    ck_assert_int_eq(strncmp(buf_text(&text), "{\"ids\": [", 9), 0);
    buf_free(&text);
}
END_TEST

START_TEST(output_must_not_be_the_input_and_must_be_writable)
{
    char path[256];
    snprintf(path, sizeof path, "%s", temp_path("lines"));
    text_to_file(path, "{\"text\": \"a\"}\n");
    last_run(NULL, ARGUMENTS("tokenize", asset_path("target"), "-i", path, "-o", path));
    last_expect_error(2, path);
    struct buf text = {0};
    text_of_file(path, &text);
    ck_assert_str_eq(buf_text(&text), "{\"text\": \"a\"}\n");
    buf_free(&text);
    last_run(NULL, ARGUMENTS("tokenize", asset_path("target"), "-i", path, "-o", "/dev/full"));
    last_expect_error(1, "/dev/full: cannot write");
    last_run(NULL, ARGUMENTS("tokenize", asset_path("target"), "-i", path, "-o", "/nowhere/x"));
    last_expect_error(1, "/nowhere/x");
    last_run(NULL, ARGUMENTS("tokenize", asset_path("target"), "-i", "/nowhere/y"));
    last_expect_error(1, "/nowhere/y");
}
END_TEST

Suite *check_tokenize(void);
Suite *check_tokenize(void) {
    Suite *suite = suite_create("tokenize");
    TCase *tokenize = tcase_create("tokenize");
    tcase_add_test(tokenize, tokenize_gives_ids_and_the_decoded_text_of_each_line);
    tcase_add_test(tokenize, tokenize_special_adds_what_the_post_processor_adds);
    tcase_add_test(tokenize, tokenize_goes_on_after_a_bad_line_and_says_how_many_failed);
    tcase_add_test(tokenize, ids_are_written_over_no_file_unless_forced);
    tcase_add_test(tokenize, output_must_not_be_the_input_and_must_be_writable);
    suite_add_tcase(suite, tokenize);
    return suite;
}
