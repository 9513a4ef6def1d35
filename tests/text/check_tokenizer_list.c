/* Tokenizers of GGUF files: lists of tokens with merges or scores, in place of a tokenizer.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tokenizer_support.h"

/* --- against the reference library ------------------------------------------------------------------------------- */

static const char *const files[] = {"gguf-bpe-chat", "gguf-spm-stories260k"};

START_TEST(vectors_of_gguf_files_are_reproduced)
{
    char relative[128];
    snprintf(relative, sizeof relative, "fixtures/formats/%s", files[_i]);
    const char *dir = shared_path(relative);
    if (!dir) {
        skip("no shared test data");
        return;
    }
    struct tokenizer *t = tokenizer_open(dir);
    cJSON *json;
    int seen = 0;
    snprintf(relative, sizeof relative, "fixtures/formats/%s/tokenizer-vectors.json", files[_i]);
    ck_ok(json_parse_file(&json, shared_path(relative)));
    for (const cJSON *v = json->child; v; v = v->next, seen++) tokenizer_check_vector(t, v);
    ck_assert_int_eq(seen, 8);
    cJSON_Delete(json);
    tokenizer_free(t);
}
END_TEST

/* A tokenizer.json as a converter would list it. Texts point into the JSON's tree. */
struct converted {
    struct token_list list;
    struct token_text *tokens, *merges;
    int32_t *kinds;
    float *scores;
    struct buf text; /* of merges */
};

static struct token_text text_of(const char *text) {
    return (struct token_text){text, strlen(text)};
}

static void convert_tokens(struct converted *c, const cJSON *json, bool is_sentencepiece) {
    const cJSON *added = json_get(json, "added_tokens"), *vocab = json_get(json_get(json, "model"), "vocab");
    int32_t count = cJSON_GetArraySize(vocab) + cJSON_GetArraySize(added);
    c->tokens = calloc((size_t)count, sizeof *c->tokens);
    c->kinds = calloc((size_t)count, sizeof *c->kinds);
    c->scores = calloc((size_t)count, sizeof *c->scores);
    for (const cJSON *m = vocab->child; m; m = m->next) {
        const int32_t id = m->valueint;
        const bool is_byte = is_sentencepiece && strlen(m->string) == 6 && strncmp(m->string, "<0x", 3) == 0;
        c->tokens[id] = text_of(m->string);
        c->kinds[id] = is_byte ? TOKEN_KIND_BYTE : TOKEN_KIND_NORMAL;
        if (id >= c->list.count) c->list.count = id + 1;
    }
    for (const cJSON *m = added->child; m; m = m->next) {
        const int32_t id = json_get(m, "id")->valueint;
        c->tokens[id] = text_of(json_get(m, "content")->valuestring);
        c->kinds[id] = cJSON_IsTrue(json_get(m, "special")) ? TOKEN_KIND_CONTROL : TOKEN_KIND_USER;
        if (id >= c->list.count) c->list.count = id + 1;
    }
    for (int32_t id = 0; id < c->list.count; id++)
        if (c->kinds[id] == 0) c->kinds[id] = TOKEN_KIND_UNUSED, c->tokens[id] = text_of("");
}

/* "a b", also where the file has pairs. */
static void convert_merges(struct converted *c, const cJSON *merges) {
    c->merges = calloc((size_t)cJSON_GetArraySize(merges) + 1, sizeof *c->merges);
    buf_reserve(&c->text, (size_t)1 << 26);
    for (const cJSON *m = merges->child; m; m = m->next) {
        const char *at = c->text.data + c->text.len;
        if (cJSON_IsString(m))
            buf_puts(&c->text, m->valuestring);
        else
            buf_printf(&c->text, "%s %s", m->child->valuestring, m->child->next->valuestring);
        c->merges[c->list.merge_count++] = (struct token_text){at, (size_t)(c->text.data + c->text.len - at)};
    }
    ck_assert_uint_lt(c->text.len, (size_t)1 << 26); /* never moved */
}

/* A score for each token, by the place of the first merge that makes it. */
static void convert_scores(struct converted *c, const struct tokenizer *t) {
    struct buf whole = {0};
    for (int32_t i = c->list.merge_count - 1; i >= 0; i--) {
        const struct token_text *m = &c->merges[i];
        const char *blank = memchr(m->text, ' ', m->n);
        buf_clear(&whole);
        buf_append(&whole, m->text, (size_t)(blank - m->text));
        buf_append(&whole, blank + 1, m->n - (size_t)(blank - m->text) - 1);
        c->scores[tokenizer_find(t, buf_text(&whole), whole.len)] = -(float)i;
    }
    buf_free(&whole);
}

