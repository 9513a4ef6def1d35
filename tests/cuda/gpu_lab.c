#include "tests/cuda/gpu_lab.h"

#include <math.h>
#include <stdlib.h>

#include "model/packed.h"
#include "tests/support/quantised_support.h"
#include "tests/support/support.h"

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
    ck_ok(stream_set_workspace(g->lab.stream, gpu_alloc(g, WORKSPACE_BYTES), WORKSPACE_BYTES));
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
    w->data = copy(g, w->data, (size_t)w->rows * (size_t)w->cols * (size_t)dtype_bytes(w->format));
}

/* The list of matrices stays on the host. */
static void copy_experts(struct gpu *g, struct mini_experts *e, int count) {
    const char *host = e->block;
    char *block = copy(g, e->block, e->bytes);
    struct weight *each = lab_alloc(&g->lab, (size_t)count * sizeof *each);
    for (int i = 0; i < count; i++) {
        each[i] = e->each[i];
        each[i].data = block + ((const char *)each[i].data - host);
    }
    e->block = block, e->each = each, e->experts.each = each;
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
    size_t bytes = twin->kv_floats * (size_t)dtype_bytes(raw->format);
    gpu_put(g, twin->kv.k, raw->data, bytes);
    gpu_put(g, twin->kv.v, (const char *)raw->data + bytes, bytes);
}

static void *from_gpu(void *gpu, size_t bytes) {
    return gpu_alloc(gpu, bytes);
}

/* --- packed matrices ---------------------------------------------------------------------------------------- */

/* A power of two that makes sums of random numbers be of order 1: as small as the other weights are. */
static void make_small(const struct weight *wide, struct packed_parts parts) {
    float *numbers = (float *)(uintptr_t)wide->data, largest = 0;
    const size_t n = (size_t)wide->rows * (size_t)wide->cols;
    int exponent;
    for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(numbers[i]));
    (void)frexpf(largest * sqrtf((float)wide->cols), &exponent);
    const float times = ldexpf(1, -exponent);
    for (size_t i = 0; i < n; i++) numbers[i] *= times;
    for (int r = 0; r < wide->rows; r++) parts.factors[r] *= times;
}

/* A random matrix of a form, in host memory that is to be freed; *wide is what it stands for. NULL: not of this shape. */
static void *make_packed(struct gpu *g, int form, int rows, int cols, struct packed *p, struct weight *wide,
                         size_t *bytes) {
    const struct quantised_form *f = &quantised_forms[form];
    struct scales scales = {0};
    if (cols % 32 != 0 || cols % dtype_block(f->format).numbers != 0) return NULL;
    const struct weight w = quantised_weight(&g->lab, f, &scales, rows, cols);
    if (!packed_plan(p, &w, f->has_zeros)) return NULL;
    *bytes = packed_bytes(p, rows, cols);
    void *memory = malloc(*bytes);
    packed_fill(p, &w, NULL, rows, memory, 1);
    *wide = dequantised_weight(&g->lab, &w);
    make_small(wide, packed_parts(p, memory, rows, cols));
    return memory;
}

enum dtype gpu_type_of_packed(int form, enum dtype type) {
    const struct quantised_form *f = &quantised_forms[form];
    const float values[16] = {0};
    const struct scales scales = {.group = f->group ? f->group : 512, .values = values};
    const struct weight w = {
        .format = f->format, .rows = 1, .cols = 512, .scales = dtype_block(f->format).numbers >= 32 ? NULL : &scales};
    struct packed p;
    return packed_plan(&p, &w, f->has_zeros) && !packed_takes_f16(p.code, p.group) ? DTYPE_BF16 : type;
}

static void pack_one(struct gpu *g, int form, struct weight *host, struct weight *twin) {
    struct packed *p = lab_alloc(&g->lab, sizeof *p);
    const int rows = host->rows, cols = host->cols;
    size_t bytes;
    void *memory = make_packed(g, form, rows, cols, p, host, &bytes);
    if (!memory) return;
    *twin = (struct weight){
        .data = copy(g, memory, bytes), .format = DTYPE_PACKED, .rows = rows, .cols = cols, .packed = p};
    p->room_numbers = 24 * (int64_t)cols; /* less than most have */
    p->room = gpu_alloc(g, (size_t)p->room_numbers * sizeof(uint16_t));
    free(memory);
}

