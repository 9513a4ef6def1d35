/* Files and texts that are made to take long: what is linear stays right, and what cannot be is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/damage.h"
#include "tests/support/tokenizer_support.h"

enum { FEW_US = 3000000 }; /* what each of these takes at most, by far; sanitizers included */

static void check_time(int64_t start, const char *what) {
    int64_t us = tokenizer_cpu_us() - start;
    ck_assert_msg(us < (SANITIZED ? 4 : 1) * FEW_US, "%s: %lld us", what, (long long)us);
}

static void repeat(struct buf *text, const char *unit, size_t times) {
    for (size_t i = 0; i < times; i++) buf_puts(text, unit);
}

/* --- added tokens ------------------------------------------------------------------------------------------ */

enum { WORDS = 12, WORD_BYTES = 6, ID_OF_WORD = 10 };

static const char letters[] = "ab c"; /* ids 0 to 3 */

struct words {
    char text[WORDS][WORD_BYTES];
    bool lstrip[WORDS], rstrip[WORDS];
    int count;
};

static void make_words(struct damage *chance, struct words *w) {
    w->count = 1 + (int)damage_below(chance, WORDS);
    for (int i = 0; i < w->count; i++) {
        uint32_t n = 1 + damage_below(chance, WORD_BYTES - 1);
        for (uint32_t k = 0; k < n; k++) w->text[i][k] = letters[damage_below(chance, 4)];
        w->text[i][n] = '\0';
        w->lstrip[i] = damage_below(chance, 4) == 0;
        w->rstrip[i] = damage_below(chance, 4) == 0;
        for (int k = 0; k < i; k++)
            if (strcmp(w->text[i], w->text[k]) == 0) w->count = i; /* each once */
    }
}

static struct tokenizer *load_words(const struct words *w) {
    struct buf json = {0};
    buf_puts(&json, "{\"added_tokens\":[");
    for (int i = 0; i < w->count; i++)
        buf_printf(&json, "%s{\"id\":%d,\"content\":\"%s\",\"normalized\":false,\"lstrip\":%s,\"rstrip\":%s}",
                   i ? "," : "", ID_OF_WORD + i, w->text[i], w->lstrip[i] ? "true" : "false",
                   w->rstrip[i] ? "true" : "false");
    buf_puts(&json, "],\"model\":{\"vocab\":{},\"merges\":[]}}");
    struct tokenizer *t = tokenizer_load_text(json.data);
    buf_free(&json);
    return t;
}

/* At the leftmost place the longest word; the rest, which has no symbols, gives no ids. */
static void expect_words(const struct words *w, const char *text, struct ids *out) {
    for (size_t at = 0, n = strlen(text); at < n;) {
        int best = -1;
        for (int i = 0; i < w->count; i++)
            if (strncmp(text + at, w->text[i], strlen(w->text[i])) == 0 &&
                (best < 0 || strlen(w->text[i]) > strlen(w->text[best])))
                best = i;
        if (best >= 0) ids_push(out, ID_OF_WORD + best);
        at += best >= 0 ? strlen(w->text[best]) : 1;
    }
}

START_TEST(the_leftmost_longest_added_token_is_taken)
{
    struct damage chance = {5};
    for (int round = 0; round < 300; round++) {
        struct words w;
        make_words(&chance, &w);
        struct tokenizer *t = load_words(&w);
        for (int i = 0; i < 20; i++) {
            char text[40];
            uint32_t n = damage_below(&chance, sizeof text - 1);
            for (uint32_t k = 0; k < n; k++) text[k] = letters[damage_below(&chance, 4)];
            text[n] = '\0';
            struct ids want = {0}, got = tokenizer_encode_all(t, text, n, false);
            expect_words(&w, text, &want);
            require(got.len == want.len &&
                        (got.len == 0 || memcmp(got.data, want.data, got.len * sizeof *got.data) == 0),
                    "'%s': %zu ids, expected %zu", text, got.len, want.len);
            ids_free(&want);
            ids_free(&got);
        }
        tokenizer_free(t);
    }
}
END_TEST

START_TEST(many_added_tokens_load_and_are_found_fast)
{
    enum { MANY = 100000 };
    struct buf json = {0}, text = {0};
    buf_puts(&json, "{\"added_tokens\":[");
    for (int i = 0; i < MANY; i++)
        buf_printf(&json, "%s{\"id\":%d,\"content\":\"<%d>\",\"special\":true}", i ? "," : "", i, i * 7919 % MANY);
    buf_puts(&json, "],\"model\":{\"vocab\":{},\"merges\":[]}}");
    for (int i = 0; i < MANY; i++) buf_printf(&text, "<%d> <", i * 7919 % MANY);
    int64_t start = tokenizer_cpu_us();
    struct tokenizer *t = tokenizer_load_text(json.data);
    struct ids ids = tokenizer_encode_all(t, text.data, text.len, false);
    check_time(start, "many added tokens");
    ck_assert_uint_eq(ids.len, MANY);
    for (int i = 0; i < MANY; i++) require(ids.data[i] == i, "token %d is %d", i, ids.data[i]);
    ids_free(&ids);
    buf_free(&json);
    buf_free(&text);
    tokenizer_free(t);
}
END_TEST

