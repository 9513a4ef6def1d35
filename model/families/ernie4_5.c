/* ERNIE 4.5: a Llama whose neighbouring dimensions turn together. With experts, these are beside an MLP of the same input, in the layers from
 * one to another, and are chosen by the sums of softmax and a bias. */
#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"
#include "model/families/qwen.h"

static bool has_experts(const struct model_config *c) {
    return strcmp(c->architecture, family_ernie4_5.architectures[1]) == 0;
}

static int read_experts(struct model_config *c, const cJSON *root) {
    int32_t first, last, step, shared;
    TRY(config_read_experts_as(c, root, "moe_num_experts", "moe_k", "moe_intermediate_size"));
    TRY(config_get_int(root, "moe_num_shared_experts", 2, 1, EXPERTS_MAX, &shared));
    TRY(config_get_int(root, "moe_layer_start_index", 1, 0, LAYERS_MAX, &first));
    TRY(config_get_int(root, "moe_layer_end_index", -1, -1, LAYERS_MAX, &last));
    TRY(config_get_int(root, "moe_layer_interval", 1, 1, LAYERS_MAX, &step));
    for (int l = first; l < c->layers && (l <= last || last < 0); l++) {
        if ((l + 1) % step != 0) continue;
        c->layer[l].has_experts = true;
        c->layer[l].hidden = shared * c->expert_hidden;
    }
    c->router_scores = SCORES_OF_ALL;
    c->router_renormalises = true;
    return config_get_int(root, "num_nextn_predict_layers", 0, 0, LAYERS_MAX, &c->next_layers);
}

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(c, root,
                               &(struct dimension_defaults){.positions = 131072,
                                                            .kv_heads = has_experts(c) ? 4 : 2,
                                                            .head_dim = has_experts(c) ? 0 : 128,
                                                            .norm_eps = 1e-5,
                                                            .tied = true}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "use_bias", "duet's MLP has no bias"));
    if (has_experts(c)) TRY(read_experts(c, root));
    TRY(config_read_rope(c, root, 500000));
    c->rope[0].pairs_neighbours = true;
    return 0;
}

static void bind_experts_of(struct binder *b, int l) {
    struct weight *bias = &b->m->layers[l].choice_bias;
    qwen_bind_experts(b, l);
    bind_exact(b, bias, b->c->experts, "layers.%d.mlp.moe_statics.e_score_correction_bias", l);
    bind_shared_mlp(b, l, "shared_experts");
}

static void bind_model(struct binder *b) {
    binder_find_text(b, false);
    bind_ends(b, 0);
    bind_ignore(b, "model.mtp_"); /* heads that propose more tokens */
    for (int l = 0; l < b->c->layers; l++) {
        bind_norms_before(b, 0, l);
        bind_attention(b, l);
        if (b->c->layer[l].has_experts)
            bind_experts_of(b, l);
        else
            bind_mlp(b, l);
    }
}

const struct family family_ernie4_5 = {
    .architectures = (const char *const[]){"Ernie4_5ForCausalLM", "Ernie4_5_MoeForCausalLM", NULL},
    .model_types = (const char *const[]){"ernie4_5", "ernie4_5_moe", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_mixed_layers,
};
