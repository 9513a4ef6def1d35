/* Qwen 2 and Qwen 3: a Llama with biases on q, k and v (2) or a norm of each head of q and k (3), and a sliding window on the upper
 * layers where asked for. */
#include "model/families/qwen.h"
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* Layers from max_window_layers on slide where use_sliding_window says so; layer_types overrules which. */
int qwen_read_windows(struct model_config *c, const cJSON *root) {
    bool used, given, slides[LAYERS_MAX] = {0}, any = false;
    int32_t window = 0, first;
    TRY(json_get_bool(root, "use_sliding_window", false, &used));
    int32_t def = cJSON_GetObjectItemCaseSensitive(root, "sliding_window") ? 0 : 4096; /* null is none, as 0 is */
    if (used) TRY(config_get_int(root, "sliding_window", def, 0, 1 << 30, &window));
    TRY(config_get_int(root, "max_window_layers", 28, 0, INT32_MAX, &first));
    for (int l = 0; l < c->layers; l++) slides[l] = window > 0 && l >= first;
    TRY(config_read_layer_types(c, root, slides, &given));
    for (int l = 0; l < c->layers; l++) any = any || slides[l];
    if (any && window == 0) return err_set(ERR_UNSUPPORTED, "layer_types and sliding_window contradict each other");
    config_set_windows(c, window, slides);
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    const bool is_qwen3 = c->architecture == family_qwen.architectures[1];
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 32768}));
    TRY(config_check_activation(root, "silu"));
    if (is_qwen3)
        TRY(config_refuse_true(root, "attention_bias",
                               "it gives the attention's output a bias, which duet does not have"));
    TRY(config_refuse_true(root, "mlp_bias", "duet's MLP has no bias"));
    c->qkv_bias = !is_qwen3;
    c->qk_norm = is_qwen3;
    TRY(qwen_read_windows(c, root));
    return config_read_rope(c, root, 10000);
}

void qwen_bind_attention(struct binder *b, int l) {
    struct layer *layer = &b->m->layers[l];
    bind_norm(b, &layer->attn_norm, 0, b->c->width, "layers.%d.input_layernorm.weight", l);
    bind_norm(b, &layer->mlp_norm, 0, b->c->width, "layers.%d.post_attention_layernorm.weight", l);
    bind_attention(b, l);
    if (!b->c->qk_norm) return;
    bind_norm(b, &layer->q_norm, 0, b->c->head_dim, "layers.%d.self_attn.q_norm.weight", l);
    bind_norm(b, &layer->k_norm, 0, b->c->head_dim, "layers.%d.self_attn.k_norm.weight", l);
}

static void bind_model(struct binder *b) {
    static const struct binder_prefix prefixes[] = {{"model.", ""}, {0}};
    binder_find_prefix(b, prefixes);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        qwen_bind_attention(b, l);
        bind_mlp(b, l);
    }
}

const struct family family_qwen = {
    .architectures = (const char *const[]){"Qwen2ForCausalLM", "Qwen3ForCausalLM", NULL},
    .model_types = (const char *const[]){"qwen2", "qwen3", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
