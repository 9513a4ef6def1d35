/* Nemotron-H and Nemotron Nano (NVIDIA 2025), with experts or without: a layer is one sublayer, recurrent by Mamba 2's rule, attention that turns
 * no heads, an MLP or experts beside an MLP; these square what is above zero, without a gate. Experts are chosen by the sums of a sigmoid
 * and a bias. GGUF files have a Llama's names. */
#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"
#include "model/families/mamba.h"

enum part { PART_RECURRENT, PART_ATTENTION, PART_MLP, PART_EXPERTS, PARTS };

/* By a letter of hybrid_override_pattern, or an entry of layers_block_type in its old and its new words. */
static const struct {
    char letter;
    const char *words[2];
} parts[PARTS] = {[PART_RECURRENT] = {'M', {"mamba", "linear_attention"}},
                  [PART_ATTENTION] = {'*', {"attention", "full_attention"}},
                  [PART_MLP] = {'-', {"mlp", "mlp"}},
                  [PART_EXPERTS] = {'E', {"moe", "moe"}}};

struct layers {
    enum part part[LAYERS_MAX];
    int count;
};

static int add_layer(struct layers *l, char letter, const char *word) {
    int part = 0;
    while (part < PARTS && letter != parts[part].letter && strcmp(word, parts[part].words[0]) != 0 &&
           strcmp(word, parts[part].words[1]) != 0)
        part++;
    if (part == PARTS && letter)
        return err_set(ERR_UNSUPPORTED, "hybrid_override_pattern has '%c', which is none of M, *, - and E", letter);
    if (part == PARTS) return err_set(ERR_UNSUPPORTED, "layers of type '%s' are not supported", word);
    if (l->count == LAYERS_MAX) return err_set(ERR_LIMIT, "more than %d layers are not supported", LAYERS_MAX);
    l->part[l->count++] = (enum part)part;
    return 0;
}

static int read_layers(const cJSON *root, struct layers *l) {
    const cJSON *types = json_get(root, config_member(root, "layers_block_type", "layer_types")), *type,
                *pattern = json_get(root, "hybrid_override_pattern");
    if (types) {
        if (!cJSON_IsArray(types)) return err_set(ERR_FORMAT, "member 'layers_block_type' is no list");
        cJSON_ArrayForEach(type, types) {
            TRY(config_need_string(type, "layers_block_type"));
            TRY(add_layer(l, 0, type->valuestring));
        }
    } else {
        if (!pattern) return err_set(ERR_FORMAT, "member 'hybrid_override_pattern' is missing");
        TRY(config_need_string(pattern, "hybrid_override_pattern"));
        for (const char *at = pattern->valuestring; *at; at++) TRY(add_layer(l, *at, ""));
    }
    return l->count > 0 ? 0 : err_set(ERR_FORMAT, "member 'hybrid_override_pattern' has no layer");
}

static int check_rest(const cJSON *root) {
    static const char *const biases[] = {"attention_bias", "mlp_bias", "use_bias"};
    const cJSON *activation = json_get(root, "mlp_hidden_act"), *latent = json_get(root, "moe_latent_size"),
                *window = json_get(root, "sliding_window");
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        TRY(config_refuse_true(root, biases[i], "duet's projections of these layers have no bias"));
    if (activation && !config_is_text(activation, "relu2"))
        return err_set(ERR_UNSUPPORTED, "mlp_hidden_act is not supported, only relu2");
    if (latent) return err_set(ERR_UNSUPPORTED, "moe_latent_size is not supported");
    if (window) return err_set(ERR_UNSUPPORTED, "sliding_window is not supported");
    return 0;
}

static int read_experts(struct model_config *c, const cJSON *root, int32_t *shared) {
    TRY(config_check_groups(root));
    TRY(config_read_experts_as(c, root, config_member(root, "n_routed_experts", "num_local_experts"),
                               "num_experts_per_tok", "moe_intermediate_size"));
    TRY(config_need_int(root, "moe_shared_expert_intermediate_size", 1 << 20, shared));
    TRY(json_get_bool(root, "norm_topk_prob", true, &c->router_renormalises));
    TRY(config_get_float(root, "routed_scaling_factor", 1, &c->experts_scale));
    c->router_scores = SCORES_SIGMOID;
    return 0;
}

static const struct mamba_members mamba = {.heads = {"mamba_num_heads", 128},
                                           .groups = {"n_groups", 8},
                                           .state = {"ssm_state_size", 128},
                                           .taps = {"conv_kernel", 4},
                                           .head_dim = {"mamba_head_dim", 64},
                                           .conv_bias = "use_conv_bias"};

