/* What a file or a user can make long costs no more than n log n: the parser, the tokenizer, stop strings. Costs are compared
 * within one run (tests/support/growth.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/text.h"
#include "tests/support/growth.h"
#include "tests/support/support.h"
#include "tests/support/tokenizer_support.h"

/* --- JSON ---------------------------------------------------------------------------------------------------------------- */

GROWN_TEXT(json_numbers, "[1", ", -1.5e3", "]")
GROWN_TEXT(json_lists, "[0", ", [[[[[[[[[[]]]]]]]]]]", "]")
GROWN_TEXT(json_depth, "", "[", "")
GROWN_TEXT(json_characters, "\"", "x\xc3\xa9", "\"")
GROWN_TEXT(json_escapes, "\"", "\\n\\u00e9\\ud83d\\ude00\\u0000", "\"")
GROWN_TEXT(json_error, "[1", ",\n 1", ", x]")
GROWN_TEXT(json_open_string, "[\"", "abc ", "")
GROWN_TEXT(json_blanks, "", " \n", "x")

static void *json_members(size_t n) {
    struct buf *text = grown_text("", "", 0, "");
    for (size_t i = 0; i < n; i++) buf_printf(text, "%c\"name %zu\": {\"a\": null}", i ? ',' : '{', i);
    buf_putc(text, '}');
    return text;
}

static void parse(void *input) {
    const struct buf *text = input;
    cJSON *item;
    if (json_parse(&item, text->data, text->len) == 0) cJSON_Delete(item);
}

static void print(void *input) {
    struct buf out = {0};
    json_print(input, &out);
    buf_free(&out);
}

static void *parsed_escapes(size_t n) {
    struct buf *text = json_escapes(n);
    cJSON *item;
    ck_ok(json_parse(&item, text->data, text->len));
    drop_text(text);
    return item;
}

static void drop_item(void *item) {
    cJSON_Delete(item);
}

static const struct growth json_cases[] = {
    {"a list of numbers", 4000, json_numbers, parse, drop_text},
    {"lists in lists", 500, json_lists, parse, drop_text},
    {"brackets without end", 20000, json_depth, parse, drop_text},
    {"a string", 20000, json_characters, parse, drop_text},
    {"a string of escapes", 4000, json_escapes, parse, drop_text},
    {"members of an object", 2000, json_members, parse, drop_text},
    {"an error in the last line", 5000, json_error, parse, drop_text},
    {"a string without end", 20000, json_open_string, parse, drop_text},
    {"white space", 20000, json_blanks, parse, drop_text},
    {"a string of escapes, printed", 4000, parsed_escapes, print, drop_item},
};

START_TEST(json_takes_time_in_proportion_to_its_length)
{ must_grow_like_n_log_n(&json_cases[_i]); }
END_TEST

/* --- tokenizers ------------------------------------------------------------------------------------------------------------ */

/* The tokenizer and the text or ids that it works on. */
struct words {
    struct tokenizer *tokenizer;
    struct buf text;
    struct ids ids;
};

static struct words *new_words(struct tokenizer *t, struct buf *text) {
    struct words *w = calloc(1, sizeof *w);
    require(w != NULL, "no memory");
    w->tokenizer = t;
    if (text) w->text = *text;
    free(text);
    return w;
}

static void drop_words(void *input) {
    struct words *w = input;
    tokenizer_free(w->tokenizer);
    buf_free(&w->text);
    ids_free(&w->ids);
    free(w);
}

static void encode(void *input) {
    struct words *w = input;
    w->ids.len = 0;
    (void)tokenizer_encode(w->tokenizer, buf_text(&w->text), w->text.len, &(struct encode_options){.special = true},
                           &w->ids);
}

static void decode(void *input) {
    struct words *w = input;
    w->text.len = 0;
    ck_ok(tokenizer_decode(w->tokenizer, w->ids.data, w->ids.len, false, &w->text));
}

