/* Streamed text: stop strings, what is held back, half characters. */
#include "engine/text.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/tokenizer_support.h"

static struct tokenizer *load(void) {
    struct tokenizer *t;
    ck_ok(checkpoint_tokenizer(test_checkpoint(asset_path("target")), &t));
    return t;
}

/* Ids of single characters: the finest cut of an ASCII text. */
static struct ids letters(const struct tokenizer *t, const char *text) {
    struct ids ids = {0};
    for (const char *c = text; *c; c++) {
        size_t before = ids.len;
        ck_ok(tokenizer_encode(t, c, 1, NULL, &ids));
        ck_assert_uint_eq(ids.len, before + 1);
    }
    return ids;
}

static struct text_stream *stream(const struct tokenizer *t, const char *const *stops, int count) {
    size_t lens[8];
    for (int i = 0; i < count; i++) lens[i] = strlen(stops[i]);
    struct text_stream *s;
    ck_ok(text_stream_create(t, stops, lens, count, &s));
    return s;
}

/* Streams ids until a stop string; *used = ids pushed. */
static struct buf run_stream(const struct tokenizer *t, const struct ids *ids, const char *const *stops, int count,
                             size_t *used) {
    struct text_stream *s = stream(t, stops, count);
    struct buf text = {0};
    bool stopped = false;
    size_t i = 0;
    while (i < ids->len && !stopped) ck_ok(text_stream_push(s, ids->data[i++], &text, &stopped));
    ck_ok(text_stream_finish(s, &text, &stopped));
    text_stream_free(s);
    *used = i;
    return text;
}

static void expect_letters(const char *text, const char *const *stops, int count, const char *shown, size_t used) {
    struct tokenizer *t = load();
    struct ids ids = letters(t, text);
    size_t n;
    struct buf got = run_stream(t, &ids, stops, count, &n);
    ck_assert_str_eq(buf_text(&got), shown);
    ck_assert_uint_eq(n, used);
    buf_free(&got);
    ids_free(&ids);
    tokenizer_free(t);
}

static const char *const mixed_texts[] = {
    "Once upon a time, there was a little dragon.",
    "na\xc3\xafve \xe2\x80\x94 \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x90\x89!",
    "<|im_start|>user\nHi<|im_end|>\n",
    "",
};

START_TEST(all_pushes_and_finish_give_the_decoded_text)
{
    struct tokenizer *t = load();
    struct ids ids = {0};
    struct buf expected = {0};
    size_t used;
    ck_ok(tokenizer_encode(t, mixed_texts[_i], strlen(mixed_texts[_i]), NULL, &ids));
    ck_ok(tokenizer_decode(t, ids.data, ids.len, true, &expected));
    struct buf got = run_stream(t, &ids, NULL, 0, &used);
    ck_assert_str_eq(buf_text(&got), buf_text(&expected));
    ck_assert_uint_eq(used, ids.len);
    buf_free(&got);
    buf_free(&expected);
    ids_free(&ids);
    tokenizer_free(t);
}
END_TEST

START_TEST(no_push_shows_half_a_character)
{
    struct tokenizer *t = load();
    struct ids ids = {0};
    ck_ok(tokenizer_encode(t, mixed_texts[1], strlen(mixed_texts[1]), NULL, &ids));
    struct text_stream *s = stream(t, NULL, 0);
    struct buf text = {0};
    bool stopped, held = false;
    for (size_t i = 0; i < ids.len; i++) {
        size_t before = text.len;
        ck_ok(text_stream_push(s, ids.data[i], &text, &stopped));
        ck_assert(utf8_is_valid(buf_text(&text), text.len));
        held = held || text.len == before;
    }
    ck_assert_msg(held, "no character of this text spans tokens");
    text_stream_free(s);
    buf_free(&text);
    ids_free(&ids);
    tokenizer_free(t);
}
END_TEST

