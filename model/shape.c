#include "model/shape.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

struct shape {
    const char *name;
    enum architecture arch;
    int32_t vocab, width, hidden, layers, heads, kv_heads, head_dim, positions;
    bool tied;
    double rope_theta, rope_factor; /* factor 0: no scaling; else llama3's */
};

/* llama-3.2-1b is tied in its checkpoint; here its head is a matrix of its own, so that a step reads what an untied draft reads. */
static const struct shape shapes[] = {
    {"llama-3.1-8b", ARCH_LLAMA, 128256, 4096, 14336, 32, 32, 8, 128, 131072, false, 500000, 8},
    {"llama-3.2-1b", ARCH_LLAMA, 128256, 2048, 8192, 16, 32, 8, 64, 131072, false, 500000, 32},
    {"llama-3.1-70b", ARCH_LLAMA, 128256, 8192, 28672, 80, 64, 8, 128, 131072, false, 500000, 8},
    {"qwen2.5-7b", ARCH_QWEN2, 152064, 3584, 18944, 28, 28, 4, 128, 32768, false, 1000000, 0},
    {"qwen2.5-0.5b", ARCH_QWEN2, 151936, 896, 4864, 24, 14, 2, 64, 32768, true, 1000000, 0},
    {"qwen3-32b", ARCH_QWEN3, 151936, 5120, 25600, 64, 64, 8, 128, 40960, false, 1000000, 0},
    {"qwen3-0.6b", ARCH_QWEN3, 151936, 1024, 3072, 28, 16, 8, 128, 40960, true, 1000000, 0},
    {"smollm2-135m", ARCH_LLAMA, 49152, 576, 1536, 30, 9, 3, 64, 8192, true, 100000, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

const char *model_shape_names(void) {
    return "llama-3.1-8b, llama-3.2-1b, llama-3.1-70b, qwen2.5-7b, qwen2.5-0.5b, qwen3-32b, qwen3-0.6b, smollm2-135m";
}

static void fill(struct model_config *c, const struct shape *s) {
    *c = (struct model_config){
        .arch = s->arch,
        .vocab = s->vocab,
        .width = s->width,
        .hidden = s->hidden,
        .layers = s->layers,
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .positions = s->positions,
        .norm_eps = 1e-5f,
        .tied = s->tied,
        .qkv_bias = s->arch == ARCH_QWEN2,
        .qk_norm = s->arch == ARCH_QWEN3,
        .rope = s->rope_factor > 0 ? ROPE_LLAMA3 : ROPE_DEFAULT,
        .rope_theta = s->rope_theta,
        .rope_factor = s->rope_factor,
        .rope_low_freq = 1,
        .rope_high_freq = 4,
        .rope_original_positions = 8192,
        .bos_id = -1,
        .gen_temperature = NAN,
        .gen_top_p = NAN,
        .gen_top_k = -1,
    };
}

int model_shape_load(struct model_config *out, const char *name) {
    size_t n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, ".json") == 0) return model_config_load_file(out, name);
    for (int i = 0; i < SHAPES; i++) {
        if (strcmp(shapes[i].name, name) != 0) continue;
        fill(out, &shapes[i]);
        return 0;
    }
    return err_set(ERR_USAGE, "shape '%s' is unknown: expected FILE.json or one of %s", name, model_shape_names());
}
