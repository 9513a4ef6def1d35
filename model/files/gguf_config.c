/* The configuration: keys become members of a config.json, which families read. What is written nowhere in the file (Gemma's
 * pattern of layers) is the family's default, as llama.cpp has it too. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "model/files/gguf_model.h"

/* --- members ------------------------------------------------------------------------------------------------------ */

struct writer {
    const struct gguf *g;
    const struct gguf_architecture *a;
    struct buf json;
    char key[96];
};

static const char *key_of(struct writer *w, const char *name) {
    snprintf(w->key, sizeof w->key, "%s.%s", w->a->name, name);
    return w->key;
}

static bool has(struct writer *w, const char *name) {
    return gguf_value(w->g, key_of(w, name)) != NULL;
}

static int need(struct writer *w, const char *name) {
    return has(w, name) ? 0 : err_set(ERR_FORMAT, "%s: key '%s' is missing", gguf_path(w->g), w->key);
}

static void put_number(struct writer *w, const char *member, double value) {
    json_put_name(&w->json, member);
    json_put_number(&w->json, value);
}

static void put_bool(struct writer *w, const char *member, bool value) {
    json_put_name(&w->json, member);
    buf_puts(&w->json, value ? "true" : "false");
}

static void put_text(struct writer *w, const char *member, const char *text) {
    json_put_name(&w->json, member);
    json_put_string(&w->json, text, strlen(text));
}

static int get_int(struct writer *w, const char *name, int64_t def, int64_t *out) {
    return gguf_get_int(w->g, key_of(w, name), def, 0, INT32_MAX, out);
}

/* An integer of each layer, which must be the same; many files have one for all. */
static int copy_int(struct writer *w, const char *member, const char *name) {
    const struct gguf_value *v = gguf_value(w->g, key_of(w, name));
    int64_t value;
    if (!v) return 0;
    if (v->is_array && v->count > 0 && v->type != GGUF_STRING && v->type != GGUF_ARRAY) {
        value = gguf_int_at(v, 0);
        for (uint64_t i = 1; i < v->count; i++)
            if (gguf_int_at(v, i) != value)
                return err_set(ERR_UNSUPPORTED, "%s: key '%s' differs from layer to layer, which is not supported",
                               gguf_path(w->g), w->key);
    } else {
        TRY(get_int(w, name, 0, &value));
    }
    put_number(w, member, (double)value);
    return 0;
}

static int need_int(struct writer *w, const char *member, const char *name) {
    int64_t value;
    TRY(need(w, name));
    if (!gguf_value(w->g, w->key)->is_array) TRY(gguf_get_int(w->g, w->key, 0, 1, INT32_MAX, &value));
    return copy_int(w, member, name);
}

/* Where it is there. */
static int copy_number(struct writer *w, const char *member, const char *name) {
    double value;
    TRY(gguf_get_number(w->g, key_of(w, name), 0, &value));
    if (has(w, name)) put_number(w, member, value);
    return 0;
}

/* --- rope --------------------------------------------------------------------------------------------------------- */

/* A tensor of factors, one a pair. */
static int get_factors(const struct writer *w, const char *name, int64_t most, const struct gguf_tensor **out) {
    const struct gguf_tensor *t = *out = gguf_find(w->g, name);
    if (!t) return 0;
    if (strcmp(t->dtype, "F32") != 0 || t->dims != 1 || t->shape[0] > most)
        return err_set(ERR_FORMAT, "%s: tensor '%s' is %s of %lld numbers in %d dimensions, expected at most %lld F32",
                       t->file, name, t->dtype, (long long)t->shape[0], t->dims, (long long)most);
    return 0;
}

static int put_factors(struct writer *w, const char *member, const char *name) {
    const struct gguf_tensor *t;
    TRY(get_factors(w, name, HEAD_DIM_MAX / 2, &t));
    if (!t) return err_set(ERR_FORMAT, "%s: tensor '%s' is missing", gguf_path(w->g), name);
    json_put_name(&w->json, member);
    buf_putc(&w->json, '[');
    for (int64_t i = 0; i < t->shape[0]; i++) {
        json_put_element(&w->json);
        json_put_number(&w->json, (double)((const float *)t->data)[i]);
    }
    buf_putc(&w->json, ']');
    return 0;
}

