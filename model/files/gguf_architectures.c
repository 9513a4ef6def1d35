/* The architectures of llama.cpp that duet knows, and how their tensors are called in the families that run them. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/files/gguf_model.h"

#define MLP_NORM "post_attention_layernorm" /* of a Llama: the one before the MLP */

#define QWEN_EXPERTS \
    .router = "mlp.gate", .experts = "mlp.experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"

#define GEMMA_NORMS                                                                             \
    .ffn_norm = "pre_feedforward_layernorm", .post_attention_norm = "post_attention_layernorm", \
    .post_ffw_norm = "post_feedforward_layernorm"
#define GEMMA4_ASSISTANT GEMMA_NORMS, .is_gemma4 = true, .is_assistant = true

static const struct gguf_architecture architectures[] = {
    {.name = "llama", .architecture = "LlamaForCausalLM", .ffn_norm = MLP_NORM, .pairs_neighbours = true},
    {.name = "llama",
     .architecture = "MixtralForCausalLM",
     .needs = "expert_count",
     .ffn_norm = MLP_NORM,
     .router = "block_sparse_moe.gate",
     .experts = "block_sparse_moe.experts",
     .gate = "w1",
     .up = "w3",
     .down = "w2",
     .pairs_neighbours = true},
    {.name = "mistral3", .architecture = "Ministral3ForCausalLM", .ffn_norm = MLP_NORM, .pairs_neighbours = true},
    {.name = "minicpm", .architecture = "MiniCPMForCausalLM", .ffn_norm = MLP_NORM, .pairs_neighbours = true},
    {.name = "granite", .architecture = "GraniteForCausalLM", .ffn_norm = MLP_NORM, .pairs_neighbours = true},
    {.name = "granitemoe",
     .architecture = "GraniteMoeForCausalLM",
     .ffn_norm = MLP_NORM,
     .router = "block_sparse_moe.router.layer",
     .experts = "block_sparse_moe.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .pairs_neighbours = true},
    {.name = "granitehybrid",
     .architecture = "GraniteMoeHybridForCausalLM",
     .ffn_norm = MLP_NORM,
     .router = "block_sparse_moe.router.layer",
     .experts = "block_sparse_moe.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .pairs_neighbours = true,
     .is_mamba = true},
    {.name = "lfm2", .architecture = "Lfm2ForCausalLM", .ffn_norm = MLP_NORM, .is_lfm2 = true},
    {.name = "lfm2moe",
     .architecture = "Lfm2MoeForCausalLM",
     .ffn_norm = MLP_NORM,
     QWEN_EXPERTS,
     .choice_bias = "mlp.expert_bias",
     .is_lfm2 = true},
    {.name = "nemotron_h", .architecture = "NemotronHForCausalLM", .is_mamba = true, .is_nemotron = true},
    {.name = "nemotron_h_moe",
     .architecture = "NemotronHForCausalLM",
     QWEN_EXPERTS,
     .choice_bias = "mlp.gate.e_score_correction_bias",
     .is_mamba = true,
     .is_nemotron = true},
    {.name = "command-r", .architecture = "CohereForCausalLM", .eps_member = "layer_norm_eps"},
    {.name = "cohere2", .architecture = "Cohere2ForCausalLM", .eps_member = "layer_norm_eps"},
    {.name = "starcoder2", .architecture = "Starcoder2ForCausalLM", .eps_member = "norm_epsilon", .ffn_norm = MLP_NORM},
    {.name = "nemotron",
     .architecture = "NemotronForCausalLM",
     .eps_member = "norm_eps",
     .ffn_norm = MLP_NORM,
     .norms_hold_one = true},
    {.name = "stablelm", .architecture = "StableLmForCausalLM", .eps_member = "layer_norm_eps", .ffn_norm = MLP_NORM},
    {.name = "smollm3", .architecture = "SmolLM3ForCausalLM", .ffn_norm = MLP_NORM, .pairs_neighbours = true},
    {.name = "hunyuan-dense", .architecture = "HunYuanDenseV1ForCausalLM", .ffn_norm = MLP_NORM},
    {.name = "seed_oss", .architecture = "SeedOssForCausalLM", .post_attention_norm = MLP_NORM},
    {.name = "ernie4_5", .architecture = "Ernie4_5ForCausalLM", .ffn_norm = MLP_NORM},
    {.name = "ernie4_5-moe",
     .architecture = "Ernie4_5_MoeForCausalLM",
     .ffn_norm = MLP_NORM,
     QWEN_EXPERTS,
     .choice_bias = "mlp.moe_statics.e_score_correction_bias"},
    {.name = "exaone", .architecture = "ExaoneForCausalLM", .ffn_norm = MLP_NORM},
    {.name = "exaone4",
     .architecture = "Exaone4ForCausalLM",
     .post_attention_norm = "post_attention_layernorm",
     .post_ffw_norm = "post_feedforward_layernorm"},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM", .ffn_norm = MLP_NORM},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM", .ffn_norm = MLP_NORM},
    {.name = "qwen2moe",
     .architecture = "Qwen2MoeForCausalLM",
     .ffn_norm = MLP_NORM,
     QWEN_EXPERTS,
     .has_one_shared = true},
    {.name = "qwen3moe", .architecture = "Qwen3MoeForCausalLM", .ffn_norm = MLP_NORM, QWEN_EXPERTS},
    {.name = "qwen3next",
     .architecture = "Qwen3NextForCausalLM",
     .post_attention_norm = MLP_NORM,
     QWEN_EXPERTS,
     .has_one_shared = true,
     .norms_hold_one = true,
     .is_hybrid = true,
     .ba_by_head = true},
    {.name = "qwen35",
     .architecture = "Qwen3_5ForCausalLM",
     .post_attention_norm = MLP_NORM,
     .norms_hold_one = true,
     .is_hybrid = true,
     .is_tiled = true},
    {.name = "qwen35moe",
     .architecture = "Qwen3_5MoeForCausalLM",
     .post_attention_norm = MLP_NORM,
     QWEN_EXPERTS,
     .has_one_shared = true,
     .norms_hold_one = true,
     .is_hybrid = true,
     .is_tiled = true},
    {.name = "qwen2vl", .architecture = "Qwen2VLForConditionalGeneration", .ffn_norm = MLP_NORM}, /* and Qwen2.5-VL */
    {.name = "qwen3vl", .architecture = "Qwen3VLForConditionalGeneration", .ffn_norm = MLP_NORM},
    {.name = "qwen3vlmoe", .architecture = "Qwen3VLMoeForConditionalGeneration", .ffn_norm = MLP_NORM, QWEN_EXPERTS},
    {.name = "gemma", .architecture = "GemmaForCausalLM", .ffn_norm = MLP_NORM, .norms_hold_one = true},
    {.name = "gemma2", .architecture = "Gemma2ForCausalLM", GEMMA_NORMS, .norms_hold_one = true},
    {.name = "gemma3", .architecture = "Gemma3ForCausalLM", GEMMA_NORMS, .norms_hold_one = true},
    {.name = "gemma4", .architecture = "Gemma4ForCausalLM", GEMMA_NORMS, .router = "router.proj", .is_gemma4 = true},
    {.name = "gemma4-assistant", .architecture = "Gemma4AssistantForCausalLM", GEMMA4_ASSISTANT},
    {.name = "gemma4_assistant", .architecture = "Gemma4AssistantForCausalLM", GEMMA4_ASSISTANT}, /* not llama.cpp's */
    {.name = "phi3", .architecture = "Phi3ForCausalLM", .ffn_norm = MLP_NORM, .ffn_up = "mlp.gate_up_proj"},
    {.name = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .post_attention_norm = "post_attention_layernorm",
     .post_ffw_norm = "post_feedforward_layernorm"},
    {.name = "olmo2",
     .architecture = "Olmo3ForCausalLM",
     .needs = "attention.sliding_window",
     .post_attention_norm = "post_attention_layernorm",
     .post_ffw_norm = "post_feedforward_layernorm"},
    {.name = "olmoe", .architecture = "OlmoeForCausalLM", .ffn_norm = MLP_NORM, QWEN_EXPERTS},
    {.name = "glm4",
     .architecture = "Glm4ForCausalLM",
     .ffn_norm = MLP_NORM,
     .post_attention_norm = "post_self_attn_layernorm",
     .post_ffw_norm = "post_mlp_layernorm",
     .ffn_up = "mlp.gate_up_proj"},
    {.name = "glm4moe",
     .architecture = "Glm4MoeForCausalLM",
     .post_attention_norm = MLP_NORM,
     QWEN_EXPERTS,
     .choice_bias = "mlp.gate.e_score_correction_bias"},
    {.name = "gpt-oss",
     .architecture = "GptOssForCausalLM",
     .post_attention_norm = MLP_NORM,
     .router = "mlp.router",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj"},
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

static int refuse_architecture(const struct gguf *g, struct gguf_text name) {
    struct buf known = {0};
    for (int i = 0; i < ARCHITECTURES; i++)
        if (i == 0 || strcmp(architectures[i].name, architectures[i - 1].name) != 0)
            buf_printf(&known, "%s%s", i > 0 ? ", " : "", architectures[i].name);
    int rc = err_set(ERR_UNSUPPORTED, "%s: architecture '%.*s' is not supported (known: %s)", gguf_path(g),
                     name.n < 60 ? (int)name.n : 60, name.bytes ? name.bytes : "", buf_text(&known));
    buf_free(&known);
    return rc;
}

int gguf_find_architecture(const struct gguf *g, const struct gguf_architecture **out) {
    struct gguf_text name;
    *out = NULL;
    TRY(gguf_get_text(g, "general.architecture", &name));
    if (!name.bytes) return err_set(ERR_FORMAT, "%s: key 'general.architecture' is missing", gguf_path(g));
    for (int i = 0; i < ARCHITECTURES; i++) {
        const struct gguf_architecture *a = &architectures[i];
        char key[96];
        int64_t value = 1;
        if (!gguf_is_text(name, a->name)) continue;
        snprintf(key, sizeof key, "%s.%s", a->name, a->needs ? a->needs : "");
        if (a->needs) TRY(gguf_get_int(g, key, 0, 0, INT32_MAX, &value));
        if (value > 0) *out = a;
    }
    return *out ? 0 : refuse_architecture(g, name);
}
