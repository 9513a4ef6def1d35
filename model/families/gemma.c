/* The first Gemma: a Llama with an embedding scaled by sqrt(D), norms whose factor is 1 + weight, and GELU (Gemma Team 2024). */
#include <math.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/gemma.h"

/* Files of the first days say "gelu" and mean its approximation by tanh, which hidden_activation says where it is there. */
static int check_activation(const cJSON *root) {
    if (json_get(root, "hidden_activation") || !config_is_text(json_get(root, "hidden_act"), "gelu"))
        return config_check_activation(root, "gelu_pytorch_tanh");
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(
        c, root, &(struct dimension_defaults){.positions = 8192, .kv_heads = 16, .head_dim = 256, .tied = true}));
    TRY(check_activation(root));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    TRY(config_refuse_true(root, "use_bidirectional_attention", "duet's attention looks back alone"));
    c->activation = ACTIVATION_GELU;
    c->embedding_scale = sqrtf((float)c->width);
    return config_read_rope(c, root, 10000);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, false);
    bind_ends(b, 1);
    for (int l = 0; l < b->c->layers; l++) {
        bind_norms_before(b, 1, l);
        bind_attention(b, l);
        bind_mlp(b, l);
    }
}

const struct family family_gemma = {
    .architectures = (const char *const[]){"GemmaForCausalLM", NULL},
    .model_types = (const char *const[]){"gemma", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
