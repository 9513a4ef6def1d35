/* Which models: the local Hugging Face cache, and what is said of directories and files that are none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/support/program.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

static void make_dirs(const char *path) {
    char whole[512];
    snprintf(whole, sizeof whole, "%s", temp_path(path));
    for (char *slash = strchr(whole + strlen(temp_dir()) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(whole, 0700);
        *slash = '/';
    }
    (void)mkdir(whole, 0700);
}

/* models--ORG--NAME in the cache temp_dir()/hub, with a snapshot that is this directory. */
static void add_directory(const char *folder, const char *commit, const char *directory) {
    char path[300], target[4096];
    ck_assert_ptr_nonnull(realpath(directory, target));
    snprintf(path, sizeof path, "hub/%s/snapshots", folder);
    make_dirs(path);
    snprintf(path, sizeof path, "hub/%s/snapshots/%s", folder, commit);
    ck_assert_int_eq(symlink(target, temp_path(path)), 0);
}

static void add_to_cache(const char *folder, const char *commit, const char *asset) {
    add_directory(folder, commit, asset_path(asset));
}

static void add_tiny(const char *folder, const char *name) {
    char dir[256];
    cJSON *all = tiny_model_load(name);
    tiny_model_write(all, "config", dir);
    add_directory(folder, "1", dir);
    cJSON_Delete(all);
}

static void expect_error(const char *directory, const char *part) {
    struct program p;
    program_run(&p, NULL, ARGUMENTS("inspect", directory));
    program_expect_error(&p, 1, part);
    program_free(&p);
}

static void expect_model(const char *directory) {
    struct program p;
    program_run(&p, NULL, ARGUMENTS("inspect", directory));
    program_expect_status(&p, 0);
    program_free(&p);
}

/* --- the cache -------------------------------------------------------------------------------------------------- */

START_TEST(hf_hub_cache_comes_before_hf_home_and_a_miss_says_what_would_fetch_it)
{
    add_to_cache("models--tiny--target", "0123abc", "target");
    setenv("HF_HOME", "/nowhere", 1);
    setenv("HF_HUB_CACHE", temp_path("hub"), 1);
    expect_model("tiny/target"); /* without refs/main: the only snapshot */
    expect_error("tiny/draft", "hub/models--tiny--draft); hint: hf download tiny/draft");
    unsetenv("HF_HUB_CACHE");
    setenv("HF_HOME", temp_dir(), 1);
    expect_model("tiny/target");
    unsetenv("HF_HOME");
    setenv("XDG_CACHE_HOME", "/nowhere", 1);
    expect_error("tiny/target", "(/nowhere/huggingface/hub/models--tiny--target)");
}
END_TEST

START_TEST(a_folder_of_the_cache_stands_for_its_snapshot)
{
    add_to_cache("models--tiny--target", "old", "target");
    add_to_cache("models--tiny--target", "new", "draft");
    char folder[300];
    snprintf(folder, sizeof folder, "%s", temp_path("hub/models--tiny--target"));
    expect_model(folder);
    make_dirs("hub/models--tiny--target/refs");
    text_to_file(temp_path("hub/models--tiny--target/refs/main"), "old\n");
    struct program p;
    program_run(&p, NULL, ARGUMENTS("inspect", "--json", folder));
    program_expect_status(&p, 0);
    cJSON *object = json_line(&p.out, 0);
    ck_assert_ptr_nonnull(strstr(get_string(json_get(object, "target"), "model"), "/snapshots/old"));
    cJSON_Delete(object), program_free(&p);
    text_to_file(temp_path("hub/models--tiny--target/refs/main"), "gone\n");
    expect_error(folder, "snapshots/gone: no such directory");
    make_dirs("hub/models--tiny--none/snapshots");
    expect_error(temp_path("hub/models--tiny--none"), "holds no snapshot");
}
END_TEST

/* --- what is no model ------------------------------------------------------------------------------------------- */

static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 21987200\n";

