/* gpt-oss: experts in every layer, biases everywhere, a learned sink of each head in the attention's softmax, a sliding window on
 * every other layer; gate and up rows of an expert take turns. */
#include <math.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* Where nothing is said. */
static void set_yarn(struct rope_config *r) {
    r->type = ROPE_YARN;
    r->factor = r->beta_fast = 32;
    r->beta_slow = 1;
    r->original_positions = 4096;
    r->attention_factor = 0.1 * log(r->factor) + 1;
}

static int configure(struct model_config *c, const cJSON *root) {
    bool slides[LAYERS_MAX];
    double limit, alpha;
    TRY(config_read_dimensions(
        c, root, &(struct dimension_defaults){.positions = 131072, .kv_heads = 8, .head_dim = 64, .norm_eps = 1e-5}));
    TRY(config_check_activation(root, "silu"));
    TRY(json_get_number(root, "swiglu_limit", 7, &limit));
    if (limit != 7) return err_set(ERR_UNSUPPORTED, "swiglu_limit %g is not supported, only 7", limit);
    TRY(json_get_number(root, "swiglu_alpha", 1.702, &alpha));
    if (alpha != 1.702) return err_set(ERR_UNSUPPORTED, "swiglu_alpha %g is not supported, only 1.702", alpha);
    c->activation = ACTIVATION_CLAMPED;
    TRY(json_get_bool(root, "attention_bias", true, &c->qkv_bias));
    TRY(config_read_experts(c, root, "num_experts_per_tok", "intermediate_size"));
    for (int l = 0; l < c->layers; l++) slides[l] = l % 2 == 0;
    TRY(config_read_windows(c, root, 128, 0, slides));
    TRY(config_read_rope(c, root, 150000));
    if (!json_get(root, "rope_parameters") && !json_get(root, "rope_scaling")) set_yarn(&c->rope[0]);
    return 0;
}

/* As GGUF files have them, each a matrix and a bias of its own. */
static void bind_single_experts(struct binder *b, int l) {
    struct layer *layer = &b->m->layers[l];
    const int64_t f = b->c->expert_hidden, d = b->c->width;
    bind_experts(b, &layer->expert_gate, f, d, l, "layers.%d.mlp.experts.%d.gate_proj.weight");
    bind_experts(b, &layer->expert_up, f, d, l, "layers.%d.mlp.experts.%d.up_proj.weight");
    bind_experts(b, &layer->expert_down, d, f, l, "layers.%d.mlp.experts.%d.down_proj.weight");
    bind_experts(b, &layer->expert_gate_bias, 1, f, l, "layers.%d.mlp.experts.%d.gate_proj.bias");
    bind_experts(b, &layer->expert_up_bias, 1, f, l, "layers.%d.mlp.experts.%d.up_proj.bias");
    bind_experts(b, &layer->expert_down_bias, 1, d, l, "layers.%d.mlp.experts.%d.down_proj.bias");
}

/* As files in 16 bits have them: [E, D, 2F] and [E, F, D], transposed. */
static void bind_stacked_experts(struct binder *b, int l) {
    struct layer *layer = &b->m->layers[l];
    const int64_t f = b->c->expert_hidden, d = b->c->width;
    const struct row_range gate = {2 * f, 0, 2}, up = {2 * f, 1, 2}, down = {d, 0, 1};
    bind_stacked(b, &layer->expert_gate, f, d, gate, true, l, "layers.%d.mlp.experts.gate_up_proj");
    bind_stacked(b, &layer->expert_up, f, d, up, true, l, "layers.%d.mlp.experts.gate_up_proj");
    bind_stacked(b, &layer->expert_down, d, f, down, true, l, "layers.%d.mlp.experts.down_proj");
    bind_stacked(b, &layer->expert_gate_bias, 1, f, gate, false, l, "layers.%d.mlp.experts.gate_up_proj_bias");
    bind_stacked(b, &layer->expert_up_bias, 1, f, up, false, l, "layers.%d.mlp.experts.gate_up_proj_bias");
    bind_stacked(b, &layer->expert_down_bias, 1, d, down, false, l, "layers.%d.mlp.experts.down_proj_bias");
}

static void bind_model(struct binder *b) {
    const int64_t d = b->c->width;
    binder_find_text(b, false);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        struct layer *layer = &b->m->layers[l];
        bind_norms_before(b, 0, l);
        bind_attention(b, l);
        bind_output_bias(b, l);
        bind_weight(b, &layer->sinks, 1, b->c->heads, "layers.%d.self_attn.sinks", l);
        bind_weight(b, &layer->router, b->c->experts, d, "layers.%d.mlp.router.weight", l);
        bind_weight(b, &layer->router_bias, 1, b->c->experts, "layers.%d.mlp.router.bias", l);
        if (binder_has(b, "layers.0.mlp.experts.0.gate_proj.weight"))
            bind_single_experts(b, l);
        else
            bind_stacked_experts(b, l);
    }
}

static void build(struct builder *b) {
    build_embed(b);
    for (int l = 0; l < b->c->layers; l++) {
        const struct norm *norm = &b->m->layers[l].mlp_norm;
        build_attention_block(b, l);
        build_experts(b, l, norm, norm);
    }
    build_head(b);
}

const struct family family_gpt_oss = {
    .architectures = (const char *const[]){"GptOssForCausalLM", NULL},
    .model_types = (const char *const[]){"gpt_oss", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build,
};
