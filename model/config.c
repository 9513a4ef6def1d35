#include "model/config.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"

static const struct family {
    const char *name, *model_type;
    int32_t positions;
} families[] = {
    [ARCH_LLAMA] = {"LlamaForCausalLM", "llama", 2048},
    [ARCH_MISTRAL] = {"MistralForCausalLM", "mistral", 131072},
    [ARCH_QWEN2] = {"Qwen2ForCausalLM", "qwen2", 32768},
    [ARCH_QWEN3] = {"Qwen3ForCausalLM", "qwen3", 32768},
};
enum { FAMILIES = sizeof families / sizeof *families };

/* Bounds that keep every product of two of them, times an element, inside int64. */
enum {
    VOCAB_MAX = 1 << 20,
    WIDTH_MAX = 1 << 17,
    HIDDEN_MAX = 1 << 20,
    LAYERS_MAX = 1024,
    HEADS_MAX = 4096,
    POSITIONS_MAX = 1 << 24,
};

const char *architecture_name(enum architecture arch) {
    return families[arch].name;
}

static bool is_text(const cJSON *item, const char *text) {
    return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
}

static int need_string(const cJSON *item, const char *name) {
    return cJSON_IsString(item) ? 0 : err_set(ERR_FORMAT, "member '%s' is no string", name);
}

static int need_int(const cJSON *root, const char *name, int64_t max, int32_t *out) {
    int64_t value;
    if (!json_get(root, name)) return err_set(ERR_FORMAT, "member '%s' is missing", name);
    TRY(json_get_int(root, name, 0, 1, max, &value));
    *out = (int32_t)value;
    return 0;
}

static int get_int(const cJSON *root, const char *name, int32_t def, int64_t min, int64_t max, int32_t *out) {
    int64_t value;
    TRY(json_get_int(root, name, def, min, max, &value));
    *out = (int32_t)value;
    return 0;
}

static int refuse_true(const cJSON *root, const char *name, const char *reason) {
    bool value;
    TRY(json_get_bool(root, name, false, &value));
    return value ? err_set(ERR_UNSUPPORTED, "%s is not supported: %s", name, reason) : 0;
}

/* ---- architecture ---- */

static int find_family(const cJSON *name, bool by_model_type, enum architecture *out) {
    for (int i = 0; i < FAMILIES; i++) {
        if (!is_text(name, by_model_type ? families[i].model_type : families[i].name)) continue;
        *out = (enum architecture)i;
        return 0;
    }
    struct buf known = {0};
    for (int i = 0; i < FAMILIES; i++) buf_printf(&known, "%s%s", i ? ", " : "", families[i].name);
    int rc = err_set(ERR_UNSUPPORTED, "%s '%s' is not supported (known: %s)",
                     by_model_type ? "model_type" : "architecture", name->valuestring, buf_text(&known));
    buf_free(&known);
    return rc;
}

static int read_architecture(struct model_config *c, const cJSON *root) {
    const cJSON *list = json_get(root, "architectures"), *type = json_get(root, "model_type");
    if (list && !cJSON_IsArray(list)) return err_set(ERR_FORMAT, "member 'architectures' is no list");
    if (type) TRY(need_string(type, "model_type"));
    if (list && list->child) {
        TRY(need_string(list->child, "architectures"));
        TRY(find_family(list->child, false, &c->arch));
    } else {
        if (!type) return err_set(ERR_FORMAT, "neither 'architectures' nor 'model_type' is there");
        TRY(find_family(type, true, &c->arch));
    }
    if (type && !is_text(type, families[c->arch].model_type))
        return err_set(ERR_UNSUPPORTED, "model_type '%s' is not supported with architecture %s", type->valuestring,
                       families[c->arch].name);
    return 0;
}

