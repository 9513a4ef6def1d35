/* The part of a configuration that is a family's own. */
#include <math.h>

#include "base/err.h"
#include "model/files/gguf_members.h"

/* The scale of the largest Gemmas is by D / H, of the others by the size of a head; no key says so. */
static int put_gemma(struct writer *w, int64_t head_dim) {
    int64_t layers, width, heads;
    bool is_gemma3 = strcmp(w->a->name, "gemma3") == 0;
    TRY(get_int(w, "block_count", 0, &layers));
    TRY(get_int(w, "embedding_length", 0, &width));
    TRY(gguf_get_int(w->g, key_of(w, "attention.head_count"), 1, 1, INT32_MAX, &heads));
    put_number(w, "query_pre_attn_scalar", (double)(layers == (is_gemma3 ? 62 : 46) ? width / heads : head_dim));
    TRY(copy_int(w, "sliding_window", "attention.sliding_window"));
    TRY(copy_number(w, "attn_logit_softcapping", "attn_logit_softcapping"));
    TRY(copy_number(w, "final_logit_softcapping", "final_logit_softcapping"));
    if (!is_gemma3) return 0;
    TRY(copy_int(w, "sliding_window_pattern", "attention.sliding_window_pattern"));
    return copy_number(w, "rope_local_base_freq", "rope.freq_base_swa");
}

static int put_granite(struct writer *w) {
    TRY(copy_number(w, "attention_multiplier", "attention.scale"));
    TRY(copy_number(w, "embedding_multiplier", "embedding_scale"));
    TRY(copy_number(w, "residual_multiplier", "residual_scale"));
    return copy_number(w, "logits_scaling", "logit_scale");
}

/* What is added to the residual stream is scaled, and logits are divided; older files say neither, of models that had these. */
static int put_minicpm(struct writer *w) {
    int64_t width, layers;
    double embedding, residual, logits;
    TRY(get_int(w, "embedding_length", 0, &width));
    TRY(get_int(w, "block_count", 0, &layers));
    const double depth = sqrt((double)layers);
    TRY(gguf_get_number(w->g, key_of(w, "embedding_scale"), 12, &embedding));
    TRY(gguf_get_number(w->g, key_of(w, "residual_scale"), 1.4 / depth, &residual));
    TRY(gguf_get_number(w->g, key_of(w, "logit_scale"), (double)width / 256, &logits));
    if (!(logits > 0)) return err_set(ERR_FORMAT, "%s: key '%s' is %g", gguf_path(w->g), w->key, logits);
    put_number(w, "scale_emb", embedding);
    put_number(w, "scale_depth", residual * depth);
    put_number(w, "dim_model_base", (double)width / logits);
    return 0;
}

/* What experts beside an MLP have: a number of their width that the MLP is as wide as, in names of each family's own. */
struct expert_members {
    const char *experts, *chosen, *shared, *dense;
};

static int put_shared_experts(struct writer *w, const struct expert_members *m) {
    int64_t shared, shared_width, width;
    TRY(need_int(w, m->experts, "expert_count"));
    TRY(need_int(w, m->chosen, "expert_used_count"));
    TRY(need_int(w, "moe_intermediate_size", "expert_feed_forward_length"));
    TRY(get_int(w, "expert_feed_forward_length", 0, &width));
    TRY(get_int(w, "expert_shared_feed_forward_length", width, &shared_width));
    TRY(get_int(w, "expert_shared_count", width > 0 ? shared_width / width : 1, &shared));
    put_number(w, m->shared, (double)shared);
    return copy_int(w, m->dense, "leading_dense_block_count");
}

static int put_ernie_experts(struct writer *w) {
    static const struct expert_members members = {"moe_num_experts", "moe_k", "moe_num_shared_experts",
                                                  "moe_layer_start_index"};
    TRY(put_shared_experts(w, &members));
    return copy_int(w, "moe_layer_interval", "interleave_moe_layer_step");
}

/* Experts are chosen by sigmoids alone here: 2, where a file says it. */
static int check_gating(struct writer *w) {
    int64_t function;
    TRY(get_int(w, "expert_gating_func", 2, &function));
    if (function == 2) return 0;
    return err_set(ERR_UNSUPPORTED, "%s: key '%s' is %lld, which is not supported, only 2", gguf_path(w->g), w->key,
                   (long long)function);
}

