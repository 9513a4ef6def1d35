/* OLMo 2: norms behind the attention and the MLP, none before; the norm of q and of k is over all heads at once. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 2048, .norm_eps = 1e-5}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    c->qk_norm = true;
    return config_read_rope(c, root, 10000);
}

static void bind_model(struct binder *b) {
    static const struct binder_prefix prefixes[] = {{"model.", ""}, {0}};
    const int64_t q = (int64_t)b->c->heads * b->c->head_dim, kv = (int64_t)b->c->kv_heads * b->c->head_dim;
    binder_find_prefix(b, prefixes);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        struct layer *layer = &b->m->layers[l];
        bind_attention(b, l);
        bind_mlp(b, l);
        bind_norm(b, &layer->q_norm, 0, q, "layers.%d.self_attn.q_norm.weight", l);
        bind_norm(b, &layer->k_norm, 0, kv, "layers.%d.self_attn.k_norm.weight", l);
        bind_norm(b, &layer->post_attn_norm, 0, b->c->width, "layers.%d.post_attention_layernorm.weight", l);
        bind_norm(b, &layer->post_mlp_norm, 0, b->c->width, "layers.%d.post_feedforward_layernorm.weight", l);
    }
}

static void build(struct builder *b) {
    build_embed(b);
    for (int l = 0; l < b->c->layers; l++) {
        build_qkv(b, l)->norms_all_heads = true;
        build_attention(b, l);
        build_normed_output(b, l);
        build_gate_up(b, l);
        build_normed_down(b, l);
    }
    build_head(b);
}

const struct family family_olmo2 = {
    .architectures = (const char *const[]){"Olmo2ForCausalLM", NULL},
    .model_types = (const char *const[]){"olmo2", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build,
};