START_TEST(half_a_character_at_the_end_is_shown_as_a_replacement)
{
    struct tokenizer *t = load();
    struct ids ids = {0};
    size_t used;
    ck_ok(tokenizer_encode(t, "\xf0\x9f\x90\x89", 4, NULL, &ids));
    ck_assert_uint_gt(ids.len, 1);
    ids.len--;
    struct buf got = run_stream(t, &ids, NULL, 0, &used), expected = {0};
    ck_ok(tokenizer_decode(t, ids.data, ids.len, true, &expected));
    ck_assert_str_eq(buf_text(&got), buf_text(&expected));
    ck_assert_uint_gt(got.len, 0);
    buf_free(&got);
    buf_free(&expected);
    ids_free(&ids);
    tokenizer_free(t);
}
END_TEST

START_TEST(a_stop_string_over_several_tokens_ends_the_text_before_it)
{ expect_letters("hello world", (const char *[]){"lo wor"}, 1, "hel", 9); }
END_TEST

START_TEST(what_may_begin_a_stop_string_is_held_and_released)
{
    struct tokenizer *t = load();
    struct ids ids = letters(t, "abcabx");
    struct text_stream *s = stream(t, (const char *[]){"abcd", "cay"}, 2);
    const char *shown[] = {"", "", "", "ab", "abc", "abcabx"}; /* after "abca" the "ca" may go on to "cay" */
    struct buf text = {0};
    bool stopped;
    for (size_t i = 0; i < ids.len; i++) {
        ck_ok(text_stream_push(s, ids.data[i], &text, &stopped));
        ck_assert(!stopped);
        ck_assert_msg(strcmp(buf_text(&text), shown[i]) == 0, "after %zu: '%s', expected '%s'", i + 1, buf_text(&text),
                      shown[i]);
    }
    text_stream_free(s);
    buf_free(&text);
    ids_free(&ids);
    tokenizer_free(t);
}
END_TEST

START_TEST(a_stop_string_that_overlaps_its_own_beginning_is_found)
{ expect_letters("xababac!", (const char *[]){"abac"}, 1, "xab", 7); }
END_TEST

START_TEST(finish_shows_what_was_held)
{ expect_letters("the sto", (const char *[]){"stop"}, 1, "the sto", 7); }
END_TEST

START_TEST(the_stop_string_that_is_complete_first_wins)
{ expect_letters("abcde", (const char *[]){"abcd", "bc"}, 2, "a", 3); }
END_TEST

START_TEST(of_stop_strings_that_end_together_the_longest_wins)
{
    expect_letters("abc", (const char *[]){"c", "bc"}, 2, "a", 3);
    expect_letters("abc", (const char *[]){"bc", "c"}, 2, "a", 3);
}
END_TEST

START_TEST(empty_stop_strings_are_ignored)
{ expect_letters("abc", (const char *[]){"", "c", ""}, 3, "ab", 3); }
END_TEST

START_TEST(nothing_can_be_pushed_after_a_stop_string)
{
    struct tokenizer *t = load();
    struct ids ids = letters(t, "ab");
    struct text_stream *s = stream(t, (const char *[]){"a"}, 1);
    struct buf text = {0};
    bool stopped;
    ck_ok(text_stream_push(s, ids.data[0], &text, &stopped));
    ck_assert(stopped);
    ck_assert_int_eq(text_stream_push(s, ids.data[1], &text, &stopped), ERR_INTERNAL);
    ck_ok(text_stream_finish(s, &text, &stopped));
    ck_assert(stopped);
    ck_assert_uint_eq(text.len, 0);
    text_stream_free(s);
    buf_free(&text);
    ids_free(&ids);
    tokenizer_free(t);
}
END_TEST

/* --- what is known in the end alone -------------------------------------------------------------------------------- */

