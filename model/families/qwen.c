/* Qwen 2 and Qwen 3, alone or inside the multimodal Qwen2-VL, Qwen2.5-VL and Qwen3-VL: a Llama with biases on q, k and v (2) or a norm
 * of each head of q and k (3), and a sliding window on the upper layers where asked for. The wrappers turn a head by three positions
 * (time, height, width), which are the same for text: that is the plain rotation. */
#include "model/families/qwen.h"

#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* Layers from max_window_layers on slide where use_sliding_window says so; layer_types overrules which. */
int qwen_read_windows(struct model_config *c, const cJSON *root, int32_t first) {
    bool used, given, slides[LAYERS_MAX] = {0}, any = false;
    int32_t window = 0;
    TRY(json_get_bool(root, "use_sliding_window", false, &used));
    int32_t def = cJSON_GetObjectItemCaseSensitive(root, "sliding_window") ? 0 : 4096; /* null is none, as 0 is */
    if (used) TRY(config_get_int(root, "sliding_window", def, 0, 1 << 30, &window));
    TRY(config_get_int(root, "max_window_layers", first, 0, INT32_MAX, &first));
    for (int l = 0; l < c->layers; l++) slides[l] = window > 0 && l >= first;
    TRY(config_read_layer_types(c, root, "sliding_attention", slides, &given));
    for (int l = 0; l < c->layers; l++) any = any || slides[l];
    if (any && window == 0) return err_set(ERR_UNSUPPORTED, "layer_types and sliding_window contradict each other");
    config_set_windows(c, window, slides);
    return 0;
}

int qwen_read_wrapped_rope(struct model_config *c, const cJSON *root) {
    const cJSON *rope = json_get(root, "rope_parameters");
    if (!rope) rope = json_get(root, "rope_scaling");
    if (!json_get(root, "rope_theta") && !json_get(rope, "rope_theta"))
        return err_set(ERR_FORMAT, "member 'rope_theta' is missing");
    return config_read_rope(c, root, 0);
}

static int configure(struct model_config *c, const cJSON *outer) {
    static const struct dimension_defaults flat = {.positions = 32768},
                                           qwen2_vl = {.positions = 32768,
                                                       .vocab = 152064,
                                                       .kv_heads = 8,
                                                       .norm_eps = 1e-5},
                                           qwen3_vl = {
                                               .positions = 128000, .vocab = 151936, .kv_heads = 32, .head_dim = 128};
    const bool is_vl = config_is_wrapper(c), is_qwen3 = strncmp(c->architecture, "Qwen3", 5) == 0;
    const cJSON *root = is_vl ? config_text(outer) : outer;
    TRY(config_read_dimensions(c, root, !is_vl ? &flat : is_qwen3 ? &qwen3_vl : &qwen2_vl));
    TRY(config_check_activation(root, "silu"));
    if (is_qwen3)
        TRY(config_refuse_true(root, "attention_bias",
                               "it gives the attention's output a bias, which duet does not have"));
    TRY(config_refuse_true(root, "mlp_bias", "duet's MLP has no bias"));
    c->qkv_bias = !is_qwen3;
    c->qk_norm = is_qwen3;
    if (is_vl && is_qwen3) return qwen_read_wrapped_rope(c, root); /* which has no windows */
    TRY(qwen_read_windows(c, root, is_vl ? 80 : 28));
    return config_read_rope(c, root, is_vl ? 1000000 : 10000);
}

void qwen_bind_attention(struct binder *b, int l) {
    bind_norms_before(b, 0, l);
    bind_attention(b, l);
    if (!b->c->qk_norm) return;
    bind_qk_norms(b, 0, l);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, config_is_wrapper(b->c));
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        qwen_bind_attention(b, l);
        bind_mlp(b, l);
    }
}

const struct family family_qwen = {
    .architectures =
        (const char *const[]){"Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen2VLForConditionalGeneration",
                              "Qwen2_5_VLForConditionalGeneration", "Qwen3VLForConditionalGeneration", NULL},
    .model_types = (const char *const[]){"qwen2", "qwen3", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text",
                                         "qwen3_vl", "qwen3_vl_text", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
