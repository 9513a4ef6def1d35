#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/json.h"
#include "base/json_number.h"
#include "tests/support/damage.h"
#include "tests/support/support.h"

static cJSON *parse(const char *text) {
    cJSON *item;
    ck_ok(json_parse(&item, text, strlen(text)));
    return item;
}

static void refuse_bytes(const char *text, size_t n, const char *words) {
    cJSON *item = (cJSON *)&item;
    err_set(ERR_INTERNAL, "stale");
    ck_assert_msg(json_parse(&item, text, n) == ERR_FORMAT, "accepted: %s", text);
    ck_assert_ptr_null(item);
    ck_assert_msg(strstr(err_message(), words), "%s: '%s' lacks '%s'", text, err_message(), words);
}

static void refuse(const char *text, const char *words) {
    refuse_bytes(text, strlen(text), words);
}

START_TEST(json_reads_every_kind_of_value)
{
    cJSON *root = parse("\xef\xbb\xbf \t\r\n{\"a\": [1, -2.5e1, true, false, null, \"x\"], \"b\": {}, \"c\": []}\n");
    const cJSON *list = json_get(root, "a");
    double number;
    bool flag;
    ck_assert_int_eq(cJSON_GetArraySize(list), 6);
    ck_assert(json_number(cJSON_GetArrayItem(list, 1), &number) && number == -25);
    ck_assert(json_bool(cJSON_GetArrayItem(list, 2), &flag) && flag);
    ck_assert(json_bool(cJSON_GetArrayItem(list, 3), &flag) && !flag);
    ck_assert(cJSON_IsNull(cJSON_GetArrayItem(list, 4)));
    ck_assert(!json_bool(cJSON_GetArrayItem(list, 4), &flag));
    ck_assert(cJSON_IsObject(json_get(root, "b")) && cJSON_IsArray(json_get(root, "c")));
    cJSON_Delete(root);
}
END_TEST

START_TEST(json_refuses_what_is_not_json)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "{",
                                      "[1",
                                      "{\"a\"",
                                      "{\"a\":",
                                      "{\"a\":1",
                                      "{\"a\":1,}",
                                      "[1,]",
                                      "[,1]",
                                      "{,}",
                                      "{a:1}",
                                      "{'a':1}",
                                      "01",
                                      "-",
                                      "-01",
                                      "+1",
                                      ".5",
                                      "1.",
                                      "1e",
                                      "1e+",
                                      "0x10",
                                      "NaN",
                                      "Infinity",
                                      "-Infinity",
                                      "nul",
                                      "truefalse",
                                      "tru",
                                      "1 2",
                                      "{} x",
                                      "[1 2]",
                                      "\"a",
                                      "\"a\\",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\u12g4\"",
                                      "\"\n\"",
                                      "\"\x01\"",
                                      "//c\n1",
                                      "[1}",
                                      "{\"a\" 1}",
                                      "{1:2}",
                                      "\"\\u\"",
                                      "\"\\u123",
                                      "]",
                                      "{\"a\":}",
                                      "\"a\" \"b\"",
                                      "[1,\v2]",
                                      "\xc2\xa0\x31"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refuse(bad[i], "malformed JSON at ");
    refuse_bytes("1\0", 2, "malformed JSON at byte 1: unexpected U+0000");
    refuse_bytes(NULL, 0, "the text ends");
}
END_TEST

START_TEST(json_says_where_and_why)
{
    refuse("[1, 2", "malformed JSON at byte 5: the text ends, expected ',' or ']'");
    refuse("{\"a\": nope}", "malformed JSON at byte 6: unexpected 'n', expected a value");
    refuse("{\n  \"\xc3\xa9\": 1,\n  \"b\" 2\n}", "malformed JSON at line 3, column 7: unexpected '2', expected ':'");
    refuse("{\n\"\xc3\xa9\" 2}", "line 2, column 5: unexpected '2'");
    refuse("1 x", "byte 2: unexpected 'x', expected the end of the text");
    refuse("[01]", "leading zero");
}
END_TEST

START_TEST(json_refuses_invalid_utf8)
{
    refuse("\"\xff\"", "byte 1: not valid UTF-8");
    refuse("\"a\xc0\x80\"", "byte 2: not valid UTF-8");
    refuse("\"\xed\xa0\x80\"", "not valid UTF-8");
    refuse("{\"\xe2\x82\": 1}", "not valid UTF-8");
    refuse("[\xff]", "not valid UTF-8");
    refuse_bytes("\"\xe2\x82\xac\"", 3, "not valid UTF-8");
}
END_TEST

