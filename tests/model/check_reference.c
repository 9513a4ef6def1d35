/* Numbers of real and random checkpoints against transformers in f32. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/damage.h"
#include "tests/support/engine_support.h"
#include "tests/support/gguf_convert.h"
#include "tests/support/logits.h"
#include "tests/support/reference.h"
#include "tests/support/support.h"

/* GGUF files: every type of block, the architectures of llama.cpp, both kinds of tokenizer. */
static const char *const ggufs[] = {
    "formats/gguf-f16",
    "formats/gguf-bf16",
    "formats/gguf-q8_0",
    "formats/gguf-q4_0",
    "formats/gguf-q4_1",
    "formats/gguf-q5_0",
    "formats/gguf-q5_1",
    "formats/gguf-iq4_nl",
    "formats/gguf-mxfp4",
    "formats/gguf-q2_k",
    "formats/gguf-q3_k",
    "formats/gguf-q4_k",
    "formats/gguf-q5_k",
    "formats/gguf-q6_k",
    "formats/gguf-iq4_xs",
    "formats/gguf-q4_k_m",
    "formats/gguf-qwen2",
    "formats/gguf-llama3-rope",
    "formats/gguf-qwen3",
    "formats/gguf-qwen3moe",
    "formats/gguf-gemma3",
    "formats/gguf-bpe-chat",
    "formats/gguf-spm-stories260k",
};
enum { GGUFS = sizeof ggufs / sizeof *ggufs };

static const char *family_file(const char *family, const char *file) {
    char relative[128];
    snprintf(relative, sizeof relative, "fixtures/%s%s%s", family, file ? "/" : "", file ? file : "");
    return shared_path(relative);
}

static cJSON *case_reference(const char *name, char dir[4096]) {
    if (!family_file(name, NULL)) return NULL;
    snprintf(dir, 4096, "%s", family_file(name, NULL));
    return must_load_json(family_file(name, "reference.json"));
}

static cJSON *family_reference(int family, char dir[4096]) {
    return case_reference(test_checkpoints[family], dir);
}

START_TEST(family_logits_are_within_the_tolerance)
{
    char dir[4096];
    cJSON *references = family_reference(_i, dir), *r;
    if (!references) {
        skip("no test data beside the checkout");
        return;
    }
    cJSON_ArrayForEach(r, references) reference_check_logits(
        dir, r, cJSON_GetArraySize(json_get(r, "prompt")) + REFERENCE_ROOM, test_checkpoints[_i]);
    cJSON_Delete(references);
}
END_TEST

/* A sequence's room decides which of longrope's frequencies it takes, for all of its positions. */
START_TEST(long_sequences_take_the_long_factors_from_their_first_token)
{
    const char *family = "families/phi3-longrope";
    if (!family_file(family, NULL)) {
        skip("no test data beside the checkout");
        return;
    }
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", family_file(family, NULL));
    cJSON *references = must_load_json(family_file(family, "reference_always_long.json")), *r;
    cJSON_ArrayForEach(r, references) reference_check_logits(dir, r, 200, family);
    cJSON_Delete(references);
}
END_TEST

/* transformers 5 saves the same configuration in other members. */
START_TEST(both_forms_of_a_configuration_give_the_same_model)
{
    char dir[4096], other[256], command[8192];
    cJSON *references = family_reference(_i, dir), *r;
    if (!references || !family_file(test_checkpoints[_i], "config.transformers5.json")) {
        skip("no second form of this configuration");
        cJSON_Delete(references);
        return;
    }
    snprintf(other, sizeof other, "%s/other-%d", temp_dir(), _i);
    snprintf(command, sizeof command,
             "cp -r '%s' '%s' && chmod -R u+w '%s' && mv '%s/config.transformers5.json' '%s/config.json'", dir, other,
             other, other, other);
    ck_assert_int_eq(system(command), 0);
    cJSON_ArrayForEach(r, references) {
        const int length = cJSON_GetArraySize(json_get(r, "prompt")) + REFERENCE_ROOM;
        const int vocab = cJSON_GetArraySize(json_get(r, "logits_last"));
        float *logits = malloc((size_t)vocab * sizeof *logits), *expected = malloc((size_t)vocab * sizeof *logits);
        struct ids prompt = json_ids(r, "prompt");
        compute_logits_with(KV_AUTO, dir, &prompt, length, expected, vocab);
        compute_logits_with(KV_AUTO, other, &prompt, length, logits, vocab);
        ck_assert_mem_eq(logits, expected, (size_t)vocab * sizeof *logits);
        ids_free(&prompt);
        free(logits), free(expected);
    }
    cJSON_Delete(references);
}
END_TEST

