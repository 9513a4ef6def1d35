/* Phi 3 and Phi 4: a Llama whose q, k, v are one projection and whose gate and up are another; part of a head may stand still. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 4096, .norm_eps = 1e-5}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "duet's fused projections have no bias"));
    TRY(config_read_uniform_window(c, root, 0));
    return config_read_rope(c, root, 10000);
}

/* Rows of q, then of k, then of v. */
static void bind_fused_attention(struct binder *b, int l) {
    static const char name[] = "layers.%d.self_attn.qkv_proj.weight";
    const struct layer_config *lc = &b->c->layer[l];
    struct layer *layer = &b->m->layers[l];
    const int64_t d = b->c->width, q = (int64_t)b->c->heads * lc->head_dim, kv = (int64_t)lc->kv_heads * lc->head_dim;
    const int64_t all = q + 2 * kv;
    bind_rows(b, &layer->wq, q, d, (struct row_range){all, 0, 1}, name, l);
    bind_rows(b, &layer->wk, kv, d, (struct row_range){all, q, 1}, name, l);
    bind_rows(b, &layer->wv, kv, d, (struct row_range){all, q + kv, 1}, name, l);
    bind_weight(b, &layer->wo, d, q, "layers.%d.self_attn.o_proj.weight", l);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, false);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        bind_norms_before(b, 0, l);
        bind_fused_attention(b, l);
        bind_fused_mlp(b, l);
    }
}

const struct family family_phi3 = {
    .architectures = (const char *const[]){"Phi3ForCausalLM", NULL},
    .model_types = (const char *const[]){"phi3", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