START_TEST(tokens_that_begin_alike_are_not_looked_for_forever)
{
    struct buf json = {0}, text = {0};
    buf_puts(&json, "{\"added_tokens\":[{\"id\":0,\"content\":\"");
    repeat(&json, "a", 50000);
    buf_puts(&json, "b\"}],\"model\":{\"vocab\":{},\"merges\":[]}}");
    struct tokenizer *t = tokenizer_load_text(json.data);
    repeat(&text, "a", 1000000);
    struct ids ids = {0};
    int64_t start = tokenizer_cpu_us();
    ck_assert_int_eq(tokenizer_encode(t, text.data, text.len, NULL, &ids), ERR_UNSUPPORTED);
    check_time(start, "a long beginning");
    ck_assert_str_eq(err_message(), "looking for the added tokens takes too long on this text");
    ck_ok(tokenizer_encode(t, text.data, 1000, NULL, &ids));
    ids_free(&ids);
    buf_free(&json);
    buf_free(&text);
    tokenizer_free(t);
}
END_TEST

/* Loop index: which side is stripped. */
START_TEST(white_space_that_is_tokens_is_stripped_once)
{
    struct buf json = {0}, text = {0};
    buf_printf(
        &json,
        "{\"added_tokens\":[{\"id\":0,\"content\":\" \",\"normalized\":false,\"%s\":true}],\"model\":{\"vocab\":{"
        "\"a\":1},\"merges\":[]}}",
        _i ? "lstrip" : "rstrip");
    struct tokenizer *t = tokenizer_load_text(json.data);
    repeat(&text, " ", 300000);
    buf_putc(&text, 'a');
    int64_t start = tokenizer_cpu_us();
    struct ids ids = tokenizer_encode_all(t, text.data, text.len, false);
    check_time(start, "white space");
    ck_assert_uint_eq(ids.len, 300001);
    ck_assert_int_eq(ids.data[300000], 1);
    ids_free(&ids);
    buf_free(&json);
    buf_free(&text);
    tokenizer_free(t);
}
END_TEST

/* --- strings and merges that collide -------------------------------------------------------------------------- */

/* The hashes of model/text/tokenizer_vocab.c: where the files are not refused, they are others now. */
static uint32_t hash_of_text(const char *text) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return (uint32_t)(h ^ h >> 32);
}

static uint32_t hash_of_pair(uint64_t left, uint64_t right) {
    return (uint32_t)(((left << 32 | right) * 0x9e3779b97f4a7c15u) >> 32);
}

START_TEST(strings_that_collide_are_refused)
{
    enum { COUNT = 2000, MASK = 4095 };
    struct buf json = {0};
    char text[16];
    int id = 0;
    buf_puts(&json, "{\"model\":{\"vocab\":{");
    for (int i = 0; id < COUNT; i++) {
        snprintf(text, sizeof text, "%x", i);
        if ((hash_of_text(text) & MASK) == 5) buf_printf(&json, "%s\"%s\":%d", id ? "," : "", text, id), id++;
    }
    buf_puts(&json, "},\"merges\":[]}}");
    tokenizer_refuse_text(json.data, ERR_UNSUPPORTED, "has the hash of 512 others");
    buf_free(&json);
}
END_TEST

START_TEST(merges_that_collide_are_refused)
{
    enum { SYMBOLS = 1500, COUNT = 600, MASK = 2047 };
    struct buf json = {0};
    int count = 0;
    buf_puts(&json, "{\"model\":{\"vocab\":{");
    for (int i = 0; i < SYMBOLS; i++) {
        char c[5] = {0};
        utf8_encode(0x4e00u + (uint32_t)i, c);
        buf_printf(&json, "%s\"%s\":%d", i ? "," : "", c, i);
    }
    struct buf merges = {0};
    for (int left = 0; left < SYMBOLS && count < COUNT; left++)
        for (int right = 0; right < SYMBOLS && count < COUNT; right++) {
            char a[5] = {0}, b[5] = {0};
            if ((hash_of_pair((uint64_t)left, (uint64_t)right) & MASK) != 9) continue;
            utf8_encode(0x4e00u + (uint32_t)left, a);
            utf8_encode(0x4e00u + (uint32_t)right, b);
            buf_printf(&json, ",\"%s%s\":%d", a, b, SYMBOLS + count);
            buf_printf(&merges, "%s\"%s %s\"", count ? "," : "", a, b);
            count++;
        }
    buf_printf(&json, "},\"merges\":[%s]}}", buf_text(&merges));
    ck_assert_int_eq(count, COUNT);
    tokenizer_refuse_text(json.data, ERR_UNSUPPORTED, "has the hash of 512 others");
    buf_free(&merges);
    buf_free(&json);
}
END_TEST

