/* Gemma 2: norms before and behind attention and MLP, whose factor is 1 + weight; an embedding scaled by sqrt(D); capped scores and
 * logits; a sliding window on every other layer (Gemma Team 2024). */
#include <math.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/gemma.h"

int gemma_read_shared(struct model_config *c, const cJSON *root) {
    float scalar;
    TRY(config_check_activation(root, "gelu_pytorch_tanh"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    TRY(config_get_float(root, "query_pre_attn_scalar", 256, &scalar));
    if (!(scalar > 0)) return err_set(ERR_FORMAT, "query_pre_attn_scalar is %g", (double)scalar);
    c->activation = ACTIVATION_GELU;
    c->embedding_scale = sqrtf((float)c->width);
    c->attention_scale = 1.0f / sqrtf(scalar);
    return 0;
}

/* Absent: `def`; null: none. */
int gemma_read_cap(const cJSON *root, const char *name, double def, float *out) {
    if (cJSON_GetObjectItemCaseSensitive(root, name)) def = 0;
    TRY(config_get_float(root, name, def, out));
    return *out >= 0 ? 0 : err_set(ERR_FORMAT, "%s is %g", name, (double)*out);
}

static int configure(struct model_config *c, const cJSON *root) {
    bool slides[LAYERS_MAX];
    TRY(config_read_dimensions(
        c, root, &(struct dimension_defaults){.positions = 8192, .kv_heads = 4, .head_dim = 256, .tied = true}));
    TRY(gemma_read_shared(c, root));
    TRY(config_refuse_true(root, "use_bidirectional_attention", "duet's attention looks back alone"));
    TRY(gemma_read_cap(root, "attn_logit_softcapping", 50, &c->attention_cap));
    TRY(gemma_read_cap(root, "final_logit_softcapping", 30, &c->logits_cap));
    for (int l = 0; l < c->layers; l++) slides[l] = l % 2 == 0;
    TRY(config_read_windows(c, root, 4096, 0, slides));
    return config_read_rope(c, root, 10000);
}

void gemma_bind_norms(struct binder *b, int l, float offset) {
    struct layer *layer = &b->m->layers[l];
    const int64_t d = b->c->width;
    bind_norm(b, &layer->attn_norm, offset, d, "layers.%d.input_layernorm.weight", l);
    bind_norm(b, &layer->post_attn_norm, offset, d, "layers.%d.post_attention_layernorm.weight", l);
    bind_norm(b, &layer->mlp_norm, offset, d, "layers.%d.pre_feedforward_layernorm.weight", l);
    bind_norm(b, &layer->post_mlp_norm, offset, d, "layers.%d.post_feedforward_layernorm.weight", l);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, false);
    bind_ends(b, 1);
    for (int l = 0; l < b->c->layers; l++) {
        gemma_bind_norms(b, l, 1);
        bind_attention(b, l);
        bind_mlp(b, l);
    }
}

const struct family family_gemma2 = {
    .architectures = (const char *const[]){"Gemma2ForCausalLM", NULL},
    .model_types = (const char *const[]){"gemma2", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_sandwiched_layers,
};
