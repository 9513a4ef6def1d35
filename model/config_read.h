/* How families read a configuration: members with bounds, and what most of them share. For model/config.c and model/families/. All
 * functions return an error that names the member. */
#ifndef DUET_MODEL_CONFIG_READ_H
#define DUET_MODEL_CONFIG_READ_H

#include "base/json.h"
#include "model/config.h"

/* The part of a configuration that describes the text model: `text_config` of a wrapper, else the whole. */
const cJSON *config_text(const cJSON *root);
/* Is the architecture one of several parts, of which duet runs the text? */
bool config_is_wrapper(const struct model_config *);
bool config_is_text(const cJSON *item, const char *text);
/* The first of two members that is there; else the second. */
const char *config_member(const cJSON *, const char *first, const char *second);
int config_need_string(const cJSON *item, const char *name);
int config_need_int(const cJSON *, const char *name, int64_t max, int32_t *out); /* 1..max, must be there */
int config_get_int(const cJSON *, const char *name, int32_t def, int64_t min, int64_t max, int32_t *out);
int config_get_float(const cJSON *, const char *name, double def, float *out);
int config_refuse_true(const cJSON *, const char *name, const char *reason);
/* hidden_act, or another member for it, must be `name` where it is there. */
int config_check_activation(const cJSON *, const char *name);

/* vocab_size, hidden_size, ... into the configuration and every layer, which then has the whole model's heads, the first rope and no
 * window; multipliers are 1, the attention's 1/sqrt(DH), the MLP's hidden_size the layers'. */
struct dimension_defaults {
    int32_t positions;
    int32_t heads, vocab, hidden; /* 0: they must be there */
    int32_t kv_heads;             /* 0: as many as heads, as where it is null */
    int32_t head_dim;             /* 0: width / heads, as where it is null */
    double norm_eps;              /* 0: 1e-6 */
    bool tied;
    int32_t layers;                         /* whatever the member says; 0: that */
    const char *layers_member, *eps_member; /* NULL: num_hidden_layers, rms_norm_eps */
};
int config_read_dimensions(struct model_config *, const cJSON *, const struct dimension_defaults *);

/* Appends the rope of the first `dims_share` of heads of `head_dim` dimensions: `rope` (rope_scaling, rope_parameters or one of the
 * latter's kinds; may be NULL) over `root`, which may hold rope_theta and partial_rotary_factor itself. */
int config_add_rope(struct model_config *, const cJSON *root, const cJSON *rope, double theta, int32_t head_dim);
/* The one rope of most families: root's rope_parameters or rope_scaling. `theta` where there is none. */
int config_read_rope(struct model_config *, const cJSON *root, double theta);
/* The same, of which `share` of a head turns where nothing is said of it. */
int config_read_partial_rope(struct model_config *, const cJSON *root, double theta, double share);

/* Layers that turn no heads: those get a rope of their own, which holds still. */
void config_hold_still(struct model_config *, const bool still[LAYERS_MAX]);

/* layer_types where it is there: which of the layers are of this kind ("sliding_attention") and which have full attention; else unchanged
 * and *given false. */
int config_read_layer_types(const struct model_config *, const cJSON *root, const char *kind, bool are[LAYERS_MAX],
                            bool *given);
/* A window of `window` tokens (0: none) on the layers that slide. */
void config_set_windows(struct model_config *, int32_t window, const bool slides[LAYERS_MAX]);

/* sliding_window, `def` where it is absent and at least `min`, on those of the layers that slide by layer_types or else by `slides`; with
 * null none may. */
int config_read_windows(struct model_config *, const cJSON *root, int32_t def, int32_t min, bool slides[LAYERS_MAX]);
/* sliding_window on all layers: 4096 where it is absent, none where it is null (Mistral, Phi 3). */
int config_read_uniform_window(struct model_config *, const cJSON *root, int32_t def);

/* num_experts or num_local_experts (transformers writes either), and under the names given how many a token has and their width:
 * all of them are needed. */
int config_read_experts(struct model_config *, const cJSON *root, const char *chosen, const char *hidden);
/* The same of configurations that have another name for the first. */
int config_read_experts_as(struct model_config *, const cJSON *root, const char *experts, const char *chosen,
                           const char *hidden);
/* Experts in groups (n_group, topk_group) are chosen from all alike where every group may be chosen from; else this refuses. */
int config_check_groups(const cJSON *root);

#endif
