/* duet bench: which prompts it asks, and what it says of answers that are none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tests/support/program.h"
#include "tests/support/support.h"
#include "tests/support/xml.h"

START_TEST(a_stack_leaves_what_is_quantised_already)
{
    const char *model = shared_path("fixtures/formats/gguf-q8_0");
    if (!model) return skip("no test data beside the checkout");
    struct program p =
        program_run_at(80, NULL, ARGUMENTS("bench", "stack", "-t", model, "-d", model, "-k", "1", "-n", "4", "--csv"));
    program_expect_status(&p, 0);
    ck_assert_int_eq(count_parts(buf_text(&p.out), "quantised already"), 2);
    program_free(&p);
}
END_TEST

/* Of one turn and of the same as a message; a line's own max_tokens. */
START_TEST(lines_are_read_as_a_batch_reads_them)
{
    static const char *const lines[] = {"{\"turns\": [\"Hi\", \"And?\"]}\n",
                                        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n"};
    double context[2];
    for (int i = 0; i < 2; i++) {
        text_to_file(temp_path("lines"), lines[i]);
        struct program p = program_run_at(80, NULL,
                                          ARGUMENTS("bench", "-i", temp_path("lines"), "-k", "0", "--k-max", "1", "-n",
                                                    "4", "--json", "--ctx", "64", "--template", "llama2"));
        program_expect_status(&p, 0);
        cJSON *object = json_line(&p.out, 0);
        context[i] = get_number(object, "context");
        cJSON_Delete(object);
        program_free(&p);
    }
    ck_assert_double_eq(context[0], context[1]);
}
END_TEST

START_TEST(a_line_may_ask_for_tokens_of_its_own)
{
    text_to_file(temp_path("lines"), "{\"prompt\": \"A\", \"max_tokens\": 2}\n{\"prompt\": \"The\"}\n");
    struct program p =
        program_run_at(80, NULL, ARGUMENTS("bench", "-i", temp_path("lines"), "-k", "0,1", "-n", "4", "--ctx", "64"));
    program_expect_status(&p, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "2 prompts, 2 to 4 tokens each"));
    program_free(&p);
    text_to_file(temp_path("lines"), "{\"prompt\": \"A\"}\n{\"prompt\": \"A\", \"max_tokens\": 2147483647}\n");
    p = program_run_at(200, NULL, ARGUMENTS("bench", "-i", temp_path("lines"), "-n", "4", "--ctx", "64"));
    program_expect_error(&p, 2, "lines: prompt 2: a context of 64 tokens has no room for ");
    program_free(&p);
}
END_TEST

START_TEST(answers_of_no_given_length_take_what_room_there_is)
{
    struct program p = program_run_at(80, NULL, ARGUMENTS("bench", "-k", "0,1", "--ctx", "64"));
    program_expect_status(&p, 0);
    const char *said = strstr(buf_text(&p.out), " prompts, ");
    ck_assert_ptr_nonnull(said);
    const int most = atoi(said + strlen(" prompts, "));
    ck_assert_msg(most > 8 && most < 64, "%s", buf_text(&p.out));
    program_free(&p);
}
END_TEST

/* One token an answer: nothing is drafted. */
START_TEST(what_is_no_number_is_none_in_any_form)
{
    static const struct { const char *form, *part; } forms[] = {{"-q", "  -\n"}, {"--csv", "\nalpha,,,,,\n"}};
    for (int i = 0; i < 2; i++) {
        struct program p = program_run_at(80, NULL,
                                          ARGUMENTS("bench", "--draft", "ngram", "--target", asset_path("draft"), "-n",
                                                    "1", "-k", "4", "--k-max", "4", "--ctx", "64", forms[i].form));
        program_expect_status(&p, 0);
        ck_assert_msg(strstr(buf_text(&p.out), forms[i].part) != NULL, "%s", buf_text(&p.out));
        ck_assert_ptr_null(strstr(buf_text(&p.out), "nan"));
        program_free(&p);
    }
}
END_TEST

/* A copy of the embedded draft, the numbers of its last norm none; its safetensors begin with the bytes of a JSON object. */
static const char *broken_model(void) {
    static char dir[300];
    char command[4096], path[400];
    struct buf file = {0};
    snprintf(dir, sizeof dir, "%s", temp_path("broken"));
    snprintf(command, sizeof command, "cp -rL '%s' '%s'", asset_path("draft"), dir);
    ck_assert_int_eq(system(command), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    text_of_file(path, &file);
    uint64_t header;
    memcpy(&header, file.data, sizeof header);
    cJSON *tensors;
    ck_ok(json_parse(&tensors, file.data + 8, header));
    const cJSON *offsets = json_get(json_get(tensors, "model.norm.weight"), "data_offsets");
    const size_t from = (size_t)offsets->child->valuedouble, to = (size_t)offsets->child->next->valuedouble;
    memset(file.data + 8 + header + from, 0xff, to - from);
    cJSON_Delete(tensors);
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(file.data, 1, file.len, f) == file.len && fclose(f) == 0);
    buf_free(&file);
    return dir;
}

START_TEST(a_model_that_gives_no_token_has_no_speed)
{
    static const char *const tables[][4] = {{"-k", "0"},
                                            {"-k", "0,1"},
                                            {"stack", "-k", "1"},
                                            {"alpha", "-k", "1"},
                                            {"overhead", "-k", "1"},
                                            {"verify", "-k", "1", "--batch=1"},
                                            {"buckets", "-k", "1"},
                                            {"peers", "-k", "1"},
                                            {"start"}};
    const char *model = broken_model();
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const char *arguments[20] = {"bench", "-t",        model, "-d",       model, "-n",
                                     "4",     "--threads", "1",   "--device", "host"};
        for (int j = 0; j < 4 && tables[i][j]; j++) arguments[11 + j] = tables[i][j];
        struct program p = program_run_at(80, NULL, arguments);
        program_expect_error(&p, 1, "prompt 1: ");
        program_expect_error(&p, 1, " gave non-finite logits");
        ck_assert_uint_eq(p.out.len, 0);
        program_free(&p);
    }
}
END_TEST

Suite *check_bench_prompts(void);
Suite *check_bench_prompts(void) {
    Suite *suite = suite_create("bench_prompts");
    TCase *program = tcase_create("program");
    tcase_set_timeout(program, 120);
    tcase_add_test(program, lines_are_read_as_a_batch_reads_them);
    tcase_add_test(program, a_line_may_ask_for_tokens_of_its_own);
    tcase_add_test(program, answers_of_no_given_length_take_what_room_there_is);
    tcase_add_test(program, what_is_no_number_is_none_in_any_form);
    tcase_add_test(program, a_stack_leaves_what_is_quantised_already);
    tcase_add_test(program, a_model_that_gives_no_token_has_no_speed);
    suite_add_tcase(suite, program);
    return suite;
}
