/* duet batch from outside: lines that are wrong, and lines that are large. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "tests/support/engine_support.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

static struct program p;

static void run(const char *input, const char *const *arguments) {
    program_free(&p);
    program_run(&p, input, arguments);
}

static const struct {
    const char *line, *part;
} bad_lines[] = {
    {"{\"prompt\": \"a\"", "malformed"},
    {"[1]", "not a JSON object"},
    {"{}", "no prompt"},
    {"{\"prompt\": null}", "no prompt"},
    {"{\"prompt\": \"a\", \"turns\": [\"b\"]}", "both 'prompt' and 'turns'"},
    {"{\"prompt\": 5}", "'prompt' must be a string"},
    {"{\"prompt\": \"\"}", "empty"},
    {"{\"prompt_ids\": []}", "empty"},
    {"{\"prompt_ids\": \"1\"}", "'prompt_ids'"},
    {"{\"prompt_ids\": [1.5]}", "whole numbers"},
    {"{\"prompt_ids\": [4096]}", "outside the vocabulary of 4096"},
    {"{\"prompt_ids\": [-1]}", "outside the vocabulary"},
    {"{\"messages\": []}", "'messages' is empty"},
    {"{\"messages\": [{\"role\": \"user\"}]}", "message 1"},
    {"{\"messages\": [{\"role\": \"robot\", \"content\": \"a\"}]}", "role 'robot'"},
    {"{\"turns\": []}", "'turns' is empty"},
    {"{\"turns\": [\"a\", 1]}", "turn 2"},
    {"{\"prompt\": \"a\", \"max_tokens\": 0}", "max_tokens"},
    {"{\"prompt\": \"a\", \"max_tokens\": \"5\"}", "max_tokens"},
    {"{\"prompt\": \"a\", \"temperature\": -1}", "temperature"},
    {"{\"prompt\": \"a\", \"temperature\": 1e300}", "temperature"},
    {"{\"prompt\": \"a\", \"top_p\": 0}", "top_p"},
    {"{\"prompt\": \"a\", \"min_p\": 1}", "min_p"},
    {"{\"prompt\": \"a\", \"top_k\": -1}", "top_k"},
    {"{\"prompt\": \"a\", \"ignore_eos\": 1}", "ignore_eos"},
    {"{\"prompt\": \"a\", \"seed\": -1}", "'seed'"},
    {"{\"prompt\": \"a\", \"seed\": 9007199254740994}", "'seed'"},
    {"{\"prompt\": \"a\", \"seed\": \"18446744073709551616\"}", "'seed'"},
    {"{\"prompt\": \"a\", \"stop\": [\"b\", 1]}", "'stop'"},
    {"{\"prompt\": \"\\ud800\"}", "surrogate"},
    {"{\"prompt\": \"a\", \"repetition_penalty\": 0}", "'repetition_penalty' is 0, expected 0.01 to 100 (1: off)"},
    {"{\"prompt\": \"a\", \"repetition_penalty\": 1e-39}",
     "repetition_penalty is 1e-39, expected 0.01 to 100 (1: off)"},
    {"{\"prompt\": \"a\", \"repetition_penalty\": 3e38}", "repetition_penalty is 3e+38, expected 0.01 to 100 (1: off)"},
    {"{\"prompt\": \"a\", \"presence_penalty\": 1}", "'presence_penalty'"},
    {"{\"prompt\": \"a\", \"frequency_penalty\": 1}", "'frequency_penalty'"},
    {"{\"prompt\": \"a\", \"logprobs\": 2}", "'logprobs'"},
    {"{\"prompt\": \"a\", \"n\": 2}", "'n'"},
    {"{\"prompt\": \"a\", \"logit_bias\": {}}", "'logit_bias'"},
    {"{\"prompt\": \"a\", \"tools\": []}", "'tools'"},
    {"{\"prompt\": \"a\", \"chat_template_kwargs\": {}}", "'chat_template_kwargs' needs 'messages' or 'turns'"},
    {"{\"turns\": [\"a\"], \"chat_template_kwargs\": 1}", "'chat_template_kwargs' must be an object"},
    {"{\"turns\": [\"a\"], \"chat_template_kwargs\": {\"x\": {}}}", "member 'x' is no text"},
    {"{\"prompt\": \"a\", \"response_format\": {}}", "'response_format'"},
};

START_TEST(every_kind_of_bad_line_is_an_error_in_its_place_and_the_rest_runs)
{
    enum { BAD = sizeof bad_lines / sizeof *bad_lines };
    struct buf input = {0}, sentence = {0};
    for (int i = 0; i < BAD; i++) buf_printf(&input, "%s\n", bad_lines[i].line);
    buf_puts(&input, "{\"prompt\": \"good\", \"id\": \"last\"}"); /* the last line needs no newline */
    run(buf_text(&input), ARGUMENTS("batch", "-n", "2"));
    buf_printf(&sentence, "%d of %d lines failed", BAD, BAD + 1);
    program_expect_error(&p, 1, buf_text(&sentence));
    ck_assert_int_eq(count_lines(&p.out), BAD + 1);
    for (int i = 0; i < BAD; i++) {
        cJSON *r = json_line(&p.out, i);
        const char *error = get_string(r, "error");
        buf_clear(&sentence);
        buf_printf(&sentence, "line %d: ", i + 1);
        ck_assert_double_eq(get_number(r, "index"), i + 1);
        ck_assert_str_eq(get_string(r, "finish_reason"), "error");
        ck_assert_msg(strncmp(error, buf_text(&sentence), sentence.len) == 0, "%s", error);
        ck_assert_msg(strstr(error, bad_lines[i].part) != NULL, "'%s' is not in: %s", bad_lines[i].part, error);
        cJSON_Delete(r);
    }
    cJSON *good = json_line(&p.out, BAD);
    ck_assert(!cJSON_HasObjectItem(good, "error"));
    cJSON_Delete(good);
    buf_free(&input);
    buf_free(&sentence);
}
END_TEST

