#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/config.h"
#include "tests/support/config_support.h"
#include "tests/support/damage.h"
#include "tests/support/support.h"

static void check_end_ids(const struct model_config *c, int count, const int32_t *ids) {
    ck_assert_int_eq(c->end_count, count);
    for (int i = 0; i < count; i++) ck_assert_int_eq(c->end_ids[i], ids[i]);
}

START_TEST(every_member_is_read)
{
    struct model_config c;
    ck_ok(load_config(&c, "{\"head_dim\": 32, \"tie_word_embeddings\": true, \"rope_theta\": 500000}", NULL));
    ck_assert_str_eq(c.architecture, "LlamaForCausalLM");
    ck_assert(c.vocab == 512 && c.width == 64 && c.hidden == 160 && c.layers == 3 && c.heads == 4 && c.kv_heads == 2);
    ck_assert(c.head_dim == 32 && c.positions == 512 && c.layer[0].window == 0);
    ck_assert(c.norm_eps == 1e-5f && c.tied && !c.qkv_bias && !c.qk_norm);
    ck_assert(c.rope[0].type == ROPE_DEFAULT && c.rope[0].theta == 500000);
    ck_assert(isnan(c.gen_temperature) && isnan(c.gen_top_p) && c.gen_top_k == -1);
    check_end_ids(&c, 1, (int32_t[]){2});
}
END_TEST

START_TEST(absent_members_take_their_defaults)
{
    struct model_config c;
    ck_ok(load_config(
        &c,
        "{\"num_key_value_heads\": null, \"rms_norm_eps\": \"absent\", \"hidden_act\": \"absent\", \"bos_token_id\": "
        "null, \"eos_token_id\": null, \"max_position_embeddings\": \"absent\", \"quantization_config\": null}",
        NULL));
    ck_assert(c.kv_heads == 4 && c.head_dim == 16 && c.norm_eps == 1e-6f && c.end_count == 0);
    ck_assert(!c.tied && c.rope[0].theta == 10000 && c.positions == 2048);
}
END_TEST

START_TEST(qwen2_has_biases_and_qwen3_norms_of_heads)
{
    struct model_config c;
    ck_ok(load_config(&c, "{\"architectures\": null, \"model_type\": \"llama\"}", NULL));
    ck_assert(!c.qkv_bias && !c.qk_norm);
    ck_ok(load_config(&c, "{\"architectures\": null, \"model_type\": \"qwen2\"}", NULL));
    ck_assert(c.qkv_bias && !c.qk_norm);
    ck_ok(load_config(&c, "{\"architectures\": null, \"model_type\": \"qwen3\"}", NULL));
    ck_assert(!c.qkv_bias && c.qk_norm);
}
END_TEST

START_TEST(unknown_families_are_refused_by_their_name)
{
    refuse_config("{\"architectures\": [\"LlamaSubnormForCausalLM\"]}", ERR_UNSUPPORTED, "'LlamaSubnormForCausalLM'");
    refuse_config("{\"model_type\": \"llama_subnorm\"}", ERR_UNSUPPORTED, "'llama_subnorm'");
    refuse_config("{\"model_type\": \"mistral\"}", ERR_UNSUPPORTED,
                  "'mistral' is not supported with architecture LlamaForCausalLM");
    refuse_config("{\"architectures\": null, \"model_type\": \"gpt\\u0000\\n2\"}", ERR_UNSUPPORTED,
                  "'gpt\\xc0\\x80\\x0a2'");
    refuse_config("{\"architectures\": [], \"model_type\": null}", ERR_FORMAT, "neither");
    refuse_config("{\"architectures\": [7]}", ERR_FORMAT, "architectures");
    refuse_config("{\"architectures\": \"LlamaForCausalLM\"}", ERR_FORMAT, "architectures");
    refuse_config("{\"model_type\": 7}", ERR_FORMAT, "model_type");
}
END_TEST

