/* Regexes in windows: what is found is what PCRE2 finds in the whole text, and no text takes more than linear time. */
#include <stdio.h>
#include <string.h>

#include "model/text/tokenizer_internal.h"
#include "tests/support/damage.h"
#include "tests/support/tokenizer_support.h"

/* --- the same matches --------------------------------------------------------------------------------------- */

static const char *const regexes[] = {
    /* of tokenizers */
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+"
    "(?!\\S)|\\s+",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|"
    "'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|"
    "'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!"
    "\\S)|\\s+",
    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
    ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
    "\\p{N}",
    "\\w+|[^\\w\\s]+",
    "\\s+",
    /* that look ahead, behind and to the ends */
    "$",
    "^",
    "\\A.",
    ".\\z",
    ".\\Z",
    "\\s+$",
    "(?<=a)b",
    "(?<!a)b+(?!\\n)",
    "(?<=\\n|^)\\s*\\S",
    "(?=ab)",
    "(?<=ab)",
    "(?<=\\s)(?=\\S)",
    "\\b",
    "\\B",
    "\\b\\w+\\b",
    "\\R",
    "\\R+x?",
    "a?",
    "",
    "(?:)|a",
    "x*|b",
    /* that backtrack, run far, or both */
    "a.*b",
    "(?s)a.*b",
    "(?s).*",
    ".*",
    ".*?1",
    "(?s:.)*?\\n\\n",
    "(a|ab)(b|ba)*c",
    "(?>a+)b",
    "a++b",
    "(?:[ab]*1|[ab]*2|[ab]+)",
    "(?=[ab]*1)[ab]|b",
    "(?![ab]*1)[ab]",
    "a{2,}b?|b{3}",
    "\\s{3}",
    "(?:\\s(?:a|b)?){2,5}",
    "\\((?:[^()]|(?R))*\\)",
    "(?(?=a)ab|b)",
    "(?i)A+\\xe9?",
    "[^a]+a",
    "(?<=.{3})1",
    "\\N+$",
};
enum { REGEXES = sizeof regexes / sizeof *regexes, OF_TOKENIZERS = 9 };

static const char *const pieces[] = {
    "a",        "a",         "b",         "ab", " ",  "  ", "\n",       "\r\n",         "1",         "22",
    "'s",       ".",         "(",         ")",  "\t", "A",  "\xc3\xa9", "\xe6\x97\xa5", "e\xcc\x81", "\xf0\x9f\x98\x80",
    "aaaaaaaa", "         ", "\n\n\n\n\n"};

static void make_text(struct damage *chance, struct buf *text) {
    uint32_t kinds = 1 + damage_below(chance, 6), first = damage_below(chance, sizeof pieces / sizeof *pieces);
    buf_clear(text);
    for (uint32_t n = damage_below(chance, 24); n > 0; n--)
        buf_puts(text, pieces[(first + damage_below(chance, kinds)) % (sizeof pieces / sizeof *pieces)]);
}

/* Whether PCRE2 finds a match from `at` in the whole text, which is then [range[0], range[1]). */
static bool find_plainly(const pcre2_code *code, pcre2_match_data *data, const struct buf *text, size_t at,
                         size_t range[2]) {
    int rc = pcre2_match(code, (PCRE2_SPTR)buf_text(text), text->len, at, 0, data, NULL);
    require(rc >= 0 || rc == PCRE2_ERROR_NOMATCH, "pcre2_match gives %d", rc);
    if (rc >= 0) memcpy(range, pcre2_get_ovector_pointer(data), 2 * sizeof *range);
    return rc >= 0;
}

static void check_from(struct matcher *m, const struct pattern *p, const struct buf *text, size_t at,
                       const char *regex) {
    struct search s = {p, m, buf_text(text), text->len, at, 0, 0, false};
    size_t range[2] = {0};
    bool found;
    *m->work = work_on(text->len, NULL);
    require_ok(match_regex(&s, &found));
    bool wanted = find_plainly(p->code, m->data, text, at, range);
    require(found == wanted && (!found || (s.begin == range[0] && s.end == range[1])),
            "%s from %zu of '%s', windows of %zu and %zu bytes: [%zu, %zu), not [%zu, %zu)", regex, at, buf_text(text),
            m->window_bytes, m->sight_bytes, found ? s.begin : 0, found ? s.end : 0, range[0], range[1]);
}

