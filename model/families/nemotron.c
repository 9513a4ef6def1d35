/* Nemotron 4 and Minitron (NVIDIA 2024): norms take the mean away and are 1 + weight, half of a head turns, and the MLP has no gate and
 * squares what is above zero. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static int configure(struct model_config *c, const cJSON *root) {
    const struct dimension_defaults defaults = {.positions = 4096, .norm_eps = 1e-5, .eps_member = "norm_eps"};
    TRY(config_read_dimensions(c, root, &defaults));
    TRY(config_check_activation(root, "relu2"));
    TRY(json_get_bool(root, "attention_bias", false, &c->qkv_bias));
    TRY(config_refuse_true(root, "mlp_bias", "its MLP has no bias here"));
    c->activation = ACTIVATION_RELU2;
    c->norms_centre = c->norms_have_bias = true;
    return config_read_partial_rope(c, root, 10000, 0.5);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, false);
    bind_ends(b, 1);
    for (int l = 0; l < b->c->layers; l++) {
        bind_norms_before(b, 1, l);
        bind_attention(b, l);
        bind_output_bias(b, l);
        bind_ungated_mlp(b, l, "mlp", false);
    }
}

const struct family family_nemotron = {
    .architectures = (const char *const[]){"NemotronForCausalLM", NULL},
    .model_types = (const char *const[]){"nemotron", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
