/* Command R and R7B, Aya and Command A (Cohere 2024, 2025): attention and MLP side by side, behind one norm, which takes the mean away;
 * neighbouring dimensions turn together. In the second kind layers that do not slide turn no heads. */
#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* Every sliding_window_pattern-th layer has full attention, or those of which layer_types says so. */
static int read_layers(struct model_config *c, const cJSON *root) {
    bool slides[LAYERS_MAX] = {0}, still[LAYERS_MAX] = {0};
    int32_t every;
    TRY(config_get_int(root, "sliding_window_pattern", 4, 1, LAYERS_MAX, &every));
    for (int l = 0; l < c->layers; l++) slides[l] = (l + 1) % every != 0;
    TRY(config_read_windows(c, root, 4096, 1, slides));
    for (int l = 0; l < c->layers; l++) still[l] = !slides[l];
    config_hold_still(c, still);
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    const bool is_second = strcmp(c->architecture, family_cohere.architectures[1]) == 0;
    const struct dimension_defaults defaults = {
        .positions = 8192, .norm_eps = 1e-5, .tied = true, .eps_member = "layer_norm_eps"};
    TRY(config_read_dimensions(c, root, &defaults));
    TRY(config_check_activation(root, "silu"));
    TRY(json_get_bool(root, "attention_bias", false, &c->qkv_bias));
    TRY(config_refuse_true(root, "use_qk_norm", "duet's norms of heads take no mean away"));
    TRY(config_get_float(root, "logit_scale", 0.0625, &c->logits_scale));
    c->norms_centre = c->sublayers_are_parallel = true;
    TRY(config_read_rope(c, root, 10000));
    c->rope[0].pairs_neighbours = true;
    return is_second ? read_layers(c, root) : 0;
}

static void bind_model(struct binder *b) {
    family_llama.bind(b);
    for (int l = 0; l < b->c->layers; l++) bind_output_bias(b, l);
}

const struct family family_cohere = {
    .architectures = (const char *const[]){"CohereForCausalLM", "Cohere2ForCausalLM", NULL},
    .model_types = (const char *const[]){"cohere", "cohere2", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
