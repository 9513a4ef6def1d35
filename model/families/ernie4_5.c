/* ERNIE 4.5 without experts: a Llama whose neighbouring dimensions turn together. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(
        c, root,
        &(struct dimension_defaults){
            .positions = 131072, .kv_heads = 2, .head_dim = 128, .norm_eps = 1e-5, .tied = true}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "use_bias", "duet's MLP has no bias"));
    TRY(config_read_rope(c, root, 500000));
    c->rope[0].pairs_neighbours = true;
    return 0;
}

static void bind_model(struct binder *b) {
    family_llama.bind(b);
}

const struct family family_ernie4_5 = {
    .architectures = (const char *const[]){"Ernie4_5ForCausalLM", NULL},
    .model_types = (const char *const[]){"ernie4_5", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