static int put_longrope(struct writer *w) {
    TRY(put_factors(w, "short_factor", "rope_factors_short.weight"));
    TRY(put_factors(w, "long_factor", "rope_factors_long.weight"));
    return copy_number(w, "attention_factor", "rope.scaling.attn_factor");
}

static int put_yarn(struct writer *w) {
    double factor, attention, yarn;
    TRY(gguf_get_number(w->g, key_of(w, "rope.scaling.factor"), 1, &factor));
    TRY(gguf_get_number(w->g, key_of(w, "rope.scaling.attn_factor"), 1, &attention));
    TRY(gguf_get_number(w->g, key_of(w, "rope.scaling.yarn_attn_factor"), -1, &yarn));
    /* Both are times what it is without, but in an OLMo's files, whose own is all of it; less than 0 says nothing. */
    if (yarn >= 0) attention *= yarn;
    if (strcmp(w->a->name, "olmo2") == 0)
        TRY(copy_number(w, "attention_factor", "rope.scaling.attn_factor"));
    else if (attention != 1 && factor >= 1)
        put_number(w, "attention_factor", attention * (0.1 * log(factor) + 1));
    TRY(copy_number(w, "beta_fast", "rope.scaling.yarn_beta_fast"));
    TRY(copy_number(w, "beta_slow", "rope.scaling.yarn_beta_slow"));
    if (strcmp(w->a->name, "gpt-oss") == 0) put_bool(w, "truncate", false);
    if (strcmp(w->a->name, "mistral3") == 0) {
        put_number(w, "mscale", 1);
        TRY(copy_number(w, "mscale_all_dim", "rope.scaling.yarn_log_multiplier"));
        TRY(copy_number(w, "llama_4_scaling_beta", "attention.temperature_scale"));
    }
    return 0;
}

/* How much of the frequencies that are not scaled is taken where they are fast. Less than 0 says nothing. */
static int check_extrapolation(struct writer *w, double known) {
    double factor;
    TRY(gguf_get_number(w->g, key_of(w, "rope.scaling.yarn_ext_factor"), -1, &factor));
    if (factor < 0 || factor == known) return 0;
    return err_set(ERR_UNSUPPORTED, "%s: key '%s' is %g, which is not supported, only %g", gguf_path(w->g), w->key,
                   factor, known);
}

/* 0: there is none. Old files have it under another key. */
static int get_factor(struct writer *w, double *out) {
    const bool is_new = has(w, "rope.scaling.factor");
    return gguf_get_number(w->g, key_of(w, is_new ? "rope.scaling.factor" : "rope.scale_linear"), 0, out);
}

/* Without a type it is linear. */
static int put_scaling(struct writer *w, struct gguf_text type) {
    static const char *const types[] = {"linear", "yarn", "longrope"};
    int found = gguf_find(w->g, "rope_factors_long.weight") ? 2 : type.bytes ? -1 : 0;
    double factor;
    TRY(get_factor(w, &factor));
    for (int i = 0; i < 3 && found < 0; i++)
        if (gguf_is_text(type, types[i])) found = i;
    if ((found < 0 && gguf_is_text(type, "none")) || (found == 0 && factor == 0)) {
        json_put_name(&w->json, "rope_scaling"); /* said, whatever the family's default is */
        buf_puts(&w->json, "{\"rope_type\": \"default\"}");
        return 0;
    }
    if (found < 0)
        return err_set(ERR_UNSUPPORTED, "%s: rope type '%.*s' is not supported (known: none, linear, yarn, longrope)",
                       gguf_path(w->g), type.n < 60 ? (int)type.n : 60, type.bytes);
    TRY(check_extrapolation(w, found == 1 ? 1 : 0));
    json_put_name(&w->json, "rope_scaling");
    buf_putc(&w->json, '{');
    put_text(w, "rope_type", types[found]);
    if (factor != 0) put_number(w, "factor", factor);
    TRY(copy_int(w, "original_max_position_embeddings", "rope.scaling.original_context_length"));
    if (found == 1) TRY(put_yarn(w));
    if (found == 2) TRY(put_longrope(w));
    buf_putc(&w->json, '}');
    return 0;
}

