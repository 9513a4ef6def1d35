/* EXAONE 4: norms behind the attention and the MLP, none before, and norms of each head of q and k. Where layers slide, those that do
 * not turn no heads (LG AI Research 2025). */
#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* Letters of layers, L for one that slides, from the first on again and again; the last layer never slides. Or how many layers there are
 * from one that does not slide to the next. */
static int read_pattern(const struct model_config *c, const cJSON *root, bool slides[LAYERS_MAX]) {
    static const char name[] = "sliding_window_pattern";
    const cJSON *item = json_get(root, name);
    int32_t every;
    if (cJSON_IsString(item)) {
        const char *letters = item->valuestring;
        const size_t n = strlen(letters);
        if (n == 0 || strspn(letters, "LG") != n)
            return err_set(ERR_FORMAT, "member '%s' is '%s', expected letters L and G", name, letters);
        for (int l = 0; l < c->layers; l++) slides[l] = letters[(size_t)l % n] == 'L' && l + 1 < c->layers;
        return 0;
    }
    TRY(config_get_int(root, name, 4, 1, LAYERS_MAX, &every));
    for (int l = 0; l < c->layers; l++) slides[l] = (l + 1) % every != 0;
    return 0;
}

/* Layers that turn no heads are those that do not slide, where there is a window at all. */
static int read_layers(struct model_config *c, const cJSON *root) {
    const bool has_window = json_get(root, "sliding_window") ||
                            !cJSON_GetObjectItemCaseSensitive(root, "sliding_window"); /* null is none */
    bool slides[LAYERS_MAX] = {0}, still[LAYERS_MAX] = {0};
    if (has_window) TRY(read_pattern(c, root, slides));
    TRY(config_read_windows(c, root, 4096, 1, slides));
    for (int l = 0; l < c->layers; l++) still[l] = has_window && !slides[l];
    config_hold_still(c, still);
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 2048, .norm_eps = 1e-5}));
    TRY(config_check_activation(root, "silu"));
    c->qk_norm = true;
    TRY(config_read_rope(c, root, 10000));
    return read_layers(c, root);
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

const struct family family_exaone4 = {
    .architectures = (const char *const[]){"Exaone4ForCausalLM", NULL},
    .model_types = (const char *const[]){"exaone4", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_sandwiched_layers,
};
