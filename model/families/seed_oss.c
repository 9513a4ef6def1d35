/* Seed-OSS: a Llama with biases on q, k and v. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(c, root,
                               &(struct dimension_defaults){.positions = 524288, .kv_heads = 8, .head_dim = 128}));
    TRY(config_check_activation(root, "silu"));
    TRY(json_get_bool(root, "attention_bias", true, &c->qkv_bias));
    TRY(config_refuse_true(root, "attention_out_bias", "duet's attention has no bias on its output"));
    TRY(config_refuse_true(root, "mlp_bias", "duet's MLP has no bias"));
    return config_read_rope(c, root, 10000);
}

static void bind_model(struct binder *b) {
    family_llama.bind(b);
}

const struct family family_seed_oss = {
    .architectures = (const char *const[]){"SeedOssForCausalLM", NULL},
    .model_types = (const char *const[]){"seed_oss", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
