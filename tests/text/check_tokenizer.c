#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/damage.h"
#include "tests/support/tokenizer_support.h"

static struct damage chance = {2026}; /* the same in every run */

/* --- against the reference library ------------------------------------------------------------------------- */

static const char *const sets[] = {"pair",        "smollm2",          "qwen3",           "llama3", "llama2",
                                   "stories260K", "babyllama-tok105", "babyllama-tok361"};
enum { SETS = sizeof sets / sizeof *sets };

static struct tokenizer *load_set(int index) {
    char relative[64];
    snprintf(relative, sizeof relative, "tokenizers/%s", sets[index]);
    const char *dir = shared_path(relative);
    return dir ? tokenizer_open(dir) : NULL;
}

START_TEST(reference_vectors_are_reproduced)
{
    struct tokenizer *t = load_set(_i);
    if (!t) {
        skip("no shared test data");
        return;
    }
    cJSON *json;
    int seen = 0;
    ck_ok(json_parse_file(&json, shared_path("fixtures/tokenizer-vectors.json")));
    for (const cJSON *v = json_get(json_get(json, "sets"), sets[_i])->child; v; v = v->next, seen++)
        tokenizer_check_vector(t, v);
    ck_assert_int_eq(seen, 40);
    cJSON_Delete(json);
    tokenizer_free(t);
}
END_TEST

START_TEST(prompt_ids_of_the_greedy_references_are_reproduced)
{
    const char *path = shared_path("fixtures/greedy-references.json");
    if (!path) {
        skip("no shared test data");
        return;
    }
    cJSON *json;
    ck_ok(json_parse_file(&json, path));
    for (const cJSON *model = json->child; model; model = model->next) {
        char relative[64];
        snprintf(relative, sizeof relative, "models/%s", model->string);
        struct tokenizer *t = tokenizer_open(shared_path(relative));
        for (const cJSON *item = model->child; item; item = item->next) {
            struct buf prompt = {0};
            ck_assert(json_string(json_get(item, "prompt"), &prompt));
            struct ids ids = tokenizer_encode_all(t, prompt.data, prompt.len, true);
            tokenizer_check_ids(&ids, json_get(item, "prompt_ids"), prompt.data);
            ids_free(&ids);
            buf_free(&prompt);
        }
        tokenizer_free(t);
    }
    cJSON_Delete(json);
}
END_TEST

START_TEST(large_vocabulary_loads_and_encodes_fast)
{
    const char *path = shared_path("text/tinyshakespeare.txt");
    if (!path) {
        skip("no shared test data");
        return;
    }
    struct buf text = {0};
    buf_reserve(&text, 2 << 20);
    FILE *f = fopen(path, "rb");
    text.len = fread(text.data, 1, 2 << 20, f);
    fclose(f);
    for (int i = 2; i <= 4; i++) { /* qwen3, llama3, llama2 */
        int64_t start = tokenizer_cpu_us();
        struct tokenizer *t = load_set(i);
        int64_t loaded = tokenizer_cpu_us();
        struct ids ids = tokenizer_encode_all(t, text.data, text.len, false);
        int64_t encoded = tokenizer_cpu_us();
        struct buf back = tokenizer_decode_all(t, &ids, false);
        tokenizer_check_text(&back, &text);
        /* Measured 0.2 s and 0.1 s; the limits leave room for sanitizers. */
        ck_assert_int_lt(loaded - start, 3000000);
        ck_assert_int_lt(encoded - loaded, 3000000);
        buf_free(&back);
        ids_free(&ids);
        tokenizer_free(t);
    }
    buf_free(&text);
}
END_TEST

/* --- the embedded tokenizer -------------------------------------------------------------------------------- */

static void put_random_character(struct buf *out) {
    static const uint32_t limits[] = {0x80, 0x80, 0x80, 0x800, 0x3000, 0x10000, 0x110000};
    uint32_t c = damage_below(&chance, limits[damage_below(&chance, sizeof limits / sizeof *limits)]);
    if (c >= 0xd800 && c < 0xe000) c = ' ';
    char bytes[4];
    buf_append(out, bytes, (size_t)utf8_encode(c, bytes));
}

START_TEST(random_text_comes_back)
{
    struct tokenizer *t = tokenizer_open(asset_path("target"));
    struct buf text = {0};
    for (int i = 0; i < 2000; i++) {
        buf_clear(&text);
        for (uint32_t n = damage_below(&chance, 40); n > 0; n--) put_random_character(&text);
        if (i % 7 == 0) buf_puts(&text, "<|im_end|>\n");
        struct ids ids = tokenizer_encode_all(t, buf_text(&text), text.len, false);
        struct buf back = tokenizer_decode_all(t, &ids, false);
        tokenizer_check_text(&back, &text);
        ids_free(&ids);
        buf_free(&back);
    }
    buf_free(&text);
    tokenizer_free(t);
}
END_TEST

