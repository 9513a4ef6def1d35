/* Heads that were trained for a target and have files of their own (EAGLE-3, Gemma 4's assistants, DFlash): they draft what their references
 * do, and are refused where they do not fit. */
#include <stdio.h>
#include <string.h>

#include "tests/support/damage.h"
#include "tests/support/gguf_convert.h"
#include "tests/support/head_support.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

static const char *const heads[] = {"eagle3",           "eagle3-specforge",   "eagle3-speculators",
                                    "gemma4-assistant", "gemma4-e-assistant", "dflash",
                                    "dflash-hybrid"};
enum { HEADS = sizeof heads / sizeof *heads };

START_TEST(heads_with_files_of_their_own_draft_as_the_reference)
{
    char dir[256], own[256];
    cJSON *all = tiny_model_load(heads[_i]), *of = tiny_model_load(json_get(all, "of")->valuestring);
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    head_must_draft(dir, own, json_get(all, "mtp_references"), heads[_i]);
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* As the first released heads are. */
START_TEST(models_and_heads_may_be_files_of_pytorch)
{
    char dir[256], own[256];
    cJSON *all = tiny_model_load("eagle3"), *of = tiny_model_load(json_get(all, "of")->valuestring);
    tiny_model_write_torch(of, "config", dir);
    tiny_model_write_torch(all, "config", own);
    head_must_draft(dir, own, json_get(all, "mtp_references"), "files of PyTorch");
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* All of a model's tensors, but what must be F32. */
static void set_type(cJSON *all, const char *type) {
    cJSON *tensor;
    cJSON_ArrayForEach(tensor, cJSON_GetObjectItem(all, "tensors"))
        cJSON_ReplaceItemInArray(tensor, 4, cJSON_CreateString(type));
}

/* Released heads are often in f16. A model that is f16 throughout is computed in it, its head as well. */
START_TEST(a_head_may_be_of_another_type_than_its_model)
{
    char dir[256], own[256];
    cJSON *all = tiny_model_load("eagle3"), *of = tiny_model_load("seed-oss");
    set_type(_i == 0 ? of : all, "F16");
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    head_must_draft(dir, own, json_get(all, "mtp_references"), _i == 0 ? "a model in f16" : "a head in f16");
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* Ids of a head in files: one that is changed, by how much; or one tensor that is left out, or an option. */
static const struct misfit {
    int id, by;
    const char *tensor, *member, *vocab, *sentence;
    double value;
} misfits[] = {
    {.id = 5, .by = -60, .sentence = "tensor 'd2t' has no ascending ids of the target, at 5"},
    {.id = 39, .by = 1000, .sentence = "tensor 'd2t' has no ascending ids of the target, at 39"},
    {.tensor = "fc.weight", .sentence = "tensor 'fc.weight' is missing"},
    {.tensor = "midlayer.hidden_norm.weight", .sentence = "tensor 'midlayer.hidden_norm.weight' is missing"},
    {.member = "hidden_size", .value = 64, .sentence = "is for a model of width 64 with 96 tokens, and "},
    {.member = "target_hidden_size", .value = 48, .sentence = "is for a model of width 48 with 96 tokens, and "},
    {.member = "vocab_size", .value = 2000, .sentence = "is for a model of width 32 with 2000 tokens, and "},
    {.member = "eagle_aux_hidden_state_layer_ids", .sentence = "reads the rows before layers 2, 2 and 1 of "},
    {.vocab = "20", .sentence = "is cut to 40 ids already"},
};
enum { MISFITS = sizeof misfits / sizeof *misfits };

START_TEST(a_head_with_files_of_its_own_that_does_not_fit_is_refused)
{
    const struct misfit *d = &misfits[_i];
    char dir[256], own[256];
    cJSON *all = tiny_model_load("eagle3"), *of = tiny_model_load("seed-oss"), *tensor;
    cJSON *config = cJSON_GetObjectItem(all, "config"), *tensors = cJSON_GetObjectItem(all, "tensors");
    if (d->by != 0) cJSON_GetArrayItem(cJSON_GetObjectItem(all, "ids"), d->id)->valuedouble += d->by;
    cJSON_ArrayForEach(tensor, tensors) if (d->tensor && strcmp(tensor->child->valuestring, d->tensor) == 0) break;
    if (d->tensor) cJSON_Delete(cJSON_DetachItemViaPointer(tensors, tensor));
    if (d->member) cJSON_DeleteItemFromObject(config, d->member);
    if (d->value != 0) cJSON_AddNumberToObject(config, d->member, d->value);
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    head_must_be_refused(dir, own, d->vocab, d->sentence);
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

START_TEST(an_assistant_drafts_in_gguf_files)
{
    char dir[256], own[256], path[320], own_path[320];
    cJSON *all = tiny_model_load("gemma4-e-assistant"), *of = tiny_model_load("gemma4-e");
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    snprintf(own_path, sizeof own_path, "%s/model.gguf", own);
    gguf_convert(dir, path, 1);
    gguf_convert(own, own_path, 1);
    head_must_draft(path, own, json_get(all, "mtp_references"), "a target in GGUF");
    head_must_draft(path, own_path, json_get(all, "mtp_references"), "both in GGUF");
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* The target may have ids more, added later or as padding. */
START_TEST(an_assistant_is_cut_to_ids_that_it_has)
{
    char dir[256], own[256], vocab[320];
    cJSON *all = tiny_model_load("gemma4-assistant"), *of = tiny_model_load("gemma4"), *tensor;
    cJSON *text = cJSON_GetObjectItem(cJSON_GetObjectItem(all, "config"), "text_config");
    cJSON_SetNumberValue(cJSON_GetObjectItem(text, "vocab_size"), 40);
    cJSON_ArrayForEach(tensor,
                       cJSON_GetObjectItem(all, "tensors")) if (strstr(tensor->child->valuestring, "embed_tokens"))
        cJSON_SetNumberValue(cJSON_GetArrayItem(cJSON_GetArrayItem(tensor, 1), 0), 40);
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    snprintf(vocab, sizeof vocab, "%s/ids", dir);
    damage_write_text(vocab, "5\n39\n40\n");
    head_must_be_refused(dir, own, vocab, "40");
    damage_write_text(vocab, "5\n39\n");
    engine_destroy(head_open(dir, own, 1, vocab));
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* K = 8 of a block of 6. */
START_TEST(a_block_offers_what_it_has)
{
    enum { MOST = 8, BLOCK = 6 };
    char dir[256], own[256];
    cJSON *all = tiny_model_load("dflash"), *of = tiny_model_load("seed-oss");
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    struct engine *e = head_open(dir, own, MOST, NULL);
    struct request r = ids_request((const int32_t[]){5, 9, 40}, 3, 1);
    r.generation.ignore_end = true;
    struct answer a;
    run_requests(e, &r, 1, &a);
    ck_assert_int_eq((int)a.stats.drafted, BLOCK - 1);
    free_answers(&a, 1), free_requests(&r, 1);
    engine_destroy(e);
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* Members of a DFlash head's configuration, one changed. */
START_TEST(a_head_that_drafts_blocks_and_does_not_fit_is_refused)
{
    static const struct {
        const char *member, *json, *vocab, *sentence;
    } wrong[] = {
        {"dflash_config", "{\"mask_token_id\": 1, \"target_layer_ids\": [0, 7]}", NULL,
         "reads the rows before layers 1 and 8 of "},
        {"dflash_config", "{\"mask_token_id\": 1, \"target_layer_ids\": [1, 0]}", NULL, "which must ascend"},
        {"dflash_config", "{\"mask_token_id\": 1, \"target_layer_ids\": []}", NULL, "'target_layer_ids' is missing"},
        {"dflash_config", "{\"mask_token_id\": 1, \"target_layer_ids\": [\"a\"]}", NULL,
         "is no list of at most 8 layers"},
        {"dflash_config", "{\"target_layer_ids\": [0, 2]}", NULL, "'mask_token_id' is missing"},
        {"dflash_config", "{\"mask_token_id\": 1, \"target_layer_ids\": [0], \"causal_head\": true}", NULL,
         "causal_head is not supported"},
        {"dflash_config", "{\"mask_token_id\": 96, \"target_layer_ids\": [0]}", NULL,
         "mask_token_id is 96, an id that "},
        {"block_size", "1", NULL, "block_size"},
        {"hidden_size", "48", NULL, "is for a model of width 48"},
        {"layer_types", "[\"full_attention\", \"sliding_attention\"]", NULL, "layers that slide are not supported"},
        {NULL, NULL, "20", "is the target's, and is not cut"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char dir[256], own[256];
        cJSON *all = tiny_model_load("dflash"), *of = tiny_model_load("seed-oss"), *value = NULL;
        cJSON *config = cJSON_GetObjectItem(all, "config");
        if (wrong[i].member) {
            ck_ok(json_parse(&value, wrong[i].json, strlen(wrong[i].json)));
            cJSON_DeleteItemFromObject(config, wrong[i].member);
            cJSON_AddItemToObject(config, wrong[i].member, value);
        }
        tiny_model_write(of, "config", dir);
        tiny_model_write(all, "config", own);
        head_must_be_refused(dir, own, wrong[i].vocab, wrong[i].sentence);
        cJSON_Delete(all), cJSON_Delete(of);
    }
}
END_TEST

/* Which has layers of one kind alone, or keys of another number of heads. */
START_TEST(an_assistant_of_another_model_is_refused)
{
    static const char *const others[] = {"seed-oss", "gemma4-e"};
    char dir[256], own[256];
    cJSON *all = tiny_model_load("gemma4-assistant");
    tiny_model_write(all, "config", own);
    for (int i = 0; i < 2; i++) {
        cJSON *of = tiny_model_load(others[i]);
        tiny_model_write(of, "config", dir);
        head_must_be_refused(dir, own, NULL,
                             i == 0 ? "layer 0 attends to keys that " : "layer 2 attends to keys that ");
        cJSON_Delete(of);
    }
    head_must_be_refused(own, NULL, NULL, "is a head that drafts for another model");
    cJSON_Delete(all);
}
END_TEST

START_TEST(a_head_alone_is_no_target)
{
    char own[256];
    cJSON *all = tiny_model_load("eagle3");
    tiny_model_write(all, "config", own);
    head_must_be_refused(own, NULL, NULL, "is a head that drafts for another model");
    cJSON_Delete(all);
}
END_TEST

DEVICE_SUITE(check_drafters);
Suite *check_drafters(void) {
    Suite *suite = suite_create("drafters");
    TCase *tc = tcase_create("drafters");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, heads_with_files_of_their_own_draft_as_the_reference, 0, HEADS);
    tcase_add_test(tc, models_and_heads_may_be_files_of_pytorch);
    tcase_add_loop_test(tc, a_head_may_be_of_another_type_than_its_model, 0, 2);
    tcase_add_test(tc, an_assistant_drafts_in_gguf_files);
    tcase_add_test(tc, an_assistant_is_cut_to_ids_that_it_has);
    tcase_add_test(tc, a_block_offers_what_it_has);
    tcase_add_test(tc, a_head_that_drafts_blocks_and_does_not_fit_is_refused);
    tcase_add_test(tc, an_assistant_of_another_model_is_refused);
    tcase_add_loop_test(tc, a_head_with_files_of_its_own_that_does_not_fit_is_refused, 0, MISFITS);
    tcase_add_test(tc, a_head_alone_is_no_target);
    suite_add_tcase(suite, tc);
    return suite;
}