START_TEST(options_that_change_shapes_are_refused_by_name)
{
    refuse_config("{\"hidden_act\": \"gelu_new\"}", ERR_UNSUPPORTED, "'gelu_new'");
    refuse_config("{\"attention_bias\": true}", ERR_UNSUPPORTED, "attention_bias");
    refuse_config("{\"mlp_bias\": true}", ERR_UNSUPPORTED, "mlp_bias");
    refuse_config("{\"partial_rotary_factor\": 1.5}", ERR_FORMAT, "partial_rotary_factor 1.5");
    refuse_config("{\"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.1}}",
                  ERR_UNSUPPORTED, "partial_rotary_factor 0.1 leaves nothing");
    refuse_config("{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"attention_bias\": true}",
                  ERR_UNSUPPORTED, "attention_bias");
}
END_TEST

START_TEST(qwen2_has_its_bias_whatever_attention_bias_says)
{
    struct model_config c;
    ck_ok(load_config(
        &c, "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"attention_bias\": true}", NULL));
    ck_assert(c.qkv_bias);
}
END_TEST

START_TEST(dimensions_out_of_bounds_are_refused_by_name)
{
    static const char *const names[] = {
        "vocab_size",          "hidden_size",         "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim",          "max_position_embeddings"};
    static const char *const values[] = {"0",        "-1",     "1.5",  "1e300", "9007199254740993",
                                         "16777217", "\"64\"", "[64]", "true"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t j = 0; j < sizeof values / sizeof *values; j++) {
            struct buf changes = {0};
            buf_printf(&changes, "{\"%s\": %s}", names[i], values[j]);
            refuse_config(buf_text(&changes), ERR_FORMAT, names[i]);
            buf_free(&changes);
        }
    }
    for (int i = 0; i < 5; i++) {
        struct buf changes = {0};
        buf_printf(&changes, "{\"%s\": null}", names[i]);
        refuse_config(buf_text(&changes), ERR_FORMAT, names[i]);
        buf_free(&changes);
    }
}
END_TEST

START_TEST(dimensions_must_fit_together)
{
    refuse_config("{\"num_key_value_heads\": 3}", ERR_FORMAT,
                  "num_attention_heads 4 is no multiple of num_key_value_heads 3");
    refuse_config("{\"num_key_value_heads\": 8}", ERR_FORMAT, "num_key_value_heads 8");
    refuse_config("{\"hidden_size\": 66}", ERR_FORMAT, "hidden_size 66");
    refuse_config("{\"head_dim\": 6}", ERR_UNSUPPORTED, "head size 6");
    refuse_config("{\"head_dim\": 17}", ERR_UNSUPPORTED, "head size 17");
    refuse_config("{\"head_dim\": 514}", ERR_UNSUPPORTED, "head size 514");
    refuse_config("{\"rms_norm_eps\": 0}", ERR_FORMAT, "rms_norm_eps");
    refuse_config("{\"rope_theta\": 0}", ERR_FORMAT, "rope_theta");
    refuse_config("{\"tie_word_embeddings\": 1}", ERR_FORMAT, "tie_word_embeddings");
    struct model_config c;
    ck_ok(load_config(&c, "{\"head_dim\": 8, \"hidden_size\": 66}", NULL));
    ck_ok(load_config(&c, "{\"head_dim\": 512}", NULL));
}
END_TEST

/* Of all layers, or -1 where they differ. */
static int32_t window_of(const char *changes) {
    struct model_config c;
    ck_ok(load_config(&c, changes, NULL));
    for (int l = 1; l < c.layers; l++)
        if (c.layer[l].window != c.layer[0].window) return -1;
    return c.layer[0].window;
}
#define MISTRAL "\"architectures\": [\"MistralForCausalLM\"], \"model_type\": \"mistral\""
#define QWEN2   "\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\""
#define QWEN3   "\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\""
#define FULL    "\"full_attention\""
#define SLIDING "\"sliding_attention\""