START_TEST(json_refuses_lone_surrogates)
{
    refuse("\"\\ud800\"", "lone surrogate \\ud800");
    refuse("\"ab\\uDC00\"", "byte 3: lone surrogate");
    refuse("\"\\ud83d\\u0041\"", "lone surrogate");
    refuse("\"\\ud83d\\ud83d\"", "lone surrogate");
    refuse("\"\\ud83dx\"", "lone surrogate");
    refuse("{\"\\ud83d\": 1}", "lone surrogate");
}
END_TEST

START_TEST(json_nests_to_the_limit_and_no_deeper)
{
    struct buf text = {0};
    for (int depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        cJSON *root;
        buf_clear(&text);
        for (int i = 0; i < depth; i++) buf_puts(&text, i % 2 ? "{\"a\":" : "[");
        buf_puts(&text, "1");
        for (int i = depth - 1; i >= 0; i--) buf_putc(&text, i % 2 ? '}' : ']');
        if (depth > JSON_DEPTH_MAX)
            refuse(buf_text(&text), "nested too deeply");
        else
            ck_ok(json_parse(&root, text.data, text.len)), cJSON_Delete(root);
    }
    buf_clear(&text);
    for (int i = 0; i < 1000000; i++) buf_putc(&text, '[');
    refuse(buf_text(&text), "nested too deeply");
    buf_free(&text);
}
END_TEST

START_TEST(json_strings_decode_every_escape_and_keep_nul)
{
    cJSON *root = parse("{\"k\\u0000\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\ude00\\u0000z\\u0000\"}");
    struct buf out = {0};
    static const char want[] = "\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80\0z";
    ck_assert(json_string(root->child, &out));
    ck_assert_uint_eq(out.len, sizeof want);
    ck_assert_mem_eq(out.data, want, sizeof want);
    buf_clear(&out);
    json_print(root, &out);
    ck_assert_str_eq(buf_text(&out),
                     "{\"k\\u0000\": \"\\\"\\\\/\\b\\f\\n\\r\\t\xc3\xa9\xf0\x9f\x98\x80\\u0000z\\u0000\"}");
    ck_assert(!json_string(root, &out) && !json_string(NULL, &out));
    buf_free(&out);
    cJSON_Delete(root);
}
END_TEST

START_TEST(json_put_string_replaces_invalid_bytes_and_keeps_nul)
{
    struct buf out = {0};
    json_put_string(&out, "a\0\xff\x7f\xc3\xa9\xe2\x82", 8);
    ck_assert_str_eq(buf_text(&out), "\"a\\u0000\xef\xbf\xbd\\u007f\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\"");
    buf_clear(&out);
    json_put_string(&out, "\xc0\x80\"\\\n", 5); /* U+0000's form in the tree is no UTF-8 outside of it */
    ck_assert_str_eq(buf_text(&out), "\"\xef\xbf\xbd\xef\xbf\xbd\\\"\\\\\\n\"");
    buf_clear(&out);
    json_put_string(&out, NULL, 0);
    ck_assert_str_eq(buf_text(&out), "\"\"");
    buf_free(&out);
}
END_TEST

START_TEST(json_is_written_in_pieces_with_the_commas_that_are_due)
{
    struct buf out = {0};
    buf_putc(&out, '{');
    json_put_name(&out, "list");
    buf_putc(&out, '[');
    for (int i = 0; i < 3; i++) {
        json_put_element(&out);
        json_put_number(&out, i / 2.0);
    }
    buf_putc(&out, ']');
    json_put_name(&out, "empty");
    buf_puts(&out, "{}");
    json_put_name(&out, "a \"name\"");
    json_put_number(&out, NAN);
    buf_putc(&out, '}');
    ck_assert_str_eq(buf_text(&out), "{\"list\": [0, 0.5, 1], \"empty\": {}, \"a \\\"name\\\"\": null}");
    buf_free(&out);
}
END_TEST

START_TEST(json_get_is_exact_and_takes_the_last_of_repeated_names)
{
    cJSON *root = parse("{\"Name\": 1, \"name\": 2, \"name\": 3, \"none\": null}");
    int64_t value;
    ck_assert(json_int(json_get(root, "Name"), &value) && value == 1);
    ck_assert(json_int(json_get(root, "name"), &value) && value == 3);
    ck_assert_ptr_null(json_get(root, "NAME"));
    ck_assert_ptr_null(json_get(root, "none"));
    ck_assert_ptr_null(json_get(root->child, "name"));
    ck_assert_ptr_null(json_get(NULL, "name"));
    cJSON_Delete(root);
}
END_TEST

