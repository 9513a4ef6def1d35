/* Gemma 3, alone or inside the multimodal wrapper: Gemma 2 without caps, with norms of each head of q and k, and two ropes: layers
 * that slide have a base of their own, and are not scaled (Gemma Team 2025). */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/gemma.h"

int gemma_read_ropes(struct model_config *c, const cJSON *root, int32_t full_head_dim) {
    const cJSON *by_kind = json_get(root, "rope_parameters");
    const cJSON *full = json_get(by_kind, "full_attention"), *sliding = json_get(by_kind, "sliding_attention");
    double local;
    if (full || sliding) {
        TRY(config_add_rope(c, root, full, 1000000, full_head_dim));
        TRY(config_add_rope(c, NULL, sliding, 10000, c->head_dim));
    } else {
        TRY(json_get_number(root, "rope_local_base_freq", 10000, &local));
        TRY(config_add_rope(c, root, json_get(root, "rope_scaling"), 1000000, full_head_dim));
        TRY(config_add_rope(c, NULL, NULL, local, c->head_dim));
    }
    for (int l = 0; l < c->layers; l++) c->layer[l].rope = c->layer[l].window > 0;
    return 0;
}

static int read_windows(struct model_config *c, const cJSON *root) {
    bool slides[LAYERS_MAX];
    int32_t pattern;
    const char *name = json_get(root, "sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    TRY(config_get_int(root, name, 6, 1, LAYERS_MAX, &pattern));
    for (int l = 0; l < c->layers; l++) slides[l] = (l + 1) % pattern != 0;
    return config_read_windows(c, root, 4096, 0, slides);
}

static int configure(struct model_config *c, const cJSON *outer) {
    const cJSON *root = config_text(outer);
    TRY(config_read_dimensions(
        c, root,
        &(struct dimension_defaults){
            .positions = 131072, .heads = 8, .kv_heads = 4, .head_dim = 256, .vocab = 262208, .tied = true}));
    TRY(gemma_read_shared(c, root));
    TRY(gemma_read_cap(root, "attn_logit_softcapping", 0, &c->attention_cap));
    TRY(gemma_read_cap(root, "final_logit_softcapping", 0, &c->logits_cap));
    TRY(config_refuse_true(root, "use_bidirectional_attention", "duet's attention looks back alone"));
    c->qk_norm = true;
    TRY(read_windows(c, root));
    return gemma_read_ropes(c, root, c->head_dim);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, true);
    bind_ends(b, 1);
    for (int l = 0; l < b->c->layers; l++) {
        gemma_bind_norms(b, l, 1);
        bind_attention(b, l);
        bind_qk_norms(b, 1, l);
        bind_mlp(b, l);
    }
}

const struct family family_gemma3 = {
    .architectures = (const char *const[]){"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", NULL},
    .model_types = (const char *const[]){"gemma3_text", "gemma3", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_sandwiched_layers,
};
