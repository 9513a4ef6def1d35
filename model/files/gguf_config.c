/* The configuration: keys become members of a config.json, which families read. What is written nowhere in the file (Gemma's
 * pattern of layers) is the family's default, as llama.cpp has it too. */
#include "model/files/gguf_members.h"
#include <math.h>

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

/* --- all ---------------------------------------------------------------------------------------------------------- */

static int put_head_dim(struct writer *w, int64_t *head_dim) {
    int64_t width, heads, value_dim;
    TRY(get_int(w, "embedding_length", 0, &width));
    if (!w->a->is_nemotron) TRY(copy_int(w, "num_attention_heads", "attention.head_count"));
    const bool has_own = has(w, "attention.head_count_kv");
    if (!w->a->is_gemma4 && !w->a->is_mamba && !w->a->is_lfm2) /* which say it of each layer */
        TRY(copy_int(w, "num_key_value_heads", has_own ? "attention.head_count_kv" : "attention.head_count"));
    heads = int_of_some_layer(w, "attention.head_count");
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
    if (w->a->is_assistant) next = 0; /* they are all of it */
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
    if (!w->a->is_gemma4 && !w->a->is_nemotron) TRY(need_int(w, "intermediate_size", hidden));
    TRY(put_layers(w));
    TRY(need_int(w, "max_position_embeddings", "context_length"));
    const char *eps = w->a->eps_member ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
    TRY(need(w, eps));
    TRY(copy_number(w, w->a->eps_member ? w->a->eps_member : "rms_norm_eps", eps));
    TRY(put_head_dim(w, &head_dim));
    if (!w->a->is_gemma4) TRY(put_rope(w, head_dim));
    TRY(gguf_put_own(w, head_dim));
    return put_end_ids(w);
}

/* Llama 3's scaling, worked out by the converter: what each frequency is divided by. */
static int take_rope_factors(const struct writer *w, struct model_config *c) {
    const struct gguf_tensor *t;
    struct rope_config *r = &c->rope[0];
    if (w->a->is_gemma4) return 0; /* read already */
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
    out->recurrent.is_tiled = w->a->is_tiled, out->recurrent.is_rate = w->a->is_hybrid || w->a->is_mamba;
    return take_rope_factors(w, out);
}

int gguf_model_config(const struct gguf *g, struct model_config *out) {
    struct writer w = {.g = g};
    TRY(gguf_find_architecture(g, &w.a));
    int rc = parse_config(&w, out);
    buf_free(&w.json);
    return rc;
}