START_TEST(the_window_is_that_of_all_layers)
{
    ck_assert_int_eq(window_of("{" MISTRAL ", \"sliding_window\": 16}"), 16);
    ck_assert_int_eq(window_of("{" MISTRAL ", \"sliding_window\": null}"), 0);
    ck_assert_int_eq(window_of("{" MISTRAL ", \"sliding_window\": 0}"), 0);
    ck_assert_int_eq(window_of("{" MISTRAL "}"), 4096);
    ck_assert_int_eq(window_of("{\"sliding_window\": 16}"), 0);
    ck_assert_int_eq(window_of("{" QWEN2 ", \"sliding_window\": 16, \"use_sliding_window\": false}"), 0);
    ck_assert_int_eq(window_of("{" QWEN2 ", \"sliding_window\": 16}"), 0);
    ck_assert_int_eq(window_of("{" QWEN2 ", \"sliding_window\": 16, \"use_sliding_window\": true}"), 0);
    ck_assert_int_eq(
        window_of("{" QWEN3 ", \"sliding_window\": 16, \"use_sliding_window\": true, \"max_window_layers\": 0}"), 16);
    ck_assert_int_eq(window_of("{" QWEN2
                               ", \"sliding_window\": 9, \"use_sliding_window\": true, \"layer_types\": [" SLIDING
                               ", " SLIDING ", " SLIDING "]}"),
                     9);
    ck_assert_int_eq(
        window_of("{" QWEN3 ", \"sliding_window\": null, \"layer_types\": [" FULL ", " FULL ", " FULL "]}"), 0);
}
END_TEST

/* What transformers makes of null, as those of its classes do that take it: there are as many as other dimensions give. What is absent
 * is the class's. */
START_TEST(null_is_another_word_than_absent)
{
    static const struct {
        const char *architecture, *type;
        int kv_heads, head_dim; /* absent */
    } cases[] = {{"LlamaForCausalLM", "llama", 16, 16},        {"MistralForCausalLM", "mistral", 8, 16},
                 {"MixtralForCausalLM", "mixtral", 8, 16},     {"Glm4ForCausalLM", "glm4", 2, 16},
                 {"GptOssForCausalLM", "gpt_oss", 8, 64},      {"Gemma2ForCausalLM", "gemma2", 4, 256},
                 {"Gemma3ForCausalLM", "gemma3_text", 4, 256}, {"Gemma4ForCausalLM", "gemma4_text", 4, 256}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int is_null = 0; is_null < 2; is_null++) {
            const char *value = is_null ? "null" : "\"absent\"";
            struct buf changes = {0};
            struct model_config c;
            buf_printf(&changes,
                       "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"hidden_size\": 256, "
                       "\"num_attention_heads\": 16, \"num_key_value_heads\": %s, \"head_dim\": %s%s}",
                       cases[i].architecture, cases[i].type, value, value, family_members(cases[i].architecture));
            ck_ok(load_config(&c, buf_text(&changes), NULL));
            ck_assert_msg(c.kv_heads == (is_null ? 16 : cases[i].kv_heads) &&
                              c.head_dim == (is_null ? 16 : cases[i].head_dim),
                          "%s, %s: %d of %d", cases[i].type, value, c.kv_heads, c.head_dim);
            buf_free(&changes);
        }
    }
}
END_TEST

