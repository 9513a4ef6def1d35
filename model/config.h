/* What config.json and generation_config.json say of a model, whatever its family.
 *
 * Read as transformers 4 writes them (rope_theta, rope_scaling, torch_dtype), as transformers 5 does (rope_parameters,
 * layer_types, dtype), and wrapped in text_config. What is left out has the family's own default. An architecture, rope type,
 * activation or option that shapes tensors and that duet does not know is refused by name. */
#ifndef DUET_MODEL_CONFIG_H
#define DUET_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "model/operands.h"
#include "model/quantisation.h"

struct family; /* model/families/family.h */

enum { END_IDS_MAX = 16, HEAD_DIM_MIN = 8, HEAD_DIM_MAX = 512, LAYERS_MAX = 256, ROPES_MAX = 2 };

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_DYNAMIC,
    ROPE_LONGROPE,
    ROPE_PROPORTIONAL,
    ROPE_FACTORS
};

struct rope_config {
    enum rope_type type;
    int32_t head_dim;      /* of the heads that it turns */
    int32_t dims;          /* R: pairs are made of the first R dimensions; the others stand still */
    bool pairs_neighbours; /* (2i, 2i + 1), else (i, i + R/2) */
    double theta, factor;
    double low_freq, high_freq;  /* llama3 */
    double beta_fast, beta_slow; /* yarn */
    bool truncate;               /* yarn: its correction range is rounded to whole pairs */
    double attention_factor;     /* times cos and sin: yarn, longrope */
    double query_beta;           /* yarn: queries grow with the position (model_config_query_rope); 0: they don't */
    int32_t original_positions;  /* llama3, yarn, dynamic, longrope */
    float short_factor[HEAD_DIM_MAX / 2]; /* longrope, [R/2]: up to original_positions; factors: of all lengths */
    float long_factor[HEAD_DIM_MAX / 2];  /* and beyond */
};

/* Layers need not be alike. */
struct layer_config {
    int32_t window; /* in tokens; 0: none */
    int32_t rope;   /* which of the configuration's */
    int32_t kv_heads, head_dim, hidden;
    /* Whose keys and values it uses: its own, or an earlier layer's; of a head that reads those of another model (drafter.reads_keys) ~kv_layer
     * is the number of that one's layer. */
    int32_t kv_layer;
    bool has_experts; /* in place of the MLP, or beside it */
    bool v_is_k;      /* there is no v projection */
    bool has_no_mixer,
        has_no_mlp; /* of whose sublayers there is one: no attention or what stands in its place; no MLP or experts */
    bool is_recurrent; /* linear attention, or a short convolution, in place of keys and values */
};

/* Of the layers that are recurrent (struct op_linear_attention, op_short_conv). Without a state all numbers of a row are one value head. */
struct recurrent_config {
    enum recurrence_rule rule;
    int32_t key_heads, value_heads, key_dim, value_dim;
    int32_t taps; /* of the convolution */
    bool conv_has_bias;
    bool qkvz_by_head, ba_by_head; /* projections are fused by key head (Qwen3-Next; of its GGUF files b and a alone) */
    bool is_tiled, is_rate;        /* as op_linear_attention's */
};

/* A head that drafts for another model and has files of its own: EAGLE-3 (Li et al. 2025) and DFlash (Chen et al. 2026), which
 * read the hidden rows before some of that model's layers, or a Gemma 4 assistant, which reads the rows behind its last one and its keys and
 * values, and has none of its own. */
enum { TAPS_MAX = 8, EAGLE_TAPS = 3 };
struct drafter_config {
    bool is_there, reads_keys;
    int32_t taps[TAPS_MAX]; /* the layers, ascending; -1 the first: by the number of that model's (EAGLE-3) */
    int32_t tap_count;
    int32_t block;   /* DFlash: tokens that one pass drafts, that of which it begins included; 0: one by one */
    int32_t mask_id; /* what its others are before they are drafted */
    int32_t target_width;
    int32_t head_vocab;  /* rows of its head */
    bool norms_residual; /* the residual stream begins with the normed hidden row */
};

/* It proposes few of the ids that it reads. */
static inline bool drafter_is_cut(const struct drafter_config *e, int vocab) {
    return e->is_there && e->head_vocab < vocab;
}

