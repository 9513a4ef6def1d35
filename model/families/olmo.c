/* OLMo 2 and 3: norms behind the attention and the MLP, none before; the norm of q and of k is over all heads at once. In OLMo 3 three of
 * four layers slide, and their rope is not scaled (Ai2 2025). */
#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* rope_parameters by kind of layer, or the members of before, which are those of full layers. */
static int read_layers(struct model_config *c, const cJSON *root) {
    const cJSON *by_kind = json_get(root, "rope_parameters"), *full = json_get(by_kind, "full_attention");
    bool slides[LAYERS_MAX];
    for (int l = 0; l < c->layers; l++) slides[l] = (l + 1) % 4 != 0;
    TRY(config_read_windows(c, root, 4096, 1, slides));
    TRY(config_add_rope(c, root, full ? full : json_get(root, "rope_scaling"), 500000, c->head_dim));
    TRY(config_add_rope(c, root, json_get(by_kind, "sliding_attention"), 500000, c->head_dim));
    for (int l = 0; l < c->layers; l++) c->layer[l].rope = slides[l];
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    const bool is_olmo3 = strcmp(c->architecture, family_olmo.architectures[1]) == 0;
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 2048, .norm_eps = 1e-5}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    c->qk_norm = c->norms_all_heads = true;
    return is_olmo3 ? read_layers(c, root) : config_read_rope(c, root, 10000);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, false);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        bind_attention(b, l);
        bind_mlp(b, l);
        bind_qk_norms(b, 0, l);
        bind_norms_behind(b, l);
    }
}

const struct family family_olmo = {
    .architectures = (const char *const[]){"Olmo2ForCausalLM", "Olmo3ForCausalLM", NULL},
    .model_types = (const char *const[]){"olmo2", "olmo3", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_sandwiched_layers,
};
