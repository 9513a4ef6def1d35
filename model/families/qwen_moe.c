/* Qwen 3 with experts: in every decoder_sparse_step-th layer that mlp_only_layers does not name, the MLP is a choice of experts. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"
#include "model/families/qwen.h"

static int read_sparse_layers(struct model_config *c, const cJSON *root) {
    const cJSON *only = json_get(root, "mlp_only_layers");
    int32_t step;
    TRY(config_get_int(root, "decoder_sparse_step", 1, 1, LAYERS_MAX, &step));
    for (int l = 0; l < c->layers; l++) c->layer[l].has_experts = (l + 1) % step == 0;
    if (only && !cJSON_IsArray(only)) return err_set(ERR_FORMAT, "member 'mlp_only_layers' is no list");
    for (const cJSON *item = only ? only->child : NULL; item; item = item->next) {
        int64_t layer;
        if (!json_int(item, &layer)) return err_set(ERR_FORMAT, "member 'mlp_only_layers' is no list of layers");
        if (layer >= 0 && layer < c->layers) c->layer[layer].has_experts = false;
    }
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 32768}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    TRY(config_read_experts(c, root, "num_experts_per_tok", "moe_intermediate_size"));
    TRY(read_sparse_layers(c, root));
    c->router_softmax_of_all = true;
    TRY(json_get_bool(root, "norm_topk_prob", false, &c->router_renormalises));
    c->qk_norm = true;
    TRY(qwen_read_windows(c, root));
    return config_read_rope(c, root, 10000);
}

static void bind_experts_of(struct binder *b, int l) {
    struct layer *layer = &b->m->layers[l];
    int64_t f = b->c->expert_hidden, d = b->c->width;
    bind_weight(b, &layer->router, b->c->experts, d, "layers.%d.mlp.gate.weight", l);
    bind_experts(b, &layer->expert_gate, f, d, l, "layers.%d.mlp.experts.%d.gate_proj.weight");
    bind_experts(b, &layer->expert_up, f, d, l, "layers.%d.mlp.experts.%d.up_proj.weight");
    bind_experts(b, &layer->expert_down, d, f, l, "layers.%d.mlp.experts.%d.down_proj.weight");
}

static void bind_model(struct binder *b) {
    static const struct binder_prefix prefixes[] = {{"model.", ""}, {0}};
    binder_find_prefix(b, prefixes);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        qwen_bind_attention(b, l);
        if (b->c->layer[l].has_experts)
            bind_experts_of(b, l);
        else
            bind_mlp(b, l);
    }
}

static void build(struct builder *b) {
    build_embed(b);
    for (int l = 0; l < b->c->layers; l++) {
        const struct norm *norm = &b->m->layers[l].mlp_norm;
        build_attention_block(b, l);
        if (b->c->layer[l].has_experts)
            build_experts(b, l, norm, norm, ACTIVATION_SILU);
        else
            build_mlp_block(b, l);
    }
    build_head(b);
}

const struct family family_qwen_moe = {
    .architectures = (const char *const[]){"Qwen3MoeForCausalLM", NULL},
    .model_types = (const char *const[]){"qwen3_moe", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build,
};
