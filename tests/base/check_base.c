#include <pthread.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/philox.h"
#include "base/progress.h"
#include "tests/support/support.h"

/* ---- err ---- */

START_TEST(err_set_returns_its_code_and_keeps_the_sentence)
{
    ck_assert_int_eq(err_set(ERR_FORMAT, "%s: tensor '%s' is [%d]", "a.bin", "w", 3), ERR_FORMAT);
    ck_assert_str_eq(err_message(), "a.bin: tensor 'w' is [3]");
}
END_TEST

START_TEST(err_message_escapes_controls_and_invalid_bytes)
{
    err_set(ERR_IO, "a\nb\x1b[0m\x7f \xff\xc3\xa9 \xc0\x80 \xc2\x85 \xed\xa0\x80 \xe2\x82");
    ck_assert_str_eq(err_message(),
                     "a\\x0ab\\x1b[0m\\x7f \\xff\xc3\xa9 \\xc0\\x80 \\xc2\\x85 \\xed\\xa0\\x80 \\xe2\\x82");
}
END_TEST

/* `count` times `text`, behind what is there. */
static void put_many(struct buf *out, int count, const char *text) {
    for (int i = 0; i < count; i++) buf_puts(out, text);
}

static void ck_fits(const char *begin, const char *end) {
    const char *text = err_message();
    size_t n = strlen(text);
    ck_assert_uint_le(n, 1023);
    ck_assert(utf8_is_valid(text, n));
    ck_assert_msg(strncmp(text, begin, strlen(begin)) == 0, "%s", text);
    ck_assert_msg(n >= strlen(end) && strcmp(text + n - strlen(end), end) == 0, "%s", text);
    ck_assert_ptr_nonnull(strstr(text, "..."));
}

START_TEST(err_message_of_up_to_1023_bytes_is_whole)
{
    struct buf text = {0};
    put_many(&text, 341, "\xe2\x82\xac");
    err_set(ERR_IO, "%s", buf_text(&text));
    ck_assert_str_eq(err_message(), buf_text(&text));
    buf_putc(&text, 'x');
    err_set(ERR_IO, "%s", buf_text(&text));
    ck_fits("\xe2\x82\xac\xe2\x82\xac", "\xe2\x82\xacx");
    buf_free(&text);
}
END_TEST

START_TEST(err_message_about_long_paths_keeps_the_reason)
{
    static const char *const parts[] = {"/folder", "/\xe2\x82\xac\xc3\xa9", "\x01\xff", "/a folder"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int count = 100; count < 12000; count = count * 2 + 1) { /* longer than any path, too */
            struct buf path = {0};
            put_many(&path, count, parts[i]);
            err_set(ERR_IO, "/first%s: No such file or directory", buf_text(&path));
            if (strlen(err_message()) < path.len) ck_fits("/first", ": No such file or directory");
            err_set(ERR_FORMAT, "line 3: a bracket is missing");
            err_prefix(ERR_FORMAT, "/first%s", buf_text(&path));
            if (strlen(err_message()) < path.len) ck_fits("/first", ": line 3: a bracket is missing");
            err_hint(ERR_FORMAT, "see %s/last", buf_text(&path));
            ck_fits("/first", "/last");
            buf_free(&path);
        }
}
END_TEST

START_TEST(err_message_about_two_long_paths_keeps_what_stands_between_them)
{
    struct buf path = {0};
    put_many(&path, 300, "/folder");
    err_set(ERR_USAGE, "%s/a: is a file of the model %s/b", buf_text(&path), buf_text(&path));
    ck_fits("/folder/folder", "/folder/b");
    ck_assert_ptr_nonnull(strstr(err_message(), "/a: is a file of the model /folder"));
    buf_free(&path);
}
END_TEST

/* No escape is shown in part. */
START_TEST(err_message_loses_its_middle_between_two_characters)
{
    struct buf text = {0};
    put_many(&text, 2000, "\x01");
    err_set(ERR_IO, "%s", buf_text(&text));
    ck_fits("\\x01\\x01", "\\x01\\x01");
    ck_assert_uint_eq(strspn(err_message(), "\\x01") % 4, 0);
    ck_assert_uint_eq(strlen(err_message()) % 4, 3);
    buf_free(&text);
}
END_TEST

START_TEST(err_prefix_names_the_file_before_the_sentence)
{
    err_set(ERR_FORMAT, "bad \x01 thing");
    ck_assert_int_eq(err_prefix(ERR_FORMAT, "dir/%s", "f\n.json"), ERR_FORMAT);
    ck_assert_str_eq(err_message(), "dir/f\\x0a.json: bad \\x01 thing");
}
END_TEST

