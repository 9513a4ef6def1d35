/* LFM2 (Liquid AI 2025), alone or inside the multimodal LFM2-VL, with experts or without: most layers are short convolutions, the others'
 * attention has norms of heads. Experts are chosen by the sums of a sigmoid and a bias. GGUF files have a Llama's names. */
#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"
#include "model/families/qwen.h"

static bool has_experts(const struct model_config *c) {
    return strcmp(c->architecture, "Lfm2MoeForCausalLM") == 0;
}

/* Two thirds of what is said, times a factor, up to a multiple. */
static int read_hidden(struct model_config *c, const cJSON *root) {
    int32_t multiple;
    float factor;
    bool is_adjusted;
    const int32_t said = c->hidden;
    TRY(config_get_int(root, "block_ff_dim", said, 1, 1 << 20, &c->hidden));
    TRY(json_get_bool(root, "block_auto_adjust_ff_dim", true, &is_adjusted));
    TRY(config_get_int(root, "block_multiple_of", 256, 1, 1 << 20, &multiple));
    TRY(config_get_float(root, "block_ffn_dim_multiplier", 1, &factor));
    if (is_adjusted) {
        const double scaled = (double)factor * (2 * (int64_t)c->hidden / 3);
        if (!(scaled >= 1 && scaled <= 1 << 20))
            return err_set(ERR_FORMAT, "block_ffn_dim_multiplier %g makes an MLP of width %g", (double)factor, scaled);
        c->hidden = ((int32_t)scaled + multiple - 1) / multiple * multiple;
    }
    for (int l = 0; l < c->layers; l++) c->layer[l].hidden = c->hidden;
    return 0;
}

/* layer_types, or the numbers of the layers that have attention; without either all have. */
static int read_layers(struct model_config *c, const cJSON *root) {
    const cJSON *attention = json_get(root, "full_attn_idxs"), *item;
    bool convolve[LAYERS_MAX] = {0}, given;
    TRY(config_read_layer_types(c, root, "conv", convolve, &given));
    if (!given && attention) {
        if (!cJSON_IsArray(attention)) return err_set(ERR_FORMAT, "member 'full_attn_idxs' is no list");
        for (int l = 0; l < c->layers; l++) convolve[l] = true;
        cJSON_ArrayForEach(item, attention) {
            int64_t layer;
            if (!json_int(item, &layer)) return err_set(ERR_FORMAT, "member 'full_attn_idxs' is no list of layers");
            if (layer >= 0 && layer < c->layers) convolve[layer] = false;
        }
    }
    struct recurrent_config *r = &c->recurrent;
    TRY(config_refuse_true(root, "conv_bias", "duet's short convolutions have no bias"));
    TRY(config_get_int(root, "conv_L_cache", 3, 1, RECURRENT_TAPS_MAX, &r->taps));
    for (int l = 0; l < c->layers; l++) {
        c->layer[l].is_recurrent = convolve[l];
        if (convolve[l]) r->rule = RULE_NONE, r->key_heads = r->value_heads = 1, r->value_dim = c->width;
    }
    return 0;
}

static int read_experts(struct model_config *c, const cJSON *root) {
    int32_t dense;
    bool has_bias;
    TRY(config_read_experts(c, root, "num_experts_per_tok", "moe_intermediate_size"));
    TRY(config_get_int(root, "num_dense_layers", 2, 0, LAYERS_MAX, &dense));
    TRY(json_get_bool(root, "use_expert_bias", true, &has_bias));
    if (!has_bias) return err_set(ERR_UNSUPPORTED, "use_expert_bias false is not supported");
    TRY(json_get_bool(root, "norm_topk_prob", true, &c->router_renormalises));
    TRY(config_get_float(root, "routed_scaling_factor", 1, &c->experts_scale));
    for (int l = dense; l < c->layers; l++) c->layer[l].has_experts = true;
    c->router_scores = SCORES_SIGMOID;
    return 0;
}

static int configure(struct model_config *c, const cJSON *outer) {
    const cJSON *root = config_is_wrapper(c) ? config_text(outer) : outer;
    const struct dimension_defaults defaults = {.positions = 128000,
                                                .heads = 32,
                                                .vocab = 65536,
                                                .hidden = has_experts(c) ? 7168 : 12288,
                                                .kv_heads = 8,
                                                .norm_eps = 1e-5,
                                                .tied = true,
                                                .eps_member = config_member(root, "norm_eps", "rms_norm_eps")};
    TRY(config_read_dimensions(c, root, &defaults));
    TRY(config_check_activation(root, "silu"));
    TRY(json_get_bool(root, "tie_embedding", c->tied, &c->tied));
    TRY(read_layers(c, root));
    TRY(has_experts(c) ? read_experts(c, root) : read_hidden(c, root));
    c->qk_norm = true;
    return config_read_rope(c, root, 1000000);
}

static void bind_short_conv(struct binder *b, int l) {
    struct layer *layer = &b->m->layers[l];
    const int64_t d = b->c->width;
    bind_weight(b, &layer->inputs[0], 3 * d, d, "layers.%d.conv.in_proj.weight", l);
    bind_conv(b, &layer->conv, d, b->c->recurrent.taps, "layers.%d.conv.conv.weight", l);
    bind_weight(b, &layer->wo, d, d, "layers.%d.conv.out_proj.weight", l);
}

static void bind_layer(struct binder *b, int l) {
    if (b->c->layer[l].is_recurrent) {
        bind_norms_before(b, 0, l);
        bind_short_conv(b, l);
    } else {
        qwen_bind_attention(b, l);
    }
    if (!b->c->layer[l].has_experts) {
        bind_mlp(b, l);
        return;
    }
    qwen_bind_experts(b, l);
    bind_exact(b, &b->m->layers[l].choice_bias, b->c->experts, "layers.%d.mlp.expert_bias", l);
}

static void bind_model(struct binder *b) {
    static const struct renaming names[] = {{".norm.", ".embedding_norm."},
                                            {".input_layernorm.", ".operator_norm."},
                                            {".post_attention_layernorm.", ".ffn_norm."},
                                            {".self_attn.o_proj.", ".self_attn.out_proj."},
                                            {".q_norm.", ".q_layernorm."},
                                            {".k_norm.", ".k_layernorm."},
                                            {".mlp.", ".feed_forward."},
                                            {".gate_proj.", ".w1."},
                                            {".up_proj.", ".w3."},
                                            {".down_proj.", ".w2."},
                                            {NULL, NULL}};
    binder_find_text(b, config_is_wrapper(b->c));
    if (!binder_has(b, "layers.0.input_layernorm.weight")) b->renamings = names;
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) bind_layer(b, l);
}

const struct family family_lfm2 = {
    .architectures =
        (const char *const[]){"Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "Lfm2VlForConditionalGeneration", NULL},
    .model_types = (const char *const[]){"lfm2", "lfm2_moe", "lfm2_vl", NULL},
    .text_types = (const char *const[]){"lfm2", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_mixed_layers,
};