/* `known` is the tokenizer.json, read. `pre`: NULL is sentencepiece, "gemma4" the same by a list of merges. */
static struct tokenizer *convert(const cJSON *json, const char *pre, const struct tokenizer *known) {
    struct converted c = {.list = {.first = -1, .last = -1, .unknown = -1}};
    struct tokenizer *t;
    const bool is_marked = !pre || strcmp(pre, "gemma4") == 0;
    convert_tokens(&c, json, is_marked);
    c.list.tokens = c.tokens, c.list.kinds = c.kinds;
    convert_merges(&c, json_get(json_get(json, "model"), "merges"));
    convert_scores(&c, known);
    if (pre)
        c.list.merges = c.merges, c.list.pre = text_of(pre), c.list.marks_spaces = is_marked;
    else
        c.list.scores = c.scores;
    c.list.space_prefix = is_marked;
    ck_ok(tokenizer_create(&t, &c.list));
    free(c.tokens), free(c.merges), free(c.kinds), free(c.scores);
    buf_free(&c.text);
    return t;
}

/* What llama.cpp's names stand for; NULL: sentencepiece. */
static const struct {
    const char *set, *pre;
} sets[] = {{"pair", "gpt-2"}, {"smollm2", "smollm"}, {"qwen3", "qwen2"},   {"llama3", "llama-bpe"},
            {"llama2", NULL},  {"stories260K", NULL}, {"llama2", "gemma4"}, {"stories260K", "gemma4"}};

START_TEST(a_list_of_tokens_encodes_like_the_tokenizer_json_that_it_was_made_of)
{
    char relative[128];
    snprintf(relative, sizeof relative, "tokenizers/%s/tokenizer.json", sets[_i].set);
    const char *path = shared_path(relative);
    if (!path) {
        skip("no shared test data");
        return;
    }
    cJSON *json, *vectors;
    int seen = 0;
    ck_ok(json_parse_file(&json, path));
    snprintf(relative, sizeof relative, "tokenizers/%s", sets[_i].set);
    struct tokenizer *known = tokenizer_open(shared_path(relative)), *t = convert(json, sets[_i].pre, known);
    ck_ok(json_parse_file(&vectors, shared_path("fixtures/tokenizer-vectors.json")));
    for (const cJSON *v = json_get(json_get(vectors, "sets"), sets[_i].set)->child; v; v = v->next, seen++) {
        struct buf text = {0};
        ck_assert(json_string(json_get(v, "text"), &text));
        struct ids ids = tokenizer_encode_all(t, buf_text(&text), text.len, false);
        tokenizer_check_ids(&ids, json_get(v, "ids"), buf_text(&text));
        ids_free(&ids);
        buf_free(&text);
    }
    ck_assert_int_eq(seen, 40);
    cJSON_Delete(vectors);
    cJSON_Delete(json);
    tokenizer_free(known);
    tokenizer_free(t);
}
END_TEST

/* --- by hand ------------------------------------------------------------------------------------------------------- */

enum { TOKENS_MAX = 16 };

static int create(const char *const *tokens, const struct token_list *like, struct tokenizer **out) {
    struct token_text texts[TOKENS_MAX];
    struct token_list list = *like;
    for (list.count = 0; tokens[list.count]; list.count++) texts[list.count] = text_of(tokens[list.count]);
    list.tokens = texts;
    return tokenizer_create(out, &list);
}

/* Tokens of the text with a blank behind each. */
static void check_tokens(const struct tokenizer *t, const char *text, const char *expected) {
    struct ids ids = tokenizer_encode_all(t, text, strlen(text), false);
    struct buf got = {0};
    for (size_t i = 0; i < ids.len; i++) {
        size_t n;
        buf_printf(&got, "%s ", tokenizer_token(t, ids.data[i], &n));
    }
    ck_assert_str_eq(buf_text(&got), expected);
    buf_free(&got);
    ids_free(&ids);
}

static const struct token_list bare = {.first = -1, .last = -1, .unknown = -1};

START_TEST(each_pre_tokenizer_cuts_words_as_its_models_have_it)
{
    static const char *const tokens[] = {"o", "W", "1", "2", "3", "4", "oW", "12", "123", "1234", NULL};
    static const char *const merges[] = {"o W", "1 2", "12 3", "123 4"};
    static const struct {
        const char *pre, *expected;
    } cases[] = {{"gpt-2", "oW 1234 "},         {"smollm", "oW 1 2 3 4 "},  {"qwen2", "oW 1 2 3 4 "},
                 {"qwen35", "oW 1 2 3 4 "},     {"llama-bpe", "oW 123 4 "}, {"dbrx", "oW 123 4 "},
                 {"glm4", "oW 123 4 "},         {"gpt-4o", "o W 123 4 "},   {"tekken", "o W 1 2 3 4 "},
                 {"exaone", "oW 1 2 3 4 "},     {"exaone4", "oW 1234 "},    {"seed-coder", "oW 1 2 3 4 "},
                 {"hunyuan-dense", "oW 123 4 "}};
    struct token_text texts[4];
    for (int i = 0; i < 4; i++) texts[i] = text_of(merges[i]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct token_list list = bare;
        struct tokenizer *t;
        list.merges = texts, list.merge_count = 4, list.pre = text_of(cases[i].pre);
        ck_ok(create(tokens, &list, &t));
        check_tokens(t, "oW1234", cases[i].expected);
        tokenizer_free(t);
    }
}
END_TEST

