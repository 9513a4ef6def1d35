#include "tests/cuda/gpu_lab.h"

#include "tests/support.h"

void gpu_open(struct gpu *g) {
    *g = (struct gpu){0};
    ck_ok(device_open(&g->lab.device, "cuda", NULL));
    ck_ok(stream_create(g->lab.device, &g->lab.stream));
}

void gpu_close(struct gpu *g) {
    gpu_free_all(g);
    lab_close(&g->lab);
}

void gpu_lend_workspace(struct gpu *g) {
    enum { BYTES = 32 << 20 };
    ck_ok(stream_set_workspace(g->lab.stream, gpu_alloc(g, BYTES), BYTES));
}

void gpu_put(struct gpu *g, void *device, const void *host, size_t bytes) {
    ck_ok(stream_copy(g->lab.stream, device, host, bytes));
    ck_ok(stream_sync(g->lab.stream));
}

void gpu_get(struct gpu *g, void *host, const void *device, size_t bytes) {
    gpu_put(g, host, device, bytes);
}

static void *copy(struct gpu *g, const void *host, size_t bytes) {
    void *at = gpu_alloc(g, bytes);
    gpu_put(g, at, host, bytes);
    return at;
}

static void copy_weight(struct gpu *g, struct weight *w) {
    if (w->data) w->data = copy(g, w->data, (size_t)w->rows * (size_t)w->cols * (size_t)dtype_bytes(w->type));
}

struct weight mini_random_caches(struct lab *lab, struct mini *m) {
    struct weight raw = lab_weight(lab, 2, (int)m->kv_floats, m->shape.type, 1);
    for (size_t i = 0; i < m->kv_floats; i++) {
        ((float *)m->kv.k)[i] = (float)lab_weight_at(&raw, 0, (int)i);
        ((float *)m->kv.v)[i] = (float)lab_weight_at(&raw, 1, (int)i);
    }
    return raw;
}

void gpu_restore_caches(struct gpu *g, const struct mini *twin, const struct weight *raw) {
    size_t bytes = twin->kv_floats * (size_t)dtype_bytes(raw->type);
    gpu_put(g, twin->kv.k, raw->data, bytes);
    gpu_put(g, twin->kv.v, (const char *)raw->data + bytes, bytes);
}

void gpu_twin(struct gpu *g, const struct mini *host, const struct weight *raw, struct mini *twin) {
    const struct mini_shape *s = &host->shape;
    *twin = *host;
    struct weight *weights[] = {
        &twin->embedding, &twin->norm,   &twin->wq, &twin->wk,        &twin->wv,   &twin->bq, &twin->bk,   &twin->bv,
        &twin->q_norm,    &twin->k_norm, &twin->wo, &twin->post_norm, &twin->gate, &twin->up, &twin->down, &twin->head};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) copy_weight(g, weights[i]);
    const size_t t = (size_t)s->max_rows, f = sizeof(float), q = (size_t)s->heads * (size_t)s->head_dim;
    const size_t kv_bytes = host->kv_floats * (size_t)dtype_bytes(s->type),
                 positions = (size_t)s->pages_per_slot * KV_PAGE;
    twin->page_table = copy(g, host->page_table, (size_t)s->slots * (size_t)s->pages_per_slot * sizeof(int32_t));
    twin->rope = copy(g, host->rope, positions * (size_t)s->head_dim * f);
    twin->kv = (struct kv_layer){gpu_alloc(g, kv_bytes), gpu_alloc(g, kv_bytes), s->type};
    gpu_restore_caches(g, twin, raw);
    twin->tokens = gpu_alloc(g, t * sizeof(int32_t)), twin->positions = gpu_alloc(g, t * sizeof(int32_t));
    twin->row_slot = gpu_alloc(g, t * sizeof(int32_t));
    twin->x = gpu_alloc(g, t * (size_t)s->width * f), twin->normed = gpu_alloc(g, t * (size_t)s->width * f);
    twin->q = gpu_alloc(g, t * q * f), twin->attended = gpu_alloc(g, t * q * f);
    twin->kv_rows = gpu_alloc(g, t * 2 * (size_t)s->kv_heads * (size_t)s->head_dim * f);
    twin->h = gpu_alloc(g, t * (size_t)s->hidden * f), twin->logits = gpu_alloc(g, t * (size_t)s->vocab * f);
    twin->gated = gpu_alloc(g, 2 * t * (size_t)s->hidden * f);
    twin->partials = gpu_alloc(g, t * (size_t)s->heads * ATTENTION_PARTS * ((size_t)s->head_dim + 2) * f);
}

void gpu_put_rows(struct gpu *g, const struct mini *host, const struct mini *twin, int batch, int q_len) {
    size_t rows = (size_t)batch * (size_t)q_len * sizeof(int32_t);
    gpu_put(g, twin->tokens, host->tokens, rows);
    gpu_put(g, twin->positions, host->positions, rows);
    gpu_put(g, twin->row_slot, host->row_slot, (size_t)batch * sizeof(int32_t));
}
