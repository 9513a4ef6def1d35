#include "model/config_read.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"

/* Bounds that keep every product of two of them, times an element, inside int64. */
enum {
    VOCAB_MAX = 1 << 20,
    WIDTH_MAX = 1 << 17,
    HIDDEN_MAX = 1 << 20,
    HEADS_MAX = 4096,
    POSITIONS_MAX = 1 << 24,
};

/* --- members ---------------------------------------------------------------------------------------------- */

const cJSON *config_text(const cJSON *root) {
    const cJSON *text = json_get(root, "text_config");
    return cJSON_IsObject(text) ? text : root;
}

bool config_is_wrapper(const struct model_config *c) {
    return text_ends_with(c->architecture, "ForConditionalGeneration");
}

bool config_is_text(const cJSON *item, const char *text) {
    return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
}

const char *config_member(const cJSON *root, const char *first, const char *second) {
    return json_get(root, first) ? first : second;
}

int config_need_string(const cJSON *item, const char *name) {
    return cJSON_IsString(item) ? 0 : err_set(ERR_FORMAT, "member '%s' is no string", name);
}

int config_need_int(const cJSON *root, const char *name, int64_t max, int32_t *out) {
    int64_t value;
    if (!json_get(root, name)) return err_set(ERR_FORMAT, "member '%s' is missing", name);
    TRY(json_get_int(root, name, 0, 1, max, &value));
    *out = (int32_t)value;
    return 0;
}

int config_get_int(const cJSON *root, const char *name, int32_t def, int64_t min, int64_t max, int32_t *out) {
    int64_t value;
    TRY(json_get_int(root, name, def, min, max, &value));
    *out = (int32_t)value;
    return 0;
}

int config_get_float(const cJSON *root, const char *name, double def, float *out) {
    double value;
    TRY(json_get_number(root, name, def, &value));
    if (!(fabs(value) <= 1e6)) return err_set(ERR_FORMAT, "member '%s' is %g, expected at most 1e6", name, value);
    *out = (float)value;
    return 0;
}

int config_refuse_true(const cJSON *root, const char *name, const char *reason) {
    bool value;
    TRY(json_get_bool(root, name, false, &value));
    return value ? err_set(ERR_UNSUPPORTED, "%s is not supported: %s", name, reason) : 0;
}

int config_check_activation(const cJSON *root, const char *name) {
    static const char *const members[] = {"hidden_activation", "hidden_act", "activation_function"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const cJSON *item = json_get(root, members[i]);
        if (!item) continue;
        TRY(config_need_string(item, members[i]));
        if (config_is_text(item, name)) return 0;
        return err_set(ERR_UNSUPPORTED, "%s '%s' is not supported, only %s", members[i], item->valuestring, name);
    }
    return 0;
}

/* --- dimensions ------------------------------------------------------------------------------------------- */

static int check_head_dim(int32_t head_dim) {
    if (head_dim >= HEAD_DIM_MIN && head_dim <= HEAD_DIM_MAX && head_dim % 2 == 0) return 0;
    return err_set(ERR_UNSUPPORTED, "head size %d is not supported, only even ones from %d to %d", head_dim,
                   HEAD_DIM_MIN, HEAD_DIM_MAX);
}

/* null is a value too. */
static bool is_absent(const cJSON *root, const char *name) {
    return !cJSON_GetObjectItemCaseSensitive(root, name);
}

static int read_heads(struct model_config *c, const cJSON *root, const struct dimension_defaults *d) {
    if (d->heads)
        TRY(config_get_int(root, "num_attention_heads", d->heads, 1, HEADS_MAX, &c->heads));
    else
        TRY(config_need_int(root, "num_attention_heads", HEADS_MAX, &c->heads));
    const int32_t kv_heads = d->kv_heads && is_absent(root, "num_key_value_heads") ? d->kv_heads : c->heads;
    TRY(config_get_int(root, "num_key_value_heads", kv_heads, 1, HEADS_MAX, &c->kv_heads));
    if (c->heads % c->kv_heads != 0)
        return err_set(ERR_FORMAT, "num_attention_heads %d is no multiple of num_key_value_heads %d", c->heads,
                       c->kv_heads);
    int32_t own = is_absent(root, "head_dim") ? d->head_dim : 0;
    if (!own && !json_get(root, "head_dim")) {
        if (c->width % c->heads != 0)
            return err_set(ERR_FORMAT,
                           "hidden_size %d is no multiple of num_attention_heads %d, and head_dim is missing", c->width,
                           c->heads);
        own = c->width / c->heads;
    }
    TRY(config_get_int(root, "head_dim", own, 1, WIDTH_MAX, &c->head_dim));
    return check_head_dim(c->head_dim);
}

