/* The program from outside: inspect, and bench as a user first sees it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/last_program.h"
#include "tests/support/support.h"

START_TEST(inspect_describes_a_model)
{
    last_run(NULL, ARGUMENTS("inspect", asset_path("target")));
    last_expect_ok();
    static const char *const parts[] = {"LlamaForCausalLM", "10993600", "BPE",  "chatml", "4096",
                                        "model.layers.*",   "BF16",     "1024", "memory"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) last_expect_out(parts[i]);
    last_run(NULL, ARGUMENTS("inspect", asset_path("draft"), "--tensors"));
    last_expect_ok();
    last_expect_out("model.layers.1.self_attn.q_proj.weight");
}
END_TEST

START_TEST(inspect_shows_sampling_values_that_are_not_used)
{
    char path[256];
    ck_assert_int_eq(mkdir(temp_path("gen"), 0755), 0);
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    char source[4096], folder[4096];
    ck_assert_ptr_nonnull(realpath(asset_path("draft"), folder));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "gen/%s", files[i]);
        ck_assert_int_lt(snprintf(source, sizeof source, "%.3000s/%s", folder, files[i]), (int)sizeof source);
        ck_assert_int_eq(symlink(source, temp_path(path)), 0);
    }
    text_to_file(temp_path("gen/generation_config.json"),
                 "{\"eos_token_id\": [2, 5], \"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 20}");
    last_run(NULL, ARGUMENTS("inspect", temp_path("gen")));
    last_expect_ok();
    last_expect_out("temperature 0.6, top_p 0.9, top_k 20 (generation_config.json; not");
    last_expect_out("completion mode");
}
END_TEST

START_TEST(inspect_memory_plans_the_pair_without_loading_it)
{
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--batch", "2", "--ctx", "512"));
    last_expect_ok();
    last_expect_out("slice");
    last_expect_out("context 512 tokens");
}
END_TEST

START_TEST(a_draft_vocabulary_is_planned_reported_and_refused_in_a_sentence)
{
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--draft-vocab", "300"));
    last_expect_ok();
    last_expect_out("draft cut head");
    last_expect_out("draft vocabulary by id");
    last_run(NULL, ARGUMENTS("chat", "-p", "Hello", "--k", "2", "-n", "8", "--seed", "1", "--draft-vocab", "300",
                             "--alpha-report"));
    ck_assert_int_eq(last.status, 0);
    ck_assert(strstr(buf_text(&last.err), "rule token, draft cut to 300 ids"));
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--draft-vocab", "0"));
    last_expect_error(2, "draft vocabulary '0': expected 1 to 4096 ids");
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--draft-vocab", "/nowhere/ids.txt"));
    last_expect_error(1, "/nowhere/ids.txt");
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--draft", "ngram", "--draft-vocab", "300"));
    last_expect_error(2, "--draft-vocab: there is no draft model");
}
END_TEST

START_TEST(inspect_shows_what_auto_plans_and_captures)
{
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--k", "auto", "--gpu-memory", "24GiB"));
    last_expect_ok();
    struct buf planned = {0};
    buf_puts(&planned, buf_text(&last.out));
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--k", "8", "--gpu-memory", "24GiB"));
    last_expect_ok();
    ck_assert_str_eq(buf_text(&planned), buf_text(&last.out));
    buf_free(&planned);
    last_run(NULL, ARGUMENTS("inspect", "--graphs", "--k", "auto", "--k-max", "2", "--batch", "1", "--ctx", "64"));
    last_expect_ok();
    last_expect_out("target: 3 graphs");
}
END_TEST

START_TEST(inspect_graphs_lists_both_sets)
{
    last_run(NULL, ARGUMENTS("inspect", "--graphs", "--batch", "2", "--k", "2", "--ctx", "256"));
    last_expect_ok();
    static const char *const parts[] = {"draft_first", "draft_step", "verify",  "decode",
                                        "capture ms",  "draft: ",    "target: "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) last_expect_out(parts[i]);
    last_run(NULL,
             ARGUMENTS("inspect", "--graphs", "--shape", "smollm2-135m", "--k", "0", "--batch", "1", "--ctx", "64"));
    last_expect_ok();
    last_expect_out("target: 1 graphs");
}
END_TEST

START_TEST(cuda_is_refused_where_the_build_has_none)
{
    last_run(NULL, ARGUMENTS("inspect", "--graphs", "--device", "cuda"));
    if (last.status == 0) return; /* there is a GPU */
    last_expect_error(1, "CUDA");
}
END_TEST