START_TEST(err_set_may_quote_the_last_sentence)
{
    err_set(ERR_FORMAT, "inner");
    err_set(ERR_IO, "outer (%s)", err_message());
    ck_assert_str_eq(err_message(), "outer (inner)");
}
END_TEST

static void *set_in_thread(void *arg) {
    ck_assert_str_eq(err_message(), "");
    err_set(ERR_IO, "other thread");
    return arg;
}

START_TEST(err_message_belongs_to_its_thread)
{
    pthread_t thread;
    err_set(ERR_IO, "mine");
    ck_assert_int_eq(pthread_create(&thread, NULL, set_in_thread, NULL), 0);
    pthread_join(thread, NULL);
    ck_assert_str_eq(err_message(), "mine");
}
END_TEST

/* ---- buf, ids, UTF-8 ---- */

START_TEST(buf_is_terminated_and_holds_nul_bytes)
{
    struct buf b = {0};
    ck_assert_str_eq(buf_text(&b), "");
    buf_append(&b, NULL, 0);
    ck_assert_ptr_null(b.data);
    buf_append(&b, "a\0b", 3);
    buf_printf(&b, "%s-%d", "x", 7);
    ck_assert_uint_eq(b.len, 6);
    ck_assert_mem_eq(b.data, "a\0bx-7", 7);
    for (int i = 0; i < 1000; i++) buf_putc(&b, 'z');
    ck_assert_uint_eq(b.len, 1006);
    ck_assert_int_eq(b.data[b.len], '\0');
    buf_clear(&b);
    ck_assert_str_eq(buf_text(&b), "");
    buf_printf(&b, "%s", "");
    ck_assert_uint_eq(b.len, 0);
    buf_free(&b);
    ck_assert(b.data == NULL && b.len == 0 && b.cap == 0);
}
END_TEST

START_TEST(buf_reserve_makes_room_without_changing_the_text)
{
    struct buf b = {0};
    buf_reserve(&b, 5000);
    ck_assert_uint_ge(b.cap, 5001);
    ck_assert_str_eq(b.data, "");
    const char *before = b.data;
    for (int i = 0; i < 5000; i++) buf_putc(&b, 'q');
    ck_assert_ptr_eq(before, b.data);
    buf_free(&b);
}
END_TEST

START_TEST(ids_grow_and_keep_their_order)
{
    struct ids ids = {0};
    int32_t pair[2] = {-1, 151936};
    for (int32_t i = 0; i < 100; i++) ids_push(&ids, i);
    ids_append(&ids, pair, 2);
    ids_append(&ids, NULL, 0);
    ck_assert_uint_eq(ids.len, 102);
    for (int32_t i = 0; i < 100; i++) ck_assert_int_eq(ids.data[i], i);
    ck_assert_int_eq(ids.data[101], 151936);
    ids_free(&ids);
    ck_assert_ptr_null(ids.data);
}
END_TEST

START_TEST(utf8_every_code_point_survives_a_round_trip)
{
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        if (c == 0xd800) c = 0xe000;
        char bytes[4];
        uint32_t back = 0;
        int length = utf8_encode(c, bytes);
        if (length != (c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4)) ck_abort_msg("length of U+%04X", c);
        if (utf8_decode(bytes, (size_t)length, &back) != length || back != c) ck_abort_msg("U+%04X", c);
        if (length > 1 && utf8_decode(bytes, (size_t)length - 1, &back) != 0) ck_abort_msg("cut U+%04X", c);
    }
}
END_TEST

START_TEST(utf8_refuses_what_is_not_utf8)
{
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xc3(",
                                      "\xe2\x82(",
                                      "\xf8\x88\x80\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t code_point;
        ck_assert_msg(utf8_decode(bad[i], strlen(bad[i]), &code_point) == 0, "case %zu", i);
        ck_assert(!utf8_is_valid(bad[i], strlen(bad[i])));
    }
    ck_assert(utf8_is_valid("", 0));
    ck_assert(utf8_is_valid("a\0\xc3\xa9", 4));
    ck_assert_uint_eq(utf8_valid_prefix("a\xc3\xa9\xe2\x82", 5), 3);
}
END_TEST

/* ---- clock, progress, Philox ---- */

