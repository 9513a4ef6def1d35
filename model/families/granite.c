/* Granite: a Llama with four multipliers, of the embedding, the attention's scores, what is added to the residual stream, and the
 * logits (which are divided). */
#include "model/families/granite.h"

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"

int granite_read(struct model_config *c, const cJSON *root) {
    float logits_scaling;
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 2048}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    TRY(config_get_float(root, "embedding_multiplier", 1, &c->embedding_scale));
    TRY(config_get_float(root, "attention_multiplier", 1, &c->attention_scale));
    TRY(config_get_float(root, "residual_multiplier", 1, &c->residual_scale));
    TRY(config_get_float(root, "logits_scaling", 1, &logits_scaling));
    if (logits_scaling == 0) return err_set(ERR_FORMAT, "logits_scaling is 0");
    c->logits_scale = 1 / logits_scaling;
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    TRY(granite_read(c, root));
    TRY(config_refuse_true(root, "mlp_bias", "duet's MLP has no bias"));
    return config_read_rope(c, root, 10000);
}

static void bind_model(struct binder *b) {
    family_llama.bind(b);
}

const struct family family_granite = {
    .architectures = (const char *const[]){"GraniteForCausalLM", NULL},
    .model_types = (const char *const[]){"granite", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
