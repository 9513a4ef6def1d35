#include "model/quantisation.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/config_read.h"

enum { GROUP_MAX = 1 << 20 };

static int refuse(const char *what, const cJSON *value) {
    return err_set(ERR_UNSUPPORTED, "quantization: %s '%s' is not supported", what,
                   cJSON_IsString(value) ? value->valuestring : "(no name)");
}

/* `item` must be one of `names`, NULL at the end, in any case. */
static int check_choice(const cJSON *object, const char *member, const char *const *names, bool may_lack) {
    const cJSON *item = json_get(object, member);
    if (!item && may_lack) return 0;
    for (; cJSON_IsString(item) && *names; names++)
        if (text_is_same_in_any_case(item->valuestring, *names)) return 0;
    return refuse(member, item);
}

/* A group of -1 columns is a row. */
static int read_group(const cJSON *object, const char *member, int32_t def, int32_t *out) {
    int64_t group;
    TRY(json_get_int(object, member, def, -1, GROUP_MAX, &group));
    if (group == 0) return err_set(ERR_FORMAT, "quantization: %s is 0", member);
    *out = group < 0 ? 0 : (int32_t)group;
    return 0;
}

/* [128, 128], or as older files have it, "128x128". */
static bool read_pair(const cJSON *item, int64_t *rows, int64_t *cols) {
    int end = 0;
    if (cJSON_IsString(item))
        return sscanf(item->valuestring, "%7" SCNd64 "x%7" SCNd64 "%n", rows, cols, &end) == 2 &&
               !item->valuestring[end];
    return cJSON_GetArraySize(item) == 2 && json_int(item->child, rows) && json_int(item->child->next, cols);
}

static int read_blocks(struct quantisation *q, const cJSON *size) {
    int64_t rows, cols;
    if (!size) return 0;
    if (!read_pair(size, &rows, &cols) || rows < 1 || cols < 1 || rows > GROUP_MAX || cols > GROUP_MAX)
        return err_set(ERR_FORMAT, "quantization: the size of a block is no pair of positive integers");
    q->block_rows = (int32_t)rows, q->block_cols = (int32_t)cols;
    return 0;
}

static int read_fp8(struct quantisation *q, const cJSON *root) {
    TRY(check_choice(root, "fmt", (const char *const[]){"e4m3", "float8_e4m3fn", NULL}, true));
    return read_blocks(q, json_get(root, "weight_block_size"));
}

/* --- compressed-tensors ---------------------------------------------------------------------------------------- */

/* Two groups of layers may differ in their formats, but not in how large the groups of one format are. */
static int set_group(int32_t *group, int32_t value) {
    if (*group >= 0 && *group != value)
        return err_set(ERR_UNSUPPORTED, "quantization: groups of %d and of %d columns in one checkpoint", *group,
                       value);
    *group = value;
    return 0;
}

static int read_weights_of_group(struct quantisation *q, const cJSON *weights) {
    static const char *const float8[] = {"tensor", "channel", "block", NULL},
                             *const int4[] = {"group", "channel", NULL},
                             *const float4[] = {"group", "tensor_group", NULL};
    int64_t bits;
    int32_t group = 0;
    TRY(json_get_int(weights, "num_bits", 0, 0, 64, &bits));
    const bool is_float = config_is_text(json_get(weights, "type"), "float");
    if (!is_float && !config_is_text(json_get(weights, "type"), "int"))
        return refuse("type", json_get(weights, "type"));
    if (is_float && bits == 8) {
        TRY(check_choice(weights, "strategy", float8, false));
        return read_blocks(q, json_get(weights, "block_structure"));
    }
    if (bits != 4)
        return err_set(ERR_UNSUPPORTED, "quantization: weights of %lld bits are not supported, only FP8, FP4 and INT4",
                       (long long)bits);
    TRY(check_choice(weights, "strategy", is_float ? float4 : int4, false));
    TRY(read_group(weights, "group_size", -1, &group));
    return set_group(is_float ? &q->fp4_group : &q->int4_group, group);
}