static void fill_layers(struct model_config *c) {
    for (int l = 0; l < c->layers; l++)
        c->layer[l] =
            (struct layer_config){.kv_heads = c->kv_heads, .head_dim = c->head_dim, .hidden = c->hidden, .kv_layer = l};
    c->embedding_scale = c->residual_scale = c->logits_scale = c->router_scale = c->experts_scale = 1;
    c->attention_scale = 1.0f / sqrtf((float)c->head_dim);
}

int config_read_dimensions(struct model_config *c, const cJSON *root, const struct dimension_defaults *d) {
    const char *eps_member = d->eps_member ? d->eps_member : "rms_norm_eps";
    double eps;
    if (d->vocab)
        TRY(config_get_int(root, "vocab_size", d->vocab, 1, VOCAB_MAX, &c->vocab));
    else
        TRY(config_need_int(root, "vocab_size", VOCAB_MAX, &c->vocab));
    TRY(config_need_int(root, "hidden_size", WIDTH_MAX, &c->width));
    if (d->hidden)
        TRY(config_get_int(root, "intermediate_size", d->hidden, 1, HIDDEN_MAX, &c->hidden));
    else
        TRY(config_need_int(root, "intermediate_size", HIDDEN_MAX, &c->hidden));
    if (d->layers)
        c->layers = d->layers;
    else
        TRY(config_need_int(root, d->layers_member ? d->layers_member : "num_hidden_layers", LAYERS_MAX, &c->layers));
    TRY(config_get_int(root, "max_position_embeddings", d->positions, 1, POSITIONS_MAX, &c->positions));
    TRY(read_heads(c, root, d));
    TRY(json_get_number(root, eps_member, d->norm_eps != 0 ? d->norm_eps : 1e-6, &eps));
    if (!(eps >= 1e-30 && eps <= 1)) return err_set(ERR_FORMAT, "%s %g lies outside 1e-30 to 1", eps_member, eps);
    c->norm_eps = (float)eps;
    TRY(json_get_bool(root, "tie_word_embeddings", d->tied, &c->tied));
    fill_layers(c);
    return 0;
}

/* --- layers ----------------------------------------------------------------------------------------------- */

int config_read_layer_types(const struct model_config *c, const cJSON *root, const char *kind, bool are[LAYERS_MAX],
                            bool *given) {
    const cJSON *types = json_get(root, "layer_types");
    int layers = 0;
    *given = types != NULL;
    if (!types) return 0;
    if (!cJSON_IsArray(types)) return err_set(ERR_FORMAT, "member 'layer_types' is no list");
    for (const cJSON *type = types->child; type; type = type->next, layers++) {
        TRY(config_need_string(type, "layer_types"));
        const bool is = config_is_text(type, kind);
        if (!is && !config_is_text(type, "full_attention"))
            return err_set(ERR_UNSUPPORTED, "layer type '%s' is not supported", type->valuestring);
        if (layers < c->layers) are[layers] = is;
    }
    if (layers != c->layers) return err_set(ERR_FORMAT, "layer_types has %d entries, expected %d", layers, c->layers);
    return 0;
}

void config_set_windows(struct model_config *c, int32_t window, const bool slides[LAYERS_MAX]) {
    for (int l = 0; l < c->layers; l++) c->layer[l].window = slides[l] ? window : 0;
}

int config_read_windows(struct model_config *c, const cJSON *root, int32_t def, int32_t min, bool slides[LAYERS_MAX]) {
    const bool is_null = !is_absent(root, "sliding_window") && !json_get(root, "sliding_window");
    bool given;
    int32_t window;
    TRY(config_get_int(root, "sliding_window", is_null ? 0 : def, min, 1 << 30, &window));
    TRY(config_read_layer_types(c, root, "sliding_attention", slides, &given));
    for (int l = 0; l < c->layers && is_null; l++)
        if (slides[l]) return err_set(ERR_FORMAT, "sliding_window is null, and layer %d has one", l);
    config_set_windows(c, window, slides);
    return 0;
}