static int put_glm_experts(struct writer *w) {
    static const struct expert_members members = {"n_routed_experts", "num_experts_per_tok", "n_shared_experts",
                                                  "first_k_dense_replace"};
    bool norms;
    TRY(check_gating(w));
    TRY(put_shared_experts(w, &members));
    put_bool(w, "attention_bias", gguf_find(w->g, "blk.0.attn_q.bias") != NULL);
    put_bool(w, "use_qk_norm", gguf_find(w->g, "blk.0.attn_q_norm.weight") != NULL);
    TRY(gguf_get_bool(w->g, key_of(w, "expert_weights_norm"), true, &norms));
    put_bool(w, "norm_topk_prob", norms);
    TRY(copy_number(w, "routed_scaling_factor", "expert_weights_scale"));
    return copy_int(w, "num_nextn_predict_layers", "nextn_predict_layers");
}

static bool has_in_layer(const struct writer *w, int64_t layer, const char *tensor) {
    char name[64];
    snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, tensor);
    return gguf_find(w->g, name) != NULL;
}

static bool has_in_some_layer(const struct writer *w, const char *tensor) {
    for (int64_t l = 0; l < LAYERS_MAX; l++)
        if (has_in_layer(w, l, tensor)) return true;
    return false;
}

/* Of each layer, by its tensors: whether it is of this kind, by one of them, or has attention; and whether it has experts. */
static int put_layer_types(struct writer *w, const char *tensor, const char *kind) {
    int64_t layers, next;
    TRY(get_int(w, "block_count", 0, &layers));
    TRY(get_int(w, "nextn_predict_layers", 0, &next));
    if (layers > LAYERS_MAX) layers = LAYERS_MAX; /* too many, as is found later */
    json_put_name(&w->json, "layer_types");
    buf_putc(&w->json, '[');
    for (int64_t l = 0; l < layers - next; l++) {
        json_put_element(&w->json);
        buf_printf(&w->json, "\"%s\"", has_in_layer(w, l, tensor) ? kind : "full_attention");
    }
    buf_putc(&w->json, ']');
    json_put_name(&w->json, "mlp_only_layers");
    buf_putc(&w->json, '[');
    for (int64_t l = 0; l < layers - next; l++) {
        if (has_in_layer(w, l, "ffn_gate_inp.weight")) continue;
        json_put_element(&w->json);
        json_put_number(&w->json, (double)l);
    }
    buf_putc(&w->json, ']');
    return 0;
}

/* Value heads are as wide together as the inner size says. */
static int get_value_dim(struct writer *w, int64_t *out) {
    int64_t inner, heads;
    TRY(get_int(w, "ssm.time_step_rank", 0, &heads));
    TRY(get_int(w, "ssm.inner_size", 0, &inner));
    if (heads < 1 || inner < 1 || inner % heads != 0)
        return err_set(ERR_FORMAT, "%s: key '%s' is %lld, for %lld heads", gguf_path(w->g), w->key, (long long)inner,
                       (long long)heads);
    *out = inner / heads;
    return 0;
}

static int put_hybrid(struct writer *w) {
    int64_t dim;
    TRY(put_layer_types(w, "ssm_out.weight", "linear_attention"));
    TRY(need_int(w, "linear_conv_kernel_dim", "ssm.conv_kernel"));
    TRY(need_int(w, "linear_key_head_dim", "ssm.state_size"));
    TRY(need_int(w, "linear_num_key_heads", "ssm.group_count"));
    TRY(need_int(w, "linear_num_value_heads", "ssm.time_step_rank"));
    TRY(get_value_dim(w, &dim));
    put_number(w, "linear_value_head_dim", (double)dim);
    if (!w->a->experts) return 0;
    TRY(need_int(w, "num_local_experts", "expert_count"));
    TRY(need_int(w, "num_experts_per_tok", "expert_used_count"));
    TRY(need_int(w, "moe_intermediate_size", "expert_feed_forward_length"));
    return need_int(w, "shared_expert_intermediate_size", "expert_shared_feed_forward_length");
}

/* Layers without attention have none. */
static void put_kv_heads(struct writer *w) {
    put_number(w, "num_key_value_heads", (double)int_of_some_layer(w, "attention.head_count_kv"));
}