static int put_rope(struct writer *w, int64_t head_dim) {
    struct gguf_text type;
    double theta;
    int64_t turning;
    TRY(gguf_get_number(w->g, key_of(w, "rope.freq_base"), 10000, &theta));
    put_number(w, "rope_theta", theta);
    TRY(get_int(w, "rope.dimension_count", head_dim, &turning));
    if (turning < 2 || turning > head_dim || turning % 2 != 0)
        return err_set(ERR_FORMAT, "%s: key '%s' is %lld, with heads of %lld", gguf_path(w->g), w->key,
                       (long long)turning, (long long)head_dim);
    put_number(w, "partial_rotary_factor", turning == head_dim ? 1 : ((double)turning + 0.5) / (double)head_dim);
    TRY(gguf_get_text(w->g, key_of(w, "rope.scaling.type"), &type));
    return put_scaling(w, type);
}

/* --- what families have of their own -------------------------------------------------------------------------------- */

/* The scale of the largest Gemmas is by D / H, of the others by the size of a head; no key says so. */
static int put_gemma(struct writer *w, int64_t head_dim) {
    int64_t layers, width, heads;
    bool is_gemma3 = strcmp(w->a->name, "gemma3") == 0;
    TRY(get_int(w, "block_count", 0, &layers));
    TRY(get_int(w, "embedding_length", 0, &width));
    TRY(gguf_get_int(w->g, key_of(w, "attention.head_count"), 1, 1, INT32_MAX, &heads));
    put_number(w, "query_pre_attn_scalar", (double)(layers == (is_gemma3 ? 62 : 46) ? width / heads : head_dim));
    TRY(copy_int(w, "sliding_window", "attention.sliding_window"));
    TRY(copy_number(w, "attn_logit_softcapping", "attn_logit_softcapping"));
    TRY(copy_number(w, "final_logit_softcapping", "final_logit_softcapping"));
    if (!is_gemma3) return 0;
    TRY(copy_int(w, "sliding_window_pattern", "attention.sliding_window_pattern"));
    return copy_number(w, "rope_local_base_freq", "rope.freq_base_swa");
}

static int put_granite(struct writer *w) {
    TRY(copy_number(w, "attention_multiplier", "attention.scale"));
    TRY(copy_number(w, "embedding_multiplier", "embedding_scale"));
    TRY(copy_number(w, "residual_multiplier", "residual_scale"));
    return copy_number(w, "logits_scaling", "logit_scale");
}

/* What experts beside an MLP have: a number of their width that the MLP is as wide as, in names of each family's own. */
struct expert_members {
    const char *experts, *chosen, *shared, *dense;
};

static int put_shared_experts(struct writer *w, const struct expert_members *m) {
    int64_t shared, shared_width, width;
    TRY(need_int(w, m->experts, "expert_count"));
    TRY(need_int(w, m->chosen, "expert_used_count"));
    TRY(need_int(w, "moe_intermediate_size", "expert_feed_forward_length"));
    TRY(get_int(w, "expert_feed_forward_length", 0, &width));
    TRY(get_int(w, "expert_shared_feed_forward_length", width, &shared_width));
    TRY(get_int(w, "expert_shared_count", width > 0 ? shared_width / width : 1, &shared));
    put_number(w, m->shared, (double)shared);
    return copy_int(w, m->dense, "leading_dense_block_count");
}

static int put_ernie_experts(struct writer *w) {
    static const struct expert_members members = {"moe_num_experts", "moe_k", "moe_num_shared_experts",
                                                  "moe_layer_start_index"};
    TRY(put_shared_experts(w, &members));
    return copy_int(w, "moe_layer_interval", "interleave_moe_layer_step");
}

/* Experts are chosen by sigmoids alone here: 2, where a file says it. */
static int put_glm_experts(struct writer *w) {
    static const struct expert_members members = {"n_routed_experts", "num_experts_per_tok", "n_shared_experts",
                                                  "first_k_dense_replace"};
    int64_t function;
    bool norms;
    TRY(get_int(w, "expert_gating_func", 2, &function));
    if (function != 2)
        return err_set(ERR_UNSUPPORTED, "%s: key '%s' is %lld, which is not supported, only 2", gguf_path(w->g), w->key,
                       (long long)function);
    TRY(put_shared_experts(w, &members));
    put_bool(w, "attention_bias", gguf_find(w->g, "blk.0.attn_q.bias") != NULL);
    put_bool(w, "use_qk_norm", gguf_find(w->g, "blk.0.attn_q_norm.weight") != NULL);
    TRY(gguf_get_bool(w->g, key_of(w, "expert_weights_norm"), true, &norms));
    put_bool(w, "norm_topk_prob", norms);
    TRY(copy_number(w, "routed_scaling_factor", "expert_weights_scale"));
    return copy_int(w, "num_nextn_predict_layers", "nextn_predict_layers");
}

