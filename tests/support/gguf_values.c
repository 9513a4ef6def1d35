/* The configuration of a directory as keys of a GGUF file. */
#include <math.h>
#include <stdio.h>

#include "tests/support/gguf_conversion.h"
#include "tests/support/gguf_gemma4.h"
#include "tests/support/support.h"

static const char *key(const struct conversion *c, const char *name) {
    static char keys[2][96];
    static int turn;
    char *k = keys[turn++ % 2];
    snprintf(k, sizeof keys[0], "%s.%s", c->kind->name, name);
    return k;
}

static void put_int(struct conversion *c, const char *name, double value) {
    if (value >= 0) gguf_put_int(c->files, key(c, name), (int64_t)value);
}

static void put_number(struct conversion *c, const char *name, double value) {
    if (!isnan(value)) gguf_put_number(c->files, key(c, name), value);
}

static void put_factors(struct conversion *c, const cJSON *list, const char *name) {
    float factors[256];
    int64_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) factors[count++] = (float)item->valuedouble;
    if (count > 0) gguf_conversion_put(c, name, 1, &count, factors, (size_t)count);
}

/* ggml multiplies its own factor of attention by the one in the file. */
static void put_yarn(struct conversion *c, const cJSON *rope) {
    static const char *const betas[] = {"beta_fast", "beta_slow"};
    const cJSON *all = json_get(rope, "mscale_all_dim");
    gguf_put_text(c->files, key(c, "rope.scaling.type"), "yarn");
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "rope.scaling.yarn_%s", betas[i]);
        const cJSON *beta = json_get(rope, betas[i]);
        if (beta) put_number(c, name, beta->valuedouble);
    }
    if (strcmp(c->kind->model_type, "olmo3") == 0) /* whose converter copies it */
        put_number(c, "rope.scaling.attn_factor", json_get(rope, "attention_factor")->valuedouble);
    else if (json_get(rope, "llama_4_scaling_beta")) {
        put_number(c, "rope.scaling.yarn_log_multiplier", all->valuedouble);
        put_number(c, "attention.temperature_scale", json_get(rope, "llama_4_scaling_beta")->valuedouble);
    } else if (all)
        put_number(c, "rope.scaling.attn_factor",
                   1 / (0.1 * all->valuedouble * log(json_get(rope, "factor")->valuedouble) + 1));
}

/* How many pairs turn by each of a picture's positions; of four. */
static void put_sections(struct conversion *c, const cJSON *list) {
    int32_t sections[4] = {0};
    int count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) sections[count++] = item->valueint;
    if (count > 0) gguf_put_array(c->files, key(c, "rope.dimension_sections"), GGUF_I32, sections, 4);
}

/* What each frequency is divided by (Grattafiori et al. 2024), which the converter works out. */
static void put_llama3(struct conversion *c, const cJSON *rope) {
    const double factor = json_get(rope, "factor")->valuedouble, low = json_get(rope, "low_freq_factor")->valuedouble,
                 high = json_get(rope, "high_freq_factor")->valuedouble,
                 original = json_get(rope, "original_max_position_embeddings")->valuedouble;
    float factors[256];
    const int64_t pairs = c->head_dim / 2;
    for (int i = 0; i < pairs; i++) {
        const double wave = 2 * M_PI * pow(number(c, "rope_theta", 10000), 2.0 * i / c->head_dim);
        const double smooth = (original / wave - low) / (high - low);
        factors[i] = (float)(wave < original / high  ? 1
                             : wave > original / low ? factor
                                                     : 1 / ((1 - smooth) / factor + smooth));
    }
    gguf_conversion_put(c, "rope_freqs.weight", 1, &pairs, factors, (size_t)pairs);
}

static void put_rope(struct conversion *c) {
    const cJSON *members = json_get(c->config, "rope_parameters");
    const cJSON *rope = json_get(members, "llama_4_scaling_beta") ? members : json_get(c->config, "rope_scaling"),
                *type = json_get(rope, "rope_type");
    const cJSON *theta = json_get(json_get(c->config, "rope_parameters"), "rope_theta");
    if (!type) type = json_get(rope, "type");
    const cJSON *alpha = json_get(rope, "alpha");
    const double base = theta ? theta->valuedouble : number(c, "rope_theta", 10000);
    put_number(c, "rope.freq_base", base * (alpha ? pow(alpha->valuedouble, c->head_dim / (c->head_dim - 2.0)) : 1));
    const cJSON *share = json_get(members, "partial_rotary_factor");
    put_int(c, "rope.dimension_count",
            (share ? share->valuedouble : number(c, "partial_rotary_factor", 1)) * c->head_dim);
    if (json_get(members, "mrope_section")) put_sections(c, json_get(members, "mrope_section"));
    if (!rope || alpha) return; /* the base is all of it */
    if (strcmp(type->valuestring, "llama3") == 0) {
        put_llama3(c, rope);
        return;
    }
    const double original = number(c, "original_max_position_embeddings", -1);
    const cJSON *own = json_get(rope, "original_max_position_embeddings"), *factor = json_get(rope, "factor");
    put_int(c, "rope.scaling.original_context_length", own ? own->valuedouble : original);
    if (factor) put_number(c, "rope.scaling.factor", factor->valuedouble);
    put_factors(c, json_get(rope, "short_factor"), "rope_factors_short.weight");
    put_factors(c, json_get(rope, "long_factor"), "rope_factors_long.weight");
    put_sections(c, json_get(rope, "mrope_section"));
    if (strcmp(type->valuestring, "yarn") == 0) put_yarn(c, rope);
}