static void check_random_ids(const struct tokenizer *t) {
    struct ids ids = {0};
    for (int i = 0; i < 500; i++) {
        ids.len = 0;
        for (uint32_t n = damage_below(&chance, 30); n > 0; n--) {
            bool low = damage_below(&chance, 2) == 0 && tokenizer_size(t) > 260;
            ids_push(&ids, (int32_t)damage_below(&chance, low ? 260 : (uint32_t)tokenizer_size(t) + 2) - 1);
        }
        tokenizer_check_streaming(t, &ids, i & 1);
    }
    ids_free(&ids);
}

START_TEST(random_ids_stream_as_they_decode)
{
    struct tokenizer *t = tokenizer_open(asset_path("target"));
    check_random_ids(t);
    tokenizer_free(t);
    for (int i = 4; i < SETS; i++) {
        t = load_set(i);
        if (t) check_random_ids(t);
        tokenizer_free(t);
    }
}
END_TEST

START_TEST(embedded_tokenizer_is_described)
{
    struct tokenizer *t = tokenizer_open(asset_path("draft"));
    struct buf text = {0};
    size_t n;
    tokenizer_describe(t, &text);
    ck_assert_str_eq(buf_text(&text), "byte-level BPE, 4096 tokens, 3 added");
    ck_assert_int_eq(tokenizer_size(t), 4096);
    ck_assert_str_eq(tokenizer_token(t, 1, &n), "<|im_start|>");
    ck_assert_uint_eq(n, strlen("<|im_start|>"));
    ck_assert_int_eq(tokenizer_find(t, "<|im_end|>", 10), 2);
    ck_assert_int_eq(tokenizer_find(t, "<|im_end|", 9), -1);
    ck_assert_ptr_null(tokenizer_token(t, 4096, &n));
    ck_assert_ptr_null(tokenizer_token(t, -1, &n));
    ck_assert(tokenizer_is_special(t, 0) && !tokenizer_is_special(t, 3) && !tokenizer_is_special(t, 9999));
    buf_free(&text);
    tokenizer_free(t);
}
END_TEST

START_TEST(long_words_take_no_quadratic_time)
{
    static const char *const units[] = {"a", " ", "ab", "\n", "1", "\xe6\x97\xa5", "!", "e\xcc\x81", "<|im_", " \n"};
    struct tokenizer *t = tokenizer_open(asset_path("target"));
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        struct buf text = {0};
        while (text.len < 300000) buf_puts(&text, units[u]);
        int64_t start = tokenizer_cpu_us();
        struct ids ids = tokenizer_encode_all(t, text.data, text.len, false);
        ck_assert_int_lt(tokenizer_cpu_us() - start, 3000000);
        struct buf back = tokenizer_decode_all(t, &ids, false);
        tokenizer_check_text(&back, &text);
        ids_free(&ids);
        buf_free(&back);
        buf_free(&text);
    }
    tokenizer_free(t);
}
END_TEST

static void *encode_and_decode(void *tokenizer) {
    static const char text[] = "Once upon a time, there were 12 ducks. \xf0\x9f\xa6\x86\n";
    for (int i = 0; i < 200; i++) {
        struct ids ids = {0};
        struct buf back = {0};
        if (tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, &ids) != 0) return "encode";
        if (tokenizer_decode(tokenizer, ids.data, ids.len, false, &back) != 0) return "decode";
        if (back.len != sizeof text - 1 || memcmp(back.data, text, back.len) != 0) return "text";
        ids_free(&ids);
        buf_free(&back);
    }
    return NULL;
}

START_TEST(threads_share_a_tokenizer)
{
    struct tokenizer *t = tokenizer_open(asset_path("target"));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, encode_and_decode, t), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
        ck_assert_msg(!failed, "%s", (char *)failed);
    }
    tokenizer_free(t);
}
END_TEST

START_TEST(text_that_is_no_utf8_is_refused)
{
    struct tokenizer *t = tokenizer_open(asset_path("target"));
    struct ids ids = {0};
    ids_push(&ids, 7);
    ck_assert_int_eq(tokenizer_encode(t, "ab\xff", 3, NULL, &ids), ERR_FORMAT);
    ck_assert_str_eq(err_message(), "the text is not valid UTF-8");
    ck_assert_uint_eq(ids.len, 1);
    ids_free(&ids);
    tokenizer_free(t);
}
END_TEST

