/* StarCoder 2 (Lozhkov et al. 2024): norms take the mean away, the MLP has no gate, and everything has a bias. GGUF files have a Llama's names. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static int configure(struct model_config *c, const cJSON *root) {
    const struct dimension_defaults defaults = {
        .positions = 4096, .kv_heads = 2, .norm_eps = 1e-5, .tied = true, .eps_member = "norm_epsilon"};
    TRY(config_read_dimensions(c, root, &defaults));
    TRY(config_check_activation(root, "gelu_pytorch_tanh"));
    TRY(json_get_bool(root, "use_bias", true, &c->qkv_bias));
    TRY(config_read_uniform_window(c, root, 0));
    c->activation = ACTIVATION_GELU;
    c->norms_centre = c->norms_have_bias = true;
    return config_read_rope(c, root, 10000);
}

static void bind_model(struct binder *b) {
    static const struct renaming names[] = {{".up_proj.", ".c_fc."}, {".down_proj.", ".c_proj."}, {NULL, NULL}};
    binder_find_text(b, false);
    if (!binder_has(b, "layers.0.mlp.up_proj.weight")) b->renamings = names;
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        bind_norms_before(b, 0, l);
        bind_attention(b, l);
        bind_output_bias(b, l);
        bind_ungated_mlp(b, l, "mlp", b->c->qkv_bias);
    }
}

const struct family family_starcoder2 = {
    .architectures = (const char *const[]){"Starcoder2ForCausalLM", NULL},
    .model_types = (const char *const[]){"starcoder2", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
