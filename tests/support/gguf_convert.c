#include "tests/support/gguf_convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fmath.h"
#include "base/json.h"
#include "tests/support/gguf_conversion.h"
#include "tests/support/gguf_gemma4.h"
#include "tests/support/gguf_hybrid.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/support.h"

enum { PARTS_MAX = 8 };

static const struct kind kinds[] = {
    {"llama", "llama", true, false, {"post_attention_layernorm", "ffn_norm"}},
    {"mixtral", "llama", true, false, {"post_attention_layernorm", "ffn_norm"}},
    {"granite", "granite", true, false, {"post_attention_layernorm", "ffn_norm"}},
    {"minicpm", "minicpm", true, false, {"post_attention_layernorm", "ffn_norm"}},
    {"granitemoehybrid", "granite", true, false, {"post_attention_layernorm", "ffn_norm"}},
    {"granitemoehybrid",
     "granitehybrid",
     true,
     false,
     {"post_attention_layernorm", "ffn_norm"}}, /* with recurrent layers */
    {"granitemoe", "granitemoe", true, false, {"post_attention_layernorm", "ffn_norm"}},
    {"ministral3", "mistral3", true, false, {"post_attention_layernorm", "ffn_norm"}},
    {"lfm2", "lfm2", false, false, {NULL}},
    {"nemotron_h", "nemotron_h_moe", false, false, {NULL}},
    {"lfm2_moe", "lfm2moe", false, false, {NULL}},
    {"cohere", "command-r", false, false, {NULL}},
    {"cohere2", "cohere2", false, false, {NULL}},
    {"starcoder2", "starcoder2", false, false, {"post_attention_layernorm", "ffn_norm", "mlp.c_fc", "ffn_up"}},
    {"nemotron", "nemotron", false, true, {"post_attention_layernorm", "ffn_norm"}},
    {"stablelm", "stablelm", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"smollm3", "smollm3", true, false, {"post_attention_layernorm", "ffn_norm"}},
    {"hunyuan_v1_dense", "hunyuan-dense", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"seed_oss", "seed_oss", false, false, {NULL}},
    {"ernie4_5", "ernie4_5", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"ernie4_5_moe", "ernie4_5-moe", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"glm4_moe", "glm4moe", false, false, {NULL}},
    {"exaone", "exaone", false, false, {NULL}},
    {"exaone4", "exaone4", false, false, {NULL}},
    {"gemma", "gemma", false, true, {"post_attention_layernorm", "ffn_norm"}},
    {"olmo3", "olmo2", false, false, {NULL}},
    {"olmoe", "olmoe", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"qwen3_next", "qwen3next", false, true, {NULL}},
    {"qwen3_5_text", "qwen35", false, true, {NULL}},
    {"qwen3_5_moe_text", "qwen35moe", false, true, {NULL}},
    {"qwen2", "qwen2", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"qwen2_moe", "qwen2moe", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"qwen2_vl", "qwen2vl", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"qwen3_vl", "qwen3vl", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"qwen3_vl_moe", "qwen3vlmoe", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"phi3", "phi3", false, false, {"post_attention_layernorm", "ffn_norm"}},
    {"gemma2", "gemma2", false, true, {"pre_feedforward_layernorm", "ffn_norm"}},
    {"gemma4_text", "gemma4", false, false, {NULL}},
    {"gemma4_assistant", "gemma4-assistant", false, false, {NULL}},
    {"olmo2", "olmo2", false, false, {NULL}},
    {"glm4",
     "glm4",
     false,
     false,
     {"post_attention_layernorm", "ffn_norm", "post_self_attn_layernorm", "post_attention_norm"}},
    {"gpt_oss", "gpt-oss", false, false, {NULL}},
};