/* --- decoders -------------------------------------------------------------------------------------------------- */

/* Ids 0 to 5 are a, b, ab, aa, c and a space; the text runs through `decoder` behind a Fuse. */
static struct tokenizer *load_fused(const char *decoder) {
    struct buf json = {0};
    buf_printf(&json,
               "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aa\":3,\"c\":4,\" \":5},\"merges\":[]},\"decoder\":{"
               "\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},%s]}}",
               decoder);
    struct tokenizer *t = tokenizer_load_text(json.data);
    buf_free(&json);
    return t;
}

static void join(const int32_t *ids, size_t n, struct buf *out) {
    static const char *const texts[] = {"a", "b", "ab", "aa", "c", " "};
    for (size_t i = 0; i < n; i++) buf_puts(out, texts[ids[i]]);
}

static void replace_all(const struct buf *text, const char *wanted, const char *content, struct buf *out) {
    const char *at = buf_text(text);
    for (const char *hit; (hit = strstr(at, wanted)); at = hit + strlen(wanted)) {
        buf_append(out, at, (size_t)(hit - at));
        buf_puts(out, content);
    }
    buf_puts(out, at);
}

static struct ids random_ids(struct damage *chance, uint32_t below) {
    struct ids ids = {0};
    for (uint32_t n = damage_below(chance, 30); n > 0; n--) ids_push(&ids, (int32_t)damage_below(chance, below));
    return ids;
}

START_TEST(replacing_in_running_text_finds_what_a_search_finds)
{
    static const char *const patterns[] = {"a", "ab", "aab", "abab", "aabaaab", "abcab", "aaaa", "c a"};
    struct damage chance = {3};
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        char decoder[128];
        snprintf(decoder, sizeof decoder, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"%s\"},\"content\":\"<>\"}",
                 patterns[p]);
        struct tokenizer *t = load_fused(decoder);
        for (int i = 0; i < 300; i++) {
            struct ids ids = random_ids(&chance, i % 2 ? 6 : 4);
            struct buf text = {0}, want = {0}, got = tokenizer_decode_all(t, &ids, false);
            join(ids.data, ids.len, &text);
            replace_all(&text, patterns[p], "<>", &want);
            tokenizer_check_text(&got, &want);
            if (i < 50) tokenizer_check_streaming(t, &ids, false);
            buf_free(&text);
            buf_free(&want);
            buf_free(&got);
            ids_free(&ids);
        }
        tokenizer_free(t);
    }
}
END_TEST

/* The text without up to `start` spaces at its beginning and then up to `stop` at its end. */
static void strip(const struct buf *text, size_t start, size_t stop, struct buf *out) {
    size_t begin = 0, end = text->len;
    while (begin < end && begin < start && text->data[begin] == ' ') begin++;
    for (size_t i = 0; i < stop && end > begin && text->data[end - 1] == ' '; i++) end--;
    buf_append(out, buf_text(text) + begin, end - begin);
}

START_TEST(stripping_running_text_is_stripping_the_whole)
{
    struct damage chance = {4};
    for (int i = 0; i < 400; i++) {
        uint32_t start = damage_below(&chance, 4), stop = damage_below(&chance, 4);
        char decoder[128];
        snprintf(decoder, sizeof decoder, "{\"type\":\"Strip\",\"content\":\" \",\"start\":%u,\"stop\":%u}", start,
                 stop);
        struct tokenizer *t = load_fused(decoder);
        struct ids ids = random_ids(&chance, 2);
        for (size_t k = 0; k < ids.len; k++) ids.data[k] = ids.data[k] ? 5 : (int32_t)damage_below(&chance, 6);
        struct buf text = {0}, want = {0}, got = tokenizer_decode_all(t, &ids, false);
        join(ids.data, ids.len, &text);
        strip(&text, start, stop, &want);
        tokenizer_check_text(&got, &want);
        tokenizer_check_streaming(t, &ids, false);
        buf_free(&text);
        buf_free(&want);
        buf_free(&got);
        ids_free(&ids);
        tokenizer_free(t);
    }
}
END_TEST