static bool has_in_layer(const struct writer *w, int64_t layer, const char *tensor) {
    char name[64];
    snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, tensor);
    return gguf_find(w->g, name) != NULL;
}

/* Of each layer, by its tensors: which attention, and whether it has experts. */
static int put_layer_types(struct writer *w) {
    int64_t layers, next;
    TRY(get_int(w, "block_count", 0, &layers));
    TRY(get_int(w, "nextn_predict_layers", 0, &next));
    if (layers > LAYERS_MAX) layers = LAYERS_MAX; /* too many, as is found later */
    json_put_name(&w->json, "layer_types");
    buf_putc(&w->json, '[');
    for (int64_t l = 0; l < layers - next; l++) {
        json_put_element(&w->json);
        buf_puts(&w->json, has_in_layer(w, l, "ssm_out.weight") ? "\"linear_attention\"" : "\"full_attention\"");
    }
    buf_putc(&w->json, ']');
    json_put_name(&w->json, "mlp_only_layers");
    buf_putc(&w->json, '[');
    for (int64_t l = 0; l < layers - next; l++) {
        if (has_in_layer(w, l, "ffn_gate_inp.weight")) continue;
        json_put_element(&w->json);
        json_put_number(&w->json, (double)l);
    }
    buf_putc(&w->json, ']');
    return 0;
}

/* Value heads are as wide together as the inner size says. */
static int put_hybrid(struct writer *w) {
    int64_t inner, heads;
    TRY(put_layer_types(w));
    TRY(need_int(w, "linear_conv_kernel_dim", "ssm.conv_kernel"));
    TRY(need_int(w, "linear_key_head_dim", "ssm.state_size"));
    TRY(need_int(w, "linear_num_key_heads", "ssm.group_count"));
    TRY(need_int(w, "linear_num_value_heads", "ssm.time_step_rank"));
    TRY(get_int(w, "ssm.time_step_rank", 1, &heads));
    TRY(get_int(w, "ssm.inner_size", 0, &inner));
    if (heads < 1 || inner < 1 || inner % heads != 0)
        return err_set(ERR_FORMAT, "%s: key '%s' is %lld, for %lld heads", gguf_path(w->g), w->key, (long long)inner,
                       (long long)heads);
    put_number(w, "linear_value_head_dim", (double)(inner / heads));
    if (!w->a->experts) return 0;
    TRY(need_int(w, "num_local_experts", "expert_count"));
    TRY(need_int(w, "num_experts_per_tok", "expert_used_count"));
    TRY(need_int(w, "moe_intermediate_size", "expert_feed_forward_length"));
    return need_int(w, "shared_expert_intermediate_size", "expert_shared_feed_forward_length");
}

static int put_qwen2_experts(struct writer *w) {
    bool norms;
    TRY(need_int(w, "moe_intermediate_size", "expert_feed_forward_length"));
    TRY(need_int(w, "shared_expert_intermediate_size", "expert_shared_feed_forward_length"));
    TRY(gguf_get_bool(w->g, key_of(w, "expert_weights_norm"), false, &norms));
    put_bool(w, "norm_topk_prob", norms);
    put_bool(w, "qkv_bias", gguf_find(w->g, "blk.0.attn_q.bias") != NULL);
    return 0;
}

