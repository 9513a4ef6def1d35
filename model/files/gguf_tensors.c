/* Tensors under the names of Hugging Face's files. One that duet does not know keeps its own, and is refused by it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"
#include "model/files/gguf_model.h"

enum { NAME_BYTES = 192 };

/* A layer's tensors, ".weight" and ".bias" aside, that all architectures call the same. */
static const struct {
    const char *from, *to;
} names[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"shortconv.in_proj", "conv.in_proj"},
    {"shortconv.conv", "conv.conv"},
    {"shortconv.out_proj", "conv.out_proj"},
    {"nextn.embed_tokens", "embed_tokens"},
    {"nextn.enorm", "enorm"},
    {"nextn.hnorm", "hnorm"},
    {"nextn.eh_proj", "eh_proj"},
    {"nextn.shared_head_norm", "shared_head.norm"},
    {"nextn.shared_head_head", "shared_head.head"},
};

/* Of the MLP beside experts. */
static const char *const shared_names[][3] = {
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj"},
    {"ffn_gate_inp_shexp", NULL, "mlp.shared_expert_gate"},
};

/* Of layers with linear attention, and of Mamba 2's. */
static const struct recurrent_name {
    const char *from, *to;
} hybrid_names[] = {{"attn_qkv", "linear_attn.in_proj_qkv"},
                    {"attn_gate", "linear_attn.in_proj_z"},
                    {"ssm_ba", "linear_attn.in_proj_ba"},
                    {"ssm_beta", "linear_attn.in_proj_b"},
                    {"ssm_alpha", "linear_attn.in_proj_a"},
                    {"ssm_conv1d", "linear_attn.conv1d"},
                    {"ssm_norm", "linear_attn.norm"},
                    {"ssm_out", "linear_attn.out_proj"},
                    {NULL, NULL}},
  mamba_names[] = {
      {"ssm_in", "mamba.in_proj"},
      {"ssm_conv1d", "mamba.conv1d"},
      {"ssm_norm", "mamba.norm"},
      {"ssm_out", "mamba.out_proj"},
      {NULL, NULL},
};
static const struct recurrent_name none[] = {{NULL, NULL}};