/* The last logits of a prompt with FP8 keys and values against those without: the largest difference, of the largest logit. */
static double fp8_effect(const char *dir, const struct ids *prompt, int vocab) {
    const int length = (int)prompt->len + REFERENCE_ROOM;
    float *plain = malloc((size_t)vocab * sizeof *plain), *fp8 = malloc((size_t)vocab * sizeof *fp8);
    double largest = 0, off = 0;
    compute_logits_with(KV_AUTO, dir, prompt, length, plain, vocab);
    compute_logits_with(KV_FP8, dir, prompt, length, fp8, vocab);
    for (int i = 0; i < vocab; i++) {
        largest = fmax(largest, fabs((double)plain[i]));
        off = fmax(off, fabs((double)fp8[i] - (double)plain[i]));
    }
    free(plain), free(fp8);
    return off / largest;
}

/* Loop index: the family. 0.27 was seen on the host, where a router takes other experts, else 0.22, by biases of keys. The weights
 * are random: what is made of a trained model is less. */
START_TEST(fp8_keys_and_values_move_logits_a_little)
{
    char dir[4096];
    cJSON *references = family_reference(_i, dir), *r;
    if (!references) {
        skip("no test data beside the checkout");
        return;
    }
    cJSON_ArrayForEach(r, references) {
        struct ids prompt = json_ids(r, "prompt");
        const double effect = fp8_effect(dir, &prompt, cJSON_GetArraySize(json_get(r, "logits_last")));
        ck_assert_msg(effect > 0 && effect < 0.4, "%s: %g of the largest logit", test_checkpoints[_i], effect);
        ids_free(&prompt);
    }
    cJSON_Delete(references);
}
END_TEST

/* 0.065 was seen on the host. */
START_TEST(fp8_keys_and_values_move_the_embedded_pair_s_logits_a_little)
{
    static const char *const models[] = {"target", "draft"};
    for (int i = 0; i < 2; i++) {
        char dir[4096];
        snprintf(dir, sizeof dir, "%s", asset_path(models[i]));
        struct engine *e = must_open(
            &(struct engine_options){.target = test_checkpoint(dir), .device = test_device(), .context = 256});
        const int vocab = engine_info(e).vocab;
        for (int j = 0; j < STORY_STARTS; j += 3) {
            struct request request = text_request(e, story_starts[j], 100);
            struct answer answer;
            run_requests(e, &request, 1, &answer);
            ids_append(&request.prompt, answer.ids.data, answer.ids.len);
            const double effect = fp8_effect(dir, &request.prompt, vocab);
            ck_assert_msg(effect > 0 && effect < 0.1, "%s: %g of the largest logit", models[i], effect);
            free_requests(&request, 1), free_answers(&answer, 1);
        }
        engine_destroy(e);
    }
}
END_TEST

START_TEST(family_greedy_tokens_are_the_reference_for_every_k)
{
    char dir[4096];
    cJSON *references = family_reference(_i, dir);
    if (!references) {
        skip("no test data beside the checkout");
        return;
    }
    struct answer plain[8], got[8]; /* alone, and with itself as the draft */
    int count = cJSON_GetArraySize(references);
    for (int k = 0; k <= 8; k += _i >= TEST_FAMILIES ? 3 : test_is_small() ? 4 : 1) {
        struct pair self = {test_checkpoints[_i], dir, dir};
        struct engine_options options = pair_options(&self, k, 1 + k % 3);
        struct engine *e = must_open(&options);
        reference_check_greedy(e, references, "prompt", test_checkpoints[_i], k == 0 ? plain : got);
        for (int i = 0; i < count && k > 0; i++) must_equal(&got[i], &plain[i], test_checkpoints[_i]);
        if (k > 0) free_answers(got, count);
        engine_destroy(e);
    }
    free_answers(plain, count);
    cJSON_Delete(references);
}
END_TEST

START_TEST(gguf_files_give_the_reference_s_logits_and_tokens)
{
    char dir[4096];
    cJSON *references = case_reference(ggufs[_i], dir), *r;
    if (!references) {
        skip("no test data beside the checkout");
        return;
    }
    cJSON_ArrayForEach(r, references)
        reference_check_logits(dir, r, cJSON_GetArraySize(json_get(r, "prompt")) + REFERENCE_ROOM, ggufs[_i]);
    struct answer plain[8], got[8]; /* alone, and with itself as the draft */
    int count = cJSON_GetArraySize(references);
    for (int k = 0; k <= 3; k += 3) {
        struct pair self = {ggufs[_i], dir, dir};
        struct engine_options options = pair_options(&self, k, 2);
        struct engine *e = must_open(&options);
        reference_check_greedy(e, references, "prompt", ggufs[_i], k == 0 ? plain : got);
        engine_destroy(e);
    }
    for (int i = 0; i < count; i++) must_equal(&got[i], &plain[i], ggufs[_i]);
    free_answers(plain, count);
    free_answers(got, count);
    cJSON_Delete(references);
}
END_TEST

