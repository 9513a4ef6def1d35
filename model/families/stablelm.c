/* StableLM (Stability AI 2023, 2024): norms take the mean away, a quarter of a head turns; attention and MLP may lie side by side. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static int configure(struct model_config *c, const cJSON *root) {
    const struct dimension_defaults defaults = {.positions = 4096, .norm_eps = 1e-5, .eps_member = "layer_norm_eps"};
    TRY(config_read_dimensions(c, root, &defaults));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "qk_layernorm", "duet's norms of heads take no mean away"));
    TRY(json_get_bool(root, "use_qkv_bias", false, &c->qkv_bias));
    TRY(json_get_bool(root, "use_parallel_residual", false, &c->sublayers_are_parallel));
    c->norms_centre = c->norms_have_bias = true;
    return config_read_partial_rope(c, root, 10000, 0.25);
}

static void bind_model(struct binder *b) {
    family_llama.bind(b);
}

const struct family family_stablelm = {
    .architectures = (const char *const[]){"StableLmForCausalLM", NULL},
    .model_types = (const char *const[]){"stablelm", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