/* A directory with the draft's config.json. */
static void make_model(const char *name) {
    char path[300], source[4096];
    make_dirs(name);
    snprintf(path, sizeof path, "%s/config.json", name);
    ck_assert_ptr_nonnull(realpath(asset_path("draft/config.json"), source));
    ck_assert_int_eq(symlink(source, temp_path(path)), 0);
}

START_TEST(what_a_directory_holds_in_place_of_a_model_is_named)
{
    make_model("lfs"), make_model("torch"), make_model("gguf"), make_dirs("lora"), make_dirs("empty");
    text_to_file(temp_path("lfs/model.safetensors"), pointer);
    expect_error(temp_path("lfs"), "model.safetensors: is a Git LFS pointer, not the file itself; hint: git lfs pull");
    text_to_file(temp_path("lfs/tokenizer.json"), pointer);
    struct program p;
    program_run(&p, "{}\n", ARGUMENTS("tokenize", temp_path("lfs")));
    program_expect_error(&p, 1, "tokenizer.json: is a Git LFS pointer");
    program_free(&p);
    text_to_file(temp_path("torch/pytorch_model.bin"), "x");
    expect_error(temp_path("torch"), "pytorch_model.bin: has 1 bytes, at least 8 are needed");
    text_to_file(temp_path("gguf/model-q4.gguf"), "GGUF");
    expect_error(temp_path("gguf"), "it holds GGUF files: take one of them, as DIRECTORY/FILE.gguf");
    make_dirs("bare-gguf");
    text_to_file(temp_path("bare-gguf/config.json"), "{\"model_type\": \"llama\"}");
    expect_error(temp_path("bare-gguf"), "config.json: member 'vocab_size' is missing");
    text_to_file(temp_path("bare-gguf/a.gguf"), "GGUF");
    expect_error(temp_path("bare-gguf"), "it holds GGUF files: take one of them, as DIRECTORY/FILE.gguf");
    expect_error(temp_path("gguf/model-q4.gguf"), "model-q4.gguf: has 4 bytes");
    expect_error("some/model.gguf", "some/model.gguf: cannot open");
    text_to_file(temp_path("lora/adapter_config.json"), "{}");
    expect_error(temp_path("lora"), "has no config.json; it holds a LoRA adapter: merge it into its base model");
    expect_error(temp_path("empty"), "empty/config.json: cannot open");
    expect_error(temp_path("lora/adapter_config.json"), "is a file, expected the directory of a model");
    ck_assert_int_eq(symlink("loop", temp_path("loop")), 0);
    expect_error(temp_path("loop"), "loop: Too many levels of symbolic links");
}
END_TEST

START_TEST(a_model_without_a_tokenizer_says_what_works)
{
    char weights[4096];
    struct program p;
    make_model("bare");
    ck_assert_ptr_nonnull(realpath(asset_path("draft/model.safetensors"), weights));
    ck_assert_int_eq(symlink(weights, temp_path("bare/model.safetensors")), 0);
    program_run(&p, NULL, ARGUMENTS("chat", "--target", temp_path("bare"), "-p", "Hello"));
    program_expect_error(&p, 1, "has no tokenizer.json; hint: duet batch takes prompt_ids without one");
    program_free(&p);
    text_to_file(temp_path("bare/tokenizer.model"), "x");
    program_run(&p, NULL, ARGUMENTS("tokenize", temp_path("bare")));
    program_expect_error(&p, 1, "has no tokenizer.json, and tokenizer.model is not read in its place");
    program_free(&p);
    program_run(&p, "{\"prompt_ids\": [5, 6], \"max_tokens\": 2}\n", ARGUMENTS("batch", "--target", temp_path("bare")));
    program_expect_status(&p, 0);
    program_free(&p);
}
END_TEST

/* --- duet models ------------------------------------------------------------------------------------------------ */

