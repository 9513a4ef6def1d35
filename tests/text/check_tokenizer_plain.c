/* Text of messages within other text: special tokens are text there, and nowhere else. */
#include <stdio.h>
#include <string.h>

#include "tests/support/damage.h"
#include "tests/support/tokenizer_support.h"

static struct damage chance = {77};

static struct ids encode_marked(const struct tokenizer *t, const char *text, size_t n, const char *plain) {
    struct ids ids = {0};
    ck_ok(tokenizer_encode(t, text, n, &(struct encode_options){.plain = plain}, &ids));
    return ids;
}

static void must_be_equal(const struct ids *got, const struct ids *want, const char *about) {
    bool same =
        got->len == want->len && (got->len == 0 || memcmp(got->data, want->data, got->len * sizeof *got->data) == 0);
    require(same, "%s: %zu ids, expected %zu, or others", about, got->len, want->len);
}

/* --- real tokenizers --------------------------------------------------------------------------------------- */

static const char *const sets[] = {"pair",        "smollm2",          "qwen3",           "llama3", "llama2",
                                   "stories260K", "babyllama-tok105", "babyllama-tok361"};
enum { SETS = sizeof sets / sizeof *sets };

static struct tokenizer *load_set(int index) {
    char relative[64];
    snprintf(relative, sizeof relative, "tokenizers/%s", sets[index]);
    if (shared_path(relative)) return tokenizer_open(shared_path(relative));
    skip("no shared test data");
    return NULL;
}

static void put_special_tokens(const struct tokenizer *t, struct buf *out) {
    for (int32_t id = 0; id < tokenizer_size(t); id++) {
        size_t n;
        const char *token = tokenizer_token(t, id, &n);
        if (!token || !tokenizer_is_special(t, id)) continue;
        buf_append(out, token, n);
        buf_puts(out, id % 3 ? " a" : "\n");
    }
}

/* Loop index: the tokenizer. */
START_TEST(every_special_token_in_a_message_is_text)
{
    struct tokenizer *t = load_set(_i);
    struct buf text = {0}, marks = {0};
    if (!t) return;
    buf_puts(&text, "so: ");
    put_special_tokens(t, &text);
    for (size_t i = 0; i < text.len; i++) buf_putc(&marks, 1);
    struct ids plain = encode_marked(t, text.data, text.len, marks.data);
    struct ids parsed = encode_marked(t, text.data, text.len, NULL);
    size_t special = 0;
    for (size_t i = 0; i < parsed.len; i++) special += tokenizer_is_special(t, parsed.data[i]);
    ck_assert_uint_ge(special, 3);
    int32_t unknown = tokenizer_find(t, "<unk>", 5); /* what characters without a symbol become */
    bool all_known = true;
    for (size_t i = 0; i < plain.len; i++) {
        ck_assert(!tokenizer_is_special(t, plain.data[i]) || plain.data[i] == unknown);
        all_known &= plain.data[i] != unknown;
    }
    struct buf back = tokenizer_decode_all(t, &plain, true);
    if (all_known) tokenizer_check_text(&back, &text);
    ck_assert(all_known || strcmp(sets[_i], "babyllama-tok105") == 0);
    ids_free(&plain);
    ids_free(&parsed);
    buf_free(&text);
    buf_free(&marks);
    buf_free(&back);
    tokenizer_free(t);
}
END_TEST

/* Without special tokens in it, a text has the same ids wherever its messages begin and end. */
START_TEST(marks_change_nothing_but_special_tokens)
{
    static const char *const pieces[] = {
        "Hello",    " world",    "\n",  "\n\n", "  ", "<think>", "</think>", "<tool_call>", "'s",
        "\xc3\xa9", "e\xcc\x81", "123", "<|",   "|>", "<",       "im_end",   "ab",          "\xe6\x97\xa5\xe6\x9c\xac"};
    struct tokenizer *t = load_set(_i);
    struct buf text = {0}, marks = {0};
    if (!t) return;
    for (int i = 0; i < 500; i++) {
        buf_clear(&text);
        buf_clear(&marks);
        for (uint32_t n = damage_below(&chance, 12); n > 0; n--)
            buf_puts(&text, pieces[damage_below(&chance, sizeof pieces / sizeof *pieces)]);
        char mark = 0;
        for (size_t k = 0; k < text.len; k++) {
            if (damage_below(&chance, 3) == 0) mark = (char)!mark;
            buf_putc(&marks, mark);
        }
        struct ids want = encode_marked(t, buf_text(&text), text.len, NULL);
        struct ids got = encode_marked(t, buf_text(&text), text.len, buf_text(&marks));
        must_be_equal(&got, &want, buf_text(&text));
        ids_free(&want);
        ids_free(&got);
    }
    buf_free(&text);
    buf_free(&marks);
    tokenizer_free(t);
}
END_TEST

/* --- borders, by tokenizers of a few letters ----------------------------------------------------------------- */