static int put_lfm2(struct writer *w) {
    int64_t window;
    double scale;
    TRY(put_layer_types(w, "shortconv.out_proj.weight", "conv"));
    put_kv_heads(w);
    TRY(need_int(w, "conv_L_cache", "shortconv.l_cache"));
    TRY(get_int(w, "attention.sliding_window", 0, &window));
    if (window > 0)
        return err_set(ERR_UNSUPPORTED, "%s: key '%s' is %lld: windows of this architecture are not supported",
                       gguf_path(w->g), w->key, (long long)window);
    put_bool(w, "block_auto_adjust_ff_dim", false);
    if (!w->a->experts) return 0;
    TRY(check_gating(w));
    TRY(need_int(w, "num_experts", "expert_count"));
    TRY(need_int(w, "num_experts_per_tok", "expert_used_count"));
    TRY(need_int(w, "moe_intermediate_size", "expert_feed_forward_length"));
    TRY(gguf_get_number(w->g, key_of(w, "expert_weights_scale"), 0, &scale));
    put_number(w, "routed_scaling_factor", scale != 0 ? scale : 1);
    return copy_int(w, "num_dense_layers", "leading_dense_block_count");
}

/* Without rope its files say that a rope's scaling is not finetuned. */
static int put_granite_hybrid(struct writer *w) {
    int64_t dim, inner, width, shared, hidden;
    bool turns;
    TRY(put_layer_types(w, "ssm_out.weight", "linear_attention"));
    put_kv_heads(w);
    TRY(need_int(w, "mamba_d_conv", "ssm.conv_kernel"));
    TRY(need_int(w, "mamba_d_state", "ssm.state_size"));
    TRY(need_int(w, "mamba_n_groups", "ssm.group_count"));
    TRY(need_int(w, "mamba_n_heads", "ssm.time_step_rank"));
    TRY(get_value_dim(w, &dim));
    TRY(get_int(w, "embedding_length", 1, &width));
    TRY(get_int(w, "ssm.inner_size", 0, &inner));
    put_number(w, "mamba_d_head", (double)dim);
    put_number(w, "mamba_expand", (double)(width > 0 ? inner / width : 0));
    put_bool(w, "mamba_conv_bias", has_in_some_layer(w, "ssm_conv1d.bias"));
    TRY(get_int(w, "feed_forward_length", 0, &hidden));
    TRY(get_int(w, "expert_shared_feed_forward_length", hidden, &shared));
    put_number(w, "shared_intermediate_size", (double)shared);
    put_number(w, "num_local_experts", 0); /* where the next says nothing: the last one counts */
    TRY(copy_int(w, "num_local_experts", "expert_count"));
    TRY(copy_int(w, "num_experts_per_tok", "expert_used_count"));
    TRY(gguf_get_bool(w->g, key_of(w, "rope.scaling.finetuned"), true, &turns));
    put_text(w, "position_embedding_type", turns ? "rope" : "nope");
    return put_granite(w);
}

/* Each layer is what its tensors say. */
static int put_nemotron_layers(struct writer *w) {
    int64_t layers, next;
    TRY(get_int(w, "block_count", 0, &layers));
    TRY(get_int(w, "nextn_predict_layers", 0, &next));
    json_put_name(&w->json, "layers_block_type");
    buf_putc(&w->json, '[');
    for (int64_t l = 0; l < layers - next && l <= LAYERS_MAX; l++) {
        json_put_element(&w->json);
        buf_printf(&w->json, "\"%s\"",
                   has_in_layer(w, l, "ssm_out.weight")        ? "mamba"
                   : has_in_layer(w, l, "attn_output.weight")  ? "attention"
                   : has_in_layer(w, l, "ffn_gate_inp.weight") ? "moe"
                                                               : "mlp");
    }
    buf_putc(&w->json, ']');
    return 0;
}