static void decode_one_by_one(void *input) {
    struct words *w = input;
    struct detokenizer *d;
    w->text.len = 0;
    ck_ok(detokenizer_create(w->tokenizer, false, &d));
    for (size_t i = 0; i < w->ids.len; i++) require_ok(detokenizer_push(d, w->ids.data[i], &w->text));
    ck_ok(detokenizer_finish(d, &w->text));
    detokenizer_free(d);
}

static struct tokenizer *embedded(void) {
    return tokenizer_open(asset_path("target"));
}

#define WORDS(name, tokenizer, unit)                              \
    static void *name(size_t n) {                                 \
        return new_words(tokenizer, grown_text("", unit, n, "")); \
    }

WORDS(one_letter, embedded(), "a")
WORDS(syllables, embedded(), "theringstion")
WORDS(spaces, embedded(), " ")
WORDS(newlines, embedded(), "\n \t\n")
WORDS(points, embedded(), "!?.")
WORDS(digits, embedded(), "1234567890")
WORDS(short_words, embedded(), "the cat ")
WORDS(wide_characters, embedded(), "\xf0\x9f\x98\x80")

/* A tokenizer of a few characters, with `parts` of tokenizer.json before its model. */
static struct tokenizer *tiny(const char *parts) {
    struct buf json = {0};
    buf_printf(
        &json,
        "{%s, \"model\": {\"type\": \"BPE\", \"merges\": [\"a a\", \"aa aa\"], \"vocab\": {\"a\": 0, \" \": 1, "
        "\"\\u0301\": 2, \"\\u0316\": 3, \"\\u00e1\": 4, \"aa\": 5, \"aaaa\": 6, \"<0xC3>\": 7, \"<0xA9>\": 8}}}",
        parts);
    struct tokenizer *t = tokenizer_load_text(json.data);
    buf_free(&json);
    return t;
}

#define NFC "\"normalizer\": {\"type\": \"NFC\"}"
#define SPLIT(regex) \
    "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex "\"}, \"behavior\": \"Isolated\"}"
#define REPLACE "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}"
#define FALLBACK \
    "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}"

/* U+0301 is of class 230, U+0316 of class 220: the pairs have to be sorted. */
static struct buf *marks_of(size_t n) {
    return grown_text("a", "\xcc\x81\xcc\x96", n, "");
}

static void *marks(size_t n) {
    return new_words(tiny(NFC), marks_of(n));
}

static void *marks_of_qwen(size_t n) {
    return new_words(tokenizer_open(shared_path("tokenizers/qwen3")), marks_of(n));
}

static void *blanks_before_a_letter(size_t n) {
    return new_words(tiny(SPLIT("\\\\s+$")), grown_text("", " ", n, "a"));
}

static void *blanks_one_by_one(size_t n) {
    return new_words(tiny(SPLIT("\\\\s+$|.")), grown_text("", " ", n, "a"));
}

WORDS(replaced_letters, tiny(REPLACE), "a ")
WORDS(merged_letters, tiny(NFC), "a")

/* As many added tokens as mentions of them. */
static void *added_tokens(size_t n) {
    struct buf json = {0}, *text = grown_text("", "", 0, "");
    buf_puts(&json, "{\"added_tokens\": [");
    for (size_t i = 0; i < n; i++) {
        buf_printf(&json, "%s{\"id\": %zu, \"content\": \"<t%zu>\", \"special\": true}", i ? "," : "", i + 1, i);
        buf_printf(text, "a<t%zu>", i);
    }
    buf_puts(&json, "], \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"a\": 0}}}");
    struct tokenizer *t = tokenizer_load_text(json.data);
    buf_free(&json);
    return new_words(t, text);
}

/* All of one string. */
static void *equal_added_tokens(size_t n) {
    struct buf json = {0};
    buf_puts(&json, "{\"added_tokens\": [");
    for (size_t i = 0; i < n; i++) buf_printf(&json, "%s{\"id\": %zu, \"content\": \"<t>\"}", i ? "," : "", i + 1);
    buf_puts(&json, "], \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"a\": 0}}}");
    struct tokenizer *t = tokenizer_load_text(json.data);
    buf_free(&json);
    return new_words(t, NULL);
}

