/* Gemma 4: dense (31B), with experts beside the MLP (26B-A4B), and E (E2B, E4B), where late layers use the keys and values of
 * earlier ones and every layer has an input of its own besides the residual stream. Norms are plain; values are normalised without
 * a weight; full layers have larger heads, of which few pairs turn, and may take k for v. */
#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/gemma.h"

/* --- configuration ------------------------------------------------------------------------------------------------ */

static int read_windows(struct model_config *c, const cJSON *root) {
    bool slides[LAYERS_MAX];
    for (int l = 0; l < c->layers; l++) slides[l] = (l + 1) % 6 != 0 && l + 1 < c->layers;
    return config_read_windows(c, root, 512, 1, slides);
}

/* Members of one layer, as transformers 5 saves them. */
static int read_layer(struct model_config *c, const cJSON *root, int l) {
    char key[16];
    snprintf(key, sizeof key, "%d", l);
    const cJSON *own = json_get(json_get(root, "per_layer_config"), key);
    struct layer_config *layer = &c->layer[l];
    TRY(config_get_int(own, "head_dim", layer->head_dim, HEAD_DIM_MIN, HEAD_DIM_MAX, &layer->head_dim));
    TRY(config_get_int(own, "num_key_value_heads", layer->kv_heads, 1, c->heads, &layer->kv_heads));
    if (layer->head_dim % 2 != 0 || c->heads % layer->kv_heads != 0)
        return err_set(ERR_UNSUPPORTED, "layer %d has heads of %d dimensions, %d of %d for keys and values", l,
                       layer->head_dim, layer->kv_heads, c->heads);
    return 0;
}

static int read_full_layers(struct model_config *c, const cJSON *root, int32_t *full_head_dim) {
    bool v_is_k;
    int32_t kv_heads;
    TRY(json_get_bool(root, "attention_k_eq_v", false, &v_is_k));
    TRY(config_get_int(root, "global_head_dim", c->head_dim, HEAD_DIM_MIN, HEAD_DIM_MAX, full_head_dim));
    TRY(config_get_int(root, "num_global_key_value_heads", c->kv_heads, 1, c->heads, &kv_heads));
    for (int l = 0; l < c->layers; l++) {
        struct layer_config *layer = &c->layer[l];
        if (layer->window == 0) {
            layer->head_dim = *full_head_dim, layer->v_is_k = v_is_k;
            if (v_is_k) layer->kv_heads = kv_heads;
        }
        TRY(read_layer(c, root, l));
        if (layer->window == 0)
            *full_head_dim = layer->head_dim;
        else if (layer->head_dim != c->head_dim)
            return err_set(ERR_UNSUPPORTED, "layer %d slides and has heads of %d dimensions, others of %d", l,
                           layer->head_dim, c->head_dim);
    }
    return 0;
}

/* The last num_kv_shared_layers use the keys of the last one before them of their own kind. */
static int read_shared_layers(struct model_config *c, const cJSON *root) {
    int32_t shared;
    bool is_wide;
    TRY(config_get_int(root, "num_kv_shared_layers", 0, 0, c->layers - 1, &shared));
    TRY(json_get_bool(root, "use_double_wide_mlp", false, &is_wide));
    for (int l = c->layers - shared; l < c->layers; l++) {
        struct layer_config *layer = &c->layer[l];
        int from = c->layers - shared - 1;
        while (from >= 0 && (c->layer[from].window > 0) != (layer->window > 0)) from--;
        if (from < 0) return err_set(ERR_FORMAT, "layer %d has no layer whose keys it could share", l);
        if (c->layer[from].head_dim != layer->head_dim || c->layer[from].kv_heads != layer->kv_heads)
            return err_set(ERR_UNSUPPORTED, "layer %d shares keys of another shape", l);
        layer->kv_layer = from;
        if (is_wide) layer->hidden *= 2;
    }
    return 0;
}

static int read_experts(struct model_config *c, const cJSON *root) {
    bool has;
    TRY(json_get_bool(root, "enable_moe_block", false, &has));
    if (!has) return 0;
    TRY(config_read_experts(c, root, "top_k_experts", "moe_intermediate_size"));
    c->router_scores = SCORES_OF_ALL, c->router_renormalises = true;
    c->router_scale = 1.0f / sqrtf((float)c->width);
    for (int l = 0; l < c->layers; l++) c->layer[l].has_experts = true;
    return 0;
}