int config_read_uniform_window(struct model_config *c, const cJSON *root, int32_t def) {
    bool slides[LAYERS_MAX] = {0}, given;
    int32_t window;
    if (!is_absent(root, "sliding_window")) def = 0; /* null is none, as 0 is */
    TRY(config_get_int(root, "sliding_window", def, 0, 1 << 30, &window));
    for (int l = 0; l < c->layers; l++) slides[l] = window > 0;
    TRY(config_read_layer_types(c, root, "sliding_attention", slides, &given));
    for (int l = 0; l < c->layers; l++)
        if (slides[l] != (window > 0))
            return err_set(ERR_UNSUPPORTED, "layer_types and sliding_window contradict each other");
    config_set_windows(c, window, slides);
    return 0;
}

int config_read_experts(struct model_config *c, const cJSON *root, const char *chosen, const char *hidden) {
    const char *experts = json_get(root, "num_local_experts") ? "num_local_experts" : "num_experts";
    return config_read_experts_as(c, root, experts, chosen, hidden);
}

int config_read_experts_as(struct model_config *c, const cJSON *root, const char *experts, const char *chosen,
                           const char *hidden) {
    TRY(config_need_int(root, experts, EXPERTS_MAX, &c->experts));
    TRY(config_need_int(root, chosen, EXPERTS_MAX, &c->experts_chosen));
    TRY(config_need_int(root, hidden, HIDDEN_MAX, &c->expert_hidden));
    if (c->experts_chosen > c->experts)
        return err_set(ERR_FORMAT, "%s is %d, more than the %d experts", chosen, c->experts_chosen, c->experts);
    return 0;
}

int config_check_groups(const cJSON *root) {
    int32_t groups, chosen;
    TRY(config_get_int(root, "n_group", 1, 1, EXPERTS_MAX, &groups));
    TRY(config_get_int(root, "topk_group", groups, 1, EXPERTS_MAX, &chosen));
    if (chosen >= groups) return 0;
    return err_set(ERR_UNSUPPORTED, "experts in groups (topk_group %d of %d) are not supported", chosen, groups);
}

/* --- rope ------------------------------------------------------------------------------------------------- */

static const char original[] = "original_max_position_embeddings";

static int need_number(const cJSON *object, const char *name, double min, double max, double *out) {
    if (!json_get(object, name)) return err_set(ERR_FORMAT, "rope parameter '%s' is missing", name);
    TRY(json_get_number(object, name, 0, out));
    if (*out >= min && *out <= max) return 0;
    return err_set(ERR_FORMAT, "rope parameter '%s' is %g, expected %g to %g", name, *out, min, max);
}

static int get_number(const cJSON *object, const char *name, double def, double min, double max, double *out) {
    *out = def;
    return json_get(object, name) ? need_number(object, name, min, max, out) : 0;
}

static int read_llama3(struct rope_config *r, const cJSON *root, const cJSON *rope) {
    TRY(need_number(rope, "low_freq_factor", 1e-6, 1e6, &r->low_freq));
    TRY(need_number(rope, "high_freq_factor", 1e-6, 1e6, &r->high_freq));
    if (r->low_freq >= r->high_freq)
        return err_set(ERR_FORMAT, "rope's low_freq_factor %g is not below its high_freq_factor %g", r->low_freq,
                       r->high_freq);
    return config_need_int(json_get(rope, original) ? rope : root, original, POSITIONS_MAX, &r->original_positions);
}