START_TEST(only_ascii_letters_have_two_cases)
{
    ck_assert(text_is_same_in_any_case("GPTQ_I4", "gptq_i4") && text_is_same_in_any_case("", ""));
    ck_assert(!text_is_same_in_any_case("gptq", "gptq_v2") && !text_is_same_in_any_case("gptq_v2", "gptq"));
    ck_assert(!text_is_same_in_any_case("@[", "`{") && !text_is_same_in_any_case("\xc9", "\xe9"));
    for (int c = 0; c < 256; c++) ck_assert_int_eq(letter_to_lower((char)c), (char)(c >= 'A' && c <= 'Z' ? c + 32 : c));
}
END_TEST

START_TEST(clock_never_goes_back)
{
    int64_t last = clock_us();
    for (int i = 0; i < 10000; i++) {
        int64_t now = clock_us();
        if (now < last) ck_abort_msg("%lld after %lld", (long long)now, (long long)last);
        last = now;
    }
}
END_TEST

static void count_reports(void *user, const char *what, int64_t done, int64_t total) {
    ck_assert_str_eq(what, "loading");
    *(int64_t *)user += done * 100 + total;
}

START_TEST(progress_without_a_callback_is_silent)
{
    int64_t sum = 0;
    struct progress progress = {count_reports, &sum};
    progress_report(NULL, "loading", 1, 2);
    progress_report(&(struct progress){0}, "loading", 1, 2);
    ck_assert_int_eq(sum, 0);
    progress_report(&progress, "loading", 1, 2);
    ck_assert_int_eq(sum, 102);
}
END_TEST

START_TEST(philox_gives_the_published_known_answers)
{
    static const struct {
        uint64_t key, subsequence, block;
        uint32_t words[4];
    } cases[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct philox_block block = philox_block(cases[i].key, cases[i].subsequence, cases[i].block);
        ck_assert_mem_eq(block.w, cases[i].words, sizeof block.w);
    }
}
END_TEST

START_TEST(philox_word_walks_the_blocks_of_its_subsequence)
{
    uint64_t key = 0x123456789abcdef0, position = 0x100000007;
    for (int purpose = PHILOX_DRAFT_DRAW; purpose <= PHILOX_PLAIN; purpose++) {
        for (uint32_t index = 0; index < 9; index++) {
            struct philox_block block = philox_block(key, position, ((uint64_t)purpose << 18) + index / 4);
            ck_assert_uint_eq(philox_word(key, position, purpose, index), block.w[index % 4]);
        }
    }
    ck_assert_uint_ne(philox_word(key, 7, 0, 0), philox_word(key, position, 0, 0));
    ck_assert_uint_ne(philox_word(key, 7, 0, 0), philox_word(key & UINT32_MAX, 7, 0, 0));
}
END_TEST

Suite *check_base(void) {
    Suite *suite = suite_create("base");
    TCase *err = tcase_create("err"), *buf = tcase_create("buf"), *numbers = tcase_create("numbers");
    tcase_add_test(err, err_set_returns_its_code_and_keeps_the_sentence);
    tcase_add_test(err, err_message_escapes_controls_and_invalid_bytes);
    tcase_add_test(err, err_message_of_up_to_1023_bytes_is_whole);
    tcase_add_test(err, err_message_about_long_paths_keeps_the_reason);
    tcase_add_test(err, err_message_about_two_long_paths_keeps_what_stands_between_them);
    tcase_add_test(err, err_message_loses_its_middle_between_two_characters);
    tcase_add_test(err, err_prefix_names_the_file_before_the_sentence);
    tcase_add_test(err, err_set_may_quote_the_last_sentence);
    tcase_add_test(err, err_message_belongs_to_its_thread);
    tcase_add_test(buf, buf_is_terminated_and_holds_nul_bytes);
    tcase_add_test(buf, buf_reserve_makes_room_without_changing_the_text);
    tcase_add_test(buf, ids_grow_and_keep_their_order);
    tcase_add_test(buf, utf8_every_code_point_survives_a_round_trip);
    tcase_add_test(buf, utf8_refuses_what_is_not_utf8);
    tcase_add_test(buf, only_ascii_letters_have_two_cases);
    tcase_add_test(numbers, clock_never_goes_back);
    tcase_add_test(numbers, progress_without_a_callback_is_silent);
    tcase_add_test(numbers, philox_gives_the_published_known_answers);
    tcase_add_test(numbers, philox_word_walks_the_blocks_of_its_subsequence);
    suite_add_tcase(suite, err);
    suite_add_tcase(suite, buf);
    suite_add_tcase(suite, numbers);
    return suite;
}