/* A letter and a Han character, of three bytes; a line's end behind a mark; a letter behind one. */
START_TEST(words_end_where_their_pre_tokenizer_has_it_so)
{
    static const char *const tokens[] = {"o",       "\u00E6", "\u00BC", "\u00A2", "o\u00E6", "!", "\u010A",
                                         "!\u010A", "!o",     "\u00C3", "\u00A9", "!\u00C3", NULL};
    const struct token_text merges[] = {text_of("o \u00E6"), text_of("! \u010A"), text_of("! o"), text_of("! \u00C3")};
    static const struct {
        const char *pre, *text, *expected;
    } cases[] = {{"qwen2", "o\u6F22", "o\u00E6 \u00BC \u00A2 "},
                 {"hunyuan-dense", "o\u6F22", "o \u00E6 \u00BC \u00A2 "},
                 {"qwen2", "!\n", "!\u010A "},
                 {"hunyuan-dense", "!\n", "!\u010A "},
                 {"seed-coder", "!\n", "! \u010A "},
                 {"hunyuan-dense", "!o", "!o "},
                 {"gpt-2", "!o", "! o "},
                 {"seed-coder", "!\u00E9", "!\u00C3 \u00A9 "},
                 {"hunyuan-dense", "!\u00E9", "! \u00C3 \u00A9 "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct token_list list = bare;
        struct tokenizer *t;
        list.merges = merges, list.merge_count = 4, list.pre = text_of(cases[i].pre);
        ck_ok(create(tokens, &list, &t));
        check_tokens(t, cases[i].text, cases[i].expected);
        tokenizer_free(t);
    }
}
END_TEST

/* An x with a circumflex, of which there is no one character. */
START_TEST(marks_belong_to_words_where_a_pre_tokenizer_has_it_so)
{
    static const char *const tokens[] = {"x", "\u00CC", "\u0124", "x\u00CC", "x\u00CC\u0124", NULL};
    const struct token_text merges[] = {text_of("x \u00CC"), text_of("x\u00CC \u0124")};
    static const char *const cases[][2] = {{"qwen2", "x \u00CC \u0124 "}, {"qwen35", "x\u00CC\u0124 "}};
    for (int i = 0; i < 2; i++) {
        struct token_list list = bare;
        struct tokenizer *t;
        list.merges = merges, list.merge_count = 2, list.pre = text_of(cases[i][0]);
        ck_ok(create(tokens, &list, &t));
        check_tokens(t, "x\u0302", cases[i][1]);
        tokenizer_free(t);
    }
}
END_TEST

START_TEST(the_pair_of_the_highest_score_merges_first_and_of_equal_ones_the_leftmost)
{
    static const char *const tokens[] = {"a", "b", "c", "ab", "bc", NULL};
    static const struct {
        float ab, bc;
        const char *expected;
    } cases[] = {{-1, -2, "ab c "}, {-2, -1, "a bc "}, {-1, -1, "ab c "}, {0, -1e9f, "ab c "}, {-3, 5, "a bc "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float scores[] = {0, 0, 0, cases[i].ab, cases[i].bc};
        struct token_list list = bare;
        struct tokenizer *t;
        list.scores = scores;
        ck_ok(create(tokens, &list, &t));
        check_tokens(t, "abc", cases[i].expected);
        tokenizer_free(t);
    }
}
END_TEST

START_TEST(kinds_say_which_tokens_are_recognised_and_which_are_text)
{
    static const char *const tokens[] = {"<unk>", "<s>", "<tool>", "<0x21>", "s", "<", ">", "<s", MARK, "pad", NULL};
    static const int32_t kinds[] = {2, 3, 4, 6, 1, 1, 1, 1, 1, 5};
    const float scores[TOKENS_MAX] = {0};
    struct token_list list = bare;
    struct tokenizer *t;
    list.scores = scores, list.kinds = kinds, list.unknown = 0, list.first = 1, list.space_prefix = true;
    ck_ok(create(tokens, &list, &t));
    check_tokens(t, "<s>s!?<tool>s", "<s> " MARK " s <0x21> <unk> <tool> " MARK " s ");
    ck_assert(tokenizer_is_special(t, 1) && !tokenizer_is_special(t, 2));
    ck_assert_int_eq(tokenizer_find(t, "pad", 3), -1);
    struct ids ids = tokenizer_encode_all(t, "s", 1, true);
    ck_assert(ids.len == 3 && ids.data[0] == 1);
    struct buf text = tokenizer_decode_all(t, &ids, true);
    ck_assert_str_eq(buf_text(&text), "s");
    buf_free(&text);
    ids_free(&ids);
    tokenizer_free(t);
}
END_TEST

/* llama.cpp takes merges as they stand, and the token of what they make, whatever its kind. */
START_TEST(merges_may_make_tokens_that_are_recognised_too)
{
    static const char *const tokens[] = {"a", "b", "\304\240", "ab", "\304\240a", "\304\240ab", NULL};
    static const char *const merges[] = {"a b", "\304\240 a", "\304\240a b"};
    static const int32_t kinds[] = {1, 1, 1, 4, 4, 1};
    struct token_text texts[3];
    for (int i = 0; i < 3; i++) texts[i] = text_of(merges[i]);
    struct token_list list = bare;
    struct tokenizer *t;
    list.merges = texts, list.merge_count = 3, list.pre = text_of("gpt-2"), list.kinds = kinds;
    ck_ok(create(tokens, &list, &t));
    check_tokens(t, "aabb", "a ab b ");
    check_tokens(t, " a ab",
                 "\xc4\xa0"
                 "a \xc4\xa0 ab ");
    check_tokens(t, " aa",
                 "\xc4\xa0"
                 "a a ");
    tokenizer_free(t);
}
END_TEST

static void refuse(const char *const *tokens, const struct token_list *list, int code, const char *part) {
    struct tokenizer *t = (void *)list;
    ck_assert_int_eq(create(tokens, list, &t), code);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(err_message(), part), "'%s' lacks '%s'", err_message(), part);
}

START_TEST(lists_that_make_no_sense_are_refused_by_name)
{
    static const char *const tokens[] = {"a", "b", "ab", NULL}, *const twice[] = {"a", "a", NULL},
                             *const broken[] = {"\xff", NULL};
    static const int32_t kinds[] = {1, 1, 9};
    const float scores[] = {0, 0, 0}, nan[] = {0, NAN, 0};
    const struct token_text merge = text_of("ab"), unknown = text_of("a c");
    struct token_list list = bare;
    refuse(tokens, &list, ERR_UNSUPPORTED, "no pre-tokenizer is named (known: gpt-2");
    list.pre = text_of("gpt-5");
    refuse(tokens, &list, ERR_UNSUPPORTED, "pre-tokenizer 'gpt-5' is not supported (known: gpt-2");
    list.pre = text_of("phi-2 mpt");
    refuse(tokens, &list, ERR_UNSUPPORTED, "pre-tokenizer 'phi-2 mpt' is not supported");
    list.pre = text_of("gpt-2"), list.merges = &merge, list.merge_count = 1;
    refuse(tokens, &list, ERR_FORMAT, "merge 0 is not a pair");
    list.merges = &unknown;
    refuse(tokens, &list, ERR_FORMAT, "merge 0: token 'c' is not in the vocabulary");
    list = bare, list.scores = nan;
    refuse(tokens, &list, ERR_FORMAT, "the score of token 1 is not finite");
    list.scores = scores;
    refuse(twice, &list, ERR_FORMAT, "token 'a' has two ids");
    refuse(broken, &list, ERR_FORMAT, "token 0 is not valid UTF-8");
    list.first = 7;
    refuse(tokens, &list, ERR_FORMAT, "the first token is 7");
    list.first = -1, list.kinds = kinds;
    refuse(tokens, &list, ERR_UNSUPPORTED, "token 2 is of the unknown type 9");
}
END_TEST

Suite *check_tokenizer_list(void);
Suite *check_tokenizer_list(void) {
    Suite *suite = suite_create("tokenizer_list");
    TCase *tc = tcase_create("tokenizer_list");
    tcase_add_loop_test(tc, vectors_of_gguf_files_are_reproduced, 0, 2);
    tcase_add_loop_test(tc, a_list_of_tokens_encodes_like_the_tokenizer_json_that_it_was_made_of, 0,
                        sizeof sets / sizeof *sets);
    tcase_add_test(tc, each_pre_tokenizer_cuts_words_as_its_models_have_it);
    tcase_add_test(tc, words_end_where_their_pre_tokenizer_has_it_so);
    tcase_add_test(tc, marks_belong_to_words_where_a_pre_tokenizer_has_it_so);
    tcase_add_test(tc, the_pair_of_the_highest_score_merges_first_and_of_equal_ones_the_leftmost);
    tcase_add_test(tc, kinds_say_which_tokens_are_recognised_and_which_are_text);
    tcase_add_test(tc, merges_may_make_tokens_that_are_recognised_too);
    tcase_add_test(tc, lists_that_make_no_sense_are_refused_by_name);
    suite_add_tcase(suite, tc);
    return suite;
}