/* 0.1 m ln(factor) + 1 */
static double yarn_scale(double factor, double m) {
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

/* Peng et al. 2023, as transformers computes it; as in vLLM, attn_factor is times what the attention factor is without it. */
static int read_yarn(struct model_config *c, struct rope_config *r, const cJSON *root, const cJSON *rope) {
    double mscale, mscale_all, attention, times, extrapolation;
    const cJSON *owner = json_get(rope, original) ? rope : root;
    TRY(config_get_int(owner, original, c->positions, 1, POSITIONS_MAX, &r->original_positions));
    TRY(get_number(rope, "beta_fast", 32, 1e-6, 1e6, &r->beta_fast));
    TRY(get_number(rope, "beta_slow", 1, 1e-6, 1e6, &r->beta_slow));
    TRY(json_get_bool(rope, "truncate", true, &r->truncate));
    TRY(json_get_number(rope, "extrapolation_factor", 1, &extrapolation));
    if (extrapolation != 1)
        return err_set(ERR_UNSUPPORTED, "rope's extrapolation_factor %g is not supported, only 1", extrapolation);
    TRY(get_number(rope, "mscale", 0, 0, 1e3, &mscale));
    TRY(get_number(rope, "mscale_all_dim", 0, 0, 1e3, &mscale_all));
    TRY(get_number(rope, "attention_factor", -1, 0, 1e3, &attention));
    TRY(get_number(rope, "attn_factor", 1, 0, 1e3, &times));
    TRY(get_number(rope, "llama_4_scaling_beta", 0, 0, 1e3, &r->query_beta));
    if (r->query_beta != 0 && r->dims < r->head_dim)
        return err_set(ERR_UNSUPPORTED,
                       "rope's llama_4_scaling_beta with a part of a head that turns is not supported");
    if (attention >= 0)
        r->attention_factor = attention;
    else if (mscale != 0 && mscale_all != 0)
        r->attention_factor = yarn_scale(r->factor, mscale) / yarn_scale(r->factor, mscale_all) * times;
    else
        r->attention_factor = yarn_scale(r->factor, 1) * times;
    double reach = r->factor * r->original_positions;
    if (reach > c->positions && reach <= POSITIONS_MAX) c->positions = (int32_t)reach;
    return 0;
}

static int read_factors(const struct rope_config *r, const cJSON *rope, const char *name, float *out) {
    const cJSON *list = json_get(rope, name);
    int count = 0;
    if (!cJSON_IsArray(list)) return err_set(ERR_FORMAT, "rope parameter '%s' is missing or no list", name);
    for (const cJSON *item = list->child; item; item = item->next, count++) {
        double factor;
        if (!json_number(item, &factor) || !(factor >= 1e-6 && factor <= 1e6))
            return err_set(ERR_FORMAT, "rope parameter '%s' holds something else than factors", name);
        if (count < r->dims / 2) out[count] = (float)factor;
    }
    if (count == r->dims / 2) return 0;
    return err_set(ERR_FORMAT, "rope parameter '%s' has %d factors, expected %d", name, count, r->dims / 2);
}

/* Ding et al. 2024; the factor is that of the context, not a member of its own. */
static int read_longrope(struct model_config *c, struct rope_config *r, const cJSON *root, const cJSON *rope) {
    double attention;
    const cJSON *owner = json_get(rope, original) ? rope : root;
    TRY(config_get_int(owner, original, c->positions, 1, POSITIONS_MAX, &r->original_positions));
    TRY(read_factors(r, rope, "short_factor", r->short_factor));
    TRY(read_factors(r, rope, "long_factor", r->long_factor));
    double stretch = (double)c->positions / r->original_positions;
    TRY(get_number(rope, "factor", stretch, 1e-6, 1e6, &r->factor));
    TRY(get_number(rope, "attention_factor", -1, 0, 1e3, &attention));
    r->attention_factor = attention >= 0 ? attention
                          : r->factor <= 1 || r->original_positions < 2
                              ? 1
                              : sqrt(1 + log(r->factor) / log(r->original_positions));
    return 0;
}

/* Its context is that of training times the factor. */
static int read_dynamic(struct model_config *c, struct rope_config *r, const cJSON *root, const cJSON *rope) {
    const cJSON *owner = json_get(rope, original) ? rope : root;
    TRY(config_get_int(owner, original, c->positions, 1, POSITIONS_MAX, &r->original_positions));
    double reach = r->factor * r->original_positions;
    if (reach > c->positions && reach <= POSITIONS_MAX) c->positions = (int32_t)reach;
    return 0;
}

static int read_rope_type(struct rope_config *r, const cJSON *rope) {
    static const char *const names[] = {[ROPE_DEFAULT] = "default",
                                        [ROPE_LINEAR] = "linear",
                                        [ROPE_LLAMA3] = "llama3",
                                        [ROPE_YARN] = "yarn",
                                        [ROPE_DYNAMIC] = "dynamic",
                                        [ROPE_LONGROPE] = "longrope",
                                        [ROPE_PROPORTIONAL] = "proportional"};
    const cJSON *type = json_get(rope, "rope_type");
    if (!type) type = json_get(rope, "type");
    r->type = ROPE_DEFAULT;
    if (!type) return rope && json_get(rope, "factor") ? err_set(ERR_FORMAT, "rope_scaling has no rope_type") : 0;
    TRY(config_need_string(type, "rope_type"));
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        if (!config_is_text(type, names[i])) continue;
        r->type = (enum rope_type)i;
        return 0;
    }
    if (config_is_text(type, "su")) { /* longrope's first name */
        r->type = ROPE_LONGROPE;
        return 0;
    }
    if (config_is_text(type, "mrope")) return 0; /* its three positions are one in text, so it is the plain rotation */
    return err_set(ERR_UNSUPPORTED,
                   "rope type '%s' is not supported (known: default, linear, llama3, yarn, dynamic, longrope)",
                   type->valuestring);
}