/* Which layers slide; its converters write it of these. */
static void put_pattern(struct conversion *c, const cJSON *types) {
    uint8_t slides[64];
    int count = 0;
    const cJSON *type;
    if (strcmp(c->kind->model_type, "olmo3") != 0 && strcmp(c->kind->model_type, "exaone4") != 0 &&
        strcmp(c->kind->model_type, "cohere2") != 0)
        return;
    const int every = (int)number(c, "sliding_window_pattern", 0), layers = (int)number(c, "num_hidden_layers", 0);
    cJSON_ArrayForEach(type, types) slides[count++] = type->valuestring[0] == 's';
    while (!types && every > 0 && count < layers) slides[count] = (count + 1) % every != 0, count++;
    gguf_put_array(c->files, key(c, "attention.sliding_window_pattern"), GGUF_BOOL, slides, (uint64_t)count);
}

static void put_hybrid(struct conversion *c) {
    const double dim = number(c, "linear_value_head_dim", 0), heads = number(c, "linear_num_value_heads", 0);
    put_int(c, "ssm.conv_kernel", number(c, "linear_conv_kernel_dim", -1));
    put_int(c, "ssm.state_size", number(c, "linear_key_head_dim", -1));
    put_int(c, "ssm.group_count", number(c, "linear_num_key_heads", -1));
    put_int(c, "ssm.time_step_rank", heads > 0 ? heads : -1);
    put_int(c, "ssm.inner_size", heads > 0 ? dim * heads : -1);
    put_int(c, "expert_shared_feed_forward_length", number(c, "shared_expert_intermediate_size", -1));
}

/* A number of each layer: none where it lacks this tensor. */
static void put_by_layer(struct conversion *c, const char *name, const char *tensor, int value) {
    int32_t values[64];
    const int layers = (int)number(c, "num_hidden_layers", 0);
    for (int l = 0; l < layers; l++) {
        char full[96];
        snprintf(full, sizeof full, "%s.layers.%d.%s", is_nemotron(c) ? "backbone" : "model", l, tensor);
        values[l] = safetensors_find(c->tensors, full) ? value : 0;
    }
    gguf_put_array(c->files, key(c, name), GGUF_I32, values, (uint64_t)layers);
}

static void put_kv_heads(struct conversion *c) {
    put_by_layer(c, "attention.head_count_kv", is_nemotron(c) ? "mixer.k_proj.weight" : "self_attn.k_proj.weight",
                 c->kv_heads);
}

static void put_nemotron(struct conversion *c) {
    put_kv_heads(c);
    put_by_layer(c, "feed_forward_length", "mixer.up_proj.weight", (int)number(c, "intermediate_size", 0));
    put_int(c, "ssm.conv_kernel", number(c, "conv_kernel", 0));
    put_int(c, "ssm.state_size", number(c, "ssm_state_size", 0));
    put_int(c, "ssm.group_count", number(c, "n_groups", 0));
    put_int(c, "ssm.time_step_rank", number(c, "mamba_num_heads", 0));
    put_int(c, "ssm.inner_size", number(c, "mamba_num_heads", 0) * number(c, "mamba_head_dim", 0));
    put_int(c, "expert_shared_feed_forward_length", number(c, "moe_shared_expert_intermediate_size", 0));
    gguf_put_bool(c->files, key(c, "expert_weights_norm"), true);
}

static void put_lfm2(struct conversion *c) {
    put_kv_heads(c);
    put_int(c, "shortconv.l_cache", number(c, "conv_L_cache", 0));
    const int64_t hidden = safetensors_find(c->tensors, "model.layers.0.feed_forward.w1.weight")->shape[0];
    put_int(c, "feed_forward_length", (double)hidden);
    if (experts_of(c) > 0) put_int(c, "expert_gating_func", 2);
}