static const char *const names[][2] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"model.norm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"embed_tokens", "nextn.embed_tokens"},
    {"enorm", "nextn.enorm"},
    {"hnorm", "nextn.hnorm"},
    {"eh_proj", "nextn.eh_proj"},
    {"shared_head.norm", "nextn.shared_head_norm"},
    {"shared_head.head", "nextn.shared_head_head"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"post_mlp_layernorm", "post_ffw_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.query_layernorm", "attn_q_norm"},
    {"self_attn.key_layernorm", "attn_k_norm"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.sinks", "attn_sinks"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"linear_attn.in_proj_qkv", "attn_qkv"},
    {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_ba", "ssm_ba"},
    {"linear_attn.in_proj_b", "ssm_beta"},
    {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.A_log", "ssm_a"},
    {"linear_attn.conv1d", "ssm_conv1d"},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"},
    {"mamba.in_proj", "ssm_in"},
    {"mamba.conv1d", "ssm_conv1d"},
    {"mamba.norm", "ssm_norm"},
    {"mamba.out_proj", "ssm_out"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"shared_mlp.output_linear", "ffn_down"},
    {"model.embedding_norm.weight", "token_embd_norm.weight"},
    {"operator_norm", "attn_norm"},
    {"backbone.embeddings.weight", "token_embd.weight"},
    {"backbone.norm_f.weight", "output_norm.weight"},
    {"norm", "attn_norm"},
    {"mixer.in_proj", "ssm_in"},
    {"mixer.conv1d", "ssm_conv1d"},
    {"mixer.norm", "ssm_norm"},
    {"mixer.out_proj", "ssm_out"},
    {"mixer.q_proj", "attn_q"},
    {"mixer.k_proj", "attn_k"},
    {"mixer.v_proj", "attn_v"},
    {"mixer.o_proj", "attn_output"},
    {"mixer.up_proj", "ffn_up"},
    {"mixer.down_proj", "ffn_down"},
    {"mixer.gate", "ffn_gate_inp"},
    {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
    {"mixer.shared_experts.down_proj", "ffn_down_shexp"},
    {"ffn_norm", "ffn_norm"},
    {"self_attn.out_proj", "attn_output"},
    {"self_attn.q_layernorm", "attn_q_norm"},
    {"self_attn.k_layernorm", "attn_k_norm"},
    {"conv.in_proj", "shortconv.in_proj"},
    {"conv.conv", "shortconv.conv"},
    {"conv.out_proj", "shortconv.out_proj"},
    {"feed_forward.w1", "ffn_gate"},
    {"feed_forward.w2", "ffn_down"},
    {"feed_forward.w3", "ffn_up"},
    {"feed_forward.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"mlp.gate", "ffn_gate_inp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"ln_1", "attn_norm"},
    {"ln_2", "ffn_norm"},
    {"attn.attention.q_proj", "attn_q"},
    {"attn.attention.k_proj", "attn_k"},
    {"attn.attention.v_proj", "attn_v"},
    {"attn.attention.out_proj", "attn_output"},
    {"mlp.c_fc_0", "ffn_gate"},
    {"mlp.c_fc_1", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
};

/* --- tensors ---------------------------------------------------------------------------------------------------- */

static float *widen(const struct tensor *t, size_t *count) {
    const bool is_wide = strcmp(t->dtype, "F32") == 0;
    *count = t->bytes / (is_wide ? 4 : 2);
    float *out = malloc(*count * sizeof *out);
    if (is_wide) return memcpy(out, t->data, t->bytes);
    ck_assert_str_eq(t->dtype, "BF16");
    for (size_t i = 0; i < *count; i++) out[i] = fmath_from_bits((uint32_t)((const uint16_t *)t->data)[i] << 16);
    return out;
}

void gguf_conversion_put(struct conversion *c, const char *name, int dims, const int64_t *shape, const float *data,
                         size_t count) {
    int64_t turned[4];
    for (int i = 0; i < dims; i++) turned[i] = shape[dims - 1 - i];
    if (is_gemma4(c) && dims == 3) {
        gguf_gemma4_put_stack(&c->files[c->turn++ % c->parts], name, turned, data, count);
        return;
    }
    gguf_put_tensor(&c->files[c->turn++ % c->parts], name, GGML_F32, dims, turned, data, count * sizeof *data);
}

/* Rows j and j + half of a head become neighbours. */
static void permute(float *rows, int64_t count, int64_t cols, int heads) {
    const int64_t head = count / heads, half = head / 2;
    float *copy = malloc((size_t)(count * cols) * sizeof *copy);
    memcpy(copy, rows, (size_t)(count * cols) * sizeof *copy);
    for (int64_t r = 0; r < count; r++) {
        const int64_t in_head = r % head, to = r - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
        memcpy(rows + to * cols, copy + r * cols, (size_t)cols * sizeof *rows);
    }
    free(copy);
}

static const char *renamed(const struct conversion *c, const char *name) {
    return is_hybrid(c) ? gguf_hybrid_name(c->config, name) : name;
}

/* This tensor of a layer of Mamba 2, as Granite 4 and Nemotron-H call it? */
static bool is_of_mamba(const char *name, const char *what) {
    char ends[2][32];
    snprintf(ends[0], sizeof ends[0], ".mamba.%s", what), snprintf(ends[1], sizeof ends[1], ".mixer.%s", what);
    return text_ends_with(name, ends[0]) || text_ends_with(name, ends[1]);
}

static void change(const struct conversion *c, const struct tensor *t, float *data, size_t count) {
    const int64_t cols = t->dims > 1 ? t->shape[1] : 1;
    if (c->kind->permutes && strstr(t->name, ".q_proj.")) permute(data, t->shape[0], cols, c->heads);
    if (c->kind->permutes && strstr(t->name, ".k_proj.")) permute(data, t->shape[0], cols, c->kv_heads);
    const bool is_norm = text_ends_with(renamed(c, t->name), "norm.weight") && !strstr(t->name, "linear_attn");
    for (size_t i = 0; i < count && c->kind->adds_one && is_norm; i++) data[i] += 1;
    if (is_hybrid(c)) gguf_hybrid_change(c->config, t, data, count);
    for (size_t i = 0; i < count && is_of_mamba(t->name, "A_log"); i++) data[i] = -expf(data[i]);
    /* The file says nothing of the scale of scores, which is by the size of a head. */
    const double scalar = number(c, "query_pre_attn_scalar", c->head_dim);
    for (size_t i = 0; i < count && strstr(t->name, ".q_proj."); i++)
        data[i] = (float)(data[i] * sqrt(c->head_dim / scalar));
}

static const char *part_of(const struct conversion *c, const char *part, size_t n) {
    for (int i = 0; i < 4 && c->kind->norms[i]; i += 2)
        if (strlen(c->kind->norms[i]) == n && memcmp(part, c->kind->norms[i], n) == 0) return c->kind->norms[i + 1];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i][0]) == n && memcmp(part, names[i][0], n) == 0) return names[i][1];
    return NULL;
}

/* Granite 4: gate before up in one matrix, perhaps beside experts. */
static void part_rows(struct conversion *c, const struct tensor *t, int layer) {
    static const char *const to[] = {"gate", "up"};
    const char *end = number(c, "num_local_experts", 0) > 0 ? "_shexp" : "";
    char name[64];
    size_t count;
    float *data = widen(t, &count);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "blk.%d.ffn_%s%s.weight", layer, to[i], end);
        gguf_conversion_put(c, name, 2, (const int64_t[]){t->shape[0] / 2, t->shape[1]}, data + (size_t)i * count / 2,
                            count / 2);
    }
    free(data);
}