static int read_compressed(struct quantisation *q, const cJSON *root) {
    static const char *const formats[] = {"float-quantized",
                                          "naive-quantized",
                                          "pack-quantized",
                                          "nvfp4-pack-quantized",
                                          "mxfp4-pack-quantized",
                                          "mixed-precision",
                                          NULL};
    const cJSON *sparsity = json_get(root, "sparsity_config"), *groups = json_get(root, "config_groups");
    TRY(check_choice(root, "format", formats, false));
    if (cJSON_IsObject(sparsity) && sparsity->child && !config_is_text(json_get(sparsity, "format"), "dense"))
        return refuse("sparsity_config", json_get(sparsity, "format"));
    const cJSON *transform = json_get(root, "transform_config"), *turns = json_get(transform, "config_groups");
    if (transform && transform->child && (!cJSON_IsObject(turns) || turns->child))
        return err_set(ERR_UNSUPPORTED, "quantization: a transform_config is not supported");
    if (!cJSON_IsObject(groups) || !groups->child)
        return err_set(ERR_FORMAT, "quantization: config_groups is missing or no object");
    for (const cJSON *group = groups->child; group; group = group->next) {
        const cJSON *weights = json_get(group, "weights");
        if (!weights) continue; /* activations alone */
        TRY(check_choice(group, "format", formats, true));
        TRY(read_weights_of_group(q, weights));
    }
    return 0;
}

/* --- the others -------------------------------------------------------------------------------------------------- */

static int read_modelopt(struct quantisation *q, const cJSON *root) {
    const cJSON *inner = json_get(root, "quantization");
    if (!cJSON_IsObject(inner)) inner = root;
    TRY(check_choice(inner, "quant_algo", (const char *const[]){"FP8", "NVFP4", NULL}, false));
    return read_group(inner, "group_size", 16, &q->fp4_group);
}

static int check_bits(const cJSON *root, const char *member) {
    int64_t bits;
    TRY(json_get_int(root, member, 0, 0, 64, &bits));
    if (bits == 4) return 0;
    return err_set(ERR_UNSUPPORTED, "quantization: GPTQ and AWQ of %lld bits are not supported, only 4",
                   (long long)bits);
}

/* Its "dynamic" may leave modules out ("-:REGEX"), or give them other bits. */
static int read_gptq(struct quantisation *q, const cJSON *root) {
    const cJSON *dynamic = json_get(root, "dynamic");
    const char *member = json_get(root, "checkpoint_format") ? "checkpoint_format" : "format"; /* the newer name */
    const cJSON *form = json_get(root, member);
    TRY(check_bits(root, "bits"));
    TRY(read_group(root, "group_size", -1, &q->int4_group));
    TRY(check_choice(root, member, (const char *const[]){"gptq", "gptq_v2", NULL}, true));
    TRY(config_refuse_true(root, "is_marlin_format", "GPTQ weights must be in GPTQ's own order"));
    for (const cJSON *rule = cJSON_IsObject(dynamic) ? dynamic->child : NULL; rule; rule = rule->next)
        if (strncmp(rule->string, "-:", 2) != 0)
            return err_set(ERR_UNSUPPORTED, "quantization: the dynamic rule '%s' is not supported", rule->string);
    q->zero_is_one_less = !form || !text_is_same_in_any_case(form->valuestring, "gptq_v2");
    return 0;
}

/* A layer of 16 bits is not quantised. */
static int check_extra(const cJSON *extra) {
    int64_t bits;
    for (const cJSON *layer = cJSON_IsObject(extra) ? extra->child : NULL; layer; layer = layer->next) {
        TRY(json_get_int(layer, "bits", 0, 0, 64, &bits));
        if (bits < 16)
            return err_set(ERR_UNSUPPORTED, "quantization: the extra_config of '%s' is not supported", layer->string);
    }
    return 0;
}

/* This form of its tensors is GPTQ's first one, without a list of groups. */
static int read_auto_round(struct quantisation *q, const cJSON *root) {
    int64_t act_bits;
    TRY(check_choice(root, "packing_format", (const char *const[]){"auto_round:auto_gptq", NULL}, false));
    TRY(check_choice(root, "data_type", (const char *const[]){"int", NULL}, true));
    TRY(json_get_int(root, "act_bits", 16, 0, 64, &act_bits));
    if (act_bits < 16)
        return err_set(ERR_UNSUPPORTED, "quantization: activations of %lld bits are not supported",
                       (long long)act_bits);
    if (json_get(root, "rotation_config") || json_get(root, "spinquant_config"))
        return err_set(ERR_UNSUPPORTED, "quantization: rotated weights are not supported");
    TRY(check_extra(json_get(root, "extra_config")));
    TRY(check_bits(root, "bits"));
    TRY(read_group(root, "group_size", -1, &q->int4_group));
    q->method = QUANTISATION_GPTQ;
    q->zero_is_one_less = true;
    return 0;
}