static void put_mamba(struct conversion *c) {
    put_kv_heads(c);
    put_int(c, "ssm.conv_kernel", number(c, "mamba_d_conv", 0));
    put_int(c, "ssm.state_size", number(c, "mamba_d_state", 0));
    put_int(c, "ssm.group_count", number(c, "mamba_n_groups", 0));
    put_int(c, "ssm.inner_size", number(c, "mamba_expand", 0) * number(c, "hidden_size", 0));
    put_int(c, "ssm.time_step_rank", number(c, "mamba_n_heads", 0));
    put_int(c, "expert_shared_feed_forward_length", number(c, "shared_intermediate_size", 0));
    const bool turns = strcmp(json_get(c->config, "position_embedding_type")->valuestring, "rope") == 0;
    gguf_put_bool(c->files, key(c, "rope.scaling.finetuned"), turns);
}

void gguf_conversion_put_values(struct conversion *c) {
    const bool is_gpt_oss = strcmp(c->kind->name, "gpt-oss") == 0;
    const double window = number(c, "sliding_window", -1),
                 hidden =
                     number(c, number(c, "num_local_experts", 0) > 0 ? "intermediate_size" : "shared_intermediate_size",
                            number(c, "intermediate_size", 0));
    gguf_put_text(c->files, "general.architecture", c->kind->name);
    put_int(c, "context_length", number(c, "max_position_embeddings", 0));
    put_int(c, "embedding_length", number(c, "hidden_size", 0));
    put_int(c, "block_count", number(c, "num_hidden_layers", number(c, "num_layers", 0)) + heads_behind(c));
    if (heads_behind(c) > 0) put_int(c, "nextn_predict_layers", heads_behind(c));
    if (c->backbone) {
        put_int(c, "embedding_length_out", c->backbone->valuedouble);
        put_int(c, "nextn_predict_layers", number(c, "num_hidden_layers", 0));
    }
    put_hybrid(c);
    put_int(c, "attention.head_count", c->heads);
    if (is_gemma4(c)) {
        gguf_gemma4_put(c->config, c->kind->name, c->files);
    } else {
        if (!is_lfm2(c) && !is_nemotron(c))
            put_int(c, is_gpt_oss ? "expert_feed_forward_length" : "feed_forward_length", hidden);
        if (is_mamba(c->config))
            put_mamba(c);
        else if (is_lfm2(c))
            put_lfm2(c);
        else if (is_nemotron(c))
            put_nemotron(c);
        else
            put_int(c, "attention.head_count_kv", c->kv_heads);
        put_int(c, "attention.key_length", c->head_dim);
        put_int(c, "attention.value_length", c->head_dim);
        put_rope(c);
    }
    put_number(c, "attention.layer_norm_rms_epsilon",
               number(c, "rms_norm_eps", number(c, "layer_norm_epsilon", number(c, "norm_eps", 1e-6))));
    put_number(c, "attention.layer_norm_epsilon",
               number(c, "layer_norm_eps", number(c, "norm_epsilon", number(c, "norm_eps", NAN))));
    put_int(c, "attention.sliding_window", window);
    put_pattern(c, json_get(c->config, "layer_types"));
    put_int(c, "expert_count", experts_of(c));
    put_int(c, "leading_dense_block_count",
            number(c, "first_k_dense_replace", number(c, "moe_layer_start_index", number(c, "num_dense_layers", -1))));
    put_int(c, "interleave_moe_layer_step", number(c, "moe_layer_interval", -1));
    put_int(c, "expert_shared_count", number(c, "n_shared_experts", number(c, "moe_num_shared_experts", -1)));
    put_number(c, "expert_weights_scale", number(c, "routed_scaling_factor", NAN));
    put_int(c, "expert_feed_forward_length", number(c, "moe_intermediate_size", -1));
    put_int(c, "expert_used_count", number(c, "num_experts_per_tok", number(c, "moe_k", -1)));
    put_number(c, "attn_logit_softcapping", number(c, "attn_logit_softcapping", NAN));
    put_number(c, "final_logit_softcapping", number(c, "final_logit_softcapping", NAN));
    put_number(c, "attention.scale", number(c, "attention_multiplier", NAN));
    const double depth = number(c, "scale_depth", NAN) / sqrt(number(c, "num_hidden_layers", NAN)),
                 base = number(c, "hidden_size", NAN) / number(c, "dim_model_base", NAN);
    put_number(c, "embedding_scale", number(c, "embedding_multiplier", number(c, "scale_emb", NAN)));
    put_number(c, "residual_scale", number(c, "residual_multiplier", depth));
    put_number(c, "logit_scale", number(c, "logit_scale", number(c, "logits_scaling", base)));
    gguf_put_int(c->files, "tokenizer.ggml.eos_token_id", (int64_t)number(c, "eos_token_id", 2));
}