static int refuse_unknown_shapes(const struct model_config *c, const cJSON *root) {
    const cJSON *quantization = json_get(root, "quantization_config"), *act = json_get(root, "hidden_act");
    if (quantization) {
        const cJSON *method = json_get(quantization, "quant_method");
        return err_set(ERR_UNSUPPORTED, "quantization '%s' is not supported, weights must be BF16, F16 or F32",
                       cJSON_IsString(method) ? method->valuestring : "of an unnamed method");
    }
    if (act) TRY(need_string(act, "hidden_act"));
    if (act && !is_text(act, "silu"))
        return err_set(ERR_UNSUPPORTED, "hidden_act '%s' is not supported, only silu", act->valuestring);
    if (c->arch != ARCH_QWEN2)
        TRY(refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    return refuse_true(root, "mlp_bias", "duet's MLP has no bias");
}

/* ---- dimensions ---- */

static int read_head_dim(struct model_config *c, const cJSON *root) {
    if (!json_get(root, "head_dim")) {
        if (c->width % c->heads != 0)
            return err_set(ERR_FORMAT,
                           "hidden_size %d is no multiple of num_attention_heads %d, and head_dim is missing", c->width,
                           c->heads);
        c->head_dim = c->width / c->heads;
    } else {
        TRY(get_int(root, "head_dim", 0, 1, WIDTH_MAX, &c->head_dim));
    }
    if (c->head_dim < HEAD_DIM_MIN || c->head_dim > HEAD_DIM_MAX || c->head_dim % 2 != 0)
        return err_set(ERR_UNSUPPORTED, "head size %d is not supported, only even ones from %d to %d", c->head_dim,
                       HEAD_DIM_MIN, HEAD_DIM_MAX);
    return 0;
}

static int read_dimensions(struct model_config *c, const cJSON *root) {
    double eps;
    TRY(need_int(root, "vocab_size", VOCAB_MAX, &c->vocab));
    TRY(need_int(root, "hidden_size", WIDTH_MAX, &c->width));
    TRY(need_int(root, "intermediate_size", HIDDEN_MAX, &c->hidden));
    TRY(need_int(root, "num_hidden_layers", LAYERS_MAX, &c->layers));
    TRY(need_int(root, "num_attention_heads", HEADS_MAX, &c->heads));
    TRY(get_int(root, "num_key_value_heads", c->heads, 1, HEADS_MAX, &c->kv_heads));
    TRY(get_int(root, "max_position_embeddings", families[c->arch].positions, 1, POSITIONS_MAX, &c->positions));
    if (c->heads % c->kv_heads != 0)
        return err_set(ERR_FORMAT, "num_attention_heads %d is no multiple of num_key_value_heads %d", c->heads,
                       c->kv_heads);
    TRY(read_head_dim(c, root));
    TRY(json_get_number(root, "rms_norm_eps", 1e-6, &eps));
    if (!(eps >= 1e-30 && eps <= 1)) return err_set(ERR_FORMAT, "rms_norm_eps %g lies outside 1e-30 to 1", eps);
    c->norm_eps = (float)eps;
    TRY(json_get_bool(root, "tie_word_embeddings", false, &c->tied));
    c->qkv_bias = c->arch == ARCH_QWEN2;
    c->qk_norm = c->arch == ARCH_QWEN3;
    return 0;
}

/* ---- sliding window ---- */

/* The window of the layers that have one: 0 if none has. */
static int read_window_size(const struct model_config *c, const cJSON *root, int32_t *window) {
    bool used = c->arch == ARCH_MISTRAL;
    *window = 0;
    if (c->arch == ARCH_QWEN2 || c->arch == ARCH_QWEN3) TRY(json_get_bool(root, "use_sliding_window", false, &used));
    if (!used) return 0;
    /* absent is transformers' default, null is none */
    int32_t def = cJSON_GetObjectItemCaseSensitive(root, "sliding_window") ? 0 : 4096;
    return get_int(root, "sliding_window", def, 1, 1 << 30, window);
}

static int count_sliding_layers(const struct model_config *c, const cJSON *types, int32_t *sliding) {
    int32_t layers = 0;
    *sliding = 0;
    if (!cJSON_IsArray(types)) return err_set(ERR_FORMAT, "member 'layer_types' is no list");
    for (const cJSON *type = types->child; type; type = type->next) {
        TRY(need_string(type, "layer_types"));
        layers++;
        if (is_text(type, "sliding_attention"))
            ++*sliding;
        else if (!is_text(type, "full_attention"))
            return err_set(ERR_UNSUPPORTED, "layer type '%s' is not supported", type->valuestring);
    }
    if (layers != c->layers) return err_set(ERR_FORMAT, "layer_types has %d entries, expected %d", layers, c->layers);
    return 0;
}

static int read_window(struct model_config *c, const cJSON *root) {
    const cJSON *types = json_get(root, "layer_types");
    bool is_qwen = c->arch == ARCH_QWEN2 || c->arch == ARCH_QWEN3;
    int32_t window, first = 0, sliding;
    TRY(read_window_size(c, root, &window));
    if (is_qwen) TRY(get_int(root, "max_window_layers", 28, 0, INT32_MAX, &first));
    sliding = window == 0 || first >= c->layers ? 0 : c->layers - first;
    if (types) {
        int32_t named;
        TRY(count_sliding_layers(c, types, &named));
        if ((window == 0 && named > 0) || (!is_qwen && named != sliding))
            return err_set(ERR_UNSUPPORTED, "layer_types and sliding_window contradict each other");
        sliding = named;
    }
    if (sliding != 0 && sliding != c->layers)
        return err_set(ERR_UNSUPPORTED, "a sliding window on %d of %d layers is not supported", sliding, c->layers);
    c->window = sliding ? window : 0;
    return 0;
}

/* ---- rope ---- */

static int need_number(const cJSON *object, const char *name, double min, double max, double *out) {
    if (!json_get(object, name)) return err_set(ERR_FORMAT, "rope parameter '%s' is missing", name);
    TRY(json_get_number(object, name, 0, out));
    if (*out >= min && *out <= max) return 0;
    return err_set(ERR_FORMAT, "rope parameter '%s' is %g, expected %g to %g", name, *out, min, max);
}

static int read_llama3(struct model_config *c, const cJSON *root, const cJSON *rope) {
    static const char original[] = "original_max_position_embeddings";
    TRY(need_number(rope, "low_freq_factor", 1e-6, 1e6, &c->rope_low_freq));
    TRY(need_number(rope, "high_freq_factor", 1e-6, 1e6, &c->rope_high_freq));
    if (c->rope_low_freq >= c->rope_high_freq)
        return err_set(ERR_FORMAT, "rope's low_freq_factor %g is not below its high_freq_factor %g", c->rope_low_freq,
                       c->rope_high_freq);
    return need_int(json_get(rope, original) ? rope : root, original, POSITIONS_MAX, &c->rope_original_positions);
}

static int read_rope_type(struct model_config *c, const cJSON *rope) {
    const cJSON *type = json_get(rope, "rope_type");
    if (!type) type = json_get(rope, "type");
    c->rope = ROPE_DEFAULT;
    if (!type) return rope && json_get(rope, "factor") ? err_set(ERR_FORMAT, "rope_scaling has no rope_type") : 0;
    TRY(need_string(type, "rope_type"));
    if (is_text(type, "linear"))
        c->rope = ROPE_LINEAR;
    else if (is_text(type, "llama3"))
        c->rope = ROPE_LLAMA3;
    else if (!is_text(type, "default"))
        return err_set(ERR_UNSUPPORTED, "rope type '%s' is not supported (known: default, linear, llama3)",
                       type->valuestring);
    return 0;
}

/* transformers 5 keeps everything in rope_parameters, transformers 4 in rope_theta and rope_scaling. */
static int read_rope(struct model_config *c, const cJSON *root) {
    bool is_v5 = json_get(root, "rope_parameters") != NULL;
    const cJSON *rope = json_get(root, is_v5 ? "rope_parameters" : "rope_scaling");
    if (rope && !cJSON_IsObject(rope))
        return err_set(ERR_FORMAT, "member '%s' is no object", is_v5 ? "rope_parameters" : "rope_scaling");
    double partial;
    TRY(json_get_number(json_get(rope, "partial_rotary_factor") ? rope : root, "partial_rotary_factor", 1, &partial));
    if (partial != 1) return err_set(ERR_UNSUPPORTED, "partial_rotary_factor %g is not supported, only 1", partial);
    TRY(json_get_number(json_get(rope, "rope_theta") ? rope : root, "rope_theta", 10000, &c->rope_theta));
    if (!(c->rope_theta >= 1 && c->rope_theta <= 1e15))
        return err_set(ERR_FORMAT, "rope_theta %g lies outside 1 to 1e15", c->rope_theta);
    TRY(read_rope_type(c, rope));
    c->rope_factor = 1;
    if (c->rope == ROPE_DEFAULT) return 0;
    TRY(need_number(rope, "factor", 1e-6, 1e6, &c->rope_factor));
    return c->rope == ROPE_LLAMA3 ? read_llama3(c, root, rope) : 0;
}

/* ---- special ids ---- */

/* Ascending and unique. An id past the vocabulary can never be drawn, so it is left out; -1 stands for none. */
static int add_end_id(struct model_config *c, const cJSON *item) {
    int64_t id;
    int at = 0;
    if (!json_int(item, &id) || id < -1 || id > INT32_MAX)
        return err_set(ERR_FORMAT, "member 'eos_token_id' is neither an id nor a list of ids");
    if (id < 0 || id >= c->vocab) return 0;
    while (at < c->end_count && c->end_ids[at] < id) at++;
    if (at < c->end_count && c->end_ids[at] == id) return 0;
    if (c->end_count == END_IDS_MAX) return err_set(ERR_LIMIT, "more than %d end ids", END_IDS_MAX);
    for (int i = c->end_count++; i > at; i--) c->end_ids[i] = c->end_ids[i - 1];
    c->end_ids[at] = (int32_t)id;
    return 0;
}

static int add_end_ids(struct model_config *c, const cJSON *root) {
    const cJSON *item = json_get(root, "eos_token_id");
    if (!item) return 0;
    if (!cJSON_IsArray(item)) return add_end_id(c, item);
    for (const cJSON *id = item->child; id; id = id->next) TRY(add_end_id(c, id));
    return 0;
}

/* ---- files ---- */

static int read_config(struct model_config *c, const cJSON *root) {
    if (!cJSON_IsObject(root)) return err_set(ERR_FORMAT, "is no JSON object");
    TRY(read_architecture(c, root));
    TRY(refuse_unknown_shapes(c, root));
    TRY(read_dimensions(c, root));
    TRY(read_window(c, root));
    TRY(read_rope(c, root));
    TRY(get_int(root, "bos_token_id", -1, -1, c->vocab - 1, &c->bos_id));
    return add_end_ids(c, root);
}

static int read_generation_config(struct model_config *c, const cJSON *root) {
    if (!cJSON_IsObject(root)) return err_set(ERR_FORMAT, "is no JSON object");
    TRY(json_get_number(root, "temperature", NAN, &c->gen_temperature));
    TRY(json_get_number(root, "top_p", NAN, &c->gen_top_p));
    TRY(get_int(root, "top_k", -1, -1, INT32_MAX, &c->gen_top_k));
    return add_end_ids(c, root);
}

static int load_file(struct model_config *c, const char *path, int (*read)(struct model_config *, const cJSON *)) {
    cJSON *root;
    TRY(json_parse_file(&root, path));
    int rc = read(c, root);
    if (rc != 0) err_prefix(rc, "%s", path);
    cJSON_Delete(root);
    return rc;
}

int model_config_load_file(struct model_config *out, const char *path) {
    *out = (struct model_config){.bos_id = -1, .gen_temperature = NAN, .gen_top_p = NAN, .gen_top_k = -1};
    return load_file(out, path, read_config);
}

int model_config_load(struct model_config *out, const char *dir) {
    struct buf path = {0};
    buf_printf(&path, "%s/config.json", dir);
    int rc = model_config_load_file(out, buf_text(&path));
    buf_clear(&path);
    buf_printf(&path, "%s/generation_config.json", dir);
    if (rc == 0 && file_exists(buf_text(&path))) rc = load_file(out, buf_text(&path), read_generation_config);
    buf_free(&path);
    return rc;
}
