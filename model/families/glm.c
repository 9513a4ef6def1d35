/* GLM, and GLM 4, which has norms behind the attention and the MLP as well as before: biases on q, k and v; neighbouring dimensions
 * turn together, those of the first half of a head. */
#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static bool is_glm4(const struct model_config *c) {
    return strcmp(c->architecture, family_glm.architectures[1]) == 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(
        c, root, &(struct dimension_defaults){.positions = 131072, .kv_heads = 2, .norm_eps = 1.5625e-7}));
    TRY(config_check_activation(root, "silu"));
    TRY(json_get_bool(root, "attention_bias", true, &c->qkv_bias));
    TRY(config_read_partial_rope(c, root, 10000, 0.5));
    c->rope[0].pairs_neighbours = true;
    return 0;
}

static void bind_model(struct binder *b) {
    const int64_t d = b->c->width;
    binder_find_text(b, false);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        struct layer *layer = &b->m->layers[l];
        bind_norms_before(b, 0, l);
        bind_attention(b, l);
        bind_fused_mlp(b, l);
        if (!is_glm4(b->c)) continue;
        bind_norm(b, &layer->post_attn_norm, 0, d, "layers.%d.post_self_attn_layernorm.weight", l);
        bind_norm(b, &layer->post_mlp_norm, 0, d, "layers.%d.post_mlp_layernorm.weight", l);
    }
}

static void build(struct builder *b) {
    if (is_glm4(b->c))
        build_sandwiched_layers(b);
    else
        build_dense_layers(b);
}

const struct family family_glm = {
    .architectures = (const char *const[]){"GlmForCausalLM", "Glm4ForCausalLM", NULL},
    .model_types = (const char *const[]){"glm", "glm4", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build,
};