static int put_nemotron(struct writer *w) {
    int64_t dim;
    bool norms;
    TRY(put_nemotron_layers(w));
    put_number(w, "num_attention_heads", (double)int_of_some_layer(w, "attention.head_count"));
    put_kv_heads(w);
    const int64_t hidden = int_of_some_layer(w, "feed_forward_length");
    if (hidden > 0) put_number(w, "intermediate_size", (double)hidden);
    TRY(need_int(w, "conv_kernel", "ssm.conv_kernel"));
    TRY(need_int(w, "ssm_state_size", "ssm.state_size"));
    TRY(need_int(w, "n_groups", "ssm.group_count"));
    TRY(need_int(w, "mamba_num_heads", "ssm.time_step_rank"));
    TRY(get_value_dim(w, &dim));
    put_number(w, "mamba_head_dim", (double)dim);
    put_bool(w, "use_conv_bias", has_in_some_layer(w, "ssm_conv1d.bias"));
    TRY(copy_int(w, "num_nextn_predict_layers", "nextn_predict_layers"));
    if (!w->a->experts) return 0;
    TRY(check_gating(w));
    TRY(need_int(w, "n_routed_experts", "expert_count"));
    TRY(need_int(w, "num_experts_per_tok", "expert_used_count"));
    TRY(need_int(w, "moe_intermediate_size", "expert_feed_forward_length"));
    TRY(need_int(w, "moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"));
    TRY(gguf_get_bool(w->g, key_of(w, "expert_weights_norm"), true, &norms));
    put_bool(w, "norm_topk_prob", norms);
    return copy_number(w, "routed_scaling_factor", "expert_weights_scale");
}

static int put_qwen2_experts(struct writer *w) {
    bool norms;
    TRY(need_int(w, "moe_intermediate_size", "expert_feed_forward_length"));
    TRY(need_int(w, "shared_expert_intermediate_size", "expert_shared_feed_forward_length"));
    TRY(gguf_get_bool(w->g, key_of(w, "expert_weights_norm"), false, &norms));
    put_bool(w, "norm_topk_prob", norms);
    put_bool(w, "qkv_bias", gguf_find(w->g, "blk.0.attn_q.bias") != NULL);
    return 0;
}

static int put_experts(struct writer *w) {
    if (strcmp(w->a->name, "glm4moe") == 0) return put_glm_experts(w);
    if (strcmp(w->a->name, "ernie4_5-moe") == 0) return put_ernie_experts(w);

    const bool is_gpt_oss = strcmp(w->a->name, "gpt-oss") == 0, is_qwen = strncmp(w->a->name, "qwen3", 5) == 0;
    TRY(need_int(w, "num_local_experts", "expert_count"));
    TRY(need_int(w, "num_experts_per_tok", "expert_used_count"));
    if (strcmp(w->a->name, "qwen2moe") == 0) return put_qwen2_experts(w);
    if (is_qwen) put_bool(w, "norm_topk_prob", true);
    if (is_qwen) TRY(need_int(w, "moe_intermediate_size", "expert_feed_forward_length"));
    if (strcmp(w->a->name, "granitemoe") == 0) return put_granite(w);
    return is_gpt_oss ? copy_int(w, "sliding_window", "attention.sliding_window") : 0;
}

/* A window on the layers that a list names, or on those that the family has it on where there is none; no window is said, too, as families
 * have one of their own. */
static int put_windows(struct writer *w) {
    int64_t window;
    TRY(get_int(w, "attention.sliding_window", 0, &window));
    const struct gguf_value *v = gguf_value(w->g, key_of(w, "attention.sliding_window_pattern"));
    json_put_name(&w->json, "sliding_window");
    if (window == 0)
        buf_puts(&w->json, "null");
    else
        json_put_number(&w->json, (double)window);
    if (window == 0 || !v || !v->is_array || v->type == GGUF_STRING || v->type == GGUF_ARRAY) return 0;
    json_put_name(&w->json, "layer_types");
    buf_putc(&w->json, '[');
    for (uint64_t i = 0; i < v->count && i < LAYERS_MAX; i++) {
        json_put_element(&w->json);
        const bool slides = v->type == GGUF_BOOL ? v->data[i] != 0 : gguf_int_at(v, i) != 0;
        buf_puts(&w->json, slides ? "\"sliding_attention\"" : "\"full_attention\"");
    }
    buf_putc(&w->json, ']');
    return 0;
}

/* Of those whose norms take the mean away: which biases and norms there are, their tensors say. */
static int put_centred(struct writer *w) {
    const bool has_bias = gguf_find(w->g, "blk.0.attn_q.bias") != NULL;
    put_bool(w, "attention_bias", has_bias), put_bool(w, "use_bias", has_bias), put_bool(w, "use_qkv_bias", has_bias);
    put_bool(w, "use_parallel_residual", !gguf_find(w->g, "blk.0.ffn_norm.weight"));
    const bool has_qk_norm = gguf_find(w->g, "blk.0.attn_q_norm.weight") != NULL;
    put_bool(w, "use_qk_norm", has_qk_norm), put_bool(w, "qk_layernorm", has_qk_norm);
    TRY(copy_number(w, "logit_scale", "logit_scale"));
    return put_windows(w);
}

