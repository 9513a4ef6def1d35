/* DFlash (Chen et al. 2026): layers of a Qwen 3 that draft a block for another model in one pass. The block is the sequence's last token and
 * the id of a mask behind it; each row of a mask gives the token at its place, and all see each other and the keys and values of the tokens
 * before. Those are made of hidden rows of that model, brought to its width and normed, the same row for every layer: the model's own passes
 * write them (build_context). Embedding and head are the model's. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"
#include "model/families/qwen.h"

/* Rows behind these layers, ascending. */
static int read_taps(struct drafter_config *d, const cJSON *list) {
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        int64_t layer;
        if (!json_int(item, &layer) || layer < 0 || layer >= LAYERS_MAX || d->tap_count == TAPS_MAX)
            return err_set(ERR_FORMAT, "member 'target_layer_ids' is no list of at most %d layers", (int)TAPS_MAX);
        d->taps[d->tap_count++] = (int32_t)layer + 1;
    }
    return d->tap_count > 0 ? 0 : err_set(ERR_FORMAT, "member 'target_layer_ids' is missing or no list of layers");
}

static int read_drafter(struct model_config *c, const cJSON *root) {
    struct drafter_config *d = &c->drafter;
    const cJSON *own = json_get(root, "dflash_config");
    d->is_there = true;
    TRY(read_taps(d, json_get(own, "target_layer_ids")));
    if (!json_get(own, "mask_token_id")) return err_set(ERR_FORMAT, "member 'mask_token_id' is missing");
    TRY(config_get_int(own, "mask_token_id", 0, 0, INT32_MAX, &d->mask_id));
    TRY(config_refuse_true(own, "causal_head", "duet knows heads that draft each token of a block by itself"));
    const cJSON *block = json_get(own, "block_size") ? own : root;
    TRY(config_get_int(block, "block_size", 16, 2, 64, &d->block));
    d->head_vocab = c->vocab, d->target_width = c->width;
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    bool slides[LAYERS_MAX] = {0}, given;
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 32768}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    TRY(config_refuse_true(root, "use_sliding_window", "a block sees all tokens before it"));
    TRY(config_read_layer_types(c, root, "sliding_attention", slides, &given));
    for (int l = 0; l < c->layers; l++)
        if (slides[l]) return err_set(ERR_UNSUPPORTED, "layers that slide are not supported, which layer %d is", l);
    c->qk_norm = true;
    c->tied = false; /* whatever is said: it has no embedding */
    TRY(read_drafter(c, root));
    return config_read_rope(c, root, 10000);
}

static void bind_model(struct binder *b) {
    const struct model_config *c = b->c;
    struct model *m = b->m;
    b->body = b->outer = "";
    if (!binder_has(b, "fc.weight")) b->body = "model.";
    m->shares_embedding = m->shares_head = true;
    bind_weight(b, &m->join, c->width, (int64_t)c->drafter.tap_count * c->width, "fc.weight");
    bind_norm(b, &m->hidden_norm, 0, c->width, "hidden_norm.weight");
    bind_norm(b, &m->norm, 0, c->width, "norm.weight");
    for (int l = 0; l < c->layers; l++) {
        qwen_bind_attention(b, l);
        bind_mlp(b, l);
    }
}

const struct family family_dflash = {
    .architectures = (const char *const[]){"DFlashDraftModel", NULL},
    .model_types = (const char *const[]){"dflash", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