enum { WORDS = 10, WORD_BYTES = 6, LETTER_IDS = 3, TEXT_BYTES = 30 };

struct words {
    char text[WORDS][WORD_BYTES];
    bool special[WORDS];
    int count;
};

static void make_words(struct words *w) {
    w->count = 2 + (int)damage_below(&chance, WORDS - 1);
    for (int i = 0; i < w->count; i++) {
        uint32_t n = 1 + damage_below(&chance, WORD_BYTES - 1);
        for (uint32_t k = 0; k < n; k++) w->text[i][k] = (char)('a' + (int)damage_below(&chance, 3));
        w->text[i][n] = '\0';
        w->special[i] = damage_below(&chance, 2) == 0;
        for (int k = 0; k < i; k++)
            if (strcmp(w->text[i], w->text[k]) == 0) w->count = i; /* each once */
    }
}

/* Ids 0 to 2 are the letters, those of the words follow. */
static struct tokenizer *load_words(const struct words *w, bool normalized) {
    struct buf json = {0};
    buf_puts(&json, "{\"added_tokens\":[");
    for (int i = 0; i < w->count; i++) {
        int id = w->text[i][1] ? LETTER_IDS + i : w->text[i][0] - 'a'; /* a word of one letter has the letter's id */
        buf_printf(&json, "%s{\"id\":%d,\"content\":\"%s\",\"normalized\":%s,\"special\":%s}", i ? "," : "", id,
                   w->text[i], normalized ? "true" : "false", w->special[i] ? "true" : "false");
    }
    buf_puts(&json, "],\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"c\":2},\"merges\":[]}}");
    struct tokenizer *t = tokenizer_load_text(json.data);
    buf_free(&json);
    return t;
}

static bool begins(const char *text, const char *word) {
    return strncmp(text, word, strlen(word)) == 0;
}

static bool any_marked(const char *marks, size_t begin, size_t end) {
    return memchr(marks + begin, 1, end - begin) != NULL;
}

static bool is_allowed(const struct words *w, int word, const char *text, const char *marks, size_t at) {
    size_t end = at + strlen(w->text[word]);
    if (!any_marked(marks, at, end)) return true;
    if (w->special[word]) return false;
    for (size_t k = at; k < end; k++)
        for (int i = 0; i < w->count; i++)
            if (w->special[i] && begins(text + k, w->text[i]) && !any_marked(marks, k, k + strlen(w->text[i])))
                return false;
    return true;
}

static void expect_words(const struct words *w, const char *text, const char *marks, struct ids *out) {
    for (size_t at = 0, n = strlen(text); at < n;) {
        int best = -1;
        for (int i = 0; i < w->count; i++)
            if (begins(text + at, w->text[i]) && is_allowed(w, i, text, marks, at) &&
                (best < 0 || strlen(w->text[i]) > strlen(w->text[best])))
                best = i;
        bool is_long = best >= 0 && w->text[best][1];
        ids_push(out, is_long ? LETTER_IDS + best : text[at] - 'a');
        at += is_long ? strlen(w->text[best]) : 1;
    }
}

/* Loop index: whether the tokens are looked for in normalised text. */
START_TEST(borders_decide_which_tokens_count)
{
    for (int round = 0; round < 400; round++) {
        struct words w;
        make_words(&w);
        struct tokenizer *t = load_words(&w, _i);
        for (int i = 0; i < 30; i++) {
            char text[TEXT_BYTES + 1], marks[TEXT_BYTES], mark = 0;
            size_t n = damage_below(&chance, TEXT_BYTES + 1);
            for (size_t k = 0; k < n; k++) {
                if (damage_below(&chance, 4) == 0) mark = (char)!mark;
                text[k] = (char)('a' + (int)damage_below(&chance, 3));
                marks[k] = mark;
            }
            text[n] = '\0';
            struct ids want = {0}, got = encode_marked(t, text, n, marks);
            expect_words(&w, text, marks, &want);
            must_be_equal(&got, &want, text);
            ids_free(&want);
            ids_free(&got);
        }
        tokenizer_free(t);
    }
}
END_TEST

/* --- normalisers, merges, flags -------------------------------------------------------------------------------- */

/* `marked`: the text, with what is of a message in {braces}. */
static void expect_ids(const char *json, const char *marked, const char *expected) {
    struct tokenizer *t = tokenizer_load_text(json);
    struct buf text = {0}, marks = {0}, got = {0};
    char mark = 0;
    for (; *marked; marked++) {
        if (*marked == '{' || *marked == '}') {
            mark = *marked == '{';
            continue;
        }
        buf_putc(&text, *marked);
        buf_putc(&marks, mark);
    }
    struct ids ids = encode_marked(t, buf_text(&text), text.len, buf_text(&marks));
    for (size_t i = 0; i < ids.len; i++) buf_printf(&got, "%s%d", i > 0 ? " " : "", ids.data[i]);
    ck_assert_str_eq(buf_text(&got), expected);
    ids_free(&ids);
    buf_free(&text);
    buf_free(&marks);
    buf_free(&got);
    tokenizer_free(t);
}

