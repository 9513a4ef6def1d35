/* Granite with experts, weighted by the softmax of the chosen; and Granite 4, whose MLP has its projections under other names, perhaps with
 * experts beside it, and of whose layers some, or most, are recurrent. */
#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/granite.h"
#include "model/families/mamba.h"

static bool is_granite4(const struct model_config *c) {
    return strcmp(c->architecture, family_granite_moe.architectures[1]) == 0;
}

static int read_experts(struct model_config *c, const cJSON *root) {
    TRY(config_read_experts(c, root, "num_experts_per_tok", "intermediate_size"));
    c->experts_scale = c->residual_scale;
    return 0;
}

/* Without layer_types all layers are recurrent. */
static int read_layers(struct model_config *c, const cJSON *root) {
    const cJSON *types = json_get(root, "layer_types"), *type;
    int layers = 0;
    for (int l = 0; l < c->layers; l++) c->layer[l].is_recurrent = true;
    if (!types) return 0;
    if (!cJSON_IsArray(types)) return err_set(ERR_FORMAT, "member 'layer_types' is no list");
    cJSON_ArrayForEach(type, types) {
        TRY(config_need_string(type, "layer_types"));
        const bool is_recurrent = config_is_text(type, "mamba") || config_is_text(type, "linear_attention");
        if (!is_recurrent && !config_is_text(type, "attention") && !config_is_text(type, "full_attention"))
            return err_set(ERR_UNSUPPORTED, "layers of type '%s' are not supported", type->valuestring);
        if (layers < c->layers) c->layer[layers].is_recurrent = is_recurrent;
        layers++;
    }
    if (layers != c->layers) return err_set(ERR_FORMAT, "layer_types has %d entries, expected %d", layers, c->layers);
    return 0;
}

static bool has_recurrent_layers(const struct model_config *c) {
    for (int l = 0; l < c->layers; l++)
        if (c->layer[l].is_recurrent) return true;
    return false;
}

static const struct mamba_members mamba = {.heads = {"mamba_n_heads", 128},
                                           .groups = {"mamba_n_groups", 1},
                                           .state = {"mamba_d_state", 256},
                                           .taps = {"mamba_d_conv", 4},
                                           .head_dim = {"mamba_d_head", 0},
                                           .conv_bias = "mamba_conv_bias",
                                           .expand = "mamba_expand"};

/* Without "rope" as the type of its positions it has none. */
static int read_granite4(struct model_config *c, const cJSON *root) {
    int32_t experts;
    bool still[LAYERS_MAX];
    TRY(read_layers(c, root));
    if (has_recurrent_layers(c)) TRY(mamba_read(c, root, &mamba));
    TRY(config_get_int(root, "num_local_experts", 8, 0, INT32_MAX, &experts));
    TRY(config_need_int(root, "shared_intermediate_size", INT32_MAX, &c->hidden));
    for (int l = 0; l < c->layers; l++) c->layer[l].hidden = c->hidden, c->layer[l].has_experts = experts > 0;
    if (experts > 0) TRY(read_experts(c, root));
    if (config_is_text(json_get(root, "position_embedding_type"), "rope")) return config_read_rope(c, root, 10000);
    for (int l = 0; l < c->layers; l++) still[l] = true;
    config_hold_still(c, still);
    return 0;
}

static int configure(struct model_config *c, const cJSON *root) {
    TRY(granite_read(c, root));
    if (is_granite4(c)) return read_granite4(c, root);
    TRY(read_experts(c, root));
    return config_read_rope(c, root, 10000);
}

static void bind_experts_of(struct binder *b, int l) {
    static const char input[] = "layers.%d.block_sparse_moe.input_linear.weight",
                      output[] = "layers.%d.block_sparse_moe.output_linear.weight";
    struct layer *layer = &b->m->layers[l];
    const int64_t f = b->c->expert_hidden, d = b->c->width;
    bind_weight(b, &layer->router, b->c->experts, d, "layers.%d.block_sparse_moe.router.layer.weight", l);
    if (!binder_has_stack(b, 0, l, input)) { /* of a GGUF file, one by one */
        bind_experts(b, &layer->expert_gate, f, d, l, "layers.%d.block_sparse_moe.experts.%d.gate_proj.weight");
        bind_experts(b, &layer->expert_up, f, d, l, "layers.%d.block_sparse_moe.experts.%d.up_proj.weight");
        bind_experts(b, &layer->expert_down, d, f, l, "layers.%d.block_sparse_moe.experts.%d.down_proj.weight");
        return;
    }
    bind_stacked(b, &layer->expert_gate, f, d, (struct row_range){2 * f, 0, 1}, false, l, input);
    bind_stacked(b, &layer->expert_up, f, d, (struct row_range){2 * f, f, 1}, false, l, input);
    bind_stacked(b, &layer->expert_down, d, f, (struct row_range){d, 0, 1}, false, l, output);
}

static void bind_mlp_of(struct binder *b, int l) {
    static const char input[] = "layers.%d.shared_mlp.input_linear.weight";
    struct layer *layer = &b->m->layers[l];
    const int64_t f = b->c->hidden, d = b->c->width;
    if (binder_has(b, "layers.0.mlp.gate_proj.weight")) { /* a GGUF file */
        bind_mlp(b, l);
        return;
    }
    if (binder_has(b, "layers.0.mlp.shared_experts.gate_proj.weight")) { /* likewise, with experts */
        bind_shared_mlp(b, l, "shared_experts");
        return;
    }
    bind_rows(b, &layer->gate, f, d, (struct row_range){2 * f, 0, 1}, input, l);
    bind_rows(b, &layer->up, f, d, (struct row_range){2 * f, f, 1}, input, l);
    bind_weight(b, &layer->down, d, f, "layers.%d.shared_mlp.output_linear.weight", l);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, false);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        bind_norms_before(b, 0, l);
        if (b->c->layer[l].is_recurrent)
            mamba_bind(b, l);
        else
            bind_attention(b, l);
        if (is_granite4(b->c)) bind_mlp_of(b, l);
        if (b->c->experts > 0) bind_experts_of(b, l);
    }
}

static void build(struct builder *b) {
    if (is_granite4(b->c))
        build_mixed_layers(b);
    else
        build_expert_layers(b);
}

const struct family family_granite_moe = {
    .architectures = (const char *const[]){"GraniteMoeForCausalLM", "GraniteMoeHybridForCausalLM", NULL},
    .model_types = (const char *const[]){"granitemoe", "granitemoehybrid", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build,
};