START_TEST(bench_prints_every_step_and_the_speed_up)
{
    char path[256];
    snprintf(path, sizeof path, "%s", temp_path("prompts"));
    text_to_file(path, "{\"prompt\": \"Once\"}\n{\"prompt\": \"The dog\"}\n");
    last_run(NULL, ARGUMENTS("bench", "--csv", "-i", path, "--max-tokens", "8", "--k", "2"));
    last_expect_ok();
    static const char *const parts[] = {"measure,value,unit",
                                        "read bandwidth",
                                        "\"decode (verify, M = 1)\"",
                                        "\"verify, M = 3\"",
                                        "\"verify, M = 17\"",
                                        "draft, later step",
                                        "\"sampler, one draw\"",
                                        "\"sampler, accept at K = 2\"",
                                        "\"prefill of 512 tokens, target\"",
                                        "\"prefill of 512 tokens, both models\"",
                                        "\"round, K = 0\"",
                                        "\"round, K = 2\"",
                                        "\"host to enqueue a round, K = 2\"",
                                        "\"round with events, K = 2\"",
                                        "draft in a round",
                                        "verify in a round",
                                        "sampling in a round",
                                        "\"plain decoding, K = 0\"",
                                        "\"speculative, K = 2\"",
                                        "speed-up against K = 0"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) last_expect_out(parts[i]);
    ck_assert_ptr_null(strstr(buf_text(&last.out), "M = 18"));
    ck_assert_ptr_null(strstr(buf_text(&last.out), "prefill of 2048")); /* the pair's context is 1024 */
    ck_assert_ptr_null(strstr(buf_text(&last.out), "simulated"));
}
END_TEST

static const char small_shape[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64, "
    "\"intermediate_size\": 128, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 512, "
    "\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, \"tie_word_embeddings\": true, "
    "\"torch_dtype\": \"bfloat16\"}";

/* Loop index: as text, as CSV. */
START_TEST(bench_takes_a_shape_file_and_labels_simulated_acceptance)
{
    char shape[512];
    snprintf(shape, sizeof shape, "%s", temp_path("small.json"));
    text_to_file(shape, small_shape);
    snprintf(shape, sizeof shape, "--shape=%s,%s", temp_path("small.json"), temp_path("small.json"));
    last_run(NULL, ARGUMENTS("bench", shape, "--simulate-alpha", "0.8", "--k-max", "3", "--k", "3", "-n", "8",
                             "--quiet", _i ? "--csv" : "--threads=1"));
    last_expect_ok();
    if (_i)
        ck_assert_int_eq(strncmp(buf_text(&last.out), "measure,", 8), 0); /* a CSV is rows alone, and they say it */
    else
        last_expect_out("acceptance is simulated: alpha 0.8");
    last_expect_out("speculative, K = 3 (simulated)");
    last_expect_out("mean_acceptance_length (simulated)");
    last_expect_out("M = 4");
    ck_assert_ptr_null(strstr(buf_text(&last.out), "M = 5")); /* --k-max was given */
    ck_assert_ptr_null(strstr(buf_text(&last.out), "prefill of 512"));
}
END_TEST

START_TEST(a_shape_is_planned_without_its_memory)
{
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--shape", "llama-3.1-70b,llama-3.2-1b", "--ctx", "2048", "--batch",
                             "1"));
    if (last.status != 0) program_expect_error(&last, 1, "target weights 131.4"); /* it is shown, and does not fit */
    last_expect_out("131.42 GiB");
    last_expect_out("draft weights");
    last_expect_out("context 2048 tokens");
    last_run(NULL, ARGUMENTS("inspect", "--shape", "llama-3.1-8b"));
    last_expect_error(2, "--shape: there is no file to show");
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--shape", "llama-9"));
    last_expect_error(2, "shape 'llama-9' is unknown: expected FILE.json or one of llama-3.1-8b");
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--shape", "/nowhere/config.json"));
    last_expect_error(1, "/nowhere/config.json");
}
END_TEST

Suite *check_inspect(void);
Suite *check_inspect(void) {
    Suite *suite = suite_create("inspect");
    TCase *inspect = tcase_create("inspect and bench");
    tcase_add_test(inspect, inspect_describes_a_model);
    tcase_add_test(inspect, inspect_shows_sampling_values_that_are_not_used);
    tcase_add_test(inspect, inspect_memory_plans_the_pair_without_loading_it);
    tcase_add_test(inspect, a_draft_vocabulary_is_planned_reported_and_refused_in_a_sentence);
    tcase_add_test(inspect, inspect_graphs_lists_both_sets);
    tcase_add_test(inspect, inspect_shows_what_auto_plans_and_captures);
    tcase_add_test(inspect, cuda_is_refused_where_the_build_has_none);
    tcase_add_test(inspect, bench_prints_every_step_and_the_speed_up);
    tcase_add_loop_test(inspect, bench_takes_a_shape_file_and_labels_simulated_acceptance, 0, 2);
    tcase_add_test(inspect, a_shape_is_planned_without_its_memory);
    suite_add_tcase(suite, inspect);
    return suite;
}
