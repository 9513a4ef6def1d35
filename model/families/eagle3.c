/* EAGLE-3 (Li et al. 2025): a layer of a Llama that drafts for another model, in the files of its authors, of SpecForge and of speculators. Its
 * attention reads the normed embedding of a token beside the normed hidden row of the position before it: the rows before three of that
 * model's layers, brought to its width, and of drafted positions its own output before the last norm. It may propose few of the ids. */
#include <stdio.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* Rows before these layers; under eagle_config, behind them. */
static int read_taps(struct drafter_config *e, const cJSON *root) {
    static const char name[] = "eagle_aux_hidden_state_layer_ids";
    const cJSON *list = json_get(root, name), *item;
    const int behind = !list || (cJSON_IsArray(list) && cJSON_GetArraySize(list) == 0);
    int count = 0;
    for (int i = 0; i < EAGLE_TAPS; i++) e->taps[i] = -1;
    e->tap_count = EAGLE_TAPS;
    if (behind) list = json_get(json_get(root, "eagle_config"), name);
    if (list && !cJSON_IsArray(list)) return err_set(ERR_FORMAT, "member '%s' is no list", name);
    if (cJSON_GetArraySize(list) == 0) return 0; /* an empty one says nothing, either */
    cJSON_ArrayForEach(item, list) {
        int64_t layer;
        if (!json_int(item, &layer) || layer < 0 || layer >= LAYERS_MAX || count == EAGLE_TAPS)
            return err_set(ERR_FORMAT, "member '%s' is no list of %d layers", name, (int)EAGLE_TAPS);
        e->taps[count++] = (int32_t)layer + behind;
    }
    return count == EAGLE_TAPS ? 0 : err_set(ERR_FORMAT, "member '%s' is no list of %d layers", name, (int)EAGLE_TAPS);
}

static int read_eagle(struct model_config *c, const cJSON *root) {
    struct drafter_config *e = &c->drafter;
    bool taps;
    e->is_there = true;
    TRY(json_get_bool(json_get(root, "eagle_config"), "use_aux_hidden_state", true, &taps));
    if (!taps) return err_set(ERR_UNSUPPORTED, "use_aux_hidden_state false is not supported");
    TRY(read_taps(e, root));
    TRY(config_get_int(root, "target_hidden_size", c->width, 1, 1 << 20, &e->target_width));
    TRY(config_get_int(root, "draft_vocab_size", c->vocab, 1, c->vocab, &e->head_vocab));
    return json_get_bool(root, "norm_before_residual", false, &e->norms_residual);
}

static int configure(struct model_config *c, const cJSON *outer) {
    const cJSON *layer = json_get(outer, "transformer_layer_config"), *root = layer ? layer : outer;
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 2048}));
    if (c->layers != 1) return err_set(ERR_UNSUPPORTED, "%d layers are not supported, only one", (int)c->layers);
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    TRY(config_refuse_true(root, "mlp_bias", "duet's MLP has no bias"));
    TRY(read_eagle(c, outer));
    c->tied = false; /* whatever is said: the head is one of its own */
    return config_read_rope(c, root, 10000);
}

/* Names begin in one of these ways. */
static void find_names(struct binder *b) {
    static const char *const bodies[] = {"", "model."}, *const layers[] = {"midlayer.", "layers.0."};
    b->body = b->outer = "";
    snprintf(b->layer, sizeof b->layer, "%s", layers[0]);
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "%shidden_norm.weight", layers[i % 2]);
        b->body = bodies[i / 2];
        if (!binder_has(b, name)) continue;
        snprintf(b->layer, sizeof b->layer, "%s%s", bodies[i / 2], layers[i % 2]);
        return;
    }
    b->body = bodies[0];
}

static void bind_model(struct binder *b) {
    const struct model_config *c = b->c;
    const struct layer_config *lc = &c->layer[0];
    struct model *m = b->m;
    struct layer *l = &m->layers[0];
    const int64_t d = c->width, q = (int64_t)c->heads * lc->head_dim, kv = (int64_t)lc->kv_heads * lc->head_dim;
    find_names(b);
    bind_ignore(b, "d2t");
    bind_ignore(b, "t2d");
    bind_head_ends(b);
    bind_weight(b, &m->join, d, EAGLE_TAPS * (int64_t)c->drafter.target_width, "fc.weight");
    bind_norm(b, &m->embedding_norm, 0, d, "layers.0.input_layernorm.weight");
    bind_norm(b, &m->hidden_norm, 0, d, "layers.0.hidden_norm.weight");
    bind_weight(b, &l->wq, q, 2 * d, "layers.0.self_attn.q_proj.weight");
    bind_weight(b, &l->wk, kv, 2 * d, "layers.0.self_attn.k_proj.weight");
    bind_weight(b, &l->wv, kv, 2 * d, "layers.0.self_attn.v_proj.weight");
    bind_weight(b, &l->wo, d, q, "layers.0.self_attn.o_proj.weight");
    bind_norm(b, &l->mlp_norm, 0, d, "layers.0.post_attention_layernorm.weight");
    bind_mlp(b, 0);
    bind_norm(b, &m->norm, 0, d, "norm.weight");
}

const struct family family_eagle3 = {
    .architectures = (const char *const[]){"LlamaForCausalLMEagle3", NULL},
    .model_types = (const char *const[]){"llama_eagle3", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_eagle,
};
