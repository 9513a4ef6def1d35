/* Qwen3-Next and Qwen 3.5, alone or inside the multimodal Qwen 3.5, with experts or without: three of four layers have linear attention by
 * the gated delta rule in place of keys and values, and the others' attention is gated. Norms are 1 + w, but for that of linear attention.
 * Experts stand beside an MLP that is gated by one number. A quarter of a head turns. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"
#include "model/families/qwen.h"

static bool has_name(const struct model_config *c, const char *part) {
    return strstr(c->architecture, part) != NULL;
}

static int read_recurrent(struct model_config *c, const cJSON *root) {
    struct recurrent_config *r = &c->recurrent;
    TRY(config_get_int(root, "linear_num_key_heads", 16, 1, 1024, &r->key_heads));
    TRY(config_get_int(root, "linear_num_value_heads", 32, 1, 1024, &r->value_heads));
    TRY(config_get_int(root, "linear_key_head_dim", 128, 8, RECURRENT_DIM_MAX, &r->key_dim));
    TRY(config_get_int(root, "linear_value_head_dim", 128, 8, RECURRENT_DIM_MAX, &r->value_dim));
    TRY(config_get_int(root, "linear_conv_kernel_dim", 4, 1, RECURRENT_TAPS_MAX, &r->taps));
    r->qkvz_by_head = r->ba_by_head = has_name(c, "Next");
    if (r->value_heads % r->key_heads != 0)
        return err_set(ERR_FORMAT, "linear_num_value_heads %d is no multiple of linear_num_key_heads %d",
                       r->value_heads, r->key_heads);
    if (r->key_dim % 8 == 0 && r->value_dim % 8 == 0) return 0;
    return err_set(ERR_UNSUPPORTED,
                   "heads of linear attention of %d and %d dimensions are not supported, only multiples of 8",
                   r->key_dim, r->value_dim);
}

/* Every full_attention_interval-th layer has full attention; layer_types overrules which. */
static int read_layers(struct model_config *c, const cJSON *root) {
    int32_t interval;
    bool are_linear[LAYERS_MAX], given;
    TRY(config_get_int(root, "full_attention_interval", 4, 1, LAYERS_MAX, &interval));
    for (int l = 0; l < c->layers; l++) are_linear[l] = (l + 1) % interval != 0;
    TRY(config_read_layer_types(c, root, "linear_attention", are_linear, &given));
    for (int l = 0; l < c->layers; l++) c->layer[l].is_recurrent = are_linear[l];
    return 0;
}

static int read_experts(struct model_config *c, const cJSON *root) {
    const bool is_next = has_name(c, "Next");
    TRY(config_read_experts(c, root, "num_experts_per_tok", "moe_intermediate_size"));
    TRY(qwen_read_sparse_layers(c, root));
    TRY(qwen_read_shared_expert(c, root, 512));
    c->router_scores = SCORES_OF_ALL;
    c->router_renormalises = true;
    return is_next ? json_get_bool(root, "norm_topk_prob", true, &c->router_renormalises) : 0;
}

/* Qwen3-Next's files say nothing of their head. */
static int read_mtp(struct model_config *c, const cJSON *root) {
    bool has_embeddings;
    TRY(config_get_int(root, "mtp_num_hidden_layers", 1, 0, LAYERS_MAX, &c->mtp_heads));
    TRY(json_get_bool(root, "mtp_use_dedicated_embeddings", false, &has_embeddings));
    if (has_embeddings) c->mtp_heads = 0; /* one that is not known */
    return 0;
}

static int configure(struct model_config *c, const cJSON *outer) {
    static const struct dimension_defaults dense = {.positions = 32768, .kv_heads = 4, .head_dim = 256},
                                           with_experts = {
                                               .positions = 32768, .kv_heads = 2, .head_dim = 256, .hidden = 5632};
    const bool has_experts = has_name(c, "Next") || has_name(c, "Moe");
    const cJSON *root = config_is_wrapper(c) ? config_text(outer) : outer;
    bool is_gated;
    TRY(config_read_dimensions(c, root, has_experts ? &with_experts : &dense));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    TRY(json_get_bool(root, "attn_output_gate", true, &is_gated));
    if (!is_gated) return err_set(ERR_UNSUPPORTED, "attn_output_gate false is not supported");
    TRY(read_recurrent(c, root));
    TRY(read_layers(c, root));
    if (has_experts) TRY(read_experts(c, root));
    c->qk_norm = c->queries_gated = true;
    TRY(read_mtp(c, root));
    return config_read_partial_rope(c, root, 10000, 0.25);
}

