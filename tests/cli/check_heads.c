/* Heads that draft, by the program: what is said of them, where there is no other file to name. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "tests/support/last_program.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

static void write_tiny(const char *name, const char *damaged, char dir[256]) {
    cJSON *all = tiny_model_load(name), *tensor;
    cJSON_ArrayForEach(tensor, cJSON_GetObjectItem(all, "mtp_tensors")) /* numbers whose products are infinite */
        if (damaged && strcmp(tensor->child->valuestring, damaged) == 0)
            cJSON_ReplaceItemInArray(tensor, 2, cJSON_CreateNumber(3e38));
    tiny_model_write(all, "config", dir);
    cJSON_Delete(all);
}

START_TEST(logits_of_a_head_that_are_no_numbers_end_an_answer_in_words)
{
    char dir[256];
    write_tiny("qwen3_5", "mtp.fc.weight", dir);
    last_run("{\"prompt_ids\": [5, 6, 7], \"max_tokens\": 8}\n",
             ARGUMENTS("batch", "--target", dir, "--draft", "mtp", "--k", "2"));
    last_expect_out(": the head that drafts gave non-finite logits");
    last_run("{\"prompt_ids\": [5, 6, 7], \"max_tokens\": 8}\n", ARGUMENTS("batch", "--target", dir, "--k", "0"));
    last_expect_ok();
}
END_TEST

/* Nothing is copied for it, nor are events there. Loop index: who drafts. */
START_TEST(a_plan_for_another_gpu_has_a_head)
{
    char dir[256], eagle[256];
    write_tiny("qwen3_5", NULL, dir), write_tiny("eagle3-specforge", NULL, eagle);
    const char *const drafts[] = {"mtp", eagle, "ngram"}, *const parts[] = {"target hidden rows", "draft weights",
                                                                            "token history"};
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--gpu-memory", "24GiB", "--target", dir, "--draft", drafts[_i]));
    last_expect_ok();
    last_expect_out(parts[_i]);
}
END_TEST

START_TEST(a_pair_with_a_head_is_json_too)
{
    char dir[256];
    write_tiny("qwen3_5", NULL, dir);
    last_run(NULL, ARGUMENTS("inspect", "--json", "--target", dir, "--draft", "mtp"));
    last_expect_ok();
    cJSON *pair = json_line(&last.out, 0);
    ck_assert_str_eq(json_get(pair, "draft")->valuestring, "MTP head");
    ck_assert_double_gt(json_get(json_get(pair, "target"), "mtp_parameters")->valuedouble, 1000);
    cJSON_Delete(pair);
}
END_TEST

START_TEST(a_head_in_other_numbers_drafts_the_same_text)
{
    static const char *const weights[] = {"stored", "fp8", "int4"};
    struct buf first = {0};
    char dir[256];
    write_tiny("qwen3_5-moe", NULL, dir);
    for (int i = 0; i < 3; i++) {
        last_run("{\"prompt_ids\": [5, 6, 7], \"max_tokens\": 24, \"temperature\": 0}\n",
                 ARGUMENTS("batch", "--target", dir, "--draft", "mtp", "--k", "3", "--draft-weights", weights[i],
                           "--seed", "1"));
        last_expect_ok();
        if (i == 0) buf_append(&first, last.out.data, last.out.len);
        ck_assert_str_eq(buf_text(&last.out), buf_text(&first));
    }
    buf_free(&first);
}
END_TEST

Suite *check_heads(void);
Suite *check_heads(void) {
    Suite *suite = suite_create("heads");
    TCase *tc = tcase_create("heads");
    tcase_add_test(tc, logits_of_a_head_that_are_no_numbers_end_an_answer_in_words);
    tcase_add_loop_test(tc, a_plan_for_another_gpu_has_a_head, 0, 3);
    tcase_add_test(tc, a_pair_with_a_head_is_json_too);
    tcase_add_test(tc, a_head_in_other_numbers_drafts_the_same_text);
    suite_add_tcase(suite, tc);
    return suite;
}