/* A file of its own names some members otherwise. */
static int read_awq(struct quantisation *q, const cJSON *root) {
    const bool is_own = json_get(root, "w_bit") != NULL;
    bool has_zeros;
    TRY(check_bits(root, is_own ? "w_bit" : "bits"));
    TRY(check_choice(root, "version", (const char *const[]){"gemm", NULL}, true));
    TRY(json_get_bool(root, "zero_point", true, &has_zeros));
    if (!has_zeros) return err_set(ERR_UNSUPPORTED, "quantization: AWQ without zero points is not supported");
    return read_group(root, is_own ? "q_group_size" : "group_size", -1, &q->int4_group);
}

static int read_mxfp4(struct quantisation *q, const cJSON *root) {
    (void)root;
    q->fp4_group = 32;
    return 0;
}

static int read_bitsandbytes(struct quantisation *q, const cJSON *root) {
    bool is_4bit;
    (void)q;
    TRY(json_get_bool(root, "load_in_4bit", false, &is_4bit));
    if (!is_4bit) return err_set(ERR_UNSUPPORTED, "quantization: bitsandbytes in 8 bits is not supported, only nf4");
    return check_choice(root, "bnb_4bit_quant_type", (const char *const[]){"nf4", NULL}, false);
}

/* --- any --------------------------------------------------------------------------------------------------------- */

static const struct method {
    const char *name;
    int (*read)(struct quantisation *, const cJSON *);
} methods[] = {
    [QUANTISATION_FP8] = {"fp8", read_fp8},
    [QUANTISATION_COMPRESSED_TENSORS] = {"compressed-tensors", read_compressed},
    [QUANTISATION_MODELOPT] = {"modelopt", read_modelopt},
    [QUANTISATION_GPTQ] = {"gptq", read_gptq},
    [QUANTISATION_AWQ] = {"awq", read_awq},
    [QUANTISATION_MXFP4] = {"mxfp4", read_mxfp4},
    [QUANTISATION_BITSANDBYTES] = {"bitsandbytes", read_bitsandbytes},
    [QUANTISATION_AUTO_ROUND] = {"auto-round", read_auto_round},
};

int quantisation_read_file(struct quantisation *q, const cJSON *root, enum quantisation_method method) {
    if (!cJSON_IsObject(root)) return err_set(ERR_FORMAT, "is no JSON object");
    *q = (struct quantisation){
        .method = method, .int4_group = -1, .fp4_group = -1, .block_rows = 128, .block_cols = 128};
    return methods[method].read(q, root);
}

static bool is_of_mlx(const cJSON *object) {
    return !json_get(object, "quant_method") && json_get(object, "group_size") && json_get(object, "bits");
}

int quantisation_read(struct quantisation *q, const cJSON *root, const cJSON *text) {
    static const char *const members[] = {"quantization_config", "compression_config"};
    const cJSON *found = NULL;
    *q = (struct quantisation){0};
    for (int i = 0; i < 4 && !found; i++) found = json_get(i % 2 ? text : root, members[i / 2]);
    if (is_of_mlx(found ? found : json_get(root, "quantization")))
        return err_set(ERR_UNSUPPORTED,
                       "quantization: it looks like MLX's (group_size and bits without a quant_method), "
                       "which is not supported");
    if (!found) return 0;
    const cJSON *name = json_get(found, "quant_method");
    for (int i = QUANTISATION_NONE + 1; i < (int)(sizeof methods / sizeof *methods); i++)
        if (config_is_text(name, methods[i].name)) return quantisation_read_file(q, found, (enum quantisation_method)i);
    return err_set(ERR_UNSUPPORTED,
                   "quantization '%s' is not supported (known: fp8, compressed-tensors, modelopt, gptq, awq, mxfp4, "
                   "bitsandbytes, auto-round)",
                   cJSON_IsString(name) ? name->valuestring : "of an unnamed method");
}