/* Of these there are no GGUF files: what llama.cpp's converter makes of a directory. */
static const char *const converted[] = {
    "checkpoints/llama-gqa-tied", "families/gemma2",     "families/glm4",       "families/gpt-oss-bf16",
    "families/granite",           "families/mixtral",    "families/olmo2",      "families/phi3",
    "families/phi3-longrope",     "families/qwen2-yarn", "families/llama-yarn", "families/qwen3-next",
};
enum { CONVERTED = sizeof converted / sizeof *converted };

START_TEST(a_directory_converted_to_gguf_gives_its_logits)
{
    char dir[4096], path[256];
    cJSON *references = case_reference(converted[_i], dir), *r;
    if (!references) {
        skip("no test data beside the checkout");
        return;
    }
    const int parts = 1 + _i % 3;
    snprintf(path, sizeof path, "%s/converted-%d%s.gguf", temp_dir(), _i,
             parts == 1   ? ""
             : parts == 2 ? "-00001-of-00002"
                          : "-00001-of-00003");
    gguf_convert(dir, path, parts);
    cJSON_ArrayForEach(r, references)
        reference_check_logits(path, r, cJSON_GetArraySize(json_get(r, "prompt")) + REFERENCE_ROOM, converted[_i]);
    cJSON_Delete(references);
}
END_TEST

START_TEST(trained_models_give_160_reference_tokens)
{
    const char *file = shared_path("fixtures/greedy-references.json");
    if (!file) {
        skip("no test data beside the checkout");
        return;
    }
    cJSON *all = must_load_json(file), *references;
    cJSON_ArrayForEach(references, all) {
        char relative[128], dir[4096];
        snprintf(relative, sizeof relative, "models/%s", references->string);
        const char *found = shared_path(relative);
        if (!found) {
            skip("no test data beside the checkout");
            continue;
        }
        snprintf(dir, sizeof dir, "%s", found);
        struct engine *e = must_open(
            &(struct engine_options){.target = test_checkpoint(dir), .device = test_device(), .max_batch = 2});
        struct answer answers[8];
        reference_check_greedy(e, references, "prompt_ids", references->string, answers);
        free_answers(answers, cJSON_GetArraySize(references));
        engine_destroy(e);
    }
    cJSON_Delete(all);
}
END_TEST

/* Its weights are the directory's bit for bit. */
START_TEST(a_gguf_of_a_trained_model_gives_its_160_reference_tokens)
{
    const char *dir = family_file("formats/gguf-spm-stories260k", NULL);
    if (!dir) {
        skip("no test data beside the checkout");
        return;
    }
    cJSON *all = must_load_json(shared_path("fixtures/greedy-references.json"));
    const cJSON *references = json_get(all, "stories260K");
    struct engine *e =
        must_open(&(struct engine_options){.target = test_checkpoint(dir), .device = test_device(), .max_batch = 2});
    struct answer answers[8];
    reference_check_greedy(e, references, "prompt_ids", "stories260K as GGUF", answers);
    free_answers(answers, cJSON_GetArraySize(references));
    engine_destroy(e);
    cJSON_Delete(all);
}
END_TEST

DEVICE_SUITE(check_reference);
Suite *check_reference(void) {
    Suite *suite = suite_create("reference");
    TCase *tc = tcase_create("reference");
    tcase_add_loop_test(tc, family_logits_are_within_the_tolerance, 0, TEST_CHECKPOINTS);
    tcase_add_test(tc, long_sequences_take_the_long_factors_from_their_first_token);
    tcase_add_loop_test(tc, both_forms_of_a_configuration_give_the_same_model, 7, TEST_FAMILIES);
    tcase_add_loop_test(tc, fp8_keys_and_values_move_logits_a_little, 0, TEST_FAMILIES);
    tcase_add_test(tc, fp8_keys_and_values_move_the_embedded_pair_s_logits_a_little);
    tcase_add_loop_test(tc, family_greedy_tokens_are_the_reference_for_every_k, 0, TEST_CHECKPOINTS);
    tcase_add_loop_test(tc, gguf_files_give_the_reference_s_logits_and_tokens, 0, GGUFS);
    tcase_add_loop_test(tc, a_directory_converted_to_gguf_gives_its_logits, 0, CONVERTED);
    tcase_add_test(tc, trained_models_give_160_reference_tokens);
    tcase_add_test(tc, a_gguf_of_a_trained_model_gives_its_160_reference_tokens);
    suite_add_tcase(suite, tc);
    return suite;
}