static void bind_recurrent(struct binder *b, int l) {
    const struct recurrent_config *r = &b->c->recurrent;
    struct layer *layer = &b->m->layers[l];
    const int64_t d = b->c->width, keys = (int64_t)r->key_heads * r->key_dim,
                  values = (int64_t)r->value_heads * r->value_dim;
    struct weight *next = layer->inputs;
    if (r->qkvz_by_head) {
        bind_weight(b, next++, 2 * (keys + values), d, "layers.%d.linear_attn.in_proj_qkvz.weight", l);
    } else {
        bind_weight(b, next++, 2 * keys + values, d, "layers.%d.linear_attn.in_proj_qkv.weight", l);
        bind_weight(b, next++, values, d, "layers.%d.linear_attn.in_proj_z.weight", l);
    }
    if (r->ba_by_head) {
        bind_weight(b, next, 2 * r->value_heads, d, "layers.%d.linear_attn.in_proj_ba.weight", l);
    } else {
        bind_weight(b, next++, r->value_heads, d, "layers.%d.linear_attn.in_proj_b.weight", l);
        bind_weight(b, next, r->value_heads, d, "layers.%d.linear_attn.in_proj_a.weight", l);
    }
    bind_conv(b, &layer->conv, 2 * keys + values, r->taps, "layers.%d.linear_attn.conv1d.weight", l);
    bind_exact(b, &layer->a_log, r->value_heads, "layers.%d.linear_attn.A_log", l);
    bind_exact(b, &layer->dt_bias, r->value_heads, "layers.%d.linear_attn.dt_bias", l);
    bind_norm(b, &layer->state_norm, 0, r->value_dim, "layers.%d.linear_attn.norm.weight", l);
    bind_weight(b, &layer->wo, d, values, "layers.%d.linear_attn.out_proj.weight", l);
}

static void bind_layer(struct binder *b, int l) {
    bind_norms_before(b, 1, l);
    if (b->c->layer[l].is_recurrent) {
        bind_recurrent(b, l);
    } else {
        bind_attention(b, l);
        bind_qk_norms(b, 1, l);
    }
    if (b->c->layer[l].has_experts)
        qwen_bind_experts_and_mlp(b, l);
    else
        bind_mlp(b, l);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, config_is_wrapper(b->c));
    bind_ends(b, 1);
    bind_ignore(b, "mtp.");
    for (int l = 0; l < b->c->layers; l++) bind_layer(b, l);
}

static void bind_mtp(struct binder *b) {
    const int32_t width = b->c->width;
    binder_find_text(b, config_is_wrapper(b->c));
    if (b->c->next_layers > 0) { /* a GGUF file */
        bind_head_behind(b, 1);
        bind_layer(b, 0);
        return;
    }
    snprintf(b->layer, sizeof b->layer, "mtp.layers.0.");
    bind_head_ends(b);
    b->body = "mtp.";
    bind_norm(b, &b->m->embedding_norm, 1, width, "pre_fc_norm_embedding.weight");
    bind_norm(b, &b->m->hidden_norm, 1, width, "pre_fc_norm_hidden.weight");
    bind_weight(b, &b->m->join, width, 2 * (int64_t)width, "fc.weight");
    bind_layer(b, 0);
    bind_norm(b, &b->m->norm, 1, width, "norm.weight");
}

const struct family family_qwen_next = {
    .architectures =
        (const char *const[]){"Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration",
                              "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration", NULL},
    .model_types =
        (const char *const[]){"qwen3_next", "qwen3_5_text", "qwen3_5", "qwen3_5_moe_text", "qwen3_5_moe", NULL},
    .configure = configure,
    .bind = bind_model,
    .bind_mtp = bind_mtp,
    .build = build_mixed_layers,
};
