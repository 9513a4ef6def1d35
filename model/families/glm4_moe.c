/* GLM 4.5 and later with experts: all layers but the first have them, beside an MLP of the same input; experts are chosen by the sums of a
 * sigmoid and a bias, and weighted by the sigmoids (GLM-4.5 Team 2025). The MLP's projections are not fused, and dimensions half a
 * rotation apart turn together, unlike those of GLM 4. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"
#include "model/families/qwen.h"

static int read_experts(struct model_config *c, const cJSON *root) {
    int32_t dense, shared;
    TRY(config_check_groups(root));
    TRY(config_read_experts_as(c, root, json_get(root, "n_routed_experts") ? "n_routed_experts" : "num_local_experts",
                               "num_experts_per_tok", "moe_intermediate_size"));
    TRY(config_get_int(root, "first_k_dense_replace", 1, 0, LAYERS_MAX, &dense));
    TRY(config_get_int(root, "n_shared_experts", 1, 1, EXPERTS_MAX, &shared));
    TRY(json_get_bool(root, "norm_topk_prob", true, &c->router_renormalises));
    TRY(config_get_float(root, "routed_scaling_factor", 1, &c->experts_scale));
    for (int l = dense; l < c->layers; l++) {
        c->layer[l].has_experts = true;
        c->layer[l].hidden = shared * c->expert_hidden;
    }
    c->router_scores = SCORES_SIGMOID;
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(c, root,
                               &(struct dimension_defaults){.positions = 131072, .kv_heads = 8, .norm_eps = 1e-5}));
    TRY(config_check_activation(root, "silu"));
    TRY(json_get_bool(root, "attention_bias", false, &c->qkv_bias));
    TRY(json_get_bool(root, "use_qk_norm", false, &c->qk_norm));
    TRY(read_experts(c, root));
    const char *next = json_get(root, "num_mtp_layers") ? "num_mtp_layers" : "num_nextn_predict_layers";
    TRY(config_get_int(root, next, 1, 0, LAYERS_MAX, &c->next_layers));
    c->mtp_heads = c->next_layers;
    return config_read_partial_rope(c, root, 10000, 0.5);
}

static void bind_layer(struct binder *b, int l) {
    qwen_bind_attention(b, l);
    if (!b->c->layer[l].has_experts) {
        bind_mlp(b, l);
        return;
    }
    qwen_bind_experts(b, l);
    bind_exact(b, &b->m->layers[l].choice_bias, b->c->experts, "layers.%d.mlp.gate.e_score_correction_bias", l);
    bind_shared_mlp(b, l, "shared_experts");
}

static void bind_model(struct binder *b) {
    binder_find_text(b, false);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) bind_layer(b, l);
}

static void bind_mtp(struct binder *b) {
    binder_find_text(b, false);
    bind_head_behind(b, 0);
    bind_layer(b, 0);
}

const struct family family_glm4_moe = {
    .architectures = (const char *const[]){"Glm4MoeForCausalLM", NULL},
    .model_types = (const char *const[]){"glm4_moe", NULL},
    .configure = configure,
    .bind = bind_model,
    .bind_mtp = bind_mtp,
    .build = build_mixed_layers,
};
