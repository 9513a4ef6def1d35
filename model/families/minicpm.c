/* MiniCPM without experts, up to 4.1: a Llama whose embedding, sublayers and logits are scaled by how wide and deep it is (Hu et al. 2024, arXiv
 * 2404.06395). The configuration of sparse attention, which its files leave to who wants it, is refused. */
#include <math.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static int configure(struct model_config *c, const cJSON *root) {
    float depth, base;
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 2048, .tied = true}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    if (json_get(root, "sparse_config"))
        return err_set(ERR_UNSUPPORTED, "sparse_config asks for sparse attention, which duet does not have");
    if (json_get(root, "num_experts")) return err_set(ERR_UNSUPPORTED, "MiniCPM with experts is not supported");
    TRY(config_get_float(root, "scale_emb", 1, &c->embedding_scale));
    TRY(config_get_float(root, "scale_depth", 1, &depth));
    TRY(config_get_float(root, "dim_model_base", 1, &base));
    c->residual_scale = depth / sqrtf((float)c->layers);
    c->logits_scale = base / (float)c->width;
    return config_read_rope(c, root, 10000);
}

static void bind_model(struct binder *b) {
    family_llama.bind(b);
}

const struct family family_minicpm = {
    .architectures = (const char *const[]){"MiniCPMForCausalLM", NULL},
    .model_types = (const char *const[]){"minicpm", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