/* Qwen3-Next: q, k, v and z of each key head in one matrix. */
static void part_qkvz(struct conversion *c, const struct tensor *t, int layer) {
    static const char *const to[] = {"attn_qkv", "attn_gate"};
    size_t count;
    float *data = widen(t, &count), *rows;
    for (int part = 0; part < 2; part++) {
        char name[64];
        const int64_t n = gguf_hybrid_part(c->config, data, t->shape[1], part, &rows);
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, to[part]);
        gguf_conversion_put(c, name, 2, (const int64_t[]){n, t->shape[1]}, rows, (size_t)(n * t->shape[1]));
        free(rows);
    }
    free(data);
}

static void convert_tensor(struct conversion *c, const struct tensor *t) {
    char name[128];
    int layer, used = 0;
    size_t count;
    const char *from = renamed(c, t->name);
    if ((sscanf(from, "model.layers.%d.%n", &layer, &used) == 1 ||
         sscanf(from, "transformer.h.%d.%n", &layer, &used) == 1 ||
         sscanf(from, "backbone.layers.%d.%n", &layer, &used) == 1) &&
        used > 0) {
        const char *part = from + used, *end = strrchr(part, '.');
        if (!end) end = part + strlen(part);
        if (strstr(part, "in_proj_qkvz")) {
            part_qkvz(c, t, layer);
            return;
        }
        if (strcmp(end, ".sinks") == 0) end = ".weight";
        const char *to = part_of(c, part, end > part ? (size_t)(end - part) : strlen(part)),
                   *whole = is_gemma4(c) ? gguf_gemma4_name(part) : NULL;
        if (strstr(part, ".experts.") || strstr(part, "moe.input_linear.") || strstr(part, "moe.output_linear."))
            return;
        if (strcmp(part, "shared_mlp.input_linear.weight") == 0) {
            part_rows(c, t, layer);
            return;
        }
        if (text_ends_with(part, "e_score_correction_bias") || text_ends_with(part, ".expert_bias"))
            to = "exp_probs_b", end = ".bias";
        if (text_ends_with(part, ".dt_bias")) to = "ssm_dt", end = ".bias";
        if (text_ends_with(part, ".A_log")) to = "ssm_a", end = "";
        if (is_of_mamba(t->name, "D")) to = "ssm_d", end = "";
        if (strstr(part, "shared_mlp.output") && number(c, "num_local_experts", 0) > 0) to = "ffn_down_shexp";
        if (whole) to = whole, end = "";
        if (!to) to = part_of(c, part, strlen(part)); /* sinks have no ".weight" */
        ck_assert_msg(to != NULL, "%s", t->name);
        snprintf(name, sizeof name, "blk.%d.%s%s", layer, to, end);
    } else {
        const char *to = is_gemma4(c) ? gguf_gemma4_name(t->name) : NULL;
        if (!to) to = part_of(c, t->name, strlen(t->name));
        if (!to) return; /* the converter drops it */
        snprintf(name, sizeof name, "%s", to);
    }
    float *data = widen(t, &count);
    change(c, t, data, count);
    const int skipped = strstr(name, "exp_probs_b") ? t->dims - 1 : 0; /* [1, E] is [E] */
    const int64_t squeezed[] = {t->shape[0], t->shape[t->dims - 1]};
    const int64_t groups = (int64_t)number(c, "mamba_n_groups", number(c, "n_groups", 1)),
                  by_group[] = {groups, (int64_t)count / groups}, each[] = {(int64_t)count, 1};
    if (strstr(name, "ssm_conv1d.weight") || strstr(name, "shortconv.conv"))
        gguf_conversion_put(c, name, 2, squeezed, data, count);
    else if (is_of_mamba(t->name, "norm.weight"))
        gguf_conversion_put(c, name, 2, by_group, data, count);
    else if (is_of_mamba(t->name, "A_log") || is_of_mamba(t->name, "D"))
        gguf_conversion_put(c, name, 2, each, data, count);
    else
        gguf_conversion_put(c, name, t->dims - skipped, t->shape + skipped, data, count);
    free(data);
}