static void pack_experts(struct gpu *g, int form, struct mini_experts *host, struct mini_experts *twin, int count) {
    struct packed *p = lab_alloc(&g->lab, sizeof *p);
    char *block = NULL;
    for (int e = 0; e < count && host->each; e++) {
        size_t bytes;
        void *memory = make_packed(g, form, host->each[e].rows, host->each[e].cols, p, &host->each[e], &bytes);
        if (!memory) return;
        if (p->order) { /* experts take no tokens in another order */
            free(memory);
            return;
        }
        twin->experts.apart = (int64_t)(bytes + 511) / 256 * 256;
        if (!block) block = gpu_alloc(g, (size_t)count * (size_t)twin->experts.apart);
        twin->each[e].data = block + e * twin->experts.apart;
        twin->each[e].format = DTYPE_PACKED, twin->each[e].packed = p;
        gpu_put(g, block + e * twin->experts.apart, memory, bytes);
        free(memory);
    }
}

/* v has another form where that is odd, so that a product each is made of q, k and v. */
static void pack_all(struct gpu *g, struct mini *host, struct mini *twin) {
    const int form = host->shape.packed - 1;
    struct weight *const here[] = {&host->wq, &host->wk,        &host->wo,         &host->gate,
                                   &host->up, &host->down,      &host->head,       &host->layer_projection,
                                   &host->wv, &host->embedding, &host->input_gate, &host->input_projection};
    struct weight *const there[] = {&twin->wq, &twin->wk,        &twin->wo,         &twin->gate,
                                    &twin->up, &twin->down,      &twin->head,       &twin->layer_projection,
                                    &twin->wv, &twin->embedding, &twin->input_gate, &twin->input_projection};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        const bool is_other = here[i] == &host->wv && form % 2;
        const int its_form = is_other ? (form + 1) % QUANTISED_FORMS : form;
        if (here[i]->data && gpu_type_of_packed(its_form, twin->shape.type) == twin->shape.type)
            pack_one(g, its_form, here[i], there[i]);
    }
    if (host->shape.experts == 0) return;
    pack_experts(g, form, &host->expert_gate, &twin->expert_gate, host->shape.experts);
    pack_experts(g, form, &host->expert_up, &twin->expert_up, host->shape.experts);
    pack_experts(g, form, &host->expert_down, &twin->expert_down, host->shape.experts);
}

void gpu_twin(struct gpu *g, struct mini *host, const struct weight *raw, struct mini *twin) {
    const struct mini_shape *s = &host->shape;
    struct weight *weights[MINI_WEIGHTS_MAX];
    struct mini_experts *experts[MINI_EXPERTS_MAX];
    *twin = *host;
    for (int i = mini_weights(twin, weights) - 1; i >= 0; i--) copy_weight(g, weights[i]);
    for (int i = mini_experts(twin, experts) - 1; i >= 0; i--) copy_experts(g, experts[i], s->experts);
    if (s->packed) pack_all(g, host, twin);
    const size_t t = (size_t)s->max_rows, f = sizeof(float), dim = (size_t)s->head_dim;
    const size_t kv_bytes = host->kv_floats * (size_t)dtype_bytes(s->type), slots = (size_t)s->slots,
                 positions = (size_t)s->pages_per_slot * KV_PAGE;
    twin->page_table = copy(g, host->page_table, slots * (size_t)s->pages_per_slot * sizeof(int32_t));
    if (host->rope)
        twin->rope =
            copy(g, host->rope, (host->rope_choice || host->shape.has_query_rope ? 2 : 1) * positions * dim * f);
    if (host->rope_choice) twin->rope_choice = copy(g, host->rope_choice, slots * sizeof(int32_t));
    twin->kv = (struct kv_layer){gpu_alloc(g, kv_bytes), gpu_alloc(g, kv_bytes), s->type};
    gpu_restore_caches(g, twin, raw);
    mini_make_buffers(twin, from_gpu, g);
    const int gated = s->hidden > s->layer_inputs ? s->hidden : s->layer_inputs;
    twin->gated = gpu_alloc(g, 2 * t * (size_t)gated * f);
    twin->partials = gpu_alloc(g, t * (size_t)s->heads * ATTENTION_PARTS * (dim + 2) * f);
}

void gpu_put_rows(struct gpu *g, const struct mini *host, const struct mini *twin, int batch, int q_len) {
    size_t rows = (size_t)batch * (size_t)q_len * sizeof(int32_t);
    gpu_put(g, twin->tokens, host->tokens, rows);
    gpu_put(g, twin->positions, host->positions, rows);
    gpu_put(g, twin->row_slot, host->row_slot, (size_t)batch * sizeof(int32_t));
}