START_TEST(json_int_is_exact_up_to_two_to_the_53)
{
    static const struct {
        const char *text;
        int64_t value; /* INT64_MIN: refused */
    } cases[] = {{"0", 0},
                 {"-0", 0},
                 {"2147483648", 2147483648},
                 {"-9007199254740992", -9007199254740992},
                 {"9007199254740992", 9007199254740992},
                 {"9007199254740993", INT64_MIN},
                 {"-9007199254740993", INT64_MIN},
                 {"9007199254740994", INT64_MIN},
                 {"18446744073709551616", INT64_MIN},
                 {"1e3", 1000},
                 {"7.0", 7},
                 {"1.5", INT64_MIN},
                 {"1e400", INT64_MIN},
                 {"\"1\"", INT64_MIN},
                 {"true", INT64_MIN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cJSON *item = parse(cases[i].text);
        int64_t value = INT64_MIN;
        bool accepted = json_int(item, &value);
        ck_assert_msg(accepted == (cases[i].value != INT64_MIN) && value == cases[i].value, "%s", cases[i].text);
        cJSON_Delete(item);
    }
}
END_TEST

START_TEST(json_number_refuses_infinities)
{
    cJSON *item = parse("[1e400, -1e400, 1e-400, 0.1, 123456789012345678901234567890]");
    double value;
    ck_assert(!json_number(cJSON_GetArrayItem(item, 0), &value));
    ck_assert(!json_number(cJSON_GetArrayItem(item, 1), &value));
    ck_assert(json_number(cJSON_GetArrayItem(item, 2), &value) && value == 0);
    ck_assert(json_number(cJSON_GetArrayItem(item, 3), &value) && value == 0.1);
    ck_assert(json_number(cJSON_GetArrayItem(item, 4), &value) && value == 123456789012345678901234567890.0);
    cJSON_Delete(item);
}
END_TEST

START_TEST(json_print_repeats_numbers_exactly)
{
    static const char text[] =
        "[0, -1, 0.1, 1e+300, 12345678901234567890, -9007199254740993, 0.30000000000000004, 2.5, "
        "-121e3945]";
    cJSON *root = parse(text), *nan = cJSON_CreateNumber(NAN);
    struct buf out = {0};
    json_print(root, &out);
    ck_assert_str_eq(buf_text(&out), text);
    cJSON *copy = cJSON_Duplicate(root, true);
    buf_clear(&out);
    json_print(copy, &out);
    ck_assert_str_eq(buf_text(&out), text);
    buf_clear(&out);
    json_print(nan, &out);
    ck_assert_str_eq(buf_text(&out), "null");
    buf_free(&out);
    cJSON_Delete(copy);
    cJSON_Delete(root);
    cJSON_Delete(nan);
}
END_TEST

START_TEST(json_number_literal_of_any_length_is_read)
{
    struct buf text = {0};
    cJSON *item;
    double value;
    buf_puts(&text, "0.");
    for (int i = 0; i < 500; i++) buf_putc(&text, '3');
    ck_ok(json_parse(&item, text.data, text.len));
    ck_assert(json_number(item, &value) && value == 1.0 / 3);
    cJSON_Delete(item);
    buf_free(&text);
}
END_TEST

START_TEST(a_float_is_written_with_its_own_digits)
{
    static const struct {
        float value;
        const char *text;
    } cases[] = {{0.7f, "0.7"},
                 {0.1f, "0.1"},
                 {1, "1"},
                 {0, "0"},
                 {0.99999994f, "0.99999994"},
                 {1e-45f, "1e-45"},
                 {1e30f, "1e+30"},
                 {-2.5f, "-2.5"},
                 {1.2345679f, "1.2345679"},
                 {3.4028235e38f, "3.4028235e+38"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf out = {0};
        json_put_number(&out, json_number_of_float(cases[i].value));
        ck_assert_str_eq(buf_text(&out), cases[i].text);
        ck_assert(strtof(buf_text(&out), NULL) == cases[i].value);
        buf_free(&out);
    }
}
END_TEST

/* A locale of the machine, or one made for this test, with a comma in decimals. */
static bool set_comma_locale(void) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"};
    char command[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i])) return true;
    snprintf(command, sizeof command, "localedef -c -i de_DE -f UTF-8 %s/de_DE.UTF-8 > /dev/null 2>&1", temp_dir());
    if (system(command) < 0 || setenv("LOCPATH", temp_dir(), 1) != 0) return false;
    return setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
}

