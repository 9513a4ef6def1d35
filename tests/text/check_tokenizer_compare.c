/* Which vocabularies a target and a draft may have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tokenizer_support.h"

START_TEST(maps_are_compared_not_sizes)
{
    struct tokenizer *a = tokenizer_load_text("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"c\":3},\"merges\":[]}}");
    struct tokenizer *b =
        tokenizer_load_text("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"x\":2,\"c\":3,\"d\":5},\"merges\":[]}}");
    struct tokenizer *c = tokenizer_load_text("{\"model\":{\"vocab\":{\"a\":0,\"B\\n\":1},\"merges\":[]}}");
    int common;
    ck_ok(tokenizer_compare(a, b, &common));
    ck_assert_int_eq(common, 4);
    ck_ok(tokenizer_compare(b, a, &common));
    ck_assert_int_eq(common, 4);
    ck_assert_int_eq(tokenizer_compare(a, c, &common), ERR_FORMAT);
    ck_assert_msg(strstr(err_message(), "id 1 is 'b' in the target and 'B\\x0a' in the draft"), "%s", err_message());
    tokenizer_free(a);
    tokenizer_free(b);
    tokenizer_free(c);
}
END_TEST

/* Of ids 0 to 2; GGUF files hold blanks where tokenizer.json has marks in an added token. */
static struct tokenizer *load_blanks(const char *plain, const char *user, const char *control) {
    const struct token_text tokens[] = {{plain, strlen(plain)}, {user, strlen(user)}, {control, strlen(control)}};
    const int32_t kinds[] = {TOKEN_KIND_NORMAL, TOKEN_KIND_USER, TOKEN_KIND_CONTROL};
    const float scores[3] = {0};
    struct tokenizer *t;
    ck_ok(tokenizer_create(
        &t,
        &(struct token_list){
            .tokens = tokens, .kinds = kinds, .scores = scores, .count = 3, .first = -1, .last = -1, .unknown = -1}));
    return t;
}

START_TEST(blanks_and_marks_of_added_tokens_are_the_same_and_of_others_are_not)
{
    static const struct {
        const char *plain, *user, *control, *differs; /* NULL: none */
    } cases[] = {
        {"a", "  x ", "<c>", NULL},      {"a", MARK MARK "x" MARK, "<c>", NULL}, {"a", " " MARK "x ", "<c>", NULL},
        {"a", "  x", "<c>", "id 1 is"},  {"a", "  x  ", "<c>", "id 1 is"},       {"a", " _x ", "<c>", "id 1 is"},
        {" ", "  x ", "<c>", "id 0 is"}, {MARK, "  x ", "<c>", "id 0 is"},       {"a", "  x ", "<C>", "id 2 is"},
    };
    struct tokenizer *target =
        tokenizer_load_text("{\"model\":{\"vocab\":{\"a\":0,\"" MARK MARK "x" MARK
                            "\":1},\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":\"" MARK MARK "x" MARK
                            "\"},{\"id\":2,\"content\":\"<c>\",\"special\":true}]}");
    struct tokenizer *mark = load_blanks(MARK, "u", "<c>"), *blank = load_blanks(" ", "u", "<c>");
    int common;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *draft = load_blanks(cases[i].plain, cases[i].user, cases[i].control);
        ck_assert_int_eq(tokenizer_compare(target, draft, &common), cases[i].differs ? ERR_FORMAT : 0);
        if (cases[i].differs) ck_assert_msg(strstr(err_message(), cases[i].differs), "%s", err_message());
        ck_assert_int_eq(tokenizer_compare(draft, target, &common), cases[i].differs ? ERR_FORMAT : 0);
        tokenizer_free(draft);
    }
    ck_assert_int_eq(tokenizer_compare(mark, blank, &common), ERR_FORMAT); /* tokens of the model itself */
    tokenizer_free(mark);
    tokenizer_free(blank);
    tokenizer_free(target);
}
END_TEST

Suite *check_tokenizer_compare(void);
Suite *check_tokenizer_compare(void) {
    Suite *suite = suite_create("tokenizer_compare");
    TCase *tc = tcase_create("vocabularies");
    tcase_add_test(tc, maps_are_compared_not_sizes);
    tcase_add_test(tc, blanks_and_marks_of_added_tokens_are_the_same_and_of_others_are_not);
    suite_add_tcase(suite, tc);
    return suite;
}