struct model_config {
    const struct family *family;
    const char *architecture; /* "LlamaForCausalLM" */
    int32_t vocab;            /* V: rows of the embedding, padding included */
    int32_t width;            /* D */
    int32_t hidden;           /* F: MLP width */
    int32_t layers;           /* L */
    int32_t heads;            /* H */
    int32_t kv_heads;         /* HKV */
    int32_t head_dim;         /* DH: HEAD_DIM_MIN..HEAD_DIM_MAX, even */
    int32_t positions;        /* of a sequence: max_position_embeddings, or what the rope type makes of it */
    float norm_eps;
    bool tied;         /* lm_head is the embedding */
    bool tied_outside; /* a wrapper alone says so, and not of its text: a head in the files is one of its own */
    bool qkv_bias, qk_norm;
    bool norms_behind_rope;      /* the norms of heads of q and k are behind their rotation */
    bool norms_all_heads;        /* the norm of q and of k is over all heads at once */
    bool sublayers_are_parallel; /* attention and MLP read the same rows, behind one norm (Wang & Komatsuzaki 2021) */
    bool norms_centre, norms_have_bias; /* those before attention, MLP and head are of kind NORM_LAYER */
    bool norms_hold_one;                /* where the family's norms are 1 + weight, the files hold that sum (GGUF) */
    enum activation activation;         /* of MLPs and experts */
    bool queries_gated;   /* a head of q has DH numbers more, whose sigmoid its attention is multiplied with */
    bool shared_is_gated; /* so is the MLP beside experts, with one number */
    float embedding_scale, attention_scale, residual_scale, logits_scale;
    float attention_cap, logits_cap;                /* 0: none */
    int32_t experts, experts_chosen, expert_hidden; /* 0: none */
    enum router_scores router_scores;
    bool router_renormalises;
    float router_scale;  /* times the router's logits */
    float experts_scale; /* times the weights of the chosen */
    int32_t
        next_layers; /* behind the last, which files hold and no pass of the model has: heads that propose more tokens */
    int32_t mtp_heads; /* of these, whether they lie there or elsewhere, as the configuration says */
    int32_t per_layer_width,
        per_layer_vocab; /* inputs of each layer besides the residual stream (Gemma 4 E); 0: none */
    struct rope_config rope[ROPES_MAX];
    int32_t ropes;
    struct layer_config layer[LAYERS_MAX];
    struct recurrent_config recurrent; /* 0: no layer is */
    struct drafter_config drafter;
    struct quantisation quantisation;
    /* ascending: the union of config.json's and generation_config.json's; and what checkpoint_add_end_token adds */
    int32_t end_ids[END_IDS_MAX], end_count;
    /* sampling values of generation_config.json, for `inspect` only; NAN / -1 when absent */
    double gen_temperature, gen_top_p;
    int32_t gen_top_k;
};

/* Reads a config.json and, unless NULL, a generation_config.json. Errors name the file. */
int model_config_load(struct model_config *out, const char *path, const char *generation_path);
/* Where config.json says nothing of quantised weights: a file in its place (quantisation_read_file). */
int model_config_load_quantisation(struct model_config *, const char *path, enum quantisation_method);
/* Text in config.json's form; `label` is what errors are about. */
int model_config_parse(struct model_config *out, const char *text, const char *label);

/* Is a head that drafts for another model one for this one, by width and vocabulary (some tokens are added to a model later, or are padding);
 * and by the keys that it reads, too? */
bool model_config_has_size_for(const struct model_config *head, const struct model_config *of);
bool model_config_drafts_for(const struct model_config *head, const struct model_config *of);
/* The layer of `of` whose keys a layer of such a head reads, the last one of its kind; -1: it has none of their shape. */
int model_config_keys_for(const struct layer_config *, const struct model_config *of);

/* Ascending and unique. An id past the vocabulary can never be drawn, so it is left out; -1 stands for none. */
int model_config_add_end_id(struct model_config *, int64_t id);

/* Fills table [positions, DH/2, 2] (cos, sin) in f32, computed in double; host memory. Frequencies that depend on the length of
 * a sequence are those of a sequence of up to `length` positions: dynamic and longrope have one choice for a sequence, made when it
 * is opened (rope_is_long). */
void model_config_rope(const struct rope_config *, int positions, int length, float *table);
/* The same for queries where query_beta is not 0: times 1 + beta ln(1 + floor(position / original_positions)), as Llama 4 and
 * Ministral 3 scale them. */
void model_config_query_rope(const struct rope_config *, int positions, float *table);
/* Is a sequence of `length` positions past what the rope was trained on, so that it takes other frequencies? */
bool rope_is_long(const struct rope_config *, int length);
/* Has the type frequencies of both kinds? */
bool rope_has_long(const struct rope_config *);

#endif
