/* Families of which no released files are beside the checkout: tiny models whose weights are numbers of their tensors' names, against
 * what transformers computes of them (tests/model/families/make.py). */
#include <stdio.h>
#include <string.h>

#include "tests/support/gguf_convert.h"
#include "tests/support/reference.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

static const char *const cases[] = {
    "ministral3",     "hunyuan",
    "smollm3",        "smollm3-windows",
    "seed-oss",       "ernie4_5",
    "ernie4_5-moe",   "exaone",
    "exaone4",        "exaone4-full",
    "gemma",          "glm",
    "glm4-moe",       "glm4-moe-norms",
    "olmo3",          "olmoe",
    "granite-moe",    "granite4",
    "granite4-still", "granite4-h",
    "granite4-h-moe", "qwen2-moe",
    "qwen3-next",     "qwen3_5",
    "nemotron-h",     "lfm2",
    "lfm2-moe",       "qwen3_5-moe",
    "gemma4",         "gemma4-e",
    "gemma4-moe",     "minicpm",
    "cohere",         "cohere2",
    "starcoder2",     "nemotron",
    "stablelm",       "stablelm-parallel",
};
enum { CASES = sizeof cases / sizeof *cases };

/* --- claims --------------------------------------------------------------------------------------------------------- */

/* Loop index: the case. transformers 5 saves the same configuration in other members. */
START_TEST(logits_are_the_reference_s_by_both_forms_of_the_configuration)
{
    static const char *const forms[] = {"config", "config.transformers5"};
    cJSON *all = tiny_model_load(cases[_i]), *r;
    for (int form = 0; form < 2; form++) {
        char dir[256];
        tiny_model_write(all, forms[form], dir);
        cJSON_ArrayForEach(r, json_get(all, "references"))
            reference_check_logits(dir, r, cJSON_GetArraySize(json_get(r, "prompt")) + REFERENCE_ROOM, cases[_i]);
    }
    cJSON_Delete(all);
}
END_TEST

/* Cases whose configuration the format can say, or that llama.cpp knows at all. */
static bool is_known_to_gguf(const char *name) {
    static const char *const others[] = {"smollm3-windows", "glm", "granite4-still"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return false;
    return true;
}

START_TEST(logits_of_a_gguf_file_are_the_reference_s)
{
    char dir[256], path[320];
    if (!is_known_to_gguf(cases[_i])) return;
    cJSON *all = tiny_model_load(cases[_i]), *r;
    tiny_model_write(all, "config", dir);
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    gguf_convert(dir, path, 1);
    cJSON_ArrayForEach(r, json_get(all, "references"))
        reference_check_logits(path, r, cJSON_GetArraySize(json_get(r, "prompt")) + REFERENCE_ROOM, cases[_i]);
    cJSON_Delete(all);
}
END_TEST

START_TEST(greedy_tokens_are_the_reference_s_for_every_k)
{
    cJSON *all = tiny_model_load(cases[_i]);
    const cJSON *references = json_get(all, "references");
    const int count = cJSON_GetArraySize(references);
    struct answer plain[8], got[8]; /* alone, and with itself as the draft */
    char dir[256];
    tiny_model_write(all, "config", dir);
    for (int k = 0; k <= 8; k += test_is_small() ? 4 : 1) {
        const struct pair self = {cases[_i], dir, dir};
        const struct engine_options options = pair_options(&self, k, 1 + k % 3);
        struct engine *e = must_open(&options);
        reference_check_greedy(e, references, "prompt", cases[_i], k == 0 ? plain : got);
        for (int i = 0; i < count && k > 0; i++) must_equal(&got[i], &plain[i], cases[_i]);
        if (k > 0) free_answers(got, count);
        engine_destroy(e);
    }
    free_answers(plain, count);
    cJSON_Delete(all);
}
END_TEST

DEVICE_SUITE(check_families);
Suite *check_families(void) {
    Suite *suite = suite_create("families");
    TCase *tc = tcase_create("families");
    tcase_add_loop_test(tc, logits_are_the_reference_s_by_both_forms_of_the_configuration, 0, CASES);
    tcase_add_loop_test(tc, logits_of_a_gguf_file_are_the_reference_s, 0, CASES);
    tcase_add_loop_test(tc, greedy_tokens_are_the_reference_s_for_every_k, 0, CASES);
    suite_add_tcase(suite, tc);
    return suite;
}