/* Of transformers' classes. */
START_TEST(what_is_absent_is_what_the_class_has)
{
    static const struct {
        const char *architecture, *type;
        double theta;
        float eps;
        int dims; /* of 16 that turn */
    } cases[] = {{"LlamaForCausalLM", "llama", 1e4, 1e-6f, 16},      {"MixtralForCausalLM", "mixtral", 1e6, 1e-5f, 16},
                 {"Glm4ForCausalLM", "glm4", 1e4, 1.5625e-7f, 8},    {"Phi3ForCausalLM", "phi3", 1e4, 1e-5f, 16},
                 {"GptOssForCausalLM", "gpt_oss", 1.5e5, 1e-5f, 16}, {"Olmo2ForCausalLM", "olmo2", 1e4, 1e-5f, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf changes = {0};
        struct model_config c;
        buf_printf(
            &changes,
            "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"head_dim\": 16, \"rms_norm_eps\": \"absent\"%s}",
            cases[i].architecture, cases[i].type, family_members(cases[i].architecture));
        ck_ok(load_config(&c, buf_text(&changes), NULL));
        ck_assert_msg(c.rope[0].theta == cases[i].theta && c.norm_eps == cases[i].eps &&
                          c.rope[0].dims == cases[i].dims,
                      "%s: %g, %g, %d", cases[i].type, c.rope[0].theta, (double)c.norm_eps, c.rope[0].dims);
        buf_free(&changes);
    }
}
END_TEST

#define GPT_OSS                                                                                           \
    "\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": \"gpt_oss\", \"num_local_experts\": 4, " \
    "\"num_experts_per_tok\": 2"
#define GEMMA2 "\"architectures\": [\"Gemma2ForCausalLM\"], \"model_type\": \"gemma2\", \"hidden_act\": \"absent\""
#define GEMMA4 "\"architectures\": [\"Gemma4ForCausalLM\"], \"model_type\": \"gemma4_text\", \"hidden_act\": \"absent\""

START_TEST(without_a_rope_gpt_oss_has_the_yarn_of_its_class)
{
    static const char said[] =
        ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32, \"beta_fast\": 32, \"beta_slow\": 1, "
        "\"truncate\": false, \"original_max_position_embeddings\": 4096}";
    struct model_config absent, given;
    char changes[512];
    ck_ok(load_config(&absent, "{" GPT_OSS ", \"max_position_embeddings\": 131072}", NULL));
    snprintf(changes, sizeof changes, "{%s%s, \"max_position_embeddings\": 131072}", GPT_OSS, said);
    ck_ok(load_config(&given, changes, NULL));
    float tables[2][8 * 64];
    model_config_rope(&absent.rope[0], 8, 0, tables[0]);
    model_config_rope(&given.rope[0], 8, 0, tables[1]);
    ck_assert_mem_eq(tables[0], tables[1], sizeof tables[0]);
    ck_assert_int_eq(absent.rope[0].head_dim, 64);
    ck_assert_int_eq(absent.rope[0].type, ROPE_YARN);
}
END_TEST

START_TEST(what_would_be_computed_otherwise_is_refused)
{
    struct model_config c;
    refuse_config("{" GPT_OSS ", \"rope_scaling\": {\"rope_type\": \"default\"}, \"swiglu_alpha\": 1.5}",
                  ERR_UNSUPPORTED, "swiglu_alpha 1.5 is not supported, only 1.702");
    refuse_config("{" GEMMA2 ", \"use_bidirectional_attention\": true}", ERR_UNSUPPORTED,
                  "use_bidirectional_attention");
    refuse_config("{" GEMMA4 ", \"use_bidirectional_attention\": \"all\"}", ERR_UNSUPPORTED,
                  "use_bidirectional_attention 'all'");
    ck_ok(load_config(&c, "{" GPT_OSS ", \"rope_scaling\": {\"rope_type\": \"default\"}, \"swiglu_alpha\": 1.702}",
                      NULL));
    ck_ok(load_config(&c, "{" GEMMA2 ", \"use_bidirectional_attention\": null}", NULL));
    ck_ok(load_config(&c, "{" GEMMA4 ", \"use_bidirectional_attention\": \"vision\"}", NULL));
}
END_TEST

START_TEST(layers_that_slide_need_a_window_that_is_not_null)
{
    static const struct {
        const char *architecture, *type;
        int window; /* absent */
    } cases[] = {{"GptOssForCausalLM", "gpt_oss", 128},
                 {"Gemma2ForCausalLM", "gemma2", 4096},
                 {"Gemma3ForCausalLM", "gemma3_text", 4096},
                 {"Gemma4ForCausalLM", "gemma4_text", 512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int variant = 0; variant < 3; variant++) {
            static const char *const members[] = {
                "", ", \"sliding_window\": null, \"layer_types\": [" FULL ", " FULL ", " FULL "]",
                ", \"sliding_window\": null"};
            struct buf changes = {0};
            struct model_config c;
            buf_printf(&changes, "{\"architectures\": [\"%s\"], \"model_type\": \"%s\"%s%s}", cases[i].architecture,
                       cases[i].type, members[variant], family_members(cases[i].architecture));
            if (variant < 2) {
                ck_ok(load_config(&c, buf_text(&changes), NULL));
                ck_assert_int_eq(c.layer[0].window, variant == 0 ? cases[i].window : 0);
            } else {
                refuse_config(buf_text(&changes), ERR_FORMAT, "sliding_window is null, and layer 0 has one");
            }
            buf_free(&changes);
        }
    }
}
END_TEST

START_TEST(some_layers_have_a_window)
{
    struct model_config c;
    ck_ok(load_config(&c, "{" QWEN2 ", \"sliding_window\": 16, \"use_sliding_window\": true, \"max_window_layers\": 1}",
                      NULL));
    ck_assert(c.layer[0].window == 0 && c.layer[1].window == 16 && c.layer[2].window == 16);
    ck_ok(load_config(&c,
                      "{" QWEN3 ", \"sliding_window\": 16, \"use_sliding_window\": true, \"layer_types\": [" FULL
                      ", " SLIDING ", " FULL "]}",
                      NULL));
    ck_assert(c.layer[0].window == 0 && c.layer[1].window == 16 && c.layer[2].window == 0);
}
END_TEST

START_TEST(layer_types_that_contradict_or_are_unknown_are_refused)
{
    refuse_config("{" QWEN3 ", \"layer_types\": [" FULL ", \"linear_attention\", " FULL "]}", ERR_UNSUPPORTED,
                  "'linear_attention'");
    refuse_config("{" QWEN3 ", \"layer_types\": [" FULL "]}", ERR_FORMAT, "layer_types has 1 entries, expected 3");
    refuse_config("{" QWEN3 ", \"layer_types\": [" SLIDING ", " SLIDING ", " SLIDING "]}", ERR_UNSUPPORTED,
                  "sliding_window");
    refuse_config("{" MISTRAL ", \"sliding_window\": 8, \"layer_types\": [" FULL ", " FULL ", " FULL "]}",
                  ERR_UNSUPPORTED, "layer_types");
    refuse_config("{" MISTRAL ", \"sliding_window\": -1}", ERR_FORMAT, "sliding_window");
    refuse_config("{" QWEN3 ", \"layer_types\": 3}", ERR_FORMAT, "layer_types");
    refuse_config("{" QWEN3 ", \"layer_types\": [1, 2, 3]}", ERR_FORMAT, "layer_types");
}
END_TEST

START_TEST(end_ids_are_the_ascending_union_of_both_files)
{
    struct model_config c;
    ck_ok(load_config(&c, "{\"eos_token_id\": 300}",
                      "{\"eos_token_id\": [301, 2, 300, 7], \"temperature\": 0.6, \"top_p\": 0.9, "
                      "\"top_k\": 20, \"do_sample\": true}"));
    check_end_ids(&c, 4, (int32_t[]){2, 7, 300, 301});
    ck_assert(c.gen_temperature == 0.6 && c.gen_top_p == 0.9 && c.gen_top_k == 20);
    ck_ok(load_config(&c, "{\"eos_token_id\": null}", "{\"eos_token_id\": null, \"temperature\": null}"));
    check_end_ids(&c, 0, NULL);
    ck_assert(isnan(c.gen_temperature));
    ck_ok(load_config(&c, "{\"eos_token_id\": []}", "{\"eos_token_id\": 511}"));
    check_end_ids(&c, 1, (int32_t[]){511});
}
END_TEST

START_TEST(end_ids_that_can_never_be_drawn_are_left_out)
{
    struct model_config c;
    ck_ok(load_config(&c, "{\"eos_token_id\": [512, -1, 511, 2147483647]}", NULL));
    check_end_ids(&c, 1, (int32_t[]){511});
}
END_TEST

/* A text's first token is the tokenizer's to say. */
START_TEST(a_bos_id_is_not_looked_at)
{
    static const char *const ids[] = {"512", "[1, 2]", "\"<s>\"", "null", "-5"};
    for (int i = 0; i < 5; i++) {
        struct model_config c;
        char changes[64];
        snprintf(changes, sizeof changes, "{\"bos_token_id\": %s}", ids[i]);
        ck_ok(load_config(&c, changes, NULL));
    }
}
END_TEST

START_TEST(end_ids_of_another_type_are_refused)
{
    refuse_config("{\"eos_token_id\": \"</s>\"}", ERR_FORMAT, "eos_token_id");
    refuse_config("{\"eos_token_id\": [1, [2]]}", ERR_FORMAT, "eos_token_id");
    refuse_config("{\"eos_token_id\": 1.5}", ERR_FORMAT, "eos_token_id");
    refuse_config("{\"eos_token_id\": -2}", ERR_FORMAT, "eos_token_id");
    refuse_config("{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}", ERR_LIMIT, "16 end ids");
}
END_TEST

START_TEST(errors_name_the_file)
{
    struct model_config c;
    ck_assert_int_eq(checkpoint_config(test_checkpoint("/nonexistent"), &c), ERR_IO);
    ck_assert_ptr_eq(strstr(err_message(), "/nonexistent/config.json: "), err_message());
    ck_assert_int_eq(load_config(&c, "{}", "[]"), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err_message(), "/generation_config.json: is no JSON object"));
    ck_assert_int_eq(load_config(&c, "{}", "{\"top_p\": \"x\"}"), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err_message(), "/generation_config.json: member 'top_p'"));
    ck_assert_int_eq(load_config(&c, "{}", "{"), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err_message(), "/generation_config.json: malformed JSON"));
}
END_TEST

