/* Weights into the memory of a device that does not read the mapped files: all of them in one 16-bit type, each tensor
 * aligned as the pool aligns, copied through two pinned buffers in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fmath.h"
#include "base/philox.h"
#include "model/model_internal.h"

enum { CHUNK = 4 << 20 }; /* elements */

static size_t elements(const struct binding *b) {
    return (size_t)b->rows * (size_t)b->cols;
}

static size_t aligned_bytes(const struct model *m, const struct binding *b) {
    return (elements(b) * (size_t)dtype_bytes(m->weight_type) + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
}

enum dtype model_device_type(const struct model *m) {
    for (int i = 0; i < m->binding_count; i++)
        if (m->bindings[i].weight->type != DTYPE_F16) return DTYPE_BF16;
    return DTYPE_F16;
}

size_t model_device_bytes(const struct model *m) {
    size_t sum = 0;
    for (int i = 0; i < m->binding_count; i++) sum += aligned_bytes(m, &m->bindings[i]);
    return sum;
}

/* --- conversion to bf16 ----------------------------------------------------------------------------------- */

static uint32_t f32_bits_of_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3FF;
    if (exponent == 31) return sign | 0x7F800000u | mantissa << 13;
    if (exponent > 0) return sign | (exponent + 112) << 23 | mantissa << 13;
    if (mantissa == 0) return sign;
    for (exponent = 113; !(mantissa & 0x400); exponent--) mantissa <<= 1; /* subnormal */
    return sign | exponent << 23 | (mantissa & 0x3FF) << 13;
}

/* To nearest, ties to even; NaN stays NaN. */
static uint16_t bf16_of_f32_bits(uint32_t bits) {
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void convert(uint16_t *to, const void *from, enum dtype type, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        uint16_t half;
        if (type == DTYPE_F32) {
            memcpy(&bits, (const char *)from + i * sizeof bits, sizeof bits);
        } else {
            memcpy(&half, (const char *)from + i * sizeof half, sizeof half);
            bits = f32_bits_of_f16(half);
        }
        to[i] = bf16_of_f32_bits(bits);
    }
}

/* --- copying ---------------------------------------------------------------------------------------------- */

struct upload {
    const struct model *model;
    struct stream *stream;
    const struct progress *progress;
    uint16_t *staging;     /* [2, CHUNK] pinned */
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

/* Chunks are the same numbers from another place on, so that no two rows of a weight are alike. Norms are 1. */
static void fill_random(const struct upload *u, uint16_t *stage, size_t n, bool is_norm) {
    enum { BF16_ONE = 0x3F80, STRIDE = 1000003 };
    size_t first = (size_t)u->done / CHUNK * STRIDE % CHUNK, ahead = n < CHUNK - first ? n : CHUNK - first;
    memcpy(stage, u->random + first, ahead * sizeof *stage);
    memcpy(stage + ahead, u->random, (n - ahead) * sizeof *stage);
    for (size_t i = 0; is_norm && i < n; i++) stage[i] = BF16_ONE;
}

static bool is_norm(const struct binding *b) {
    size_t n = strlen(b->name), m = strlen("norm.weight");
    return n >= m && strcmp(b->name + n - m, "norm.weight") == 0;
}

static int send_chunk(struct upload *u, const struct binding *b, uint16_t *to, size_t first, size_t n) {
    const struct weight *w = b->weight;
    const char *from = u->random ? NULL : (const char *)w->data + first * (size_t)dtype_bytes(w->type);
    u->turn ^= 1;
    uint16_t *stage = u->staging + (size_t)u->turn * CHUNK;
    char what[32];
    if (!event_is_done(u->sent[u->turn])) TRY(event_wait(u->sent[u->turn]));
    if (u->random)
        fill_random(u, stage, n, is_norm(b));
    else if (w->type == u->model->weight_type)
        memcpy(stage, from, n * sizeof *stage);
    else
        convert(stage, from, w->type, n);
    TRY(stream_copy(u->stream, to, stage, n * sizeof *stage));
    TRY(event_record(u->sent[u->turn], u->stream));
    u->done += (int64_t)n;
    snprintf(what, sizeof what, "loading %s", u->model->name);
    progress_report(u->progress, what, u->done, u->total);
    return 0;
}

static int send_weight(struct upload *u, const struct binding *b, char *to) {
    size_t n = elements(b);
    for (size_t first = 0; first < n; first += CHUNK) {
        size_t count = n - first < CHUNK ? n - first : CHUNK;
        TRY(send_chunk(u, b, (uint16_t *)to + first, first, count));
    }
    return 0;
}

static int send_all(struct upload *u) {
    const struct model *m = u->model;
    void *pinned;
    TRY(device_alloc_pinned(m->device, 2 * CHUNK * sizeof *u->staging, &pinned));
    u->staging = pinned;
    TRY(event_create(m->device, &u->sent[0]));
    TRY(event_create(m->device, &u->sent[1]));
    if (m->is_random) TRY(make_random(u));
    char *to = m->weights;
    for (int i = 0; i < m->binding_count; i++) {
        TRY(send_weight(u, &m->bindings[i], to));
        to += aligned_bytes(m, &m->bindings[i]);
    }
    return stream_sync(u->stream);
}

static void point_to_device(struct model *m) {
    char *at = m->weights;
    for (int i = 0; i < m->binding_count; i++) {
        m->bindings[i].weight->data = at;
        m->bindings[i].weight->type = m->weight_type;
        at += aligned_bytes(m, &m->bindings[i]);
    }
    if (m->config.tied) m->head = m->embedding;
}

int model_upload_weights(struct model *m, struct stream *stream, const struct progress *progress) {
    struct upload u = {.model = m, .stream = stream, .progress = progress, .total = model_parameters(m)};
    int rc = send_all(&u);
    if (rc != 0) (void)stream_sync(stream);
    free(u.random);
    event_destroy(u.sent[0]);
    event_destroy(u.sent[1]);
    device_free_pinned(m->device, u.staging);
    if (rc == 0) point_to_device(m);
    return rc;
}
