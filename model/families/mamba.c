/* One projection makes the gate, then x, B and C, which are convolved, and the step of each head. What comes of all heads is gated, and then
 * normed by groups, as many as B and C have. */
#include "model/families/mamba.h"

#include <float.h>

#include "base/err.h"
#include "model/binder.h"
#include "model/config_read.h"

static int get_member(const cJSON *root, const struct mamba_member *m, int32_t otherwise, int32_t max, int32_t *out) {
    return config_get_int(root, m->name, otherwise, 1, max, out);
}

/* "auto" shares what expand makes of the width among the heads. */
static int read_head_dim(const struct model_config *c, const cJSON *root, const struct mamba_members *m,
                         struct recurrent_config *r) {
    int32_t expand;
    if (!m->expand) return get_member(root, &m->head_dim, m->head_dim.otherwise, INT32_MAX, &r->value_dim);
    TRY(config_get_int(root, m->expand, 2, 1, 64, &expand));
    const int64_t inner = (int64_t)expand * c->width;
    const int32_t shared = (int32_t)(inner / r->value_heads);
    if (config_is_text(json_get(root, m->head_dim.name), "auto"))
        r->value_dim = shared;
    else
        TRY(get_member(root, &m->head_dim, shared, INT32_MAX, &r->value_dim));
    if ((int64_t)r->value_heads * r->value_dim != inner)
        return err_set(ERR_FORMAT, "%s %d times %s %d is not %s %d times the width %d", m->heads.name, r->value_heads,
                       m->head_dim.name, r->value_dim, m->expand, expand, c->width);
    return 0;
}

static int check_shape(const struct recurrent_config *r, const struct mamba_members *m) {
    if (r->value_heads % r->key_heads != 0)
        return err_set(ERR_FORMAT, "%s %d is no multiple of %s %d", m->heads.name, r->value_heads, m->groups.name,
                       r->key_heads);
    if (r->key_dim % 8 == 0 && r->value_dim % 8 == 0 && r->key_dim <= RECURRENT_DIM_MAX &&
        r->value_dim <= RECURRENT_DIM_MAX)
        return 0;
    return err_set(ERR_UNSUPPORTED,
                   "recurrent states of %d by %d numbers are not supported, only multiples of 8 up to %d", r->key_dim,
                   r->value_dim, RECURRENT_DIM_MAX);
}

/* As Python writes it, or transformers 5. */
static bool is_infinity(const cJSON *item) {
    return cJSON_IsNumber(item) ? item->valuedouble > DBL_MAX : config_is_text(json_get(item, "__float__"), "Infinity");
}

/* No released model has limits that a step, which is positive, could meet. */
static int check_step_limit(const cJSON *root) {
    const cJSON *limit = json_get(root, "time_step_limit");
    double least;
    if (!limit) return 0;
    if (!cJSON_IsArray(limit) || cJSON_GetArraySize(limit) != 2 || !json_number(limit->child, &least))
        return err_set(ERR_FORMAT, "member 'time_step_limit' is no pair of numbers");
    if (least <= 0 && is_infinity(limit->child->next)) return 0;
    return err_set(ERR_UNSUPPORTED, "a time_step_limit other than 0 and Infinity is not supported");
}

int mamba_read(struct model_config *c, const cJSON *root, const struct mamba_members *m) {
    struct recurrent_config *r = &c->recurrent;
    r->rule = RULE_DECAY;
    TRY(get_member(root, &m->heads, m->heads.otherwise, 1024, &r->value_heads));
    TRY(get_member(root, &m->groups, m->groups.otherwise, 1024, &r->key_heads));
    TRY(get_member(root, &m->state, m->state.otherwise, INT32_MAX, &r->key_dim));
    TRY(get_member(root, &m->taps, m->taps.otherwise, RECURRENT_TAPS_MAX, &r->taps));
    TRY(json_get_bool(root, m->conv_bias, true, &r->conv_has_bias));
    TRY(config_refuse_true(root, "mamba_proj_bias", "duet's recurrent layers have no bias there"));
    TRY(read_head_dim(c, root, m, r));
    TRY(check_shape(r, m));
    return check_step_limit(root);
}

void mamba_bind(struct binder *b, int l) {
    const struct recurrent_config *r = &b->c->recurrent;
    struct layer *layer = &b->m->layers[l];
    const int64_t d = b->c->width, inner = (int64_t)r->value_heads * r->value_dim,
                  channels = inner + 2 * (int64_t)r->key_heads * r->key_dim;
    bind_weight(b, &layer->inputs[0], inner + channels + r->value_heads, d, "layers.%d.mamba.in_proj.weight", l);
    bind_conv(b, &layer->conv, channels, r->taps, "layers.%d.mamba.conv1d.weight", l);
    if (r->conv_has_bias) bind_exact(b, &layer->conv_bias, channels, "layers.%d.mamba.conv1d.bias", l);
    bind_exact(b, &layer->a_log, r->value_heads, "layers.%d.mamba.A_log", l);
    bind_exact(b, &layer->dt_bias, r->value_heads, "layers.%d.mamba.dt_bias", l);
    bind_exact(b, &layer->skip, r->value_heads, "layers.%d.mamba.D", l);
    bind_norm(b, &layer->state_norm, 0, inner, "layers.%d.mamba.norm.weight", l);
    bind_weight(b, &layer->wo, d, inner, "layers.%d.mamba.out_proj.weight", l);
}