static int read_parts(struct model_config *c, const cJSON *root, const struct layers *l) {
    bool has[PARTS] = {0}, still[LAYERS_MAX];
    int32_t shared = 0;
    for (int i = 0; i < l->count; i++) has[l->part[i]] = still[i] = true;
    if (has[PART_RECURRENT]) TRY(mamba_read(c, root, &mamba));
    if (has[PART_EXPERTS]) TRY(read_experts(c, root, &shared));
    for (int i = 0; i < l->count; i++) {
        struct layer_config *layer = &c->layer[i];
        layer->is_recurrent = l->part[i] == PART_RECURRENT;
        layer->has_experts = l->part[i] == PART_EXPERTS;
        layer->has_no_mixer = l->part[i] == PART_MLP || layer->has_experts;
        layer->has_no_mlp = !layer->has_no_mixer;
        if (layer->has_experts) layer->hidden = shared;
    }
    config_hold_still(c, still);
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    struct layers layers = {.count = 0};
    TRY(read_layers(root, &layers));
    const struct dimension_defaults defaults = {
        .positions = 4096,
        .heads = 32,
        .vocab = 131072,
        .hidden = 21504,
        .kv_heads = 8,
        .head_dim = 128,
        .norm_eps = 1e-5,
        .layers = layers.count,
        .eps_member = config_member(root, "layer_norm_epsilon", "rms_norm_eps"),
    };
    TRY(config_read_dimensions(c, root, &defaults));
    TRY(check_rest(root));
    TRY(config_get_int(root, "num_nextn_predict_layers", 0, 0, LAYERS_MAX, &c->next_layers));
    c->activation = ACTIVATION_RELU2;
    return read_parts(c, root, &layers);
}

static void bind_experts_and_mlp(struct binder *b, int l) {
    static const char up[] = "layers.%d.mlp.experts.up_proj", down[] = "layers.%d.mlp.experts.down_proj";
    struct layer *layer = &b->m->layers[l];
    const int64_t f = b->c->expert_hidden, d = b->c->width;
    bind_weight(b, &layer->router, b->c->experts, d, "layers.%d.mlp.gate.weight", l);
    bind_exact(b, &layer->choice_bias, b->c->experts, "layers.%d.mlp.gate.e_score_correction_bias", l);
    if (binder_has_stack(b, 0, l, up)) {
        bind_stacked(b, &layer->expert_gate, f, d, (struct row_range){f, 0, 1}, false, l, up);
        bind_stacked(b, &layer->expert_down, d, f, (struct row_range){d, 0, 1}, false, l, down);
        return;
    }
    bind_experts(b, &layer->expert_gate, f, d, l, "layers.%d.mlp.experts.%d.up_proj.weight");
    bind_experts(b, &layer->expert_down, d, f, l, "layers.%d.mlp.experts.%d.down_proj.weight");
}

static void bind_mlp_of(struct binder *b, int l) {
    const bool has_experts = b->c->layer[l].has_experts;
    bind_norm(b, &b->m->layers[l].mlp_norm, 0, b->c->width, "layers.%d.input_layernorm.weight", l);
    bind_ungated_mlp(b, l, has_experts ? "mlp.shared_experts" : "mlp", false);
    if (has_experts) bind_experts_and_mlp(b, l);
}

static void bind_layer(struct binder *b, int l) {
    if (b->c->layer[l].has_no_mixer) {
        bind_mlp_of(b, l);
        return;
    }
    bind_norm(b, &b->m->layers[l].attn_norm, 0, b->c->width, "layers.%d.input_layernorm.weight", l);
    if (b->c->layer[l].is_recurrent)
        mamba_bind(b, l);
    else
        bind_attention(b, l);
}

static void bind_model(struct binder *b) {
    /* The norm of a recurrent layer stands aside while the last one is renamed. */
    static const struct renaming names[] = {{".mamba.norm.", ".mixer.gated_norm."},
                                            {".norm.", ".norm_f."},
                                            {".gated_norm.", ".norm."},
                                            {".embed_tokens.", ".embeddings."},
                                            {".input_layernorm.", ".norm."},
                                            {".mamba.", ".mixer."},
                                            {".self_attn.", ".mixer."},
                                            {".mlp.", ".mixer."},
                                            {NULL, NULL}};
    static const char *const bodies[] = {"model.", "backbone."};
    binder_find_text(b, false);
    if (!binder_has(b, "embed_tokens.weight")) {
        b->renamings = names;
        for (int i = 0; i < 2; i++) {
            b->body = bodies[i];
            if (binder_has(b, "embeddings.weight")) break;
        }
    }
    bind_ends(b, 0);
    bind_ignore(b, "mtp."); /* a head that proposes more tokens */
    for (int l = 0; l < b->c->layers; l++) bind_layer(b, l);
}

const struct family family_nemotron_h = {
    .architectures = (const char *const[]){"NemotronHForCausalLM", NULL},
    .model_types = (const char *const[]){"nemotron_h", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_mixed_layers,
};