int gemma4_read_text(struct model_config *c, const cJSON *root) {
    int32_t full_head_dim;
    TRY(config_read_dimensions(
        c, root,
        &(struct dimension_defaults){
            .positions = 131072, .kv_heads = 4, .head_dim = 256, .vocab = 262144, .tied = true}));
    TRY(gemma_read_shared(c, root));
    TRY(gemma_read_cap(root, "final_logit_softcapping", 0, &c->logits_cap));
    if (config_is_text(json_get(root, "use_bidirectional_attention"), "all"))
        return err_set(ERR_UNSUPPORTED,
                       "use_bidirectional_attention 'all' is not supported: duet's attention looks back alone");
    c->attention_scale = 1;
    c->qk_norm = true;
    TRY(read_windows(c, root));
    TRY(read_full_layers(c, root, &full_head_dim));
    return gemma_read_ropes(c, root, full_head_dim);
}

static int configure(struct model_config *c, const cJSON *outer) {
    const cJSON *root = config_text(outer);
    TRY(gemma4_read_text(c, root));
    TRY(read_shared_layers(c, root));
    TRY(read_experts(c, root));
    TRY(config_get_int(root, "hidden_size_per_layer_input", 0, 0, 1 << 16, &c->per_layer_width));
    return config_get_int(root, "vocab_size_per_layer_input", c->vocab, 1, 1 << 20, &c->per_layer_vocab);
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static void bind_heads(struct binder *b, int l) {
    struct layer *layer = &b->m->layers[l];
    const struct layer_config *lc = &b->c->layer[l];
    bind_attention(b, l);
    bind_norm(b, &layer->q_norm, 0, lc->head_dim, "layers.%d.self_attn.q_norm.weight", l);
    if (b->c->drafter.reads_keys) return;
    if (lc->kv_layer != l) { /* the files hold them all the same */
        bind_unused(b, "layers.%d.self_attn.k_proj.weight", l);
        bind_unused(b, "layers.%d.self_attn.v_proj.weight", l);
        bind_unused(b, "layers.%d.self_attn.k_norm.weight", l);
        return;
    }
    bind_norm(b, &layer->k_norm, 0, lc->head_dim, "layers.%d.self_attn.k_norm.weight", l);
    layer->v_norm = (struct norm){.kind = NORM_RMS, .eps = b->c->norm_eps};
}

void gemma4_bind_layer(struct binder *b, int l) {
    gemma_bind_norms(b, l, 0);
    bind_heads(b, l);
    bind_mlp(b, l);
    bind_weight(b, &b->m->layers[l].layer_scale, 1, 1, "layers.%d.layer_scalar", l);
}

static void bind_experts_of(struct binder *b, int l) {
    struct layer *layer = &b->m->layers[l];
    const int64_t e = b->c->experts, f = b->c->expert_hidden, d = b->c->width;
    const struct row_range gate = {2 * f, 0, 1}, up = {2 * f, f, 1}, down = {d, 0, 1};
    bind_norm(b, &layer->post_dense_norm, 0, d, "layers.%d.post_feedforward_layernorm_1.weight", l);
    bind_norm(b, &layer->expert_norm, 0, d, "layers.%d.pre_feedforward_layernorm_2.weight", l);
    bind_norm(b, &layer->post_expert_norm, 0, d, "layers.%d.post_feedforward_layernorm_2.weight", l);
    bind_norm(b, &layer->router_norm, 0, d, "layers.%d.router.scale", l);
    bind_weight(b, &layer->router, e, d, "layers.%d.router.proj.weight", l);
    bind_weight(b, &layer->expert_scale, 1, e, "layers.%d.router.per_expert_scale", l);
    bind_stacked(b, &layer->expert_gate, f, d, gate, false, l, "layers.%d.experts.gate_up_proj");
    bind_stacked(b, &layer->expert_up, f, d, up, false, l, "layers.%d.experts.gate_up_proj");
    bind_stacked(b, &layer->expert_down, d, f, down, false, l, "layers.%d.experts.down_proj");
}

static void bind_layer_inputs(struct binder *b) {
    struct model *m = b->m;
    const int64_t p = b->c->per_layer_width, all = p * b->c->layers, d = b->c->width;
    bind_weight(b, &m->layer_embedding, b->c->per_layer_vocab, all, "embed_tokens_per_layer.weight");
    bind_weight(b, &m->layer_projection, all, d, "per_layer_model_projection.weight");
    bind_norm(b, &m->layer_input_norm, 0, p, "per_layer_projection_norm.weight");
    for (int l = 0; l < b->c->layers; l++) {
        struct layer *layer = &m->layers[l];
        bind_weight(b, &layer->input_gate, p, d, "layers.%d.per_layer_input_gate.weight", l);
        bind_weight(b, &layer->input_projection, d, p, "layers.%d.per_layer_projection.weight", l);
        bind_norm(b, &layer->post_input_norm, 0, d, "layers.%d.post_per_layer_input_norm.weight", l);
    }
}

static void bind_model(struct binder *b) {
    binder_find_text(b, true);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        gemma4_bind_layer(b, l);
        if (b->c->layer[l].has_experts) bind_experts_of(b, l);
    }
    if (b->c->per_layer_width > 0) bind_layer_inputs(b);
}