/* How many dimensions turn. "proportional" spreads its frequencies over the whole head and stops early (model_config_rope). */
static int read_rotary_dims(struct rope_config *r, const cJSON *root, const cJSON *rope) {
    double partial;
    TRY(json_get_number(json_get(rope, "partial_rotary_factor") ? rope : root, "partial_rotary_factor", 1, &partial));
    if (!(partial > 0 && partial <= 1))
        return err_set(ERR_FORMAT, "partial_rotary_factor %g lies outside 0 to 1", partial);
    r->dims = (int32_t)(r->head_dim * partial) / 2 * 2;
    if (r->dims < 2) return err_set(ERR_UNSUPPORTED, "partial_rotary_factor %g leaves nothing to rotate", partial);
    return 0;
}

int config_add_rope(struct model_config *c, const cJSON *root, const cJSON *rope, double theta, int32_t head_dim) {
    struct rope_config *r = &c->rope[c->ropes++];
    *r = (struct rope_config){.head_dim = head_dim, .factor = 1, .attention_factor = 1};
    if (rope && !cJSON_IsObject(rope)) return err_set(ERR_FORMAT, "the rope's parameters are no object");
    TRY(check_head_dim(head_dim));
    TRY(read_rotary_dims(r, root, rope));
    TRY(json_get_number(json_get(rope, "rope_theta") ? rope : root, "rope_theta", theta, &r->theta));
    if (!(r->theta >= 1 && r->theta <= 1e15))
        return err_set(ERR_FORMAT, "rope_theta %g lies outside 1 to 1e15", r->theta);
    TRY(read_rope_type(r, rope));
    if (r->type == ROPE_DEFAULT || r->type == ROPE_PROPORTIONAL) return 0;
    if (r->type == ROPE_LONGROPE) return read_longrope(c, r, root, rope);
    TRY(need_number(rope, "factor", 1e-6, 1e6, &r->factor));
    if (r->type == ROPE_LLAMA3) return read_llama3(r, root, rope);
    if (r->type == ROPE_YARN) return read_yarn(c, r, root, rope);
    return r->type == ROPE_DYNAMIC ? read_dynamic(c, r, root, rope) : 0;
}

/* None of its dimensions turn. */
void config_hold_still(struct model_config *c, const bool still[LAYERS_MAX]) {
    bool any = false;
    for (int l = 0; l < c->layers; l++) any = any || still[l];
    if (!any) return;
    const int32_t index = c->ropes++;
    c->rope[index] = (struct rope_config){
        .type = ROPE_PROPORTIONAL, .head_dim = c->head_dim, .theta = 1, .factor = 1, .attention_factor = 1};
    for (int l = 0; l < c->layers; l++)
        if (still[l]) c->layer[l].rope = index;
}

/* transformers 5 keeps everything in rope_parameters, transformers 4 in rope_theta and rope_scaling. */
int config_read_rope(struct model_config *c, const cJSON *root, double theta) {
    const char *name = json_get(root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const cJSON *rope = json_get(root, name);
    if (rope && !cJSON_IsObject(rope)) return err_set(ERR_FORMAT, "member '%s' is no object", name);
    return config_add_rope(c, root, rope, theta, c->head_dim);
}

int config_read_partial_rope(struct model_config *c, const cJSON *root, double theta, double share) {
    const char *partial = "partial_rotary_factor";
    const bool is_said = json_get(root, partial) || json_get(json_get(root, "rope_parameters"), partial);
    TRY(config_read_rope(c, root, theta));
    if (!is_said) c->rope[0].dims = (int32_t)(c->head_dim * share) / 2 * 2;
    return 0;
}