/* --- Gemma 4 ------------------------------------------------------------------------------------------------------- */

/* Heads of each layer, which its kind decides, and where the MLP is twice as wide. */
static int put_gemma4_layers(struct writer *w, int64_t layers, int64_t head_dim) {
    const struct gguf_value *slides = gguf_value(w->g, key_of(w, "attention.sliding_window_pattern"));
    int64_t slide_dim;
    const bool is_said = slides && slides->is_array && slides->count >= (uint64_t)layers && slides->type <= GGUF_BOOL &&
                         slides->type != GGUF_F32;
    if (!is_said)
        return err_set(ERR_FORMAT, "%s: key '%s' does not say of each layer whether it slides", gguf_path(w->g),
                       w->key);
    TRY(get_int(w, "attention.key_length_swa", head_dim, &slide_dim));
    put_number(w, "head_dim", (double)slide_dim); /* again: the last one counts */
    put_number(w, "global_head_dim", (double)head_dim);
    const struct gguf_value *heads = gguf_value(w->g, key_of(w, "attention.head_count_kv"));
    put_number(w, "num_key_value_heads", (double)int_of_layer(heads, 0));
    json_put_name(&w->json, "per_layer_config");
    buf_putc(&w->json, '{');
    for (int64_t l = 0; l < layers; l++) {
        char layer[24];
        snprintf(layer, sizeof layer, "%lld", (long long)l);
        json_put_name(&w->json, layer);
        buf_putc(&w->json, '{');
        put_number(w, "num_key_value_heads", (double)int_of_layer(heads, l));
        buf_putc(&w->json, '}');
    }
    buf_putc(&w->json, '}');
    return 0;
}

/* Full layers without values take keys for them. */
static bool takes_keys_for_values(struct writer *w, int64_t own_layers) {
    const struct gguf_value *slides = gguf_value(w->g, key_of(w, "attention.sliding_window_pattern"));
    for (int64_t l = 0; l < own_layers; l++)
        if (!int_of_layer(slides, l) && !has_in_layer(w, l, "attn_v.weight")) return true;
    return false;
}

/* Of full heads the pairs turn whose factor is 1; the others' is so large that they stand still. */
static int put_gemma4_ropes(struct writer *w, int64_t head_dim) {
    const struct gguf_tensor *t = gguf_find(w->g, "rope_freqs.weight");
    double full, slides;
    int64_t turning = 0;
    if (!t || strcmp(t->dtype, "F32") != 0 || t->dims != 1 || t->shape[0] != head_dim / 2)
        return err_set(ERR_FORMAT, "%s: tensor 'rope_freqs.weight' is missing or holds no %lld factors",
                       gguf_path(w->g), (long long)head_dim / 2);
    const float *factors = t->data;
    while (turning < head_dim / 2 && factors[turning] == 1) turning++;
    for (int64_t i = turning; i < head_dim / 2; i++)
        if (!(factors[i] >= 1e20f))
            return err_set(ERR_UNSUPPORTED, "%s: tensor 'rope_freqs.weight' holds factors besides 1 and none", t->file);
    struct gguf_text scaling;
    TRY(gguf_get_text(w->g, key_of(w, "rope.scaling.type"), &scaling));
    if (scaling.bytes && !gguf_is_text(scaling, "none"))
        return err_set(ERR_UNSUPPORTED, "%s: key '%s' is '%.*s', which is not supported, only none", gguf_path(w->g),
                       w->key, scaling.n < 60 ? (int)scaling.n : 60, scaling.bytes);
    TRY(gguf_get_number(w->g, key_of(w, "rope.freq_base"), 1000000, &full));
    TRY(gguf_get_number(w->g, key_of(w, "rope.freq_base_swa"), 10000, &slides));
    json_put_name(&w->json, "rope_parameters");
    buf_puts(&w->json, "{\"full_attention\": {\"rope_type\": \"proportional\"");
    put_number(w, "rope_theta", full);
    put_number(w, "partial_rotary_factor", 2 * (double)turning / (double)head_dim);
    buf_puts(&w->json, "}, \"sliding_attention\": {\"rope_type\": \"default\"");
    put_number(w, "rope_theta", slides);
    buf_puts(&w->json, "}}");
    return 0;
}