static const cJSON *find_model(const cJSON *list, const char *name) {
    const cJSON *model;
    cJSON_ArrayForEach(model, json_get(list, "models")) if (strcmp(get_string(model, "name"), name) == 0) return model;
    ck_abort_msg("no model %s", name);
}

static bool has_draft(const cJSON *list, const char *target, const char *draft) {
    const cJSON *item;
    cJSON_ArrayForEach(item, json_get(find_model(list, target), "drafts")) if (strcmp(item->valuestring, draft) ==
                                                                               0) return true;
    return false;
}

static void write_file(const char *name, const char *text) {
    text_to_file(temp_path(name), text);
}

/* The draft with another map: two tokens have changed places. */
static void make_other_vocabulary(const char *folder) {
    char path[300], weights[4096];
    struct buf text = {0};
    snprintf(path, sizeof path, "hub/%s/snapshots/1", folder);
    make_model(path);
    snprintf(path, sizeof path, "hub/%s/snapshots/1/model.safetensors", folder);
    ck_assert_ptr_nonnull(realpath(asset_path("draft/model.safetensors"), weights));
    ck_assert_int_eq(symlink(weights, temp_path(path)), 0);
    text_of_file(asset_path("draft/tokenizer.json"), &text);
    cJSON *tokenizer;
    ck_ok(json_parse(&tokenizer, buf_text(&text), text.len));
    cJSON *vocab = (cJSON *)json_get(json_get(tokenizer, "model"), "vocab");
    cJSON *a = vocab->child->prev, *b = a->prev; /* the last ones */
    double value = a->valuedouble;
    cJSON_SetNumberValue(a, b->valuedouble), cJSON_SetNumberValue(b, value);
    buf_clear(&text);
    json_print(tokenizer, &text);
    snprintf(path, sizeof path, "hub/%s/snapshots/1/tokenizer.json", folder);
    write_file(path, buf_text(&text));
    cJSON_Delete(tokenizer), buf_free(&text);
}

START_TEST(models_are_listed_with_their_pairs_and_what_does_not_run)
{
    add_to_cache("models--some--large", "1", "target");
    add_to_cache("models--some--small", "1", "draft");
    make_other_vocabulary("models--other--words");
    make_dirs("hub/models--state--space/snapshots/1"), make_dirs("hub/models--lo--ra/snapshots/1");
    make_dirs("hub/models--half--done"), make_dirs("hub/datasets--some--data/snapshots/1");
    write_file("hub/models--state--space/snapshots/1/config.json", "{\"architectures\": [\"MambaForCausalLM\"]}");
    write_file("hub/models--lo--ra/snapshots/1/adapter_config.json", "{}");
    setenv("HF_HUB_CACHE", temp_path("hub"), 1);
    setenv("DUET_ASSETS", asset_path(""), 1);
    struct program p;
    program_run(&p, NULL, ARGUMENTS("models", "--json"));
    program_expect_status(&p, 0);
    cJSON *list = json_line(&p.out, 0);
    ck_assert_int_eq(cJSON_GetArraySize(json_get(list, "models")), 8);
    const cJSON *large = find_model(list, "some/large"), *other = find_model(list, "other/words");
    ck_assert_str_eq(get_string(large, "architecture"), "LlamaForCausalLM");
    ck_assert_double_eq(get_number(large, "parameters"), 10993600);
    ck_assert_double_eq(get_number(large, "tokens"), 4096);
    ck_assert_ptr_null(json_get(large, "problem"));
    ck_assert(has_draft(list, "some/large", "some/small") && has_draft(list, "some/large", "embedded draft"));
    ck_assert(!has_draft(list, "some/small", "some/large"));
    ck_assert_ptr_null(json_get(other, "problem"));
    ck_assert(!has_draft(list, "some/large", "other/words"));
    ck_assert_str_ne(get_string(other, "vocabulary"), get_string(large, "vocabulary"));
    ck_assert_str_eq(get_string(find_model(list, "some/small"), "vocabulary"), get_string(large, "vocabulary"));
    ck_assert_str_eq(get_string(find_model(list, "state/space"), "problem"),
                     "config.json: architecture 'MambaForCausalLM' is not supported");
    ck_assert_ptr_nonnull(strstr(get_string(find_model(list, "lo/ra"), "problem"), "LoRA"));
    ck_assert_str_eq(get_string(find_model(list, "half/done"), "problem"), "its snapshot is missing");
    cJSON_Delete(list), program_free(&p);
    program_run(&p, NULL, ARGUMENTS("models"));
    program_expect_status(&p, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "\n  some/large: embedded draft, some/small\n"));
    program_free(&p);
}
END_TEST

