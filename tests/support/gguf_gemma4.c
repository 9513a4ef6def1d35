#include "tests/support/gguf_gemma4.h"

#include <stdio.h>
#include <string.h>

#include "model/format.h"

enum { LAYERS = 64 };

const char *gguf_gemma4_name(const char *part) {
    static const char *const names[][2] = {
        {"layer_scalar", "layer_output_scale.weight"},
        {"per_layer_input_gate.weight", "inp_gate.weight"},
        {"per_layer_projection.weight", "proj.weight"},
        {"post_per_layer_input_norm.weight", "post_norm.weight"},
        {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
        {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"},
        {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"},
        {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"},
        {"router.proj.weight", "ffn_gate_inp.weight"},
        {"router.scale", "ffn_gate_inp.scale"},
        {"router.per_expert_scale", "ffn_down_exps.scale"},
        {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
        {"experts.down_proj", "ffn_down_exps.weight"},
        {"pre_projection.weight", "nextn.pre_projection.weight"},
        {"post_projection.weight", "nextn.post_projection.weight"},
        {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
        {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
        {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], part) == 0) return names[i][1];
    return NULL;
}

static int int_of(const cJSON *config, const char *member) {
    const cJSON *item = json_get(config, member);
    return cJSON_IsNumber(item) ? item->valueint : 0;
}

static const char *key(const char *arch, const char *name) {
    static char keys[96];
    snprintf(keys, sizeof keys, "%s.%s", arch, name);
    return keys;
}

static void put_ropes(const cJSON *config, const char *arch, int head_dim, struct gguf_writer *w) {
    const cJSON *ropes = json_get(config, "rope_parameters"), *full = json_get(ropes, "full_attention");
    const int turning = (int)(head_dim * json_get(full, "partial_rotary_factor")->valuedouble / 2);
    float factors[256];
    for (int i = 0; i < head_dim / 2; i++) factors[i] = i < turning ? 1 : 1e30f;
    gguf_put_tensor(w, "rope_freqs.weight", GGML_F32, 1, (const int64_t[]){head_dim / 2}, factors,
                    (size_t)head_dim / 2 * sizeof *factors);
    gguf_put_number(w, key(arch, "rope.freq_base"), json_get(full, "rope_theta")->valuedouble);
    gguf_put_number(w, key(arch, "rope.freq_base_swa"),
                    json_get(json_get(ropes, "sliding_attention"), "rope_theta")->valuedouble);
    gguf_put_int(w, key(arch, "rope.dimension_count"), head_dim);
}

/* One number where all layers have it, else one for each. */
static void put_of_layers(struct gguf_writer *w, const char *key, const int32_t *numbers, int layers) {
    for (int l = 1; l < layers; l++) {
        if (numbers[l] == numbers[0]) continue;
        gguf_put_array(w, key, GGUF_I32, numbers, layers);
        return;
    }
    gguf_put_int(w, key, numbers[0]);
}

void gguf_gemma4_put(const cJSON *config, const char *arch, struct gguf_writer *w) {
    const int layers = int_of(config, "num_hidden_layers"), shared = int_of(config, "num_kv_shared_layers"),
              dim = int_of(config, "global_head_dim"), full = int_of(config, "num_global_key_value_heads");
    const bool is_wide = cJSON_IsTrue(json_get(config, "use_double_wide_mlp"));
    int32_t widths[LAYERS], heads[LAYERS];
    uint8_t slides[LAYERS];
    const cJSON *type = json_get(config, "layer_types")->child;
    for (int l = 0; l < layers; l++, type = type->next) {
        slides[l] = type->valuestring[0] == 's';
        widths[l] = int_of(config, "intermediate_size") * (is_wide && l >= layers - shared ? 2 : 1);
        heads[l] = full > 0 && !slides[l] ? full : int_of(config, "num_key_value_heads");
    }
    put_of_layers(w, key(arch, "feed_forward_length"), widths, layers);
    put_of_layers(w, key(arch, "attention.head_count_kv"), heads, layers);
    gguf_put_array(w, key(arch, "attention.sliding_window_pattern"), GGUF_BOOL, slides, layers);
    gguf_put_int(w, key(arch, "attention.shared_kv_layers"), shared);
    gguf_put_int(w, key(arch, "embedding_length_per_layer_input"), int_of(config, "hidden_size_per_layer_input"));
    gguf_put_int(w, key(arch, "attention.key_length"), dim);
    gguf_put_int(w, key(arch, "attention.value_length"), dim);
    gguf_put_int(w, key(arch, "attention.key_length_swa"), int_of(config, "head_dim"));
    gguf_put_int(w, key(arch, "attention.value_length_swa"), int_of(config, "head_dim"));
    if (cJSON_IsTrue(json_get(config, "enable_moe_block")))
        gguf_put_int(w, key(arch, "expert_used_count"), int_of(config, "top_k_experts"));
    put_ropes(config, arch, dim, w);
}

void gguf_gemma4_put_stack(struct gguf_writer *w, const char *name, const int64_t shape[3], const float *data,
                           size_t count) {
    enum { BLOCK = 32 };
    const float scale = 0x1p-9f; /* tests/model/families/make.py: numbers are -128 to 127 times that */
    const uint16_t half = format_to_f16(scale);
    struct buf blocks = {0};
    for (size_t i = 0; i < count; i++) {
        if (i % BLOCK == 0) buf_append(&blocks, &half, sizeof half);
        buf_putc(&blocks, (char)(int)(data[i] / scale));
    }
    gguf_put_tensor(w, name, GGML_Q8_0, 3, shape, blocks.data, blocks.len);
    buf_free(&blocks);
}