/* The sentencepiece dialect: a line feed and what the vocabulary lacks are byte tokens. */
static struct tokenizer *load_fallback(void) {
    return tokenizer_load_text(
        "{\"model\":{\"byte_fallback\":true,\"vocab\":{\"a\":0,\"" MARK "\":1,\"<0x0A>\":2,\"<0xC3>\":3,\"<0xA9>\":4,"
        "\"<0x20>\":5},\"merges\":[]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
        "\"pattern\":{\"String\":\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
        "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}");
}

enum { A, BLANK, LINE_FEED, HIGH, LOW, BLANK_BYTE };

/* The ids are streamed up to the stop string, `used` of them, and `shown` is their decoded text up to it. */
static void expect_bytes(const struct ids *ids, const char *stop, const char *shown, size_t used) {
    struct tokenizer *t = load_fallback();
    struct buf whole = {0};
    size_t n;
    struct buf got = run_stream(t, ids, &stop, 1, &n);
    ck_assert_str_eq(buf_text(&got), shown);
    ck_assert_uint_eq(n, used);
    ck_ok(tokenizer_decode(t, ids->data, used, true, &whole));
    ck_assert_int_eq(strncmp(buf_text(&whole), shown, strlen(shown)), 0);
    buf_free(&whole);
    buf_free(&got);
    tokenizer_free(t);
}
#define EXPECT_BYTES(stop, shown, used, ...)                                                                        \
    expect_bytes(                                                                                                   \
        &(struct ids){.data = (int32_t[]){__VA_ARGS__}, .len = sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)}, \
        stop, shown, used)

START_TEST(a_stop_string_that_ends_in_byte_tokens_is_seen_with_the_last_of_them)
{
    EXPECT_BYTES("\n", "a", 2, A, LINE_FEED, A, A);
    EXPECT_BYTES("\n\n", "a", 3, A, LINE_FEED, LINE_FEED, LINE_FEED);
    EXPECT_BYTES("a\xc3\xa9", "a", 4, A, A, HIGH, LOW, LOW);
    EXPECT_BYTES("\n\xc3\xa9", "\xc3\xa9", 5, HIGH, LOW, LINE_FEED, HIGH, LOW, HIGH, LOW);
    EXPECT_BYTES("a\n", "\n", 3, LINE_FEED, A, LINE_FEED, A);
    EXPECT_BYTES(" \n", "", 3, BLANK_BYTE, BLANK_BYTE, LINE_FEED, A); /* the first blank is none */
    EXPECT_BYTES(" \n", "\na", 5, BLANK_BYTE, LINE_FEED, A, BLANK, LINE_FEED);
}
END_TEST

#define BROKEN "\xef\xbf\xbd"

/* One byte too many makes all of a run U+FFFD, so that what a stop string began with was not there. */
START_TEST(a_stop_string_across_a_broken_run_of_byte_tokens_is_none)
{
    EXPECT_BYTES("\na", "a" BROKEN BROKEN "a", 4, A, LINE_FEED, LOW, A);
    EXPECT_BYTES("\na", "a" BROKEN BROKEN "a", 6, A, LINE_FEED, LOW, A, LINE_FEED, A);
    EXPECT_BYTES("\na", "a" BROKEN BROKEN BROKEN "a", 5, A, HIGH, LINE_FEED, LOW, A);
    EXPECT_BYTES("\n", BROKEN BROKEN, 2, LOW, LINE_FEED);
    EXPECT_BYTES(" a", BROKEN BROKEN, 4, BLANK_BYTE, LOW, BLANK, A); /* nor the blank that a text loses */
}
END_TEST

START_TEST(a_stop_string_that_the_end_brings_stops)
{
    struct tokenizer *t = load_fallback();
    struct text_stream *s = stream(t, (const char *[]){BROKEN}, 1);
    struct buf text = {0};
    bool stopped;
    ck_ok(text_stream_push(s, A, &text, &stopped));
    ck_ok(text_stream_push(s, HIGH, &text, &stopped));
    ck_assert(!stopped);
    ck_ok(text_stream_finish(s, &text, &stopped));
    ck_assert(stopped);
    ck_assert_str_eq(buf_text(&text), "a");
    text_stream_free(s);
    buf_free(&text);
    tokenizer_free(t);
}
END_TEST