START_TEST(a_line_tells_the_template_of_its_chat)
{
    static const char input[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": "
                                "{\"enable_thinking\": false}}\n"
                                "{\"turns\": [\"a\"], \"chat_template_kwargs\": {\"enable_thinking\": false}}\n";
    double tokens[4];
    run(input, ARGUMENTS("batch", "-n", "1", "--template", "qwen3", "--think", "on"));
    for (int i = 0; i < 3; i++) {
        cJSON *r = json_line(&p.out, i);
        tokens[i] = get_number(r, "prompt_tokens");
        cJSON_Delete(r);
    }
    run("{\"turns\": [\"a\"]}\n", ARGUMENTS("batch", "-n", "1", "--template", "qwen3", "--think", "off"));
    cJSON *r = json_line(&p.out, 0);
    tokens[3] = get_number(r, "prompt_tokens");
    cJSON_Delete(r);
    ck_assert_double_gt(tokens[1], tokens[0]); /* an empty thought more */
    ck_assert(tokens[1] == tokens[2] && tokens[2] == tokens[3]);
}
END_TEST

START_TEST(an_error_record_keeps_the_id)
{
    run("{\"id\": \"q7\", \"prompt\": 1}\n", ARGUMENTS("batch"));
    program_expect_error(&p, 1, "1 of 1 lines failed");
    cJSON *r = json_line(&p.out, 0);
    ck_assert_str_eq(get_string(r, "id"), "q7");
    cJSON_Delete(r);
}
END_TEST

START_TEST(a_prompt_longer_than_the_context_says_both_lengths)
{
    struct buf input = {0};
    buf_puts(&input, "{\"prompt_ids\": [5");
    for (int i = 0; i < 99; i++) buf_puts(&input, ", 6");
    buf_puts(&input, "]}\n{\"prompt_ids\": [5]}\n");
    run(buf_text(&input), ARGUMENTS("batch", "--ctx", "64", "-n", "3"));
    program_expect_error(&p, 1, "1 of 2 lines failed");
    cJSON *r = json_line(&p.out, 0);
    const char *error = get_string(r, "error");
    ck_assert_msg(strstr(error, "context") && strstr(error, "100") && strstr(error, "64"), "%s", error);
    cJSON_Delete(r);
    buf_free(&input);
}
END_TEST

/* As in a Gemma that reads no images: a special token of the map that the embedding has no row for. */
START_TEST(a_token_past_the_embedding_is_an_error_of_its_line_alone)
{
    const char *dir = copy_model_with_token(asset_path("draft"), "past-rows", 4096, "<image>");
    run("{\"prompt\": \"an <image> here\"}\n{\"turns\": [\"and <image>\"]}\n{\"prompt_ids\": [4096]}\n"
        "{\"prompt\": \"Once upon\"}\n",
        ARGUMENTS("batch", "--target", dir, "--template", "chatml", "--parse-special", "-n", "3"));
    program_expect_error(&p, 1, "3 of 4 lines failed");
    for (int i = 0; i < 4; i++) {
        cJSON *r = json_line(&p.out, i);
        if (i < 3)
            ck_assert_msg(strstr(get_string(r, "error"), "token id 4096"), "%s", get_string(r, "error"));
        else
            ck_assert_double_eq(get_number(r, "completion_tokens"), 3);
        cJSON_Delete(r);
    }
}
END_TEST

START_TEST(a_line_of_megabytes_is_read)
{
    struct buf input = {0};
    buf_puts(&input, "{\"prompt\": \"a\", \"id\": \"");
    for (int i = 0; i < 1 << 17; i++) buf_puts(&input, "0123456789abcdef");
    buf_puts(&input, "\"}\n");
    run(buf_text(&input), ARGUMENTS("batch", "-n", "1"));
    program_expect_status(&p, 0);
    ck_assert_int_eq(count_lines(&p.out), 1);
    buf_free(&input);
}
END_TEST

Suite *check_batch_lines(void) {
    Suite *suite = suite_create("batch lines");
    TCase *lines = tcase_create("bad lines");
    tcase_add_test(lines, every_kind_of_bad_line_is_an_error_in_its_place_and_the_rest_runs);
    tcase_add_test(lines, a_line_tells_the_template_of_its_chat);
    tcase_add_test(lines, an_error_record_keeps_the_id);
    tcase_add_test(lines, a_prompt_longer_than_the_context_says_both_lengths);
    tcase_add_test(lines, a_token_past_the_embedding_is_an_error_of_its_line_alone);
    tcase_add_test(lines, a_line_of_megabytes_is_read);
    suite_add_tcase(suite, lines);
    return suite;
}