/* Of Gemma 4, ".weight" included where names end without it. */
static const struct {
    const char *from, *to;
} gemma4_names[] = {
    {"layer_output_scale.weight", "layer_scalar"},
    {"inp_gate.weight", "per_layer_input_gate.weight"},
    {"proj.weight", "per_layer_projection.weight"},
    {"post_norm.weight", "post_per_layer_input_norm.weight"},
    {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"},
    {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"},
    {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
    {"ffn_down_exps.weight", "experts.down_proj"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
};

/* Those of no layer. */
static const struct {
    const char *from, *to;
} body_names[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output_norm.bias", "model.norm.bias"},
    {"token_embd_norm.weight", "model.norm.weight"}, /* LFM2's last one, whatever it is called */
    {"output.weight", "lm_head.weight"},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
    {"nextn.pre_projection.weight", "pre_projection.weight"}, /* of an assistant */
    {"nextn.post_projection.weight", "post_projection.weight"},
    {"mtp.pre_projection.weight", "pre_projection.weight"},
    {"mtp.post_projection.weight", "post_projection.weight"},
};

struct list {
    const struct gguf_architecture *a;
    struct tensor *tensors;
    int count, cap;
};

static struct tensor *add(struct list *l, const struct gguf_tensor *t, const char *name) {
    if (l->count == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        l->tensors = memory_resize(l->tensors, (size_t)l->cap * sizeof *l->tensors);
    }
    struct tensor *to = &l->tensors[l->count++];
    *to = (struct tensor){.name = memory_copy_text(name),
                          .in_file = t->name,
                          .file = t->file,
                          .dtype = t->dtype,
                          .dims = t->dims,
                          .data = t->data,
                          .bytes = t->bytes};
    memcpy(to->shape, t->shape, sizeof t->shape);
    return to;
}

static bool is_part(const char *part, size_t n, const char *name) {
    return strlen(name) == n && memcmp(part, name, n) == 0;
}

/* What a layer's `part` [n] is called by the family; NULL: duet does not know it. */
static const char *part_name(const struct gguf_architecture *a, const char *part, size_t n) {
    if (is_part(part, n, "ffn_norm")) return a->ffn_norm;
    if (is_part(part, n, "post_attention_norm")) return a->post_attention_norm;
    if (is_part(part, n, "post_ffw_norm")) return a->post_ffw_norm;
    if (is_part(part, n, "ffn_gate_inp")) return a->router;
    if (is_part(part, n, "ffn_up") && a->ffn_up) return a->ffn_up;
    for (size_t i = 0; i < sizeof shared_names / sizeof *shared_names; i++)
        if (is_part(part, n, shared_names[i][0]) && shared_names[i][1 + a->has_one_shared])
            return shared_names[i][1 + a->has_one_shared];
    for (const struct recurrent_name *r = a->is_hybrid ? hybrid_names : a->is_mamba ? mamba_names : none; r->from; r++)
        if (is_part(part, n, r->from)) return r->to;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_part(part, n, names[i].from)) return names[i].to;
    return NULL;
}

/* Of what is called otherwise to the end. */
static const char *whole_name(const struct gguf_architecture *a, const char *part, size_t n) {
    if (is_part(part, n, "attn_sinks")) return "self_attn.sinks";
    if (a->is_hybrid && is_part(part, n, "ssm_a")) return "linear_attn.A_log";
    if (a->is_hybrid && is_part(part, n, "ssm_dt")) return "linear_attn.dt_bias";
    if (a->is_mamba && is_part(part, n, "ssm_a")) return "mamba.A_log";
    if (a->is_mamba && is_part(part, n, "ssm_dt")) return "mamba.dt_bias";
    if (a->is_mamba && is_part(part, n, "ssm_d")) return "mamba.D";
    return is_part(part, n, "exp_probs_b") ? a->choice_bias : NULL;
}

/* The matrix that a stack "ffn_gate_exps" and the like holds of each expert. */
static const char *stack_name(const struct gguf_architecture *a, const char *part, size_t n) {
    if (!a->experts) return NULL;
    return is_part(part, n, "ffn_gate_exps")   ? a->gate
           : is_part(part, n, "ffn_up_exps")   ? a->up
           : is_part(part, n, "ffn_down_exps") ? a->down
                                               : NULL;
}

/* [E, ..]: one tensor an expert. */
static void add_stack(struct list *l, const struct gguf_tensor *t, int layer, const char *matrix, const char *end) {
    char name[NAME_BYTES];
    for (int64_t e = 0; e < t->shape[0]; e++) {
        snprintf(name, sizeof name, "model.layers.%d.%s.%lld.%s%s", layer, l->a->experts, (long long)e, matrix, end);
        struct tensor *to = add(l, t, name);
        to->dims = t->dims - 1;
        memmove(to->shape, to->shape + 1, sizeof *to->shape * (size_t)to->dims);
        to->bytes = t->bytes / (size_t)t->shape[0];
        to->data = (const char *)t->data + (size_t)e * to->bytes;
    }
}

static bool add_gemma4_tensor(struct list *l, const struct gguf_tensor *t, int layer, const char *part) {
    char name[NAME_BYTES];
    for (size_t i = 0; l->a->is_gemma4 && i < sizeof gemma4_names / sizeof *gemma4_names; i++) {
        if (strcmp(part, gemma4_names[i].from) != 0) continue;
        snprintf(name, sizeof name, "model.layers.%d.%s", layer, gemma4_names[i].to);
        add(l, t, name);
        return true;
    }
    return false;
}

static void add_layer_tensor(struct list *l, const struct gguf_tensor *t, int layer, const char *part) {
    char name[NAME_BYTES];
    if (add_gemma4_tensor(l, t, layer, part)) return;
    const char *end = strrchr(part, '.');
    const size_t n = end ? (size_t)(end - part) : strlen(part);
    const char *stack = stack_name(l->a, part, n), *to = part_name(l->a, part, n), *whole = whole_name(l->a, part, n);
    snprintf(name, sizeof name, "model.layers.%d.%s%s", layer, whole ? whole : to ? to : "", end && !whole ? end : "");
    if (stack && end && t->dims > 1 && t->shape[0] <= EXPERTS_MAX) {
        add_stack(l, t, layer, stack, end);
        return;
    }
    struct tensor *added = add(l, t, to || whole ? name : t->name);
    if (added->dims != 2 || !(l->a->is_hybrid || l->a->is_mamba || l->a->is_lfm2)) return;
    if (is_part(part, n, "ssm_conv1d") || is_part(part, n, "shortconv.conv")) /* [channels, 1, taps] elsewhere */
        added->dims = 3, added->shape[2] = added->shape[1], added->shape[1] = 1;
    if (is_part(part, n, "ssm_a") || is_part(part, n, "ssm_d") || is_part(part, n, "ssm_norm"))
        added->dims = 1, added->shape[0] *= added->shape[1];
}

/* The rope's factors are of the configuration. */
static bool is_of_config(const char *name) {
    return strcmp(name, "rope_freqs.weight") == 0 || strcmp(name, "rope_factors_long.weight") == 0 ||
           strcmp(name, "rope_factors_short.weight") == 0;
}

/* The ids of an assistant in groups, which nobody reads (gemma4_assistant.c). */
static bool is_of_groups(const struct gguf_architecture *a, const char *name) {
    return a->is_assistant && (strstr(name, "centroid") || strstr(name, "ordering"));
}

static void add_tensor(struct list *l, const struct gguf_tensor *t) {
    int layer, used = 0;
    if (is_of_config(t->name)) return;
    if (sscanf(t->name, "blk.%4d.%n", &layer, &used) == 1 && used > 0 && layer >= 0) {
        add_layer_tensor(l, t, layer, t->name + used);
        return;
    }
    if (is_of_groups(l->a, t->name)) return;
    const char *name = t->name;
    for (size_t i = 0; i < sizeof body_names / sizeof *body_names; i++)
        if (strcmp(t->name, body_names[i].from) == 0) name = body_names[i].to;
    add(l, t, name);
}

static void release(void *g) {
    gguf_close(g);
}

int gguf_model_tensors(struct gguf *g, struct safetensors **out) {
    struct list l = {0};
    *out = NULL;
    int rc = gguf_find_architecture(g, &l.a);
    for (int i = 0; i < gguf_count(g) && rc == 0; i++) add_tensor(&l, gguf_at(g, i));
    if (rc == 0) return safetensors_of_tensors(out, gguf_path(g), l.tensors, l.count, g, release);
    gguf_close(g);
    return rc;
}
