/* Qwen 2 and Qwen 3 with experts, the latter alone or inside the multimodal Qwen3-VL: in every decoder_sparse_step-th layer that
 * mlp_only_layers does not name, the MLP is a choice of experts; of Qwen 2 beside an MLP that a number gates. */
#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"
#include "model/families/qwen.h"

int qwen_read_sparse_layers(struct model_config *c, const cJSON *root) {
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

int qwen_read_shared_expert(struct model_config *c, const cJSON *root, int32_t def) {
    int32_t shared;
    bool has_dense = false;
    TRY(config_get_int(root, "shared_expert_intermediate_size", def, 1, 1 << 24, &shared));
    for (int l = 0; l < c->layers; l++) {
        if (c->layer[l].has_experts) c->layer[l].hidden = shared;
        has_dense = has_dense || !c->layer[l].has_experts;
    }
    if (!has_dense) c->hidden = shared;
    c->shared_is_gated = true;
    return 0;
}

static int configure(struct model_config *c, const cJSON *outer) {
    static const struct dimension_defaults flat = {.positions = 32768},
                                           vl = {.positions = 128000, .vocab = 151936, .kv_heads = 16};
    const bool is_vl = config_is_wrapper(c), is_qwen2 = strncmp(c->architecture, "Qwen2", 5) == 0;
    const cJSON *root = is_vl ? config_text(outer) : outer;
    TRY(config_read_dimensions(c, root, is_vl ? &vl : &flat));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    if (is_qwen2) TRY(json_get_bool(root, "qkv_bias", true, &c->qkv_bias));
    TRY(config_read_experts(c, root, "num_experts_per_tok", "moe_intermediate_size"));
    TRY(qwen_read_sparse_layers(c, root));
    if (is_qwen2) TRY(qwen_read_shared_expert(c, root, 5632));
    c->router_scores = SCORES_OF_ALL;
    c->router_renormalises = is_vl;
    if (!is_vl) TRY(json_get_bool(root, "norm_topk_prob", false, &c->router_renormalises));
    c->qk_norm = !is_qwen2;
    if (is_vl) return qwen_read_wrapped_rope(c, root); /* which has no windows */
    TRY(qwen_read_windows(c, root, 28));
    return config_read_rope(c, root, 10000);
}

/* Qwen3-VL's files hold [E, D, 2 F] and [E, F, D], what other programs save the transpose of these. */
static void bind_stacked_experts(struct binder *b, int l) {
    static const char gate_up[] = "layers.%d.mlp.experts.gate_up_proj", down[] = "layers.%d.mlp.experts.down_proj";
    struct layer *layer = &b->m->layers[l];
    const int64_t f = b->c->expert_hidden, d = b->c->width;
    const bool is_transposed = binder_has_stack(b, d, l, gate_up) && binder_has_stack(b, f, l, down);
    bind_stacked(b, &layer->expert_gate, f, d, (struct row_range){2 * f, 0, 1}, is_transposed, l, gate_up);
    bind_stacked(b, &layer->expert_up, f, d, (struct row_range){2 * f, f, 1}, is_transposed, l, gate_up);
    bind_stacked(b, &layer->expert_down, d, f, (struct row_range){d, 0, 1}, is_transposed, l, down);
}

void qwen_bind_experts(struct binder *b, int l) {
    struct layer *layer = &b->m->layers[l];
    int64_t f = b->c->expert_hidden, d = b->c->width;
    bind_weight(b, &layer->router, b->c->experts, d, "layers.%d.mlp.gate.weight", l);
    if (binder_has_stack(b, 0, l, "layers.%d.mlp.experts.gate_up_proj")) {
        bind_stacked_experts(b, l);
        return;
    }
    bind_experts(b, &layer->expert_gate, f, d, l, "layers.%d.mlp.experts.%d.gate_proj.weight");
    bind_experts(b, &layer->expert_up, f, d, l, "layers.%d.mlp.experts.%d.up_proj.weight");
    bind_experts(b, &layer->expert_down, d, f, l, "layers.%d.mlp.experts.%d.down_proj.weight");
}

void qwen_bind_experts_and_mlp(struct binder *b, int l) {
    qwen_bind_experts(b, l);
    bind_shared_mlp(b, l, "shared_expert");
    bind_row(b, &b->m->layers[l].shared_gate, b->c->width, "layers.%d.mlp.shared_expert_gate.weight", l);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, config_is_wrapper(b->c));
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        qwen_bind_attention(b, l);
        if (!b->c->layer[l].has_experts)
            bind_mlp(b, l);
        else if (b->c->shared_is_gated)
            qwen_bind_experts_and_mlp(b, l);
        else
            qwen_bind_experts(b, l);
    }
}

const struct family family_qwen_moe = {
    .architectures =
        (const char *const[]){"Qwen3MoeForCausalLM", "Qwen3VLMoeForConditionalGeneration", "Qwen2MoeForCausalLM", NULL},
    .model_types = (const char *const[]){"qwen3_moe", "qwen3_vl_moe", "qwen2_moe", "qwen3_vl_moe_text", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_mixed_layers,
};
