/* HunYuan without experts: a Llama with norms of each head of q and k, behind their rotation, and a base of the rope that a factor alpha
 * stretches (Tencent 2025). */
#include <math.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* "dynamic" with an alpha, which does not depend on a sequence's length: the base times alpha^(DH / (DH - 2)). */
static int read_rope(struct model_config *c, const cJSON *root) {
    const cJSON *rope = json_get(root, "rope_parameters");
    double alpha, theta;
    if (!rope) rope = json_get(root, "rope_scaling");
    TRY(json_get_number(rope, "alpha", 0, &alpha));
    if (alpha == 0) return config_read_rope(c, root, 10000);
    if (!(alpha >= 1e-6 && alpha <= 1e6) || c->head_dim <= 2)
        return err_set(ERR_FORMAT, "rope parameter 'alpha' is %g", alpha);
    TRY(json_get_number(json_get(rope, "rope_theta") ? rope : root, "rope_theta", 10000, &theta));
    return config_add_rope(c, NULL, NULL, theta * pow(alpha, c->head_dim / (c->head_dim - 2.0)), c->head_dim);
}

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 2048, .norm_eps = 1e-5}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    c->qk_norm = c->norms_behind_rope = true;
    return read_rope(c, root);
}

static void bind_model(struct binder *b) {
    family_llama.bind(b);
    const bool is_gguf = binder_has(b, "layers.0.self_attn.q_norm.weight");
    for (int l = 0; l < b->c->layers; l++) {
        struct layer *layer = &b->m->layers[l];
        bind_norm(b, &layer->q_norm, 0, b->c->head_dim, "layers.%d.self_attn.%s.weight", l,
                  is_gguf ? "q_norm" : "query_layernorm");
        bind_norm(b, &layer->k_norm, 0, b->c->head_dim, "layers.%d.self_attn.%s.weight", l,
                  is_gguf ? "k_norm" : "key_layernorm");
    }
}

const struct family family_hunyuan = {
    .architectures = (const char *const[]){"HunYuanDenseV1ForCausalLM", NULL},
    .model_types = (const char *const[]){"hunyuan_v1_dense", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