static void *read_and_print_decimals(void *unused) {
    static const char text[] = "[1.5, 1e-05, -2.25e+300, 0.1]";
    struct buf printed = {0};
    for (int i = 0; i < 100; i++) {
        cJSON *list = parse(text);
        require(cJSON_GetArrayItem(list, 0)->valuedouble == 1.5, "1.5 is %g", cJSON_GetArrayItem(list, 0)->valuedouble);
        printed.len = 0;
        json_print(list, &printed);
        require(strcmp(buf_text(&printed), text) == 0, "%s", buf_text(&printed));
        cJSON_Delete(list);
    }
    buf_free(&printed);
    return unused;
}

START_TEST(json_numbers_have_a_point_in_every_locale_and_thread)
{
    pthread_t thread;
    char text[16];
    if (!set_comma_locale()) {
        skip("no locale with a comma, and localedef makes none");
        return;
    }
    snprintf(text, sizeof text, "%.1f", 1.5);
    ck_assert_str_eq(text, "1,5");
    ck_assert_int_eq(pthread_create(&thread, NULL, read_and_print_decimals, NULL), 0);
    read_and_print_decimals(NULL);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    snprintf(text, sizeof text, "%.1f", 1.5); /* and the caller's locale is as it was */
    ck_assert_str_eq(text, "1,5");
    setlocale(LC_ALL, "C"), unsetenv("LOCPATH");
}
END_TEST

START_TEST(json_typed_members_default_and_complain_by_name)
{
    cJSON *root =
        parse("{\"n\": 12, \"x\": 1.5, \"t\": true, \"s\": \"a\\nb\", \"none\": null, \"big\": 1e999, \"l\": []}");
    int64_t n;
    double x;
    bool t;
    ck_ok(json_get_int(root, "n", 1, 0, 12, &n));
    ck_assert_int_eq(n, 12);
    ck_ok(json_get_int(root, "absent", -5, 0, 12, &n));
    ck_assert_int_eq(n, -5);
    ck_ok(json_get_int(root, "none", 3, 0, 12, &n));
    ck_assert_int_eq(n, 3);
    ck_assert_int_eq(json_get_int(root, "n", 1, 13, 20, &n), ERR_FORMAT);
    ck_assert_str_eq(err_message(), "member 'n' is 12, expected an integer from 13 to 20");
    ck_assert_int_eq(json_get_int(root, "x", 1, 0, 20, &n), ERR_FORMAT);
    ck_assert_int_eq(json_get_int(root, "l", 1, 0, 20, &n), ERR_FORMAT);
    ck_assert_str_eq(err_message(), "member 'l' is a list, expected an integer from 0 to 20");
    ck_ok(json_get_number(root, "x", 0, &x));
    ck_assert_double_eq(x, 1.5);
    ck_ok(json_get_number(root, "absent", 2.5, &x));
    ck_assert_double_eq(x, 2.5);
    ck_assert_int_eq(json_get_number(root, "s", 0, &x), ERR_FORMAT);
    ck_assert_str_eq(err_message(), "member 's' is \"a\\nb\", expected a number");
    ck_assert_int_eq(json_get_number(root, "big", 0, &x), ERR_FORMAT);
    ck_ok(json_get_bool(root, "t", false, &t));
    ck_assert(t);
    ck_ok(json_get_bool(root, "absent", true, &t));
    ck_assert(t);
    ck_assert_int_eq(json_get_bool(root, "n", true, &t), ERR_FORMAT);
    ck_assert_str_eq(err_message(), "member 'n' is 12, expected true or false");
    cJSON_Delete(root);
}
END_TEST

START_TEST(json_file_errors_begin_with_the_path)
{
    char path[256];
    cJSON *root = (cJSON *)path;
    snprintf(path, sizeof path, "%s/a.json", temp_dir());
    ck_assert_int_eq(json_parse_file(&root, path), ERR_IO);
    ck_assert_ptr_null(root);
    ck_assert_ptr_eq(strstr(err_message(), path), err_message());
    FILE *f = fopen(path, "w");
    fputs("{\"a\":\n 1,,}", f);
    fclose(f);
    ck_assert_int_eq(json_parse_file(&root, path), ERR_FORMAT);
    ck_assert_ptr_eq(strstr(err_message(), path), err_message());
    ck_assert_ptr_nonnull(strstr(err_message(), "a.json: malformed JSON at line 2, column 4"));
    ck_assert_int_eq(json_parse_file(&root, temp_dir()), ERR_IO);
    f = fopen(path, "w");
    fclose(f);
    ck_assert_int_eq(json_parse_file(&root, path), ERR_FORMAT);
}
END_TEST

