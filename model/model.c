#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model/model_internal.h"
#include "model/shape.h"

/* --- the expected tensors -------------------------------------------------------------------------------- */

static void bind(struct model *m, struct weight *weight, int64_t rows, int64_t cols, const char *name) {
    struct binding *b = &m->bindings[m->binding_count++];
    snprintf(b->name, sizeof b->name, "%s", name);
    b->rows = rows, b->cols = cols, b->weight = weight;
}

static void bind_layer(struct model *m, int index) {
    const struct model_config *c = &m->config;
    struct layer *l = &m->layers[index];
    int64_t d = c->width, q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim, f = c->hidden;
    const struct {
        const char *suffix;
        struct weight *weight;
        int64_t rows, cols;
        bool present;
    } parts[] = {
        {"input_layernorm.weight", &l->attn_norm, 1, d, true},
        {"self_attn.q_proj.weight", &l->wq, q, d, true},
        {"self_attn.k_proj.weight", &l->wk, kv, d, true},
        {"self_attn.v_proj.weight", &l->wv, kv, d, true},
        {"self_attn.q_proj.bias", &l->bq, 1, q, c->qkv_bias},
        {"self_attn.k_proj.bias", &l->bk, 1, kv, c->qkv_bias},
        {"self_attn.v_proj.bias", &l->bv, 1, kv, c->qkv_bias},
        {"self_attn.q_norm.weight", &l->q_norm, 1, c->head_dim, c->qk_norm},
        {"self_attn.k_norm.weight", &l->k_norm, 1, c->head_dim, c->qk_norm},
        {"self_attn.o_proj.weight", &l->wo, d, q, true},
        {"post_attention_layernorm.weight", &l->mlp_norm, 1, d, true},
        {"mlp.gate_proj.weight", &l->gate, f, d, true},
        {"mlp.up_proj.weight", &l->up, f, d, true},
        {"mlp.down_proj.weight", &l->down, d, f, true},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].present) continue;
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.%s", index, parts[i].suffix);
        bind(m, parts[i].weight, parts[i].rows, parts[i].cols, name);
    }
}

static int compare_bindings(const void *a, const void *b) {
    return strcmp(((const struct binding *)a)->name, ((const struct binding *)b)->name);
}

static int bind_all(struct model *m) {
    const struct model_config *c = &m->config;
    enum { PER_LAYER_MAX = 14, OUTSIDE_LAYERS = 3 };
    m->layers = calloc((size_t)c->layers, sizeof *m->layers);
    m->bindings = calloc((size_t)c->layers * PER_LAYER_MAX + OUTSIDE_LAYERS, sizeof *m->bindings);
    if (!m->layers || !m->bindings) return err_set(ERR_MEMORY, "%s: out of memory for %d layers", m->dir, c->layers);
    bind(m, &m->embedding, c->vocab, c->width, "model.embed_tokens.weight");
    bind(m, &m->norm, 1, c->width, "model.norm.weight");
    if (!c->tied) bind(m, &m->head, c->vocab, c->width, "lm_head.weight");
    for (int l = 0; l < c->layers; l++) bind_layer(m, l);
    qsort(m->bindings, (size_t)m->binding_count, sizeof *m->bindings, compare_bindings);
    return 0;
}

/* Tensors that checkpoints carry and duet computes itself or already has. */
static bool is_redundant(const struct model *m, const char *name) {
    const char *tail = strstr(name, ".rotary_emb.inv_freq");
    return (tail && tail[strlen(".rotary_emb.inv_freq")] == '\0') ||
           (m->config.tied && !strcmp(name, "lm_head.weight"));
}

static int refuse_unknown_tensors(const struct model *m) {
    for (int i = 0; i < safetensors_count(m->files); i++) {
        const struct tensor *t = safetensors_at(m->files, i);
        struct binding key = {0};
        snprintf(key.name, sizeof key.name, "%s", t->name);
        bool known = strlen(t->name) < sizeof key.name &&
                     bsearch(&key, m->bindings, (size_t)m->binding_count, sizeof key, compare_bindings);
        if (!known && !is_redundant(m, t->name))
            return err_set(ERR_UNSUPPORTED, "%s: tensor '%s' is not part of a %s with %d layers", t->file, t->name,
                           architecture_name(m->config.arch), m->config.layers);
    }
    return 0;
}

static int load_weights(struct model *m) {
    for (int i = 0; i < m->binding_count; i++) {
        const struct binding *b = &m->bindings[i];
        TRY(safetensors_weight(m->files, b->name, b->rows, b->cols, b->weight));
    }
    if (m->config.tied) m->head = m->embedding;
    return refuse_unknown_tensors(m);
}

