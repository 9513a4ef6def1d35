/* Weights into the pool: all of them on a device that does not read the mapped files, in one 16-bit type or packed, else those that do
 * not lie in the file as they are read. Each is aligned as the pool aligns, and copied through two pinned buffers in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fmath.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "model/format.h"
#include "model/model_internal.h"
#include "model/packed.h"

enum { CHUNK = 4 << 20 }; /* elements */

/* Elements are copied as they are on the host, which computes from any type. */
static enum dtype type_of(const struct model *m, const struct binding *b) {
    return m->is_mapped ? b->file_format : m->weight_type;
}

static size_t aligned_bytes(const struct model *m, const struct binding *b) {
    if (!b->is_copied) return 0;
    if (b->is_packed)
        return (packed_bytes(&b->packed, b->rows, (int)b->cols) + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
    if (m->keeps_quantised && binding_is_quantised(b))
        return (stored_packed_bytes(&b->stored, b->rows) + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
    return (binding_elements(b) * (size_t)dtype_bytes(type_of(m, b)) + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
}

enum dtype model_device_type(const struct model *m) {
    for (int i = 0; i < m->binding_count; i++)
        if (m->bindings[i].weight && !binding_is_quantised(&m->bindings[i]) && m->bindings[i].file_format != DTYPE_F16)
            return DTYPE_BF16;
    return DTYPE_F16;
}

size_t model_device_bytes(const struct model *m) {
    size_t sum = 0;
    for (int i = 0; i < m->binding_count; i++) sum += aligned_bytes(m, &m->bindings[i]);
    return sum;
}

/* --- conversion to 16 bits ----------------------------------------------------------------------------------- */

/* To nearest, ties to even; NaN stays NaN. */
static uint16_t bf16_of_f32_bits(uint32_t bits) {
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_bf16(const char *from, enum dtype type) {
    uint32_t bits;
    uint16_t half;
    if (type == DTYPE_F32) {
        memcpy(&bits, from, sizeof bits);
    } else {
        memcpy(&half, from, sizeof half);
        bits = fmath_bits(fmath_from_f16(half));
    }
    return bf16_of_f32_bits(bits);
}

/* --- copying ---------------------------------------------------------------------------------------------- */

struct upload {
    const struct model *model;
    struct stream *stream;
    const struct progress *progress;
    char *staging;         /* [2, CHUNK] pinned, elements of up to 4 bytes */
    uint16_t *random;      /* [CHUNK] of a model without files, else NULL */
    struct event *sent[2]; /* of each half */
    int turn;
    int64_t done, total; /* elements */
};

/* Uniform bf16 in about +-0.03, as large as weights are. */
static int make_random(struct upload *u) {
    u->random = malloc(CHUNK * sizeof *u->random);
    if (!u->random) return err_set(ERR_MEMORY, "out of memory for random weights");
    for (uint32_t i = 0; i < CHUNK; i += 4) {
        struct philox_block block = philox_block(1, 0, i / 4);
        for (uint32_t j = 0; j < 4; j++)
            u->random[i + j] = bf16_of_f32_bits(fmath_bits(((float)(block.w[j] >> 8) * 0x1p-24f - 0.5f) * 0.06f));
    }
    return 0;
}

/* Where element `i` of a binding lies in the mapped file. */
const char *binding_element(const struct binding *b, size_t i) {
    const size_t row = i / (size_t)b->cols, col = i % (size_t)b->cols, bytes = (size_t)dtype_bytes(b->file_format);
    const size_t all = (size_t)b->all, step = (size_t)b->step;
    size_t at;
    if (b->is_transposed)
        at = col * all + row * step;
    else if (b->rows == 1 && b->stack > 0)
        at = col * step;
    else
        at = row * step * (size_t)b->cols + col;
    return (const char *)b->file + at * bytes;
}

/* Elements [first, first + n) of a binding, in the type that they are kept in: rows as a whole where they lie so. */
static void gather(const struct binding *b, enum dtype type, size_t first, size_t n, char *to) {
    const size_t bytes = (size_t)dtype_bytes(type), cols = (size_t)b->cols;
    const bool is_kept = type == b->file_format, lies_together = !b->is_transposed && (b->stack == 0 || b->rows > 1);
    for (size_t i = first, count; i < first + n; i += count) {
        count = 1;
        if (is_kept && lies_together) {
            count = b->step == 1 ? first + n - i : cols - i % cols;
            if (count > first + n - i) count = first + n - i;
        }
        char *place = to + (i - first) * bytes;
        if (is_kept) {
            memcpy(place, binding_element(b, i), count * bytes);
        } else {
            uint16_t half = to_bf16(binding_element(b, i), b->file_format);
            memcpy(place, &half, sizeof half);
        }
    }
}

/* In scales beside it or in blocks of its own. */
static bool is_dequantised(const struct binding *b) {
    return binding_is_quantised(b) || dtype_is_quantised(b->file_format);
}

/* Rows [first, first + n / cols) of a quantised matrix in 16 bits. */
struct dequantising {
    const struct weight *w;
    enum dtype type;
    int first, count;
    uint16_t *to;
};

static void dequantise_part(const void *context, int part, int parts) {
    enum { PIECE = 512 };
    const struct dequantising *d = context;
    const struct weight *w = d->w;
    const struct range mine = parallel_range(d->count, part, parts);
    float wide[PIECE];
    for (int r = mine.first; r < mine.end; r++) {
        uint16_t *to = d->to + (size_t)r * (size_t)w->cols;
        for (int c = 0; c < w->cols; c += PIECE) {
            const int n = w->cols - c < PIECE ? w->cols - c : PIECE;
            format_of(w->format)->dequantise(wide, w, d->first + r, c, n);
            for (int i = 0; i < n; i++)
                to[c + i] = d->type == DTYPE_F16 ? format_to_f16(wide[i]) : bf16_of_f32_bits(fmath_bits(wide[i]));
        }
    }
}

static void gather_dequantised(const struct model *m, const struct weight *w, enum dtype type, size_t first, size_t n,
                               void *to) {
    const size_t cols = (size_t)w->cols;
    struct dequantising d = {w, type, (int)(first / cols), (int)(n / cols), to};
    parallel_run(device_threads(m->device), (int64_t)n, dequantise_part, &d);
}

/* Chunks are the same numbers from another place on, so that no two rows of a weight are alike. A norm's factor is 1. */
static void fill_random(const struct upload *u, const struct binding *b, uint16_t *stage, size_t n) {
    enum { STRIDE = 1000003 };
    size_t first = (size_t)u->done / CHUNK * STRIDE % CHUNK, ahead = n < CHUNK - first ? n : CHUNK - first;
    memcpy(stage, u->random + first, ahead * sizeof *stage);
    memcpy(stage + ahead, u->random, (n - ahead) * sizeof *stage);
    for (size_t i = 0; b->is_norm && i < n; i++) stage[i] = bf16_of_f32_bits(fmath_bits(1 - b->norm_offset));
}

static void report(struct upload *u, int64_t elements) {
    char what[32];
    u->done += elements;
    snprintf(what, sizeof what, "loading %s", u->model->name);
    progress_report(u->progress, what, u->done, u->total);
}

/* The buffer whose turn it is, once what was in it has been copied. */
static int next_stage(struct upload *u, char **stage) {
    u->turn ^= 1;
    *stage = u->staging + (size_t)u->turn * CHUNK * sizeof(float);
    return event_is_done(u->sent[u->turn]) ? 0 : event_wait(u->sent[u->turn]);
}

static int send_chunk(struct upload *u, const struct binding *b, char *to, size_t first, size_t n) {
    const enum dtype type = type_of(u->model, b);
    char *stage;
    TRY(next_stage(u, &stage));
    if (is_dequantised(b))
        gather_dequantised(u->model, b->weight, type, first, n, stage);
    else if (u->random)
        fill_random(u, b, (uint16_t *)(void *)stage, n);
    else
        gather(b, type, first, n, stage);
    TRY(stream_copy(u->stream, to + first * (size_t)dtype_bytes(type), stage, n * (size_t)dtype_bytes(type)));
    TRY(event_record(u->sent[u->turn], u->stream));
    report(u, (int64_t)n);
    return 0;
}

/* Of a quantised matrix, chunks are whole rows. */
static int send_chunks(struct upload *u, const struct binding *b, char *to) {
    const size_t n = binding_elements(b), cols = (size_t)b->cols;
    const size_t step = is_dequantised(b) ? CHUNK / cols * cols : CHUNK;
    for (size_t first = 0; first < n; first += step)
        TRY(send_chunk(u, b, to, first, n - first < step ? n - first : step));
    return 0;
}

/* A packed matrix, which is made as a whole. */
static int send_bytes(struct upload *u, const char *from, size_t bytes, char *to) {
    for (size_t at = 0; at < bytes; at += CHUNK * sizeof(float)) {
        const size_t n = bytes - at < CHUNK * sizeof(float) ? bytes - at : CHUNK * sizeof(float);
        char *stage;
        TRY(next_stage(u, &stage));
        memcpy(stage, from + at, n);
        TRY(stream_copy(u->stream, to + at, stage, n));
        TRY(event_record(u->sent[u->turn], u->stream));
    }
    return 0;
}

static int send_packed(struct upload *u, struct binding *b, char *to) {
    const size_t bytes = packed_bytes(&b->packed, b->rows, (int)b->cols);
    void *memory = malloc(bytes);
    if (!memory) return err_set(ERR_MEMORY, "out of memory for the packed tensor '%s'", b->name);
    packed_fill(&b->packed, b->weight, memory, device_threads(u->model->device));
    int rc = send_bytes(u, memory, bytes, to);
    free(memory);
    if (rc == 0) report(u, (int64_t)binding_elements(b));
    return rc;
}

/* Points the weight to what the file has, and to `memory` for what it has in another order. */
static int pack(const struct model *m, struct binding *b, void *memory) {
    const struct stored_rows rows = binding_rows(b);
    stored_place(&b->stored, &rows, b->weight, &b->scales, memory);
    if (b->stored.form == STORED_MADE) return model_quantise(m, b, device_threads(m->device));
    return stored_pack(&b->stored, &rows, b->weight, &b->scales, device_threads(m->device));
}

/* A device that reads 16 bits gets them from one matrix after the other, so that no second copy of all is ever there. */
static int send_quantised(struct upload *u, struct binding *b, char *to) {
    const size_t bytes = stored_packed_bytes(&b->stored, b->rows);
    void *memory = malloc(bytes + 1);
    if (!memory) return err_set(ERR_MEMORY, "out of memory for the repacked tensor '%s'", b->name);
    int rc = pack(u->model, b, memory);
    if (rc == 0) rc = b->is_packed ? send_packed(u, b, to) : send_chunks(u, b, to);
    free(memory);
    return rc;
}

static int send_weight(struct upload *u, struct binding *b, char *to) {
    if (binding_is_quantised(b)) return send_quantised(u, b, to);
    return b->is_packed ? send_packed(u, b, to) : send_chunks(u, b, to);
}

/* What goes through the pinned buffers: all that is copied but quantised matrices that stay so. */
static bool is_sent(const struct model *m, const struct binding *b) {
    return b->is_copied && !(m->keeps_quantised && binding_is_quantised(b));
}

static int send_all(struct upload *u) {
    const struct model *m = u->model;
    void *pinned;
    TRY(device_alloc_pinned(m->device, 2 * CHUNK * sizeof(float), &pinned));
    u->staging = pinned;
    TRY(event_create(m->device, &u->sent[0]));
    TRY(event_create(m->device, &u->sent[1]));
    if (m->is_random) TRY(make_random(u));
    char *to = m->weights;
    for (int i = 0; i < m->binding_count; i++) {
        struct binding *b = &m->bindings[i];
        if (is_sent(m, b)) TRY(send_weight(u, b, to));
        to += aligned_bytes(m, b);
    }
    return stream_sync(u->stream);
}

static void point_to_device(struct model *m) {
    char *at = m->weights;
    for (int i = 0; i < m->binding_count; i++) {
        struct binding *b = &m->bindings[i];
        if (is_sent(m, b)) {
            b->weight->data = at;
            b->weight->format = b->is_packed ? DTYPE_PACKED : type_of(m, b);
            b->weight->packed = b->is_packed ? &b->packed : NULL;
            b->weight->stride = 0;
            b->weight->scales = NULL;
        }
        at += aligned_bytes(m, b);
    }
    if (m->config.tied) m->head = m->embedding;
}

/* How far the experts of a list are apart, which were bound one after the other. */
static void measure_experts(struct experts *e) {
    if (!e->each || !e->each[1].data) return;
    const int64_t bytes = (const char *)e->each[1].data - (const char *)e->each[0].data;
    e->apart = e->each[0].packed ? bytes : bytes / dtype_bytes(e->each[0].format);
}

static void measure_all_experts(struct model *m) {
    for (int l = 0; m->config.experts > 1 && l < m->config.layers; l++) {
        struct layer *layer = &m->layers[l];
        struct experts *lists[] = {&layer->expert_gate,      &layer->expert_up,      &layer->expert_down,
                                   &layer->expert_gate_bias, &layer->expert_up_bias, &layer->expert_down_bias};
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) measure_experts(lists[i]);
    }
}

/* Quantised matrices that stay so: repacked into the pool where the file has them in another order. */
static int pack_all(struct model *m, const struct progress *progress) {
    char *at = m->weights, what[32];
    snprintf(what, sizeof what, "%s %s", m->makes_quantised ? "quantising" : "repacking", m->name);
    for (int i = 0; i < m->binding_count; i++) {
        struct binding *b = &m->bindings[i];
        if (b->weight && binding_is_quantised(b)) TRY(pack(m, b, b->is_copied ? at : NULL));
        at += aligned_bytes(m, b);
        if (m->is_quantised) progress_report(progress, what, i + 1, m->binding_count);
    }
    if (m->config.tied) m->head = m->embedding;
    return 0;
}

int model_upload_weights(struct model *m, struct stream *stream, const struct progress *progress) {
    struct upload u = {.model = m, .stream = stream, .progress = progress};
    if (m->keeps_quantised && m->is_quantised) TRY(pack_all(m, progress));
    for (int i = 0; i < m->binding_count; i++)
        if (is_sent(m, &m->bindings[i])) u.total += (int64_t)binding_elements(&m->bindings[i]);
    if (u.total == 0) return 0;
    int rc = send_all(&u);
    if (rc != 0) (void)stream_sync(stream);
    free(u.random);
    event_destroy(u.sent[0]);
    event_destroy(u.sent[1]);
    device_free_pinned(m->device, u.staging);
    if (rc != 0) return rc;
    point_to_device(m);
    measure_all_experts(m);
    return 0;
}
