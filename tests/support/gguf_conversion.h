/* A conversion to GGUF: what gguf_convert.c makes of a directory's tensors, and gguf_values.c of its configuration. Private to these. */
#ifndef DUET_TESTS_SUPPORT_GGUF_CONVERSION_H
#define DUET_TESTS_SUPPORT_GGUF_CONVERSION_H

#include <string.h>

#include "base/json.h"
#include "model/files/safetensors.h"
#include "tests/support/gguf_writer.h"

/* What differs between architectures. */
struct kind {
    const char *model_type, *name;
    bool permutes, adds_one;
    const char *norms[4]; /* HF, GGUF, HF, GGUF: of those that are called differently */
};

struct conversion {
    const struct kind *kind;
    const cJSON *config;
    const cJSON *backbone;     /* of an assistant: the width of the model that it proposes to; else NULL */
    struct gguf_writer *files; /* [parts] */
    int parts, turn;
    int heads, kv_heads, head_dim;
    struct safetensors *tensors;
};

static inline double number(const struct conversion *c, const char *member, double otherwise) {
    const cJSON *item = json_get(c->config, member);
    return cJSON_IsNumber(item) ? item->valuedouble : otherwise;
}

static inline bool is_gemma4(const struct conversion *c) {
    return strncmp(c->kind->name, "gemma4", 6) == 0;
}

static inline bool is_hybrid(const struct conversion *c) {
    return json_get(c->config, "linear_num_key_heads") != NULL;
}

static inline bool is_mamba(const cJSON *config) {
    const cJSON *type;
    cJSON_ArrayForEach(type, json_get(config, "layer_types")) if (strcmp(type->valuestring, "mamba") == 0) return true;
    return false;
}

static inline bool is_nemotron(const struct conversion *c) {
    return strcmp(c->kind->model_type, "nemotron_h") == 0;
}

static inline bool is_lfm2(const struct conversion *c) {
    return strncmp(c->kind->name, "lfm2", 4) == 0;
}

/* Layers behind the last that propose tokens: of the hybrids wherever their files have one. */
static inline int heads_behind(const struct conversion *c) {
    if (is_hybrid(c)) return safetensors_find(c->tensors, "mtp.fc.weight") != NULL;
    return (int)number(c, "num_nextn_predict_layers", 0);
}

static inline double experts_of(const struct conversion *c) {
    static const char *const members[] = {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"};
    for (int i = 0; i < 4; i++)
        if (number(c, members[i], -1) >= 0) return number(c, members[i], -1);
    return -1;
}

/* A tensor into the files in turns; `shape` as safetensors has it. */
void gguf_conversion_put(struct conversion *, const char *name, int dims, const int64_t *shape, const float *data,
                         size_t count);
/* All keys. */
void gguf_conversion_put_values(struct conversion *);

#endif