static void *words_and_merges(size_t n) {
    struct buf json = {0};
    buf_puts(&json, "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0");
    for (size_t i = 0; i < n; i++) buf_printf(&json, ", \"b%zu\": %zu, \"ab%zu\": %zu", i, 2 * i + 1, i, 2 * i + 2);
    buf_puts(&json, "}, \"merges\": [");
    for (size_t i = 0; i < n; i++) buf_printf(&json, "%s\"a b%zu\"", i ? ", " : "", i);
    buf_puts(&json, "]}}");
    struct tokenizer *t = tokenizer_load_text(json.data);
    buf_free(&json);
    return new_words(t, NULL);
}

static void load(void *input) {
    struct words *w = input;
    tokenizer_free(w->tokenizer);
    w->tokenizer = tokenizer_open(temp_dir());
}

static const struct growth encode_cases[] = {
    {"one letter, as one word", 4000, one_letter, encode, drop_words},
    {"one word of syllables", 500, syllables, encode, drop_words},
    {"spaces", 4000, spaces, encode, drop_words},
    {"blank lines", 2000, newlines, encode, drop_words},
    {"points", 2000, points, encode, drop_words},
    {"digits", 500, digits, encode, drop_words},
    {"words", 500, short_words, encode, drop_words},
    {"characters of several tokens", 1000, wide_characters, encode, drop_words},
    {"merges of one letter", 4000, merged_letters, encode, drop_words},
    {"replacements", 4000, replaced_letters, encode, drop_words},
    {"combining marks", 500, marks, encode, drop_words},
    {"blanks before a letter, by a regex for those at the end", 2000, blanks_before_a_letter, encode, drop_words},
    {"the same regex, or any character", 2000, blanks_one_by_one, encode, drop_words},
    {"added tokens", 1000, added_tokens, encode, drop_words},
    {"a file of added tokens", 500, added_tokens, load, drop_words},
    {"a file of equal added tokens", 500, equal_added_tokens, load, drop_words},
    {"a file of words and merges", 500, words_and_merges, load, drop_words},
};

START_TEST(encoding_takes_time_in_proportion_to_the_text)
{ must_grow_like_n_log_n(&encode_cases[_i]); }
END_TEST

START_TEST(qwen_encodes_combining_marks_in_proportion_to_their_number)
{
    if (!shared_path("tokenizers/qwen3")) {
        skip("no shared test data");
        return;
    }
    must_grow_like_n_log_n(&(struct growth){"marks", 500, marks_of_qwen, encode, drop_words});
}
END_TEST

/* --- decoding ---------------------------------------------------------------------------------------------------------------- */

static void *many_ids(size_t n) {
    struct words *w = new_words(embedded(), NULL);
    for (size_t i = 0; i < n; i++) ids_push(&w->ids, (int32_t)(256 + i % 1000));
    return w;
}

/* Halves of characters: no byte of them is text until the other comes. */
static void *half_characters(size_t n) {
    struct words *w = new_words(tiny(FALLBACK), NULL);
    for (size_t i = 0; i < n; i++) ids_push(&w->ids, i % 3 == 0 ? 8 : 7);
    return w;
}

/* Nothing is given out before the run ends. */
static void *byte_characters(size_t n) {
    struct words *w = new_words(tiny(FALLBACK), NULL);
    for (size_t i = 0; i < n; i++) ids_push(&w->ids, i % 2 == 0 ? 7 : 8);
    return w;
}

static const struct growth decode_cases[] = {
    {"ids", 4000, many_ids, decode, drop_words},
    {"ids, one by one", 4000, many_ids, decode_one_by_one, drop_words},
    {"halves of characters", 4000, half_characters, decode, drop_words},
    {"halves of characters, one by one", 4000, half_characters, decode_one_by_one, drop_words},
    {"characters of byte tokens, one by one", 4000, byte_characters, decode_one_by_one, drop_words},
};

START_TEST(decoding_takes_time_in_proportion_to_the_ids)
{ must_grow_like_n_log_n(&decode_cases[_i]); }
END_TEST

/* --- stop strings ---------------------------------------------------------------------------------------------------------------- */