START_TEST(decoders_take_no_quadratic_time)
{
    struct buf decoder = {0};
    struct ids ids = {0};
    buf_puts(&decoder, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"");
    repeat(&decoder, "a", 20000);
    buf_puts(&decoder, "b\"},\"content\":\"\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":100000}");
    struct tokenizer *t = load_fused(decoder.data);
    for (int i = 0; i < 60000; i++) ids_push(&ids, i % 30000 == 29999 ? 4 : 0);
    for (int i = 0; i < 300000; i++) ids_push(&ids, 5);
    int64_t start = tokenizer_cpu_us();
    struct buf text = tokenizer_decode_all(t, &ids, false);
    check_time(start, "decoding");
    ck_assert_uint_eq(text.len, 60000 + 200000);
    buf_free(&text);
    buf_free(&decoder);
    ids_free(&ids);
    tokenizer_free(t);
}
END_TEST

/* --- growth ------------------------------------------------------------------------------------------------------ */

START_TEST(steps_that_lengthen_a_text_without_end_are_stopped)
{
    if (SANITIZED) return; /* it takes half a gigabyte */
    struct buf json = {0}, step = {0};
    buf_puts(&step, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"");
    repeat(&step, "a", 100000);
    buf_puts(&step, "\"}");
    buf_printf(&json,
               "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s,%s,%s]},\"decoder\":{\"type\":\"Sequence\","
               "\"decoders\":[%s,%s,%s]},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
               step.data, step.data, step.data, step.data, step.data, step.data);
    struct tokenizer *t = tokenizer_load_text(json.data);
    struct ids ids = {0};
    struct buf text = {0};
    ck_assert_int_eq(tokenizer_encode(t, "a", 1, NULL, &ids), ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(err_message(), "a text of "));
    ids_push(&ids, 0);
    ck_assert_int_eq(tokenizer_decode(t, ids.data, ids.len, false, &text), ERR_LIMIT);
    ids_free(&ids);
    buf_free(&text);
    buf_free(&json);
    buf_free(&step);
    tokenizer_free(t);
}
END_TEST

START_TEST(post_processors_add_no_endless_lists)
{
    struct buf json = {0};
    buf_puts(&json,
             "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"post_processor\":{\"type\":\"TemplateProcessing\","
             "\"special_tokens\":{\"S\":{\"ids\":[0]}},\"single\":[");
    repeat(&json, "{\"SpecialToken\":{\"id\":\"S\"}},", 64);
    buf_puts(&json, "{\"Sequence\":{\"id\":\"A\"}}]}}");
    tokenizer_refuse_text(json.data, ERR_LIMIT, "post_processor: 'single' has more than 64 parts");
    buf_clear(&json);
    buf_puts(&json, "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"post_processor\":{\"type\":\"Sequence\","
                    "\"processors\":[");
    for (int i = 0; i < 65; i++)
        buf_printf(&json,
                   "%s{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"S\":{\"ids\":[0]}},\"single\":[{"
                   "\"SpecialToken\":{\"id\":\"S\"}},{\"Sequence\":{\"id\":\"A\"}}]}",
                   i ? "," : "");
    buf_puts(&json, "]}}");
    tokenizer_refuse_text(json.data, ERR_LIMIT, "post_processor: more than 64 special tokens");
    buf_free(&json);
}
END_TEST

Suite *check_tokenizer_limits(void) {
    Suite *suite = suite_create("tokenizer_limits");
    TCase *added = tcase_create("added");
    tcase_add_test(added, the_leftmost_longest_added_token_is_taken);
    tcase_add_test(added, many_added_tokens_load_and_are_found_fast);
    tcase_add_test(added, tokens_that_begin_alike_are_not_looked_for_forever);
    tcase_add_loop_test(added, white_space_that_is_tokens_is_stripped_once, 0, 2);
    suite_add_tcase(suite, added);

    TCase *hashes = tcase_create("hashes");
    tcase_add_test(hashes, strings_that_collide_are_refused);
    tcase_add_test(hashes, merges_that_collide_are_refused);
    suite_add_tcase(suite, hashes);

    TCase *decoders = tcase_create("decoders");
    tcase_add_test(decoders, replacing_in_running_text_finds_what_a_search_finds);
    tcase_add_test(decoders, stripping_running_text_is_stripping_the_whole);
    tcase_add_test(decoders, decoders_take_no_quadratic_time);
    suite_add_tcase(suite, decoders);

    TCase *growth = tcase_create("growth");
    tcase_add_test(growth, steps_that_lengthen_a_text_without_end_are_stopped);
    tcase_add_test(growth, post_processors_add_no_endless_lists);
    suite_add_tcase(suite, growth);
    return suite;
}