static int put_experts(struct writer *w) {
    if (strcmp(w->a->name, "glm4moe") == 0) return put_glm_experts(w);
    if (strcmp(w->a->name, "ernie4_5-moe") == 0) return put_ernie_experts(w);

    const bool is_gpt_oss = strcmp(w->a->name, "gpt-oss") == 0, is_qwen = strncmp(w->a->name, "qwen3", 5) == 0;
    TRY(need_int(w, "num_local_experts", "expert_count"));
    TRY(need_int(w, "num_experts_per_tok", "expert_used_count"));
    if (strcmp(w->a->name, "qwen2moe") == 0) return put_qwen2_experts(w);
    if (is_qwen) put_bool(w, "norm_topk_prob", true);
    if (is_qwen) TRY(need_int(w, "moe_intermediate_size", "expert_feed_forward_length"));
    if (strcmp(w->a->name, "granitemoe") == 0) return put_granite(w);
    return is_gpt_oss ? copy_int(w, "sliding_window", "attention.sliding_window") : 0;
}

/* A window on the layers that a list names, or on those that the family has it on where there is none; no window is said, too, as families
 * have one of their own. */
static int put_windows(struct writer *w) {
    int64_t window;
    TRY(get_int(w, "attention.sliding_window", 0, &window));
    const struct gguf_value *v = gguf_value(w->g, key_of(w, "attention.sliding_window_pattern"));
    json_put_name(&w->json, "sliding_window");
    if (window == 0)
        buf_puts(&w->json, "null");
    else
        json_put_number(&w->json, (double)window);
    if (window == 0 || !v || !v->is_array || v->type == GGUF_STRING || v->type == GGUF_ARRAY) return 0;
    json_put_name(&w->json, "layer_types");
    buf_putc(&w->json, '[');
    for (uint64_t i = 0; i < v->count && i < LAYERS_MAX; i++) {
        json_put_element(&w->json);
        const bool slides = v->type == GGUF_BOOL ? v->data[i] != 0 : gguf_int_at(v, i) != 0;
        buf_puts(&w->json, slides ? "\"sliding_attention\"" : "\"full_attention\"");
    }
    buf_putc(&w->json, ']');
    return 0;
}

