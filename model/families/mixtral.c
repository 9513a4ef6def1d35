/* Mixtral: a Mistral whose MLP is a choice of experts, weighted by the softmax of the chosen (Jiang et al. 2024). */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(c, root,
                               &(struct dimension_defaults){.positions = 131072, .kv_heads = 8, .norm_eps = 1e-5}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_read_experts(c, root, "num_experts_per_tok", "intermediate_size"));
    TRY(config_read_uniform_window(c, root, 0));
    return config_read_rope(c, root, 1000000);
}

static void bind_model(struct binder *b) {
    const int64_t f = b->c->expert_hidden, d = b->c->width;
    binder_find_text(b, false);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        struct layer *layer = &b->m->layers[l];
        bind_norms_before(b, 0, l);
        bind_attention(b, l);
        bind_weight(b, &layer->router, b->c->experts, d, "layers.%d.block_sparse_moe.gate.weight", l);
        bind_experts(b, &layer->expert_gate, f, d, l, "layers.%d.block_sparse_moe.experts.%d.w1.weight");
        bind_experts(b, &layer->expert_up, f, d, l, "layers.%d.block_sparse_moe.experts.%d.w3.weight");
        bind_experts(b, &layer->expert_down, d, f, l, "layers.%d.block_sparse_moe.experts.%d.w2.weight");
    }
}

const struct family family_mixtral = {
    .architectures = (const char *const[]){"MixtralForCausalLM", NULL},
    .model_types = (const char *const[]){"mixtral", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_expert_layers,
};