#define MODEL \
    "\"model\":{\"vocab\":{\"<\":0,\"s\":1,\">\":2,\"a\":3,\"" MARK "\":4,\"S\":5,\"\xc3\xa9\":6},\"merges\":[]}}"
#define NORMALIZED(normalizer)    \
    "{\"normalizer\":" normalizer \
    ",\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true,\"normalized\":true}]," MODEL

START_TEST(marks_follow_the_text_through_normalisers)
{
#define SPOKEN                                                                                     \
    NORMALIZED("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" MARK \
               "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]}")
    expect_ids(SPOKEN, "<s>a <s>a", "9 3 9 3");
    expect_ids(SPOKEN, "<s>{a <s>}a", "9 3 4 0 1 2 3");
    expect_ids(SPOKEN, "{<s>a} <s>a", "4 0 1 2 3 9 3");
    expect_ids(SPOKEN, "{a }<s>a", "4 3 4 0 1 2 3"); /* the space of the token is of the message */
    expect_ids(NORMALIZED("{\"type\":\"Lowercase\"}"), "<S>{<S>}<s{>}", "9 0 1 2 0 1 2");
    expect_ids(NORMALIZED("{\"type\":\"NFC\"}"), "<s>{\xc3\xa9<s>}<s>", "9 6 0 1 2 9");
    expect_ids(NORMALIZED("{\"type\":\"NFKC\"}"), "\xef\xbc\x9cs>{\xef\xbc\x9cs>}<s>", "9 0 1 2 9");
    expect_ids(
        "{\"normalizer\":{\"type\":\"NFKC\"},\"added_tokens\":[{\"id\":9,\"content\":\"\xe6\x97\xa5\",\"special\":true,"
        "\"normalized\":true}]," MODEL,
        "\xe6\x97\xa5{\xef\xbc\x9c}\xe6\x97\xa5{\xe6\x97\xa5}", "9 0 9");
    expect_ids(NORMALIZED("{\"type\":\"Strip\"}"), " <s>{<s> }", "9 0 1 2");
    expect_ids(NORMALIZED("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"S|a\"},\"content\":\"<s>\"}"), "a{a}S{S}",
               "9 0 1 2 9 0 1 2");
    expect_ids(NORMALIZED("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(?=a)\"},\"content\":\"<s>\"}"), "a{a}",
               "9 3 0 1 2 3"); /* put in before a letter of a message */
}
END_TEST

START_TEST(merges_make_no_special_token_of_a_message)
{
#define MERGES(more)                                                                                             \
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true}],\"model\":{\"vocab\":{\"<\":0,\"s\":1," \
    "\">\":2,\"<s\":3,\"<s>\":4,\"<s>s\":5},\"merges\":[\"< s\",\"<s >\"]" more "}}"
    expect_ids(MERGES(""), "<s>{<s>}", "4 3 2");
    expect_ids(MERGES(",\"ignore_merges\":true"), "{<s>}", "3 2");
    expect_ids(MERGES(",\"ignore_merges\":true"), "{<s>s}", "5");
}
END_TEST

START_TEST(flags_of_special_tokens_hold_beside_messages)
{
#define FLAGS(more)                                                                                               \
    "{\"added_tokens\":[{\"id\":9,\"content\":\"<<\",\"special\":true,\"normalized\":false" more "}],\"model\":{" \
    "\"vocab\":{\"a\":1,\" \":2,\"<\":3},\"merges\":[]}}"
    expect_ids(FLAGS(",\"single_word\":true"), "a<<{a<<}<<a", "1 3 3 1 3 3 3 3 1"); /* as without a message */
    expect_ids(FLAGS(",\"single_word\":true"), "{a}<<{a}", "1 9 1");
    expect_ids(FLAGS(",\"lstrip\":true"), "{a }<<{ a}", "1 9 2 1");
    expect_ids(FLAGS(",\"rstrip\":true"), "{a }<<{ a}", "1 2 9 1");
}
END_TEST

Suite *check_tokenizer_plain(void) {
    Suite *suite = suite_create("tokenizer_plain");
    TCase *real = tcase_create("real");
    tcase_add_loop_test(real, every_special_token_in_a_message_is_text, 0, SETS);
    tcase_add_loop_test(real, marks_change_nothing_but_special_tokens, 0, SETS);
    suite_add_tcase(suite, real);

    TCase *small = tcase_create("small");
    tcase_add_loop_test(small, borders_decide_which_tokens_count, 0, 2);
    tcase_add_test(small, marks_follow_the_text_through_normalisers);
    tcase_add_test(small, merges_make_no_special_token_of_a_message);
    tcase_add_test(small, flags_of_special_tokens_hold_beside_messages);
    suite_add_tcase(suite, small);
    return suite;
}
