/* SmolLM 3: a Llama whose every fourth layer turns no heads ("NoPE"), or those that no_rope_layers names (Bakouch et al. 2025). */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* The list says 1 of a layer that turns. Without one every no_rope_layer_interval-th does not. */
static int read_still_layers(struct model_config *c, const cJSON *root, bool still[LAYERS_MAX]) {
    static const char name[] = "no_rope_layers";
    const cJSON *list = json_get(root, name);
    int32_t interval;
    TRY(config_get_int(root, "no_rope_layer_interval", 4, 1, LAYERS_MAX, &interval));
    for (int l = 0; l < c->layers; l++) still[l] = (l + 1) % interval == 0;
    if (!list) return 0;
    if (!cJSON_IsArray(list)) return err_set(ERR_FORMAT, "member '%s' is no list", name);
    if (cJSON_GetArraySize(list) < c->layers)
        return err_set(ERR_FORMAT, "%s has %d entries, expected %d", name, cJSON_GetArraySize(list), c->layers);
    const cJSON *item = list->child;
    for (int l = 0; l < c->layers; l++, item = item->next) {
        int64_t turns;
        if (!json_int(item, &turns) || (turns != 0 && turns != 1))
            return err_set(ERR_FORMAT, "member '%s' holds something else than 0 and 1", name);
        still[l] = turns == 0;
    }
    return 0;
}

/* Layers that do not turn slide, where use_sliding_window says so; layer_types overrules which. */
static int read_windows(struct model_config *c, const cJSON *root, const bool still[LAYERS_MAX]) {
    bool used, given, slides[LAYERS_MAX] = {0};
    int32_t window = 0;
    TRY(json_get_bool(root, "use_sliding_window", false, &used));
    if (used) TRY(config_get_int(root, "sliding_window", 0, 0, 1 << 30, &window));
    for (int l = 0; l < c->layers; l++) slides[l] = still[l];
    TRY(config_read_layer_types(c, root, "sliding_attention", slides, &given));
    config_set_windows(c, window, slides);
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    bool still[LAYERS_MAX];
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 32768, .kv_heads = 4, .tied = true}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    TRY(config_refuse_true(root, "mlp_bias", "duet's MLP has no bias"));
    TRY(read_still_layers(c, root, still));
    TRY(read_windows(c, root, still));
    TRY(config_read_rope(c, root, 2000000));
    config_hold_still(c, still);
    return 0;
}

static void bind_model(struct binder *b) {
    family_llama.bind(b);
}

const struct family family_smollm3 = {
    .architectures = (const char *const[]){"SmolLM3ForCausalLM", NULL},
    .model_types = (const char *const[]){"smollm3", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
