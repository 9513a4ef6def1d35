#include "model/files/shape.h"

#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"

/* Of 40 layers every tenth has attention. */
#define TEN_LAYERS \
    "\"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"attention\", \"mamba\", \"mamba\", \"mamba\", \"mamba\""
#define GRANITE4                                                                                                     \
    "\"num_hidden_layers\": 40, \"layer_types\": [" TEN_LAYERS ", " TEN_LAYERS ", " TEN_LAYERS ", " TEN_LAYERS "], " \
    "\"mamba_d_head\": 64, \"mamba_d_state\": 128, \"position_embedding_type\": \"nope\", "                          \
    "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, \"embedding_multiplier\": 12, "                    \
    "\"attention_multiplier\": 0.0078125, \"residual_multiplier\": 0.22, \"logits_scaling\": 16, "                   \
    "\"tie_word_embeddings\": true"

/* Each in config.json's form, so that there is one way to read a configuration. llama-3.2-1b is tied in its checkpoint, as
 * llama-3.2-1b-tied is; alone its head is a matrix of its own, so that a step reads what an untied draft reads. */
static const struct shape {
    const char *name, *config;
} shapes[] = {
    {"llama-3.1-8b", "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 128256, \"hidden_size\": 4096, "
                     "\"intermediate_size\": 14336, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
                     "\"num_key_value_heads\": 8, \"head_dim\": 128, \"max_position_embeddings\": 131072, "
                     "\"rms_norm_eps\": 1e-5, \"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", "
                     "\"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192, "
                     "\"factor\": 8}}"},
    {"llama-3.2-1b", "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 128256, \"hidden_size\": 2048, "
                     "\"intermediate_size\": 8192, \"num_hidden_layers\": 16, \"num_attention_heads\": 32, "
                     "\"num_key_value_heads\": 8, \"head_dim\": 64, \"max_position_embeddings\": 131072, "
                     "\"rms_norm_eps\": 1e-5, \"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", "
                     "\"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192, "
                     "\"factor\": 32}}"},
    {"llama-3.2-1b-tied",
     "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 128256, \"hidden_size\": 2048, "
     "\"intermediate_size\": 8192, \"num_hidden_layers\": 16, \"num_attention_heads\": 32, "
     "\"num_key_value_heads\": 8, \"head_dim\": 64, \"max_position_embeddings\": 131072, "
     "\"rms_norm_eps\": 1e-5, \"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", "
     "\"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192, "
     "\"factor\": 32}, \"tie_word_embeddings\": true}"},
    {"llama-3.1-70b", "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 128256, \"hidden_size\": 8192, "
                      "\"intermediate_size\": 28672, \"num_hidden_layers\": 80, \"num_attention_heads\": 64, "
                      "\"num_key_value_heads\": 8, \"head_dim\": 128, \"max_position_embeddings\": 131072, "
                      "\"rms_norm_eps\": 1e-5, \"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", "
                      "\"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192, "
                      "\"factor\": 8}}"},
    {"qwen2.5-7b", "{\"architectures\": [\"Qwen2ForCausalLM\"], \"vocab_size\": 152064, \"hidden_size\": 3584, "
                   "\"intermediate_size\": 18944, \"num_hidden_layers\": 28, \"num_attention_heads\": 28, "
                   "\"num_key_value_heads\": 4, \"head_dim\": 128, \"max_position_embeddings\": 32768, "
                   "\"rms_norm_eps\": 1e-5, \"rope_theta\": 1000000, \"tie_word_embeddings\": false}"},
    {"qwen2.5-0.5b", "{\"architectures\": [\"Qwen2ForCausalLM\"], \"vocab_size\": 151936, \"hidden_size\": 896, "
                     "\"intermediate_size\": 4864, \"num_hidden_layers\": 24, \"num_attention_heads\": 14, "
                     "\"num_key_value_heads\": 2, \"head_dim\": 64, \"max_position_embeddings\": 32768, "
                     "\"rms_norm_eps\": 1e-5, \"rope_theta\": 1000000, \"tie_word_embeddings\": true}"},
    {"qwen3-32b", "{\"architectures\": [\"Qwen3ForCausalLM\"], \"vocab_size\": 151936, \"hidden_size\": 5120, "
                  "\"intermediate_size\": 25600, \"num_hidden_layers\": 64, \"num_attention_heads\": 64, "
                  "\"num_key_value_heads\": 8, \"head_dim\": 128, \"max_position_embeddings\": 40960, "
                  "\"rms_norm_eps\": 1e-5, \"rope_theta\": 1000000, \"tie_word_embeddings\": false}"},
    {"qwen3-0.6b", "{\"architectures\": [\"Qwen3ForCausalLM\"], \"vocab_size\": 151936, \"hidden_size\": 1024, "
                   "\"intermediate_size\": 3072, \"num_hidden_layers\": 28, \"num_attention_heads\": 16, "
                   "\"num_key_value_heads\": 8, \"head_dim\": 128, \"max_position_embeddings\": 40960, "
                   "\"rms_norm_eps\": 1e-5, \"rope_theta\": 1000000, \"tie_word_embeddings\": true}"},
    {"qwen3.5-27b", "{\"architectures\": [\"Qwen3_5ForCausalLM\"], \"vocab_size\": 248320, \"hidden_size\": 5120, "
                    "\"intermediate_size\": 17408, \"num_hidden_layers\": 64, \"num_attention_heads\": 24, "
                    "\"num_key_value_heads\": 4, \"head_dim\": 256, \"linear_num_value_heads\": 48, "
                    "\"max_position_embeddings\": 262144, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000000, "
                    "\"tie_word_embeddings\": false}"},
    {"qwen3.5-4b", "{\"architectures\": [\"Qwen3_5ForCausalLM\"], \"vocab_size\": 248320, \"hidden_size\": 2560, "
                   "\"intermediate_size\": 9216, \"num_hidden_layers\": 32, \"num_attention_heads\": 16, "
                   "\"num_key_value_heads\": 4, \"head_dim\": 256, \"linear_num_value_heads\": 32, "
                   "\"max_position_embeddings\": 262144, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000000, "
                   "\"tie_word_embeddings\": true}"},
    {"qwen3.5-0.8b", "{\"architectures\": [\"Qwen3_5ForCausalLM\"], \"vocab_size\": 248320, \"hidden_size\": 1024, "
                     "\"intermediate_size\": 3584, \"num_hidden_layers\": 24, \"num_attention_heads\": 8, "
                     "\"num_key_value_heads\": 2, \"head_dim\": 256, \"linear_num_value_heads\": 16, "
                     "\"max_position_embeddings\": 262144, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000000, "
                     "\"tie_word_embeddings\": true}"},
    {"granite-4.0-h-small",
     "{\"architectures\": [\"GraniteMoeHybridForCausalLM\"], \"vocab_size\": 100352, \"hidden_size\": 4096, "
     "\"intermediate_size\": 768, \"shared_intermediate_size\": 1536, \"num_local_experts\": 72, "
     "\"num_experts_per_tok\": 10, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
     "\"mamba_n_heads\": 128, " GRANITE4 "}"},
    {"granite-4.0-h-1b",
     "{\"architectures\": [\"GraniteMoeHybridForCausalLM\"], \"vocab_size\": 100352, \"hidden_size\": 1536, "
     "\"intermediate_size\": 4096, \"shared_intermediate_size\": 4096, \"num_local_experts\": 0, "
     "\"num_attention_heads\": 12, \"num_key_value_heads\": 4, \"mamba_n_heads\": 48, " GRANITE4 "}"},
    {"nemotron-3-nano-30b-a3b",
     "{\"architectures\": [\"NemotronHForCausalLM\"], \"hidden_size\": 2688, \"hybrid_override_pattern\": "
     "\"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME\", \"num_key_value_heads\": 2, "
     "\"mamba_num_heads\": 64, \"n_routed_experts\": 128, \"num_experts_per_tok\": 6, "
     "\"moe_intermediate_size\": 1856, \"moe_shared_expert_intermediate_size\": 3712, "
     "\"routed_scaling_factor\": 2.5, \"max_position_embeddings\": 262144}"},
    {"nemotron-nano-9b-v2",
     "{\"architectures\": [\"NemotronHForCausalLM\"], \"hidden_size\": 4480, \"hybrid_override_pattern\": "
     "\"M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-\", \"num_attention_heads\": 40, "
     "\"mamba_num_heads\": 128, \"mamba_head_dim\": 80, \"intermediate_size\": 15680, "
     "\"max_position_embeddings\": 131072}"},
    {"lfm2-8b-a1b", "{\"architectures\": [\"Lfm2MoeForCausalLM\"], \"hidden_size\": 2048, \"num_hidden_layers\": 24, "
                    "\"full_attn_idxs\": [2, 6, 10, 14, 18, 21], \"num_dense_layers\": 2, \"num_experts\": 32, "
                    "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 1792, \"intermediate_size\": 7168}"},
    {"lfm2-2.6b", "{\"architectures\": [\"Lfm2ForCausalLM\"], \"hidden_size\": 2048, \"num_hidden_layers\": 30, "
                  "\"full_attn_idxs\": [2, 5, 9, 13, 17, 21, 24, 27], \"intermediate_size\": 10752, "
                  "\"block_auto_adjust_ff_dim\": false}"},
    {"lfm2-350m", "{\"architectures\": [\"Lfm2ForCausalLM\"], \"hidden_size\": 1024, \"num_hidden_layers\": 16, "
                  "\"full_attn_idxs\": [2, 5, 8, 10, 12, 14], \"num_attention_heads\": 16, \"block_ff_dim\": 6656}"},
    {"smollm2-135m", "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 49152, \"hidden_size\": 576, "
                     "\"intermediate_size\": 1536, \"num_hidden_layers\": 30, \"num_attention_heads\": 9, "
                     "\"num_key_value_heads\": 3, \"head_dim\": 64, \"max_position_embeddings\": 8192, "
                     "\"rms_norm_eps\": 1e-5, \"rope_theta\": 100000, \"tie_word_embeddings\": true}"},
    {"gemma-3-12b",
     "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"text_config\": {\"hidden_size\": 3840, "
     "\"intermediate_size\": 15360, \"num_hidden_layers\": 48, \"num_attention_heads\": 16, "
     "\"num_key_value_heads\": 8, \"head_dim\": 256, \"sliding_window\": 1024, \"vocab_size\": 262208, "
     "\"max_position_embeddings\": 131072, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}}}"},
    {"gemma-4-31b",
     "{\"architectures\": [\"Gemma4ForConditionalGeneration\"], \"text_config\": {\"hidden_size\": 5376, "
     "\"intermediate_size\": 21504, \"num_hidden_layers\": 60, \"num_attention_heads\": 32, "
     "\"num_key_value_heads\": 16, \"head_dim\": 256, \"global_head_dim\": 512, "
     "\"num_global_key_value_heads\": 4, \"attention_k_eq_v\": true, \"sliding_window\": 1024, "
     "\"vocab_size\": 262144, \"max_position_embeddings\": 262144, \"final_logit_softcapping\": 30, "
     "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"proportional\", \"rope_theta\": 1000000, "
     "\"partial_rotary_factor\": 0.25}, \"sliding_attention\": {\"rope_type\": \"default\", "
     "\"rope_theta\": 10000}}}}"},
    {"phi-4", "{\"architectures\": [\"Phi3ForCausalLM\"], \"vocab_size\": 100352, \"hidden_size\": 5120, "
              "\"intermediate_size\": 17920, \"num_hidden_layers\": 40, \"num_attention_heads\": 40, "
              "\"num_key_value_heads\": 10, \"max_position_embeddings\": 16384, \"rms_norm_eps\": 1e-5, "
              "\"rope_theta\": 250000}"},
    {"mixtral-8x7b", "{\"architectures\": [\"MixtralForCausalLM\"], \"vocab_size\": 32000, \"hidden_size\": 4096, "
                     "\"intermediate_size\": 14336, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
                     "\"num_key_value_heads\": 8, \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-5, "
                     "\"rope_theta\": 1000000, \"num_local_experts\": 8, \"num_experts_per_tok\": 2}"},
    {"qwen3-30b-a3b", "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"vocab_size\": 151936, \"hidden_size\": 2048, "
                      "\"intermediate_size\": 6144, \"moe_intermediate_size\": 768, \"num_hidden_layers\": 48, "
                      "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128, "
                      "\"max_position_embeddings\": 40960, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000, "
                      "\"num_experts\": 128, \"num_experts_per_tok\": 8, \"norm_topk_prob\": true}"},
    {"gpt-oss-20b", "{\"architectures\": [\"GptOssForCausalLM\"], \"vocab_size\": 201088, \"hidden_size\": 2880, "
                    "\"intermediate_size\": 2880, \"num_hidden_layers\": 24, \"num_attention_heads\": 64, "
                    "\"num_key_value_heads\": 8, \"head_dim\": 64, \"max_position_embeddings\": 131072, "
                    "\"rms_norm_eps\": 1e-5, \"rope_theta\": 150000, \"num_local_experts\": 32, "
                    "\"num_experts_per_tok\": 4, \"sliding_window\": 128, \"rope_scaling\": {\"rope_type\": \"yarn\", "
                    "\"factor\": 32, \"original_max_position_embeddings\": 4096, \"beta_fast\": 32, \"beta_slow\": 1, "
                    "\"truncate\": false}}"},
    {"eagle3-llama-3.1-8b",
     "{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"vocab_size\": 128256, \"draft_vocab_size\": 32000, "
     "\"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 1, \"num_attention_heads\": 32, "
     "\"num_key_value_heads\": 8, \"head_dim\": 128, \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-5, "
     "\"rope_theta\": 500000}"},
    {"dflash-llama-3.1-8b",
     "{\"architectures\": [\"DFlashDraftModel\"], \"vocab_size\": 128256, \"hidden_size\": 4096, "
     "\"intermediate_size\": 14336, \"num_hidden_layers\": 5, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
     "\"head_dim\": 128, \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-6, \"rope_theta\": 500000, "
     "\"block_size\": 16, \"dflash_config\": {\"mask_token_id\": 128002, \"target_layer_ids\": [1, 8, 15, 22, 29]}}"},
    {"gemma-4-31b-assistant",
     "{\"architectures\": [\"Gemma4AssistantForCausalLM\"], \"backbone_hidden_size\": 5376, \"text_config\": {"
     "\"hidden_size\": 1024, \"intermediate_size\": 8192, \"num_hidden_layers\": 4, \"num_attention_heads\": 32, "
     "\"num_key_value_heads\": 16, \"head_dim\": 256, \"global_head_dim\": 512, "
     "\"num_global_key_value_heads\": 4, \"attention_k_eq_v\": true, \"sliding_window\": 1024, "
     "\"layer_types\": [\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", \"full_attention\"], "
     "\"vocab_size\": 262144, \"max_position_embeddings\": 262144, "
     "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"proportional\", \"rope_theta\": 1000000, "
     "\"partial_rotary_factor\": 0.25}, \"sliding_attention\": {\"rope_type\": \"default\", "
     "\"rope_theta\": 10000}}}}"},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void list_names(struct buf *out) {
    for (int i = 0; i < SHAPES; i++) buf_printf(out, "%s%s", i ? ", " : "", shapes[i].name);
}

const char *model_shape_at(int index) {
    return index >= 0 && index < SHAPES ? shapes[index].name : NULL;
}

enum { SHAPE_BYTES_MAX = 1 << 20 };

static bool is_file(const char *name) {
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".json") == 0;
}

static const struct shape *find_shape(const char *name) {
    for (int i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

static int refuse_shape(const char *name) {
    struct buf names = {0};
    list_names(&names);
    int rc = err_set(ERR_USAGE, "shape '%s' is unknown: expected FILE.json or one of %s", name, buf_text(&names));
    buf_free(&names);
    return rc;
}

int model_shape_load(struct model_config *out, const char *name) {
    const struct shape *shape = find_shape(name);
    if (is_file(name)) return model_config_load(out, name, NULL);
    return shape ? model_config_parse(out, shape->config, name) : refuse_shape(name);
}

int model_shape_text(struct buf *out, const char *name) {
    const struct shape *shape = find_shape(name);
    if (is_file(name)) return file_read(name, SHAPE_BYTES_MAX, out);
    if (!shape) return refuse_shape(name);
    buf_puts(out, shape->config);
    return 0;
}