/* The tensor of this name once renamed. */
static const struct tensor *find_renamed(const struct conversion *c, const char *name) {
    for (int i = 0; i < safetensors_count(c->tensors); i++) {
        const struct tensor *t = safetensors_at(c->tensors, i);
        if (strcmp(renamed(c, t->name), name) == 0) return t;
    }
    return NULL;
}

/* Experts that lie one by one in the directory: Mixtral's, Qwen's and LFM2's. */
static void stack_experts(struct conversion *c, int layer, int experts) {
    static const char *const matrices[][3] = {
        {"w1", "gate", "gate_proj"}, {"w2", "down", "down_proj"}, {"w3", "up", "up_proj"}};
    const bool is_mixtral = c->kind->permutes, is_lfm2 = strcmp(c->kind->name, "lfm2moe") == 0;
    const char *module = is_mixtral ? "block_sparse_moe" : is_lfm2 ? "feed_forward" : is_nemotron(c) ? "mixer" : "mlp";
    for (int m = 0; m < 3; m++) {
        char name[128];
        float *all = NULL;
        int64_t shape[3] = {experts, 0, 0};
        size_t count = 0;
        for (int e = 0; e < experts; e++) {
            snprintf(name, sizeof name, "%s.layers.%d.%s.experts.%d.%s.weight", is_nemotron(c) ? "backbone" : "model",
                     layer, module, e, matrices[m][is_mixtral || is_lfm2 ? 0 : 2]);
            const struct tensor *t = find_renamed(c, name);
            if (!t) break; /* a layer without, or experts without a gate */
            float *one = widen(t, &count);
            shape[1] = t->shape[0], shape[2] = t->shape[1];
            all = realloc(all, (size_t)experts * count * sizeof *all);
            memcpy(all + (size_t)e * count, one, count * sizeof *one);
            free(one);
        }
        snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", layer, matrices[m][1]);
        if (all) gguf_conversion_put(c, name, 3, shape, all, (size_t)experts * count);
        free(all);
    }
}

/* Granite: [E, out, in], gate before up. */
static void part_stack(struct conversion *c, const char *from, const char *to, int layer, int part, int parts) {
    char name[128];
    size_t count;
    snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.%s.weight", layer, from);
    const struct tensor *t = safetensors_find(c->tensors, name);
    const int64_t experts = t->shape[0], out = t->shape[1] / parts, in = t->shape[2];
    float *data = widen(t, &count), *own = malloc(count / (size_t)parts * sizeof *own);
    for (int64_t e = 0; e < experts; e++)
        memcpy(own + e * out * in, data + (e * parts + part) * out * in, (size_t)(out * in) * sizeof *own);
    snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", layer, to);
    gguf_conversion_put(c, name, 3, (const int64_t[]){experts, out, in}, own, count / (size_t)parts);
    free(data), free(own);
}