/* Where the weights are to lie, and in which type. */
static void choose_types(struct model *m) {
    bool on_host = device_kind(m->device) == DEVICE_HOST;
    m->is_mapped = on_host && !m->is_random;
    m->weight_type = model_device_type(m);
    m->type = on_host ? DTYPE_F32 : m->weight_type;
    for (int i = 0; i < m->binding_count; i++)
        if (!m->is_mapped && m->bindings[i].weight->type == DTYPE_F32) m->is_rounded = true;
}

static int open_files(struct model *m) {
    TRY(model_config_load(&m->config, m->dir));
    TRY(safetensors_open(&m->files, m->dir));
    TRY(bind_all(m));
    TRY(load_weights(m));
    choose_types(m);
    return 0;
}

static int open_shape(struct model *m) {
    m->is_random = true;
    TRY(model_shape_load(&m->config, m->dir));
    TRY(bind_all(m));
    for (int i = 0; i < m->binding_count; i++) {
        const struct binding *b = &m->bindings[i];
        *b->weight = (struct weight){NULL, DTYPE_BF16, (int32_t)b->rows, (int32_t)b->cols};
    }
    if (m->config.tied) m->head = m->embedding;
    choose_types(m);
    return 0;
}

static int open_with(int (*open)(struct model *), struct model **out, const char *dir, const char *name,
                     struct device *device) {
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    if (!m || !(m->dir = strdup(dir))) {
        free(m);
        return err_set(ERR_MEMORY, "%s: out of memory", dir);
    }
    snprintf(m->name, sizeof m->name, "%s", name);
    m->device = device;
    m->ops = ops_for(device);
    int rc = open(m);
    if (rc != 0) {
        model_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

int model_open(struct model **out, const char *dir, const char *name, struct device *device) {
    return open_with(open_files, out, dir, name, device);
}

int model_open_random(struct model **out, const char *shape, const char *name, struct device *device) {
    return open_with(open_shape, out, shape, name, device);
}

void model_close(struct model *m) {
    if (!m) return;
    safetensors_close(m->files);
    free(m->bindings);
    free(m->layers);
    free(m->dir);
    free(m);
}

/* --- facts ------------------------------------------------------------------------------------------------ */

const struct model_config *model_get_config(const struct model *m) {
    return &m->config;
}

int64_t model_parameters(const struct model *m) {
    int64_t sum = 0;
    for (int i = 0; i < m->binding_count; i++) sum += m->bindings[i].rows * m->bindings[i].cols;
    return sum;
}

static uint64_t binding_bytes(const struct binding *b) {
    return (uint64_t)(b->rows * b->cols) * (uint64_t)dtype_bytes(b->weight->type);
}

static uint64_t weight_bytes(const struct model *m) {
    uint64_t sum = 0;
    for (int i = 0; i < m->binding_count; i++) sum += binding_bytes(&m->bindings[i]);
    return sum;
}

uint64_t model_mapped_bytes(const struct model *m) {
    return m->is_mapped ? weight_bytes(m) : 0;
}

bool model_is_rounded(const struct model *m) {
    return m->is_rounded;
}

uint64_t model_step_bytes(const struct model *m) {
    const struct weight *e = &m->embedding;
    uint64_t embedding = (uint64_t)e->rows * (uint64_t)e->cols * (uint64_t)dtype_bytes(e->type);
    return weight_bytes(m) - (m->config.tied ? 0 : embedding);
}

static size_t kv_layer_bytes(const struct model *m) {
    const struct model_config *c = &m->config;
    return (size_t)m->limits.pages * KV_PAGE * (size_t)c->kv_heads * (size_t)c->head_dim * (size_t)dtype_bytes(m->type);
}

uint64_t model_kv_bytes_per_token(const struct model *m) {
    const struct model_config *c = &m->config;
    return 2 * (uint64_t)dtype_bytes(m->type) * (uint64_t)c->layers * (uint64_t)c->kv_heads * (uint64_t)c->head_dim;
}

struct kv_layer model_kv(const struct model *m, int layer) {
    size_t offset = (size_t)layer * kv_layer_bytes(m);
    return (struct kv_layer){m->k + offset, m->v + offset, m->type};
}

/* --- memory ----------------------------------------------------------------------------------------------- */

int model_layout(struct model *m, const struct model_limits *limits, struct pool *pool) {
    const struct model_config *c = &m->config;
    m->limits = *limits;
    size_t rows = (size_t)limits->max_rows * sizeof(float), q = (size_t)c->heads * (size_t)c->head_dim,
           kv = (size_t)c->kv_heads * (size_t)c->head_dim, kv_bytes = kv_layer_bytes(m) * (size_t)c->layers;
    size_t on_cuda = device_kind(m->device) == DEVICE_CUDA ? sizeof(float) : 0,
           parts = (size_t)c->heads * ATTENTION_PARTS * ((size_t)c->head_dim + 2);
    const struct ops *ops = ops_for(m->device);
    bool has_parts = ops->attention_needs_partials && ops->attention_needs_partials(m->device, c->head_dim);
    enum { WEIGHTS, KEYS, VALUES, ROPE, RESIDUAL, NORMED, QUERIES, ATTENDED, PARTS, KV_ROWS, GATED, MLP, SLICES };
    const struct {
        const char *what;
        size_t bytes;
    } slices[SLICES] = {
        [WEIGHTS] = {"weights", m->is_mapped ? 0 : model_device_bytes(m)},
        [KEYS] = {"keys", kv_bytes},
        [VALUES] = {"values", kv_bytes},
        [ROPE] = {"rope table", (size_t)limits->rope_positions * (size_t)c->head_dim * sizeof(float)},
        [RESIDUAL] = {"residual", rows * (size_t)c->width},
        [NORMED] = {"normed", rows * (size_t)c->width},
        [QUERIES] = {"queries", rows * q},
        [ATTENDED] = {"attended", rows * q},
        [PARTS] = {"attention parts", has_parts ? (size_t)limits->graph_rows * parts * sizeof(float) : 0},
        [KV_ROWS] = {"KV rows", rows * 2 * kv},
        [GATED] = {"gate and up", on_cuda * (size_t)limits->max_rows * 2 * (size_t)c->hidden},
        [MLP] = {"MLP", rows * (size_t)c->hidden},
    };
    void *at[SLICES];
    for (int i = 0; i < SLICES; i++) {
        char name[POOL_NAME_MAX];
        snprintf(name, sizeof name, "%s %s", m->name, slices[i].what);
        TRY(pool_slice(pool, name, slices[i].bytes, &at[i]));
    }
    m->weights = at[WEIGHTS], m->k = at[KEYS], m->v = at[VALUES], m->rope = at[ROPE];
    m->x = at[RESIDUAL], m->normed = at[NORMED], m->q = at[QUERIES], m->attended = at[ATTENDED];
    m->partials = at[PARTS], m->kv_rows = at[KV_ROWS], m->gated = at[GATED], m->h = at[MLP];
    return 0;
}

/* The host device reads weights in the mapped file; reading a byte of every page brings it in with progress shown. */
static void touch_weights(const struct model *m, const struct progress *progress) {
    enum { STEP = 4096, REPORT = 16 << 20 };
    char what[32];
    snprintf(what, sizeof what, "loading %s", m->name);
    uint64_t total = weight_bytes(m), done = 0, reported = 0;
    volatile unsigned char sink = 0;
    for (int i = 0; i < m->binding_count; i++) {
        const unsigned char *bytes = m->bindings[i].weight->data;
        uint64_t n = binding_bytes(&m->bindings[i]);
        for (uint64_t at = 0; at < n; at += STEP) {
            sink = (unsigned char)(sink + bytes[at]);
            if (done + at < reported + REPORT) continue;
            reported = done + at;
            progress_report(progress, what, (int64_t)reported, (int64_t)total);
        }
        done += n;
    }
    progress_report(progress, what, (int64_t)total, (int64_t)total);
}

int model_upload(struct model *m, struct stream *stream, const struct progress *progress) {
    if (m->is_mapped)
        touch_weights(m, progress);
    else
        TRY(model_upload_weights(m, stream, progress));
    int positions = m->limits.rope_positions;
    size_t bytes = (size_t)positions * (size_t)m->config.head_dim * sizeof(float);
    float *rope = malloc(bytes);
    if (!rope) return err_set(ERR_MEMORY, "%s: out of memory for a rope table of %zu bytes", m->dir, bytes);
    model_config_rope(&m->config, positions, rope);
    int rc = stream_copy(stream, m->rope, rope, bytes);
    if (rc == 0) rc = stream_sync(stream);
    free(rope);
    return rc;
}

int model_add_graphs(const struct model *m, struct graph_set *set, int kind, int max_batch, int q_len) {
    TRY(graph_set_add(set, kind, q_len));
    for (int batch = 1; m->ops->kernel_class && batch < max_batch; batch++)
        if (batch == 1 || m->ops->kernel_class(batch * q_len) != m->ops->kernel_class((batch - 1) * q_len))
            TRY(graph_set_warm_up(set, (struct graph_key){kind, batch, q_len}));
    return 0;
}