struct stops {
    struct tokenizer *tokenizer;
    struct buf *stop; /* [count] */
    int count;
    size_t pushes;
};

static struct stops *new_stops(int count, size_t pushes) {
    struct stops *s = calloc(1, sizeof *s);
    require(s != NULL, "no memory");
    *s = (struct stops){tiny(FALLBACK), calloc((size_t)count, sizeof *s->stop), count, pushes};
    require(s->stop != NULL, "no memory");
    return s;
}

static void drop_stops(void *input) {
    struct stops *s = input;
    for (int i = 0; i < s->count; i++) buf_free(&s->stop[i]);
    free(s->stop);
    tokenizer_free(s->tokenizer);
    free(s);
}

/* Nearly the stop string all the time: the text is "aaa...". */
static void *long_text(size_t n) {
    struct stops *s = new_stops(2, n);
    buf_puts(&s->stop[0], "aaaaaaa ");
    buf_puts(&s->stop[1], "aaa  ");
    return s;
}

static void *long_stop(size_t n) {
    struct stops *s = new_stops(1, 2 * n);
    text_repeat(&s->stop[0], "a", n);
    buf_puts(&s->stop[0], " ");
    return s;
}

/* Held back from its first half on, and shown byte by byte. */
static void *long_periodic_stop(size_t n) {
    struct stops *s = new_stops(1, 2 * n);
    text_repeat(&s->stop[0], "a", n / 2);
    buf_puts(&s->stop[0], "  ");
    text_repeat(&s->stop[0], "a", n / 2);
    return s;
}

static void *many_stops(size_t n) {
    struct stops *s = new_stops((int)n, 200);
    for (size_t i = 0; i < n; i++) buf_printf(&s->stop[i], "aaaa %zu", i);
    return s;
}

static void stream(void *input) {
    const struct stops *s = input;
    struct text_stream *text;
    struct buf out = {0};
    const char **stops = calloc((size_t)s->count, sizeof *stops);
    size_t *lens = calloc((size_t)s->count, sizeof *lens);
    require(stops && lens, "no memory");
    for (int i = 0; i < s->count; i++) stops[i] = buf_text(&s->stop[i]), lens[i] = s->stop[i].len;
    ck_ok(text_stream_create(s->tokenizer, stops, lens, s->count, &text));
    bool stopped = false;
    for (size_t i = 0; i < s->pushes && !stopped; i++) require_ok(text_stream_push(text, 0, &out, &stopped));
    ck_ok(text_stream_finish(text, &out, &stopped));
    ck_assert_uint_eq(out.len, s->pushes);
    text_stream_free(text);
    free(stops), free(lens);
    buf_free(&out);
}

static const struct growth stop_cases[] = {
    {"a text that may begin a stop string everywhere", 4000, long_text, stream, drop_stops},
    {"a long stop string", 1000, long_stop, stream, drop_stops},
    {"a long stop string with two halves", 1000, long_periodic_stop, stream, drop_stops},
    {"stop strings", 64, many_stops, stream, drop_stops},
};

START_TEST(stop_strings_take_time_in_proportion_to_their_length_and_the_text)
{ must_grow_like_n_log_n(&stop_cases[_i]); }
END_TEST

Suite *check_complexity(void);
Suite *check_complexity(void) {
    Suite *suite = suite_create("complexity");
    TCase *text = tcase_create("text");
    tcase_add_loop_test(text, json_takes_time_in_proportion_to_its_length, 0, GROWTH_COUNT(json_cases));
    tcase_add_loop_test(text, encoding_takes_time_in_proportion_to_the_text, 0, GROWTH_COUNT(encode_cases));
    tcase_add_test(text, qwen_encodes_combining_marks_in_proportion_to_their_number);
    tcase_add_loop_test(text, decoding_takes_time_in_proportion_to_the_ids, 0, GROWTH_COUNT(decode_cases));
    tcase_add_loop_test(text, stop_strings_take_time_in_proportion_to_their_length_and_the_text, 0,
                        GROWTH_COUNT(stop_cases));
    suite_add_tcase(suite, text);
    return suite;
}
