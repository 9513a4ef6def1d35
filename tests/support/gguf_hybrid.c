#include "tests/support/gguf_hybrid.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

static int number(const cJSON *config, const char *name) {
    return (int)json_get(config, name)->valuedouble;
}

const char *gguf_hybrid_name(const cJSON *config, const char *name) {
    static const char *const heads[][2] = {{"fc", "eh_proj"},
                                           {"pre_fc_norm_embedding", "enorm"},
                                           {"pre_fc_norm_hidden", "hnorm"},
                                           {"norm", "shared_head.norm"}};
    static char renamed[128];
    const int layers = number(config, "num_hidden_layers");
    if (strncmp(name, "mtp.", 4) != 0) return name;
    if (strncmp(name, "mtp.layers.0.", 13) == 0) {
        snprintf(renamed, sizeof renamed, "model.layers.%d.%s", layers, name + 13);
        return renamed;
    }
    for (int i = 0; i < 4; i++) {
        const size_t n = strlen(heads[i][0]);
        if (strncmp(name + 4, heads[i][0], n) == 0 && strcmp(name + 4 + n, ".weight") == 0)
            snprintf(renamed, sizeof renamed, "model.layers.%d.%s.weight", layers, heads[i][1]);
    }
    return renamed;
}

/* Heads [keys, share] of `each` numbers as [share, keys], `times` one behind the other. */
static void tile(float *data, int64_t times, int keys, int share, int64_t each) {
    const int64_t all = (int64_t)keys * share * each;
    float *copy = malloc((size_t)all * sizeof *copy);
    for (int64_t t = 0; t < times; t++, data += all) {
        memcpy(copy, data, (size_t)all * sizeof *copy);
        for (int k = 0; k < keys; k++)
            for (int j = 0; j < share; j++)
                memcpy(data + ((int64_t)j * keys + k) * each, copy + ((int64_t)k * share + j) * each,
                       (size_t)each * sizeof *data);
    }
    free(copy);
}

void gguf_hybrid_change(const cJSON *config, const struct tensor *t, float *data, size_t count) {
    if (!strstr(t->name, ".linear_attn.")) return;
    const int keys = number(config, "linear_num_key_heads"), dim = number(config, "linear_value_head_dim"),
              share = number(config, "linear_num_value_heads") / keys, dk = number(config, "linear_key_head_dim");
    const int64_t cols = t->dims > 1 ? (int64_t)count / t->shape[0] : 1, before = 2 * (int64_t)keys * dk * cols;
    for (size_t i = 0; i < count && strstr(t->name, ".A_log"); i++) data[i] = -expf(data[i]);
    if (strcmp(json_get(config, "model_type")->valuestring, "qwen3_next") == 0) return;
    if (strstr(t->name, ".in_proj_qkv.") || strstr(t->name, ".conv1d."))
        tile(data + before, 1, keys, share, dim * cols);
    else if (strstr(t->name, ".in_proj_z."))
        tile(data, 1, keys, share, dim * cols);
    else if (strstr(t->name, ".out_proj."))
        tile(data, t->shape[0], keys, share, dim);
    else if (!strstr(t->name, ".norm."))
        tile(data, 1, keys, share, cols); /* a number of each head */
}

int64_t gguf_hybrid_part(const cJSON *config, const float *data, int64_t width, int part, float **rows) {
    const int keys = number(config, "linear_num_key_heads"), dim = number(config, "linear_value_head_dim"),
              value = number(config, "linear_num_value_heads") / keys * dim, dk = number(config, "linear_key_head_dim");
    const int starts[] = {0, dk, 2 * dk, 2 * dk + value}, counts[] = {dk, dk, value, value};
    float *to = *rows = malloc((size_t)(keys * (2 * dk + value)) * (size_t)width * sizeof **rows);
    for (int p = part == 0 ? 0 : 3; p < (part == 0 ? 3 : 4); p++)
        for (int k = 0; k < keys; k++, to += counts[p] * width)
            memcpy(to, data + (k * 2 * (dk + value) + starts[p]) * width, (size_t)(counts[p] * width) * sizeof *to);
    return (to - *rows) / width;
}
