/* config.json and generation_config.json of a Hugging Face directory.
 *
 * Reads files as transformers 4 writes them (rope_theta, rope_scaling, torch_dtype) and as transformers 5 does
 * (rope_parameters, dtype). An architecture, rope type, activation or tensor-shaping option that duet does not
 * know is refused by name. */
#ifndef DUET_MODEL_CONFIG_H
#define DUET_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum architecture { ARCH_LLAMA, ARCH_MISTRAL, ARCH_QWEN2, ARCH_QWEN3 };
enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3 };
enum { END_IDS_MAX = 16, HEAD_DIM_MIN = 8, HEAD_DIM_MAX = 256 };

struct model_config {
    enum architecture arch;
    int32_t vocab;     /* V: rows of the embedding, padding included */
    int32_t width;     /* D */
    int32_t hidden;    /* F: MLP width */
    int32_t layers;    /* L */
    int32_t heads;     /* H */
    int32_t kv_heads;  /* HKV */
    int32_t head_dim;  /* DH: HEAD_DIM_MIN..HEAD_DIM_MAX, even */
    int32_t positions; /* max_position_embeddings */
    int32_t window;    /* sliding window in tokens; 0: none */
    float norm_eps;
    bool tied;     /* lm_head is the embedding */
    bool qkv_bias; /* Qwen2 */
    bool qk_norm;  /* Qwen3 */
    enum rope_type rope;
    double rope_theta;
    double rope_factor, rope_low_freq, rope_high_freq; /* llama3, linear (factor) */
    int32_t rope_original_positions;
    int32_t bos_id;                          /* -1: none */
    int32_t end_ids[END_IDS_MAX], end_count; /* union of config.json's and generation_config.json's, ascending */
    /* sampling values of generation_config.json, for `inspect` only; NAN / -1 when absent */
    double gen_temperature, gen_top_p;
    int32_t gen_top_k;
};

const char *architecture_name(enum architecture); /* "LlamaForCausalLM", ... */

/* Reads DIR/config.json and, where it exists, DIR/generation_config.json. Errors name the file. */
int model_config_load(struct model_config *out, const char *dir);
/* One file in config.json's form. */
int model_config_load_file(struct model_config *out, const char *path);

/* Fills rope [positions, DH/2, 2] (cos, sin) in f32, computed in double. llama3 scaling: as Meta's
 * reference (wavelength bands between low and high frequency factors). Host memory. */
void model_config_rope(const struct model_config *, int positions, float *rope);

#endif