/* gpt-oss: [E, in, out] with gate and up taking turns, and biases [E, out]. `step` 2: every second of the outputs. */
static void turn_stack(struct conversion *c, const char *from, const char *to, int layer, int first, int step) {
    char name[128];
    size_t count;
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s", layer, from);
    const struct tensor *t = safetensors_find(c->tensors, name);
    const bool is_bias = t->dims == 2;
    const int64_t in = is_bias ? 1 : t->shape[1], all = t->shape[t->dims - 1], out = all / step;
    float *data = widen(t, &count), *turned = malloc(count / (size_t)step * sizeof *turned), *at = turned;
    for (int64_t e = 0; e < t->shape[0]; e++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++) *at++ = data[(e * in + i) * all + first + o * step];
    snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.%s", layer, to, is_bias ? "bias" : "weight");
    gguf_conversion_put(c, name, is_bias ? 2 : 3, (const int64_t[]){t->shape[0], out, in}, turned,
                        count / (size_t)step);
    free(data), free(turned);
}

static void convert_experts(struct conversion *c) {
    const int experts = (int)experts_of(c), layers = (int)number(c, "num_hidden_layers", 0) + heads_behind(c);
    for (int l = 0; l < layers && experts > 0 && !is_gemma4(c); l++) {
        if (strcmp(c->kind->name, "granitemoe") == 0 || strcmp(c->kind->name, "granitehybrid") == 0) {
            part_stack(c, "input_linear", "gate", l, 0, 2), part_stack(c, "input_linear", "up", l, 1, 2);
            part_stack(c, "output_linear", "down", l, 0, 1);
            continue;
        }
        if (strcmp(c->kind->name, "gpt-oss") != 0) {
            stack_experts(c, l, experts);
            continue;
        }
        turn_stack(c, "gate_up_proj", "gate", l, 0, 2), turn_stack(c, "gate_up_proj_bias", "gate", l, 0, 2);
        turn_stack(c, "gate_up_proj", "up", l, 1, 2), turn_stack(c, "gate_up_proj_bias", "up", l, 1, 2);
        turn_stack(c, "down_proj", "down", l, 0, 1), turn_stack(c, "down_proj_bias", "down", l, 0, 1);
    }
}

/* --- all --------------------------------------------------------------------------------------------------------- */

static void write_parts(const struct conversion *c, const char *path) {
    const size_t stem = strlen(path) - strlen("-00001-of-00002.gguf");
    for (int i = 0; i < c->parts; i++) {
        char part[512];
        snprintf(part, sizeof part, "%.*s-%05d-of-%05d.gguf", (int)stem, path, i + 1, c->parts);
        if (c->parts > 1)
            gguf_put_int(&c->files[i], "split.no", i), gguf_put_int(&c->files[i], "split.count", c->parts);
        gguf_write_file(&c->files[i], c->parts > 1 ? part : path);
        gguf_writer_free(&c->files[i]);
    }
}

void gguf_convert(const char *dir, const char *path, int parts) {
    struct gguf_writer files[PARTS_MAX] = {0};
    struct conversion c = {.files = files, .parts = parts};
    char config[4096];
    cJSON *json;
    snprintf(config, sizeof config, "%s/config.json", dir);
    ck_ok(json_parse_file(&json, config));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].model_type, json_get(json, "model_type")->valuestring) == 0 &&
            (strcmp(kinds[i].name, "granitehybrid") != 0 || is_mamba(json)))
            c.kind = &kinds[i];
    ck_assert_ptr_nonnull(c.kind);
    c.config = json_get(json, "text_config") ? json_get(json, "text_config") : json;
    c.backbone = json_get(json, "backbone_hidden_size");
    c.heads = (int)number(&c, "num_attention_heads", 0), c.kv_heads = (int)number(&c, "num_key_value_heads", c.heads);
    c.head_dim = (int)number(&c, "head_dim", number(&c, "hidden_size", 0) / c.heads);
    ck_ok(checkpoint_tensors(test_checkpoint(dir), &c.tensors));
    gguf_conversion_put_values(&c);
    for (int i = 0; i < safetensors_count(c.tensors); i++) {
        const struct tensor *t = safetensors_at(c.tensors, i);
        const bool is_head_again =
            strcmp(t->name, "lm_head.weight") == 0 && cJSON_IsTrue(json_get(json, "tie_word_embeddings"));
        if (!is_head_again) convert_tensor(&c, t);
    }
    convert_experts(&c);
    write_parts(&c, path);
    safetensors_close(c.tensors);
    cJSON_Delete(json);
}