START_TEST(what_python_writes_in_place_of_numbers_is_read_from_files_alone)
{
    static const char text[] = "{\"a\": [NaN, Infinity, -Infinity, -1], \"b\": Infinity}";
    char path[256];
    cJSON *root;
    double number;
    snprintf(path, sizeof path, "%s/python.json", temp_dir());
    damage_write_text(path, text);
    ck_ok(json_parse_file(&root, path));
    const cJSON *first = json_get(root, "a")->child;
    ck_assert(isnan(first->valuedouble) && first->next->valuedouble == INFINITY);
    ck_assert(first->next->next->valuedouble == -INFINITY && first->next->next->next->valuedouble == -1);
    ck_assert(!json_number(first, &number) && !json_number(first->next, &number));
    ck_assert_int_eq(json_get_number(root, "b", 0, &number), ERR_FORMAT);
    ck_assert_str_eq(err_message(), "member 'b' is not finite, expected a number");
    cJSON_Delete(root);
    damage_write_text(path, "[Infinit]");
    ck_assert_int_eq(json_parse_file(&root, path), ERR_FORMAT);
    ck_assert_int_eq(json_parse(&root, text, strlen(text)), ERR_FORMAT);
}
END_TEST

START_TEST(json_parses_a_tokenizer_of_many_megabytes_in_well_under_a_second)
{
    const char *path = shared_path("tokenizers/qwen3/tokenizer.json");
    if (!path) {
        skip("no shared tokenizers");
        return;
    }
    cJSON *root;
    int64_t count = 0;
    clock_t start = clock(); /* processor time: other work on the machine does not count */
    ck_ok(json_parse_file(&root, path));
    double spent_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    const cJSON *vocabulary = json_get(json_get(root, "model"), "vocab");
    for (const cJSON *entry = vocabulary->child; entry; entry = entry->next) {
        int64_t id;
        ck_assert(json_int(entry, &id) && id == count);
        count++;
    }
    ck_assert_int_gt(count, 150000);
    ck_assert_ptr_eq(vocabulary->child->prev->next, NULL);
    ck_assert_double_lt(spent_s, 2);
    cJSON_Delete(root);
}
END_TEST

Suite *check_json(void) {
    Suite *suite = suite_create("json");
    TCase *json = tcase_create("json");
    tcase_add_test(json, json_reads_every_kind_of_value);
    tcase_add_test(json, json_refuses_what_is_not_json);
    tcase_add_test(json, json_says_where_and_why);
    tcase_add_test(json, json_refuses_invalid_utf8);
    tcase_add_test(json, json_refuses_lone_surrogates);
    tcase_add_test(json, json_nests_to_the_limit_and_no_deeper);
    tcase_add_test(json, json_strings_decode_every_escape_and_keep_nul);
    tcase_add_test(json, json_put_string_replaces_invalid_bytes_and_keeps_nul);
    tcase_add_test(json, json_is_written_in_pieces_with_the_commas_that_are_due);
    tcase_add_test(json, json_get_is_exact_and_takes_the_last_of_repeated_names);
    tcase_add_test(json, json_int_is_exact_up_to_two_to_the_53);
    tcase_add_test(json, json_number_refuses_infinities);
    tcase_add_test(json, json_print_repeats_numbers_exactly);
    tcase_add_test(json, json_number_literal_of_any_length_is_read);
    tcase_add_test(json, a_float_is_written_with_its_own_digits);
    tcase_add_test(json, json_numbers_have_a_point_in_every_locale_and_thread);
    tcase_add_test(json, json_typed_members_default_and_complain_by_name);
    tcase_add_test(json, json_file_errors_begin_with_the_path);
    tcase_add_test(json, what_python_writes_in_place_of_numbers_is_read_from_files_alone);
    tcase_add_test(json, json_parses_a_tokenizer_of_many_megabytes_in_well_under_a_second);
    suite_add_tcase(suite, json);
    return suite;
}