/* --- against a direct search, over random texts ---------------------------------------------------------------- */

static unsigned next_random(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

static void random_text(unsigned *state, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) out[i] = "abc"[next_random(state) % 3];
    out[n] = '\0';
}

/* Length of the text before the stop string that ends first; the whole length if there is none. */
static size_t direct_search(const char *text, char stops[][8], int count) {
    size_t n = strlen(text);
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (int i = 0; i < count; i++) {
            size_t len = strlen(stops[i]);
            if (len <= end && len > longest && memcmp(text + end - len, stops[i], len) == 0) longest = len;
        }
        if (longest > 0) return end - longest;
    }
    return n;
}

START_TEST(any_cut_into_tokens_gives_the_same_text)
{
    struct tokenizer *t = load();
    unsigned state = 7;
    for (int round = 0; round < 300; round++) {
        char text[64], stops[4][8];
        const char *pointers[4];
        int count = 1 + (int)(next_random(&state) % 4);
        random_text(&state, 10 + next_random(&state) % 30, text);
        for (int i = 0; i < count; i++) {
            random_text(&state, 2 + next_random(&state) % 5, stops[i]);
            pointers[i] = stops[i];
        }
        size_t used, expected = direct_search(text, stops, count);
        struct ids fine = letters(t, text), coarse = {0};
        ck_ok(tokenizer_encode(t, text, strlen(text), NULL, &coarse));
        struct buf a = run_stream(t, &fine, pointers, count, &used), b = run_stream(t, &coarse, pointers, count, &used);
        ck_assert_uint_eq(a.len, expected);
        ck_assert_int_eq(strncmp(buf_text(&a), text, expected), 0);
        ck_assert_str_eq(buf_text(&a), buf_text(&b));
        ids_free(&fine);
        ids_free(&coarse);
        buf_free(&a);
        buf_free(&b);
    }
    tokenizer_free(t);
}
END_TEST

Suite *check_text(void) {
    Suite *suite = suite_create("text");
    TCase *streams = tcase_create("streams");
    tcase_add_loop_test(streams, all_pushes_and_finish_give_the_decoded_text, 0, 4);
    tcase_add_test(streams, no_push_shows_half_a_character);
    tcase_add_test(streams, half_a_character_at_the_end_is_shown_as_a_replacement);
    suite_add_tcase(suite, streams);

    TCase *stops = tcase_create("stop strings");
    tcase_add_test(stops, a_stop_string_over_several_tokens_ends_the_text_before_it);
    tcase_add_test(stops, what_may_begin_a_stop_string_is_held_and_released);
    tcase_add_test(stops, a_stop_string_that_overlaps_its_own_beginning_is_found);
    tcase_add_test(stops, finish_shows_what_was_held);
    tcase_add_test(stops, the_stop_string_that_is_complete_first_wins);
    tcase_add_test(stops, of_stop_strings_that_end_together_the_longest_wins);
    tcase_add_test(stops, empty_stop_strings_are_ignored);
    tcase_add_test(stops, nothing_can_be_pushed_after_a_stop_string);
    tcase_add_test(stops, any_cut_into_tokens_gives_the_same_text);
    suite_add_tcase(suite, stops);

    TCase *ends = tcase_create("ends");
    tcase_add_test(ends, a_stop_string_that_ends_in_byte_tokens_is_seen_with_the_last_of_them);
    tcase_add_test(ends, a_stop_string_across_a_broken_run_of_byte_tokens_is_none);
    tcase_add_test(ends, a_stop_string_that_the_end_brings_stops);
    suite_add_tcase(suite, ends);
    return suite;
}
