/* Families of which no released files are beside the checkout: tiny models whose weights are numbers of their tensors' names, against
 * what transformers computes of them (tests/model/families/make.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fmath.h"
#include "tests/support/damage.h"
#include "tests/support/gguf_convert.h"
#include "tests/support/reference.h"
#include "tests/support/support.h"
#include "tests/support/tensor_file.h"

static const char *const cases[] = {
    "ministral3",     "hunyuan", "smollm3",      "smollm3-windows", "seed-oss", "ernie4_5",
    "ernie4_5-moe",   "exaone4", "exaone4-full", "gemma",           "glm",      "glm4-moe",
    "glm4-moe-norms", "olmo3",   "olmoe",        "granite-moe",     "granite4", "granite4-still",
    "qwen3-next",     "qwen3_5", "qwen3_5-moe",
};
enum { CASES = sizeof cases / sizeof *cases };

/* --- the files ------------------------------------------------------------------------------------------------------ */

static uint64_t hash_of(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* Output function of splitmix64. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* middle + spread * (-1 to 127/128): of so few bits that bf16 holds it, where it is no F32. */
static void put_numbers(struct buf *out, const char *name, size_t count, float middle, float spread, bool is_f32) {
    const uint64_t seed = hash_of(name);
    for (size_t i = 0; i < count; i++) {
        const int64_t byte = (int64_t)(mix(seed + 0x9e3779b97f4a7c15u * (i + 1)) >> 56);
        const float number = middle + spread * (float)(byte - 128) / 128;
        const uint16_t half = (uint16_t)(fmath_bits(number) >> 16);
        buf_append(out, is_f32 ? (const char *)&number : (const char *)&half, is_f32 ? sizeof number : sizeof half);
    }
}

static void write_tensors(const cJSON *reference, const char *path) {
    struct tensor_file f = {0};
    const cJSON *tensor, *size;
    cJSON_ArrayForEach(tensor, json_get(reference, "ignored"))
        tensor_file_add(&f, tensor->valuestring, "BF16", 1, (const int64_t[]){2}, "\1\2\3\4", 4);
    cJSON_ArrayForEach(tensor, json_get(reference, "tensors")) { /* [name, shape, middle, spread, type] */
        const char *name = tensor->child->valuestring, *type = cJSON_GetArrayItem(tensor, 4)->valuestring;
        const float middle = (float)cJSON_GetArrayItem(tensor, 2)->valuedouble,
                    spread = (float)cJSON_GetArrayItem(tensor, 3)->valuedouble;
        int64_t shape[3];
        int dims = 0;
        size_t count = 1;
        struct buf numbers = {0};
        cJSON_ArrayForEach(size, cJSON_GetArrayItem(tensor, 1)) {
            ck_assert_int_lt(dims, 3);
            shape[dims++] = (int64_t)size->valuedouble;
            count *= (size_t)size->valuedouble;
        }
        put_numbers(&numbers, name, count, middle, spread, strcmp(type, "F32") == 0);
        tensor_file_add(&f, name, type, dims, shape, numbers.data, numbers.len);
        buf_free(&numbers);
    }
    tensor_file_write(&f, path);
}

/* A directory of a case, whose config.json is this member of its file. */
static void write_model(const cJSON *reference, const char *config, char dir[256]) {
    char path[320];
    struct buf text = {0};
    snprintf(dir, 256, "%s/model-XXXXXX", temp_dir());
    ck_assert_ptr_nonnull(mkdtemp(dir)); /* tests on a GPU share the first */
    json_print(json_get(reference, config), &text);
    snprintf(path, sizeof path, "%s/config.json", dir);
    damage_write_text(path, buf_text(&text));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_tensors(reference, path);
    buf_free(&text);
}

static cJSON *load_case(int i) {
    char path[128];
    snprintf(path, sizeof path, "tests/model/families/%s.json", cases[i]);
    return must_load_json(path);
}

/* --- claims --------------------------------------------------------------------------------------------------------- */

/* Loop index: the case. transformers 5 saves the same configuration in other members. */
START_TEST(logits_are_the_reference_s_by_both_forms_of_the_configuration)
{
    static const char *const forms[] = {"config", "config.transformers5"};
    cJSON *all = load_case(_i), *r;
    for (int form = 0; form < 2; form++) {
        char dir[256];
        write_model(all, forms[form], dir);
        cJSON_ArrayForEach(r, json_get(all, "references"))
            reference_check_logits(dir, r, cJSON_GetArraySize(json_get(r, "prompt")) + REFERENCE_ROOM, cases[_i]);
    }
    cJSON_Delete(all);
}
END_TEST

/* Cases whose configuration the format can say, or that llama.cpp knows at all. */
static bool is_known_to_gguf(const char *name) {
    static const char *const others[] = {"smollm3-windows", "glm",     "granite4-still",
                                         "qwen3-next",      "qwen3_5", "qwen3_5-moe"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return false;
    return true;
}

START_TEST(logits_of_a_gguf_file_are_the_reference_s)
{
    char dir[256], path[320];
    if (!is_known_to_gguf(cases[_i])) return;
    cJSON *all = load_case(_i), *r;
    write_model(all, "config", dir);
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    gguf_convert(dir, path, 1);
    cJSON_ArrayForEach(r, json_get(all, "references"))
        reference_check_logits(path, r, cJSON_GetArraySize(json_get(r, "prompt")) + REFERENCE_ROOM, cases[_i]);
    cJSON_Delete(all);
}
END_TEST

START_TEST(greedy_tokens_are_the_reference_s_for_every_k)
{
    cJSON *all = load_case(_i);
    const cJSON *references = json_get(all, "references");
    const int count = cJSON_GetArraySize(references);
    struct answer plain[8], got[8]; /* alone, and with itself as the draft */
    char dir[256];
    write_model(all, "config", dir);
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