START_TEST(heads_that_draft_are_listed_beside_their_models)
{
    struct program p;
    add_tiny("models--some--hybrid", "qwen3_5"), add_tiny("models--some--plain", "seed-oss");
    add_tiny("models--some--eagle", "eagle3"), add_tiny("models--some--gemma", "gemma4");
    add_tiny("models--some--assistant", "gemma4-assistant");
    setenv("HF_HUB_CACHE", temp_path("hub"), 1);
    program_run(&p, NULL, ARGUMENTS("models", "--json"));
    program_expect_status(&p, 0);
    cJSON *list = json_line(&p.out, 0);
    ck_assert(has_draft(list, "some/hybrid", "mtp") && has_draft(list, "some/hybrid", "some/eagle"));
    ck_assert(!has_draft(list, "some/plain", "mtp") && has_draft(list, "some/plain", "some/eagle"));
    ck_assert(has_draft(list, "some/gemma", "some/assistant") && !has_draft(list, "some/plain", "some/assistant"));
    ck_assert(!has_draft(list, "some/eagle", "some/plain") && !has_draft(list, "embedded target", "some/eagle"));
    cJSON_Delete(list);
    program_free(&p);
    program_run(&p, NULL, ARGUMENTS("models"));
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "\n  some/hybrid: mtp, some/eagle\n"));
    program_free(&p);
    program_run(&p, NULL, ARGUMENTS("inspect", "some/eagle"));
    program_expect_status(&p, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "for a model of width 32, 40 of its ids"));
    program_free(&p);
    program_run(&p, NULL, ARGUMENTS("inspect", "--json", "some/eagle"));
    program_expect_status(&p, 0);
    cJSON *eagle = json_line(&p.out, 0);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(json_get(eagle, "target"), "pool_bytes")));
    cJSON_Delete(eagle);
    program_free(&p);
    program_run(&p, NULL,
                ARGUMENTS("inspect", "--memory", "--target", "some/hybrid", "--draft", "mtp", "--draft-vocab", "30"));
    program_expect_status(&p, 0);
    ck_assert(strstr(buf_text(&p.out), "draft cut head") && strstr(buf_text(&p.out), "target hidden rows"));
    program_free(&p);
    program_run(&p, NULL, ARGUMENTS("inspect", "--draft", "some/eagle", "--target", "some/plain"));
    program_expect_status(&p, 0);
    program_free(&p);
}
END_TEST

Suite *check_models(void);
Suite *check_models(void) {
    Suite *suite = suite_create("models");
    TCase *cache = tcase_create("cache");
    tcase_add_test(cache, hf_hub_cache_comes_before_hf_home_and_a_miss_says_what_would_fetch_it);
    tcase_add_test(cache, a_folder_of_the_cache_stands_for_its_snapshot);
    tcase_add_test(cache, heads_that_draft_are_listed_beside_their_models);
    suite_add_tcase(suite, cache);
    TCase *none = tcase_create("no model");
    tcase_add_test(none, what_a_directory_holds_in_place_of_a_model_is_named);
    tcase_add_test(none, a_model_without_a_tokenizer_says_what_works);
    suite_add_tcase(suite, none);
    TCase *list = tcase_create("list");
    tcase_add_test(list, models_are_listed_with_their_pairs_and_what_does_not_run);
    suite_add_tcase(suite, list);
    return suite;
}