/* Loop index: the regex. */
START_TEST(matches_in_windows_are_those_in_the_whole_text)
{
    struct damage chance = {(uint64_t)_i + 1};
    struct pattern p = {.code = NULL};
    struct work work;
    struct matcher m;
    struct buf text = {0};
    ck_ok(pattern_compile(&p, regexes[_i], strlen(regexes[_i])));
    ck_ok(matcher_create(&m, &work));
    size_t window = m.window_bytes, sight = m.sight_bytes;
    for (int i = 0; i < (test_is_small() ? 300 : 3000); i++) {
        make_text(&chance, &text);
        m.window_bytes = i % 8 ? damage_below(&chance, 7) : window;
        m.sight_bytes = i % 8 ? 1 + damage_below(&chance, 6) : sight;
        for (size_t at = 0; at <= text.len; at++)
            if (at == text.len || ((unsigned char)text.data[at] & 0xc0) != 0x80)
                check_from(&m, &p, &text, at, regexes[_i]);
    }
    matcher_free(&m);
    pattern_free(&p);
    buf_free(&text);
}
END_TEST

/* --- the time ------------------------------------------------------------------------------------------------- */

/* A tokenizer that isolates the matches of a regex. */
static struct tokenizer *load_split(const char *regex) {
    struct buf json = {0};
    buf_puts(&json, "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":");
    json_put_string(&json, regex, strlen(regex));
    buf_puts(&json, "}},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    struct tokenizer *t = tokenizer_load_text(json.data);
    buf_free(&json);
    return t;
}

static void repeat(struct buf *text, const char *unit, size_t bytes) {
    buf_clear(text);
    while (text->len < bytes) buf_puts(text, unit);
}

static const char too_long[] = "a regex of the tokenizer takes too long on this text";

/* The text is encoded, or refused for the time that it would take, and neither takes long. */
static int encode_in_time(const struct tokenizer *t, const struct buf *text, const char *about) {
    struct ids ids = {0};
    int64_t start = tokenizer_cpu_us();
    int rc = tokenizer_encode(t, text->data, text->len, NULL, &ids);
    int64_t us = tokenizer_cpu_us() - start;
    ck_assert_msg(us < (SANITIZED ? 15000000 : 3000000), "%s: %lld us", about, (long long)us);
    if (rc != 0) {
        ck_assert_int_eq(rc, ERR_UNSUPPORTED);
        ck_assert_str_eq(err_message(), too_long);
    }
    ids_free(&ids);
    return rc;
}

/* Regexes that take quadratic time or more, each over a text that shows it; `scan`: by characters that an item runs over,
 * which no limit of backtracking counts. */
static const struct {
    const char *regex, *unit, *end;
} costly[] = {
    {"\\s+$", " ", "x"},        /* scan */
    {"[a-z]+[0-9]", "a", " "},  /* scan */
    {"[a-z]*+[0-9]", "a", " "}, /* scan */
    {"(?=[a-z]*[0-9])a", "a", " "},
    {"(?![a-z]*$)a", "a", " "},
    {"a.*b", "a", "\n"},
    {"(?s)a.*?b", "a", ""},
    {"(a|aa)+[bc]", "a", ""},
    {"(a|aa)+[bc]", "aaaaaaaaaaaaaaaaaaaaaaaaa ", ""}, /* each start for itself within a window */
    {"(a*)*b", "a", "c"},
    {"(?:a|b|ab)*c", "ab", ""},
    {"a{20000}b", "aaaaaaaaaaaaaaaaaaa ", ""},
    {"a{3000}b", "a", ""},
    {"(?:(?<=a{255})c|(?<=b{255})c|(?<=.{255})c|b)", "a", "b"},
    {"\\((?:[^()]|(?R))*\\)", "(", ""},
};

/* Loop index: the regex. */
START_TEST(costly_regexes_end_soon)
{
    struct tokenizer *t = load_split(costly[_i].regex);
    struct buf text = {0};
    repeat(&text, costly[_i].unit, 100000);
    buf_puts(&text, costly[_i].end);
    encode_in_time(t, &text, costly[_i].regex);
    repeat(&text, costly[_i].unit, 40);
    buf_puts(&text, costly[_i].end);
    int rc = encode_in_time(t, &text, costly[_i].regex);
    ck_assert_msg(rc == 0 || strstr("(a|aa)+[bc] (?:a|b|ab)*c (a*)*b", costly[_i].regex), "%s", err_message());
    buf_free(&text);
    tokenizer_free(t);
}
END_TEST

/* An item that must be repeated often fails at the end of its run: no callout tells how far it went. */
START_TEST(repeats_that_an_item_must_have_are_charged)
{
    struct tokenizer *t = load_split("\\p{L}{65000}b");
    struct buf text = {0};
    while (text.len < 500000) {
        for (int i = 0; i < 64999; i++) buf_putc(&text, 'a');
        buf_putc(&text, ' ');
    }
    ck_assert_int_eq(encode_in_time(t, &text, "repeats"), ERR_UNSUPPORTED);
    buf_free(&text);
    tokenizer_free(t);
}
END_TEST

/* What each of many starts may cost before it is counted: alternatives that run to the end of what a quick match sees. */
START_TEST(alternatives_of_a_start_are_bounded)
{
    struct buf regex = {0}, text = {0};
    for (int i = 0; i < 200; i++) buf_printf(&regex, "[a-z]*+%d|", i);
    buf_puts(&regex, "#");
    struct tokenizer *t = load_split(regex.data);
    repeat(&text, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ", 200000);
    encode_in_time(t, &text, "alternatives");
    tokenizer_free(t);
    buf_free(&regex);
    buf_free(&text);
}
END_TEST

/* Loop index: the regex, one of a tokenizer. */
START_TEST(long_runs_are_encoded)
{
    static const char *const units[] = {" ",         "a",        "A", "\n", " \n", "\t ", "1", "!", "\xe6\x97\xa5",
                                        "e\xcc\x81", "\xc2\xa0", "'s"};
    struct tokenizer *t = load_split(regexes[_i]);
    struct buf text = {0};
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        repeat(&text, units[u], test_is_small() ? 200000 : 1000000);
        ck_ok(encode_in_time(t, &text, units[u]));
        buf_putc(&text, 'x');
        ck_ok(encode_in_time(t, &text, units[u]));
    }
    buf_free(&text);
    tokenizer_free(t);
}
END_TEST

/* --- interrupts ------------------------------------------------------------------------------------------------ */

struct patience {
    int questions, most; /* asked so far; yes from then on */
};

static bool is_over(void *user) {
    struct patience *p = user;
    return ++p->questions > p->most;
}

static int encode_with_patience(const struct tokenizer *t, const struct buf *text, struct patience *p,
                                struct ids *out) {
    struct interrupt interrupt = {is_over, p};
    return tokenizer_encode(t, text->data, text->len, &(struct encode_options){.interrupt = &interrupt}, out);
}

/* Loop index: the unit of the text. Interrupted wherever it is asked, and asked often. */
START_TEST(encoding_is_interrupted)
{
    static const struct {
        const char *regex, *unit;
    } cases[] = {{"\\s+$", " "}, {"\\p{N}", "a"}, {"[a-z]", "a"}, {"(a|aa)+c", "a"}, {"\\s+(?!\\S)|\\s+", "  x"}};
    struct tokenizer *t = load_split(cases[_i].regex);
    struct buf text = {0};
    struct ids ids = {0};
    struct patience p = {0, 1 << 30};
    repeat(&text, cases[_i].unit, 100000);
    buf_putc(&text, 'x');
    ids_push(&ids, 7);
    int rc = encode_with_patience(t, &text, &p, &ids);
    ck_assert(rc == 0 || rc == ERR_UNSUPPORTED);
    int asked = p.questions;
    ck_assert_int_ge(asked, 2);
    for (int most = 0; most < asked; most += 1 + asked / 20) {
        ids.len = 1;
        p = (struct patience){0, most};
        ck_assert_int_eq(encode_with_patience(t, &text, &p, &ids), ERR_INTERRUPTED);
        ck_assert_str_eq(err_message(), "interrupted");
        ck_assert_int_eq(p.questions, most + 1);
        ck_assert_uint_eq(ids.len, 1);
    }
    ids_free(&ids);
    buf_free(&text);
    tokenizer_free(t);
}
END_TEST

START_TEST(what_cannot_be_bounded_is_refused_at_load)
{
    static const char *const refused[][2] = {
        {"(a)\\\\1", "backreferences are not supported"},
        {"(?<x>a)\\\\k<x>", "backreferences are not supported"},
        {"\\\\Ga", "which is not supported"},
        {"\\\\X", "which is not supported"},
        {"(?<=a{256})b", "a lookbehind of 256 characters"},
        {"(*LIMIT_MATCH=1)a", "which is not supported"},
        {"a\\\\Kb", "which is not supported"},
    };
    struct buf json = {0};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        buf_clear(&json);
        buf_printf(&json,
                   "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"%s\"}},"
                   "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
                   refused[i][0]);
        tokenizer_refuse_text(json.data, ERR_UNSUPPORTED, refused[i][1]);
    }
    buf_free(&json);
}
END_TEST

Suite *check_tokenizer_match(void) {
    Suite *suite = suite_create("tokenizer_match");
    TCase *same = tcase_create("same");
    tcase_add_loop_test(same, matches_in_windows_are_those_in_the_whole_text, 0, REGEXES);
    suite_add_tcase(suite, same);

    TCase *time = tcase_create("time");
    tcase_add_loop_test(time, costly_regexes_end_soon, 0, sizeof costly / sizeof *costly);
    tcase_add_test(time, repeats_that_an_item_must_have_are_charged);
    tcase_add_test(time, alternatives_of_a_start_are_bounded);
    tcase_add_loop_test(time, long_runs_are_encoded, 0, OF_TOKENIZERS);
    tcase_add_loop_test(time, encoding_is_interrupted, 0, 5);
    tcase_add_test(time, what_cannot_be_bounded_is_refused_at_load);
    suite_add_tcase(suite, time);
    return suite;
}