/* --- the pass ------------------------------------------------------------------------------------------------------ */

static size_t inputs_width(const struct builder *b) {
    return (size_t)b->c->layers * (size_t)b->c->per_layer_width;
}

static float *layer_inputs(struct builder *b) {
    return builder_scratch(b, SCRATCH_LAYER_INPUTS, inputs_width(b));
}

/* (norm(W x / sqrt(D)) + sqrt(P) embedding) / sqrt(2), P numbers for each layer. */
static void build_layer_inputs(struct builder *b) {
    const int32_t p = b->c->per_layer_width;
    float *projected = builder_scratch(b, SCRATCH_LAYER_INPUTS_PROJECTED, inputs_width(b));
    struct op_embed *embed = build_embed(b);
    embed->table = b->m->layer_embedding;
    embed->scale = sqrtf((float)p);
    embed->out = layer_inputs(b);
    struct op_logits *project = build_head(b);
    project->norm = (struct norm){.kind = NORM_NONE};
    project->w = b->m->layer_projection;
    project->scale = 1.0f / sqrtf((float)b->c->width), project->cap = 0;
    project->vocab = (int32_t)inputs_width(b);
    project->logits = projected;
    struct op_add_norm *add = build_add_norm(b, &b->m->layer_input_norm);
    add->y = projected, add->x = layer_inputs(b);
    add->width = p, add->parts = b->c->layers;
    add->last_scale = sqrtf(0.5f);
}

static void build_mlp_and_experts(struct builder *b, int l) {
    const struct layer *layer = &b->m->layers[l];
    float *dense = builder_scratch(b, SCRATCH_DENSE_OUTPUT, (size_t)b->c->width);
    build_gate_up(b, l);
    struct op_add_norm *add = build_normed_down(b, l);
    if (!b->c->layer[l].has_experts) return;
    add->norm = layer->post_dense_norm;
    add->x = dense, add->stores = true;
    struct op_experts_down *experts = build_experts(b, l, &layer->router_norm, &layer->expert_norm);
    experts->x = builder_output(b), experts->stores = true;
    build_add_norm(b, &layer->post_expert_norm)->x = dense;
    build_add_norm(b, &layer->post_mlp_norm)->y = dense;
}

/* x += norm(W (gelu(G x) inputs of this layer)) */
static void build_layer_input(struct builder *b, int l) {
    const struct layer *layer = &b->m->layers[l];
    float *inputs = layer_inputs(b);
    struct op_gate_up *gate = build_gate_up(b, l);
    gate->norm = (struct norm){.kind = NORM_NONE};
    gate->gate = layer->input_gate, gate->up = (struct weight){0};
    gate->times = inputs ? inputs + l * b->c->per_layer_width : NULL;
    gate->times_stride = (int32_t)inputs_width(b);
    gate->hidden = b->c->per_layer_width;
    struct op_add_norm *add = build_normed_down(b, l);
    add->norm = layer->post_input_norm;
    b->pass->ops[b->pass->count - 2].project.w = layer->input_projection;
}

void gemma4_build_layer(struct builder *b, int l) {
    build_qkv(b, l);
    build_attention(b, l);
    build_normed_output(b, l);
    build_mlp_and_experts(b, l);
    if (b->c->per_layer_width > 0) build_layer_input(b, l);
    b->pass->ops[b->pass->count - 1].add_norm.layer_scale = b->m->layers[l].layer_scale;
}

static void build(struct builder *b) {
    build_embed(b);
    if (b->c->per_layer_width > 0) build_layer_inputs(b);
    for (int l = 0; l < b->c->layers; l++) gemma4_build_layer(b, l);
    build_head(b);
}

const struct family family_gemma4 = {
    .architectures = (const char *const[]){"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", NULL},
    .model_types = (const char *const[]){"gemma4", "gemma4_text", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build,
};
