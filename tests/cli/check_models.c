/* Which models: the local Hugging Face cache, and what is said of directories and files that are none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

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

/* models--ORG--NAME in the cache temp_dir()/hub, with a snapshot that is an asset. */
static void add_to_cache(const char *folder, const char *commit, const char *asset) {
    char path[300], target[4096];
    ck_assert_ptr_nonnull(realpath(asset_path(asset), target));
    snprintf(path, sizeof path, "hub/%s/snapshots", folder);
    make_dirs(path);
    snprintf(path, sizeof path, "hub/%s/snapshots/%s", folder, commit);
    ck_assert_int_eq(symlink(target, temp_path(path)), 0);
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
    expect_error(temp_path("torch"), "it holds PyTorch's .bin files, and only safetensors is read");
    text_to_file(temp_path("gguf/model-q4.gguf"), "GGUF");
    expect_error(temp_path("gguf"), "it holds GGUF, which is not read yet");
    expect_error(temp_path("gguf/model-q4.gguf"),
                 "GGUF is not read yet; hint: take the model's Hugging Face directory");
    expect_error("some/model.gguf", "GGUF is not read yet");
    text_to_file(temp_path("lora/adapter_config.json"), "{}");
    expect_error(temp_path("lora"), "has no config.json; it holds a LoRA adapter: merge it into its base model");
    expect_error(temp_path("empty"), "empty/config.json: cannot open");
    expect_error(temp_path("lora/adapter_config.json"), "is a file, expected the directory of a model");
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

Suite *check_models(void);
Suite *check_models(void) {
    Suite *suite = suite_create("models");
    TCase *cache = tcase_create("cache");
    tcase_add_test(cache, hf_hub_cache_comes_before_hf_home_and_a_miss_says_what_would_fetch_it);
    tcase_add_test(cache, a_folder_of_the_cache_stands_for_its_snapshot);
    suite_add_tcase(suite, cache);
    TCase *none = tcase_create("no model");
    tcase_add_test(none, what_a_directory_holds_in_place_of_a_model_is_named);
    tcase_add_test(none, a_model_without_a_tokenizer_says_what_works);
    suite_add_tcase(suite, none);
    return suite;
}