/* ---- real and damaged files ---- */

START_TEST(real_configurations_are_read)
{
    static const char *const names[] = {"llama-gqa-tied", "llama-mha-untied",   "llama-mqa-headdim32", "mistral-swa",
                                        "qwen2-bias",     "llama3-rope-scaled", "qwen3-qknorm"};
    struct model_config c;
    ck_ok(checkpoint_config(test_checkpoint(asset_path("target")), &c));
    ck_assert(c.vocab == 4096 && c.width == 320 && c.layers == 9 && c.tied);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char relative[128];
        snprintf(relative, sizeof relative, "fixtures/checkpoints/%s", names[i]);
        const char *dir = shared_path(relative);
        if (!dir) {
            skip("no shared checkpoints");
            return;
        }
        ck_ok(checkpoint_config(test_checkpoint(dir), &c));
        ck_assert(c.width == 64 && c.vocab == 512 && c.end_count == 1 && c.end_ids[0] == 2);
        ck_assert_int_eq(c.layer[0].window, strcmp(names[i], "mistral-swa") == 0 ? 16 : 0);
        ck_assert_int_eq(c.rope[0].type, strcmp(names[i], "llama3-rope-scaled") == 0 ? ROPE_LLAMA3 : ROPE_DEFAULT);
        ck_assert_int_eq(c.head_dim, strstr(names[i], "headdim32") || strstr(names[i], "qwen3") ? 32 : 16);
    }
}
END_TEST