/* Layers that share keys may have an MLP of twice the width. */
static int put_gemma4_widths(struct writer *w, int64_t layers, int64_t own_layers) {
    const struct gguf_value *widths = gguf_value(w->g, key_of(w, "feed_forward_length"));
    const int64_t width = int_of_layer(widths, 0), last = int_of_layer(widths, layers - 1);
    for (int64_t l = 0; l < layers; l++)
        if (int_of_layer(widths, l) != (l < own_layers ? width : last) || (last != width && last != 2 * width))
            return err_set(ERR_UNSUPPORTED, "%s: key '%s' differs from layer to layer in a way that is not supported",
                           gguf_path(w->g), w->key);
    put_number(w, "intermediate_size", (double)width);
    put_bool(w, "use_double_wide_mlp", last != width);
    return 0;
}

static int put_gemma4_experts(struct writer *w) {
    put_bool(w, "enable_moe_block", true);
    TRY(need_int(w, "num_experts", "expert_count"));
    TRY(need_int(w, "top_k_experts", "expert_used_count"));
    return need_int(w, "moe_intermediate_size", "expert_feed_forward_length");
}

/* The width of the model that an assistant is for. */
static int put_backbone(struct writer *w) {
    const bool has_own = has(w, "n_embd_backbone");
    return need_int(w, "backbone_hidden_size", has_own ? "n_embd_backbone" : "embedding_length_out");
}

static int put_gemma4(struct writer *w, int64_t head_dim) {
    const struct gguf_tensor *inputs = gguf_find(w->g, "per_layer_token_embd.weight");
    int64_t layers, shared, experts;
    TRY(get_int(w, "block_count", 0, &layers));
    TRY(get_int(w, "attention.shared_kv_layers", 0, &shared));
    if (w->a->is_assistant) shared = 0;
    if (layers < 1 || layers > LAYERS_MAX || shared >= layers)
        return err_set(ERR_FORMAT, "%s: key '%s' is %lld, of %lld layers", gguf_path(w->g), w->key, (long long)shared,
                       (long long)layers);
    TRY(put_gemma4_layers(w, layers, head_dim));
    TRY(put_gemma4_widths(w, layers, layers - shared));
    TRY(put_gemma4_ropes(w, head_dim));
    put_number(w, "num_kv_shared_layers", (double)shared);
    put_bool(w, "attention_k_eq_v", !w->a->is_assistant && takes_keys_for_values(w, layers - shared));
    if (w->a->is_assistant) TRY(put_backbone(w));
    TRY(copy_int(w, "hidden_size_per_layer_input", "embedding_length_per_layer_input"));
    if (inputs) put_number(w, "vocab_size_per_layer_input", (double)inputs->shape[0]);
    TRY(copy_number(w, "final_logit_softcapping", "final_logit_softcapping"));
    TRY(get_int(w, "expert_count", 0, &experts));
    if (experts > 0) TRY(put_gemma4_experts(w));
    return put_windows(w);
}

int gguf_put_own(struct writer *w, int64_t head_dim) {
    const char *name = w->a->name;
    if (w->a->is_gemma4) return put_gemma4(w, head_dim);
    if (w->a->is_hybrid) return put_hybrid(w);
    if (w->a->is_nemotron) return put_nemotron(w);
    if (w->a->is_mamba) return put_granite_hybrid(w);
    if (w->a->is_lfm2) return put_lfm2(w);
    if (w->a->experts) return put_experts(w);
    if (w->a->eps_member) return put_centred(w);
    if (strncmp(name, "gemma", 5) == 0 && name[5]) return put_gemma(w, head_dim);
    if (strcmp(name, "granite") == 0) return put_granite(w);
    if (strcmp(name, "minicpm") == 0) return put_minicpm(w);
    if (strcmp(name, "phi3") == 0) return copy_int(w, "sliding_window", "attention.sliding_window");
    if (strcmp(name, "glm4") == 0) put_bool(w, "attention_bias", gguf_find(w->g, "blk.0.attn_q.bias") != NULL);
    if (strcmp(name, "exaone4") == 0 || (strcmp(name, "olmo2") == 0 && w->a->needs)) return put_windows(w);
    return 0;
}