/* Every component once, in both dialects. */
static const char *const seeds[] = {
    "{\"added_tokens\":[{\"id\":8,\"content\":\"<s>\",\"special\":true,\"lstrip\":true},{\"id\":9,\"content\":\"<y>\","
    "\"normalized\":true,\"single_word\":true,\"rstrip\":true}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
    "{\"type\":\"Prepend\",\"prepend\":\"" MARK
    "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK
    "\"},{\"type\":\"NFKC\"},{\"type\":\"Strip\",\"strip_left\":false},{\"type\":\"Lowercase\"}]},\"pre_tokenizer\":"
    "null,"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[8]}}},"
    "\"decoder\":"
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK
    "\"},\"content\":\" \"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,"
    "\"vocab\":"
    "{\"<unk>\":0,\"<0xC3>\":1,\"<0xA9>\":2,\"" MARK "\":3,\"a\":4,\"b\":5,\"ab\":6,\"" MARK
    "ab\":7},\"merges\":[\"a b\",\"" MARK " ab\"]}}",
    "{\"added_tokens\":[{\"id\":7,\"content\":\"<|end|>\",\"special\":true,\"normalized\":false}],\"normalizer\":{"
    "\"type\":"
    "\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
    "\"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}]?\\\\p{L}+|\\\\p{N}{1,3}|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\","
    "\"invert\":"
    "false},{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_"
    "regex\":"
    "false}]},\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}]},\"decoder\":{"
    "\"type\":"
    "\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"\xc4\xa0\":2,"
    "\"ab\":3,"
    "\"\xc4\xa0"
    "ab\":4,\"\xc3\x83\":5,\"\xc2\xa9\":6},\"merges\":[[\"a\",\"b\"],[\"\xc4\xa0\",\"ab\"]]}}",
    "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
    "\",\"prepend_scheme\":\"first\",\"split\":true},"
    "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
    "\",\"add_prefix_space\":true},\"model\":{\"vocab\":{\"a\":0,"
    "\"" MARK "\":1,\"" MARK "a\":2},\"merges\":[\"" MARK " a\"]}}",
};

static void try_damaged(void) {
    static const char *const texts[] = {"", " ab  a\xc3\xa9 12's <s> <y>x\n", "\xf0\x9f\x98\x80<|end|>ab\xc2\xa0"};
    struct tokenizer *t;
    int rc = checkpoint_tokenizer(test_checkpoint(temp_dir()), &t);
    if (rc != 0) {
        ck_assert_ptr_null(t);
        check_sentence();
        ck_assert_msg(strstr(err_message(), "/tokenizer.json: "), "%s", err_message());
        return;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ids ids = {0};
        if (tokenizer_encode(t, texts[i], strlen(texts[i]), &(struct encode_options){.special = true}, &ids) == 0)
            tokenizer_check_streaming(t, &ids, i & 1);
        ids_free(&ids);
    }
    struct ids all = {0};
    for (int32_t id = 0; id < 12; id++) ids_push(&all, 11 - id);
    tokenizer_check_streaming(t, &all, false);
    ids_free(&all);
    tokenizer_free(t);
}

START_TEST(damaged_files_load_or_fail_with_one_line)
{
    struct buf text = {0};
    int loaded = 0;
    for (int i = 0; i < 4000; i++) {
        const char *seed = seeds[i % 3];
        buf_clear(&text);
        buf_puts(&text, seed);
        if (i >= 3) damage_text(&chance, &text);
        tokenizer_write(buf_text(&text), text.len);
        try_damaged();
        if (i < 3) {
            struct tokenizer *t = tokenizer_open(temp_dir());
            loaded += t != NULL;
            tokenizer_free(t);
        }
    }
    ck_assert_int_eq(loaded, 3);
    buf_free(&text);
}
END_TEST

Suite *check_tokenizer(void) {
    Suite *suite = suite_create("tokenizer");
    TCase *reference = tcase_create("reference");
    tcase_add_loop_test(reference, reference_vectors_are_reproduced, 0, SETS);
    tcase_add_test(reference, prompt_ids_of_the_greedy_references_are_reproduced);
    tcase_add_test(reference, large_vocabulary_loads_and_encodes_fast);
    suite_add_tcase(suite, reference);

    TCase *embedded = tcase_create("embedded");
    tcase_add_test(embedded, random_text_comes_back);
    tcase_add_test(embedded, random_ids_stream_as_they_decode);
    tcase_add_test(embedded, embedded_tokenizer_is_described);
    tcase_add_test(embedded, long_words_take_no_quadratic_time);
    tcase_add_test(embedded, threads_share_a_tokenizer);
    tcase_add_test(embedded, text_that_is_no_utf8_is_refused);
    suite_add_tcase(suite, embedded);

    TCase *files = tcase_create("files");
    tcase_add_test(files, damaged_files_load_or_fail_with_one_line);
    suite_add_tcase(suite, files);
    return suite;
}