static void check_accepted(const struct model_config *c) {
    float rope[3 * HEAD_DIM_MAX];
    ck_assert(c->vocab >= 1 && c->width >= 1 && c->hidden >= 1 && c->layers >= 1 && c->layers <= LAYERS_MAX);
    ck_assert(c->kv_heads >= 1 && c->heads % c->kv_heads == 0 && c->positions >= 1 && c->layer[0].window >= 0);
    ck_assert(c->head_dim >= HEAD_DIM_MIN && c->head_dim <= HEAD_DIM_MAX && c->head_dim % 2 == 0);
    ck_assert(c->norm_eps > 0 && c->norm_eps <= 1);
    for (int i = 0; i < c->end_count; i++)
        ck_assert(c->end_ids[i] < c->vocab && c->end_ids[i] > (i ? c->end_ids[i - 1] : -1));
    model_config_rope(&c->rope[0], 3, c->positions, rope);
    for (int i = 0; i < 3 * c->head_dim; i++)
        if (!(fabsf(rope[i]) <= 1)) ck_abort_msg("rope %g", rope[i]);
}

START_TEST(damaged_configurations_load_sound_or_fail_with_a_sentence)
{
    static const char *const configs[] = {
        "{\"rope_parameters\": {\"rope_theta\": 500000, \"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": "
        "1, "
        "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}}",
        "{" QWEN3
        ", \"sliding_window\": 16, \"use_sliding_window\": true, \"max_window_layers\": 0, \"layer_types\": [" SLIDING
        ", " SLIDING ", " SLIDING "], \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}"};
    static const char generation[] =
        "{\"eos_token_id\": [2, 5, 7], \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95}";
    struct damage damage = {2};
    int accepted = 0, refused = 0;
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++) {
        struct model_config c;
        struct buf whole = {0}, text = {0};
        cJSON *root;
        char path[256], generation_path[256];
        snprintf(path, sizeof path, "%s/config.json", temp_dir());
        snprintf(generation_path, sizeof generation_path, "%s/generation_config.json", temp_dir());
        ck_ok(load_config(&c, configs[k], NULL));
        ck_ok(json_parse_file(&root, path));
        json_print(root, &whole);
        cJSON_Delete(root);
        for (int i = 0; i < 3000; i++) {
            bool of_generation = i % 4 == 0;
            buf_clear(&text);
            buf_puts(&text, of_generation ? generation : whole.data);
            damage_text(&damage, &text);
            damage_write_file(of_generation ? generation_path : path, text.data, text.len);
            err_set(ERR_INTERNAL, "%s", "");
            if (checkpoint_config(test_checkpoint(temp_dir()), &c) == 0) {
                check_accepted(&c);
                accepted++;
            } else {
                check_sentence();
                refused++;
            }
            damage_write_text(of_generation ? generation_path : path, of_generation ? generation : whole.data);
        }
        buf_free(&whole);
        buf_free(&text);
    }
    ck_assert_int_gt(accepted, 100);
    ck_assert_int_gt(refused, 1000);
}
END_TEST