static int put_own(struct writer *w, int64_t head_dim) {
    const char *name = w->a->name;
    if (w->a->is_hybrid) return put_hybrid(w);
    if (w->a->experts) return put_experts(w);
    if (strncmp(name, "gemma", 5) == 0 && name[5]) return put_gemma(w, head_dim);
    if (strcmp(name, "granite") == 0) return put_granite(w);
    if (strcmp(name, "phi3") == 0) return copy_int(w, "sliding_window", "attention.sliding_window");
    if (strcmp(name, "glm4") == 0) put_bool(w, "attention_bias", gguf_find(w->g, "blk.0.attn_q.bias") != NULL);
    if (strcmp(name, "exaone4") == 0 || (strcmp(name, "olmo2") == 0 && w->a->needs)) return put_windows(w);
    return 0;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static int put_head_dim(struct writer *w, int64_t *head_dim) {
    int64_t width, heads, value_dim;
    TRY(get_int(w, "embedding_length", 0, &width));
    TRY(copy_int(w, "num_attention_heads", "attention.head_count"));
    const bool has_own = has(w, "attention.head_count_kv");
    TRY(copy_int(w, "num_key_value_heads", has_own ? "attention.head_count_kv" : "attention.head_count"));
    const struct gguf_value *v = gguf_value(w->g, key_of(w, "attention.head_count"));
    heads = v && v->count > 0 ? gguf_int_at(v, 0) : 0;
    if (heads < 1) return err_set(ERR_FORMAT, "%s: key '%s' is missing or no number of heads", gguf_path(w->g), w->key);
    TRY(get_int(w, "attention.key_length", width / heads, head_dim));
    TRY(get_int(w, "attention.value_length", *head_dim, &value_dim));
    if (value_dim != *head_dim)
        return err_set(ERR_UNSUPPORTED, "%s: key '%s' is %lld, with keys of %lld: heads of two sizes are not supported",
                       gguf_path(w->g), w->key, (long long)value_dim, (long long)*head_dim);
    put_number(w, "head_dim", (double)*head_dim);
    return 0;
}

/* Ids that are drawn by no model of this vocabulary are left out by model/config.c. */
static int put_end_ids(struct writer *w) {
    struct ids ends = {0};
    json_put_name(&w->json, "eos_token_id");
    buf_putc(&w->json, '[');
    int rc = gguf_model_end_ids(w->g, &ends);
    for (size_t i = 0; i < ends.len; i++) {
        json_put_element(&w->json);
        json_put_number(&w->json, (double)ends.data[i]);
    }
    buf_putc(&w->json, ']');
    ids_free(&ends);
    return rc;
}

/* Without the layers behind them that propose more tokens. */
static int put_layers(struct writer *w) {
    int64_t layers, next;
    TRY(need(w, "block_count"));
    TRY(gguf_get_int(w->g, w->key, 0, 1, INT32_MAX, &layers));
    TRY(get_int(w, "nextn_predict_layers", 0, &next));
    put_number(w, "num_hidden_layers", (double)(layers - next));
    if (w->a->is_hybrid) put_number(w, "mtp_num_hidden_layers", (double)next);
    return 0;
}

static int put_config(struct writer *w) {
    const struct gguf_tensor *embedding = gguf_find(w->g, "token_embd.weight");
    const bool has_mlp = strcmp(w->a->name, "gpt-oss") != 0 && !(w->a->is_hybrid && !has(w, "feed_forward_length"));
    const char *hidden = has_mlp ? "feed_forward_length" : "expert_feed_forward_length";
    int64_t head_dim;
    if (!embedding) return err_set(ERR_FORMAT, "%s: tensor 'token_embd.weight' is missing", gguf_path(w->g));
    json_put_name(&w->json, "architectures");
    buf_printf(&w->json, "[\"%s\"]", w->a->architecture);
    put_number(w, "vocab_size", (double)embedding->shape[0]);
    put_bool(w, "tie_word_embeddings", !gguf_find(w->g, "output.weight"));
    TRY(need_int(w, "hidden_size", "embedding_length"));
    TRY(need_int(w, "intermediate_size", hidden));
    TRY(put_layers(w));
    TRY(need_int(w, "max_position_embeddings", "context_length"));
    TRY(need(w, "attention.layer_norm_rms_epsilon"));
    TRY(copy_number(w, "rms_norm_eps", "attention.layer_norm_rms_epsilon"));
    TRY(put_head_dim(w, &head_dim));
    TRY(put_rope(w, head_dim));
    TRY(put_own(w, head_dim));
    return put_end_ids(w);
}

/* Llama 3's scaling, worked out by the converter: what each frequency is divided by. */
static int take_rope_factors(const struct writer *w, struct model_config *c) {
    const struct gguf_tensor *t;
    struct rope_config *r = &c->rope[0];
    TRY(get_factors(w, "rope_freqs.weight", r->dims / 2, &t));
    if (!t) return 0;
    if (r->type != ROPE_DEFAULT || t->shape[0] != r->dims / 2)
        return err_set(ERR_UNSUPPORTED, "%s: tensor '%s' has %lld factors, expected %d and no other scaling", t->file,
                       t->name, (long long)t->shape[0], r->dims / 2);
    r->type = ROPE_FACTORS;
    memcpy(r->short_factor, t->data, t->bytes);
    for (int i = 0; i < r->dims / 2; i++)
        if (!(r->short_factor[i] >= 1e-6f && r->short_factor[i] <= 1e6f))
            return err_set(ERR_FORMAT, "%s: tensor '%s' holds something else than factors", t->file, t->name);
    return 0;
}

static int parse_config(struct writer *w, struct model_config *out) {
    buf_putc(&w->json, '{');
    TRY(put_config(w));
    buf_putc(&w->json, '}');
    TRY(model_config_parse(out, buf_text(&w->json), gguf_path(w->g)));
    out->rope[0].pairs_neighbours |= w->a->pairs_neighbours;
    out->norms_hold_one = w->a->norms_hold_one;
    if (out->mtp_heads > 0) out->next_layers = out->mtp_heads; /* where these files have them */
    out->recurrent.qkvz_by_head = false, out->recurrent.ba_by_head = w->a->ba_by_head;
    out->recurrent.is_tiled = w->a->is_tiled, out->recurrent.is_rate = w->a->is_hybrid;
    return take_rope_factors(w, out);
}

int gguf_model_config(const struct gguf *g, struct model_config *out) {
    struct writer w = {.g = g};
    TRY(gguf_find_architecture(g, &w.a));
    int rc = parse_config(&w, out);
    buf_free(&w.json);
    return rc;
}