Suite *check_config(void) {
    Suite *suite = suite_create("config");
    TCase *files = tcase_create("files"), *damaged = tcase_create("damaged");
    tcase_add_test(files, every_member_is_read);
    tcase_add_test(files, absent_members_take_their_defaults);
    tcase_add_test(files, qwen2_has_biases_and_qwen3_norms_of_heads);
    tcase_add_test(files, unknown_families_are_refused_by_their_name);
    tcase_add_test(files, options_that_change_shapes_are_refused_by_name);
    tcase_add_test(files, qwen2_has_its_bias_whatever_attention_bias_says);
    tcase_add_test(files, dimensions_out_of_bounds_are_refused_by_name);
    tcase_add_test(files, dimensions_must_fit_together);
    tcase_add_test(files, the_window_is_that_of_all_layers);
    tcase_add_test(files, some_layers_have_a_window);
    tcase_add_test(files, null_is_another_word_than_absent);
    tcase_add_test(files, what_is_absent_is_what_the_class_has);
    tcase_add_test(files, what_would_be_computed_otherwise_is_refused);
    tcase_add_test(files, without_a_rope_gpt_oss_has_the_yarn_of_its_class);
    tcase_add_test(files, layers_that_slide_need_a_window_that_is_not_null);
    tcase_add_test(files, layer_types_that_contradict_or_are_unknown_are_refused);
    tcase_add_test(files, end_ids_are_the_ascending_union_of_both_files);
    tcase_add_test(files, end_ids_that_can_never_be_drawn_are_left_out);
    tcase_add_test(files, a_bos_id_is_not_looked_at);
    tcase_add_test(files, end_ids_of_another_type_are_refused);
    tcase_add_test(files, errors_name_the_file);
    tcase_add_test(files, real_configurations_are_read);
    tcase_add_test(damaged, damaged_configurations_load_sound_or_fail_with_a_sentence);
    suite_add_tcase(suite, files);
    suite_add_tcase(suite, damaged);
    return suite;
}
