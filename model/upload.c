/* Weights into the pool: all of them on a device that does not read the mapped files, in one 16-bit type or packed, else those that
 * do not lie in the file as they are read. Each is aligned as the pool aligns, and copied through pinned buffers in turn, which all threads fill
 * from the files while the device copies the ones before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/parallel.h"
#include "model/format.h"
#include "model/gather.h"
#include "model/packed.h"
#include "model/random_weights.h"
#include "model/staging.h"

enum { AHEAD = 64 << 20 }; /* bytes that the disk reads in advance */
_Static_assert(STAGING_BYTES == RANDOM_CHUNK * 2, "random weights are the same chunk by chunk");

/* Elements are copied as they are on the host, which computes from any type. */
enum dtype model_copied_type(const struct model *m, const struct binding *b) {
    if (!m->is_mapped && !b->is_exact) return m->weight_type;
    return binding_is_quantised(b) ? DTYPE_F32 : b->file_format;
}

static size_t aligned_bytes(const struct model *m, const struct binding *b) {
    if (!b->is_copied) return 0;
    const size_t bytes = b->is_packed ? packed_bytes(&b->packed, b->rows, (int)b->cols)
                         : model_reads_quantised(m, b)
                             ? stored_packed_bytes(&b->stored, b->rows)
                             : (size_t)dtype_span_bytes(model_copied_type(m, b), (int64_t)binding_elements(b));
    return (bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
}

/* Where a binding's copy lies; *next is behind those before it. */
static char *place_of(const struct model *m, const struct binding *b, char **next) {
    char *at = *next;
    if (b->ids) return m->cut_head;
    if (at) *next += aligned_bytes(m, b); /* no plan */
    return at;
}

enum dtype model_device_type(const struct model *m) {
    for (int i = 0; i < m->binding_count; i++) {
        const struct binding *b = &m->bindings[i];
        if (b->weight && !b->is_exact && !binding_is_quantised(b) && b->file_format != DTYPE_F16) return DTYPE_BF16;
    }
    return DTYPE_F16;
}

size_t model_device_bytes(const struct model *m) {
    size_t sum = 0;
    for (int i = 0; i < m->binding_count; i++) sum += aligned_bytes(m, &m->bindings[i]);
    return sum;
}

size_t model_cut_head_bytes(const struct model *m) {
    size_t sum = 0;
    for (int i = 0; i < m->binding_count; i++)
        if (m->bindings[i].ids) sum += aligned_bytes(m, &m->bindings[i]);
    return sum;
}

/* --- copying ---------------------------------------------------------------------------------------------- */

struct upload {
    const struct model *model;
    struct stream *stream;
    const struct progress *progress;
    char what[32];
    struct staging staging;
    uint16_t *random;    /* of a model without files, else NULL */
    int64_t done, total; /* elements */
    /* What the disk was told of: up to `ahead_at` bytes of binding `ahead`. Bytes of the files. */
    int ahead;
    size_t ahead_at, ahead_bytes, done_bytes;
};

/* In scales beside it or in blocks of its own. */
static bool is_dequantised(const struct binding *b) {
    return binding_is_quantised(b) || dtype_is_quantised(b->file_format);
}

/* What goes through the pinned buffers: all that is copied but quantised matrices that stay so. */
static bool is_sent(const struct model *m, const struct binding *b) {
    return b->is_copied && !model_reads_quantised(m, b);
}

/* Rows [first, first + n / cols) of a quantised matrix, or those of their ids, in 16 bits or f32. */
struct dequantising {
    const struct weight *w;
    const int32_t *ids; /* of all rows of the result; NULL: they are the matrix's own */
    enum dtype type;
    int first, count;
    char *to;
};

static void narrow(const float *wide, int n, enum dtype type, void *to) {
    uint16_t *halves = to;
    if (type == DTYPE_F32) memcpy(to, wide, sizeof *wide * (size_t)n);
    for (int i = 0; type != DTYPE_F32 && i < n; i++)
        halves[i] = type == DTYPE_F16 ? format_to_f16(wide[i]) : format_to_bf16(wide[i]);
}

static void dequantise_part(const void *context, int part, int parts) {
    enum { PIECE = 512 };
    const struct dequantising *d = context;
    const struct weight *w = d->w;
    const struct range mine = parallel_range(d->count, part, parts);
    float wide[PIECE];
    for (int r = mine.first; r < mine.end; r++) {
        char *to = d->to + dtype_span_bytes(d->type, (int64_t)r * w->cols);
        const int row = d->ids ? d->ids[d->first + r] : d->first + r;
        for (int c = 0; c < w->cols; c += PIECE) {
            const int n = w->cols - c < PIECE ? w->cols - c : PIECE;
            format_of(w->format)->dequantise(wide, w, row, c, n);
            narrow(wide, n, d->type, to + dtype_span_bytes(d->type, c));
        }
    }
}

/* The rows that a binding has of its weight in host memory; NULL: all. One that is made at loading is made of its rows alone. */
static const int32_t *stored_ids(const struct binding *b) {
    return b->stored.form == STORED_MADE ? NULL : b->ids;
}

static void gather_dequantised(const struct model *m, const struct binding *b, enum dtype type, size_t first, size_t n,
                               void *to) {
    const size_t cols = (size_t)b->cols;
    const int32_t *ids = stored_ids(b);
    struct dequantising d = {b->weight, ids, type, (int)(first / cols), (int)(n / cols), to};
    parallel_run(device_threads(m->device), (int64_t)n, dequantise_part, &d);
}

/* A norm's factor is 1. */
static void fill_random(const struct upload *u, const struct binding *b, uint16_t *stage, size_t n) {
    random_weights_fill(u->random, u->done, stage, n, device_threads(u->model->device));
    for (size_t i = 0; b->norm && i < n; i++) stage[i] = format_to_bf16(1 - b->norm->offset);
}

/* Where the numbers of a binding lie in the files, from front to back; bytes 0: nowhere, or apart. */
static struct gather_ahead source_of(const struct model *m, const struct binding *b) {
    const struct tensor *numbers = b->stored.numbers;
    if (!is_sent(m, b) || m->is_random) return (struct gather_ahead){0};
    if (binding_is_quantised(b) && numbers && !b->ids) {
        const size_t each = numbers->bytes / (size_t)(b->stored.is_stacked ? b->stack : 1);
        return (struct gather_ahead){
            (const char *)numbers->data + (b->stored.is_stacked ? b->index : 0) * (int64_t)each, each};
    }
    if (b->is_transposed || b->step != 1 || b->ids) return (struct gather_ahead){0};
    return (struct gather_ahead){b->file, (size_t)dtype_span_bytes(b->file_format, (int64_t)binding_elements(b))};
}

/* The next bytes that the disk may fetch while those before them are copied: in the order of bindings, so that it never waits between
 * two of them, and AHEAD of them at most. */
static struct gather_ahead look_ahead(struct upload *u) {
    const struct model *m = u->model;
    while (u->ahead < m->binding_count && u->ahead_bytes < u->done_bytes + AHEAD) {
        const struct gather_ahead source = source_of(m, &m->bindings[u->ahead]);
        if (source.bytes <= u->ahead_at) {
            u->ahead++;
            u->ahead_at = 0;
            continue;
        }
        const size_t left = source.bytes - u->ahead_at, count = left < STAGING_BYTES ? left : STAGING_BYTES;
        const struct gather_ahead next = {(const char *)source.from + u->ahead_at, count};
        u->ahead_at += count;
        u->ahead_bytes += count;
        return next;
    }
    return (struct gather_ahead){0};
}

static int fill(struct upload *u, const struct binding *b, size_t first, size_t n, void *stage) {
    const enum dtype type = model_copied_type(u->model, b);
    const struct gather_ahead ahead = look_ahead(u);
    if (is_dequantised(b) && !dtype_is_quantised(type)) {
        if (ahead.bytes > 0) mapping_read_ahead(ahead.from, ahead.bytes);
        TRY(model_check_blocks(u->model, b, first, n));
        gather_dequantised(u->model, b, type, first, n, stage);
    } else if (u->random) {
        fill_random(u, b, stage, n);
    } else {
        TRY(gather_elements(b, type, first, n, stage, device_threads(u->model->device), &ahead));
    }
    u->done_bytes += source_of(u->model, b).bytes * n / binding_elements(b);
    return 0;
}

static void report(struct upload *u, int64_t elements) {
    u->done += elements;
    progress_report(u->progress, u->what, u->done, u->total);
}

static int send_chunk(struct upload *u, const struct binding *b, char *to, size_t first, size_t n) {
    const enum dtype type = model_copied_type(u->model, b);
    void *stage;
    TRY(staging_take(&u->staging, &stage));
    TRY(fill(u, b, first, n, stage));
    TRY(staging_send(&u->staging, to + dtype_span_bytes(type, (int64_t)first),
                     (size_t)dtype_span_bytes(type, (int64_t)n)));
    report(u, (int64_t)n);
    return 0;
}

/* Of a quantised matrix, chunks are whole rows. */
static int send_chunks(struct upload *u, const struct binding *b, char *to) {
    const enum dtype type = model_copied_type(u->model, b);
    const size_t n = binding_elements(b), cols = (size_t)b->cols, most = STAGING_BYTES / (size_t)dtype_bytes(type);
    const size_t step = is_dequantised(b) ? most / cols * cols : most;
    for (size_t first = 0; first < n; first += step)
        TRY(send_chunk(u, b, to, first, n - first < step ? n - first : step));
    return 0;
}

/* A packed matrix is made as a whole. */
static int send_bytes(struct upload *u, const char *from, size_t bytes, char *to) {
    for (size_t at = 0; at < bytes; at += STAGING_BYTES) {
        const size_t n = bytes - at < STAGING_BYTES ? bytes - at : STAGING_BYTES;
        void *stage;
        TRY(staging_take(&u->staging, &stage));
        memcpy(stage, from + at, n);
        TRY(staging_send(&u->staging, to + at, n));
    }
    return 0;
}

static int send_packed(struct upload *u, struct binding *b, char *to) {
    const size_t bytes = packed_bytes(&b->packed, b->rows, (int)b->cols), n = binding_elements(b);
    const struct gather_ahead ahead = look_ahead(u);
    if (ahead.bytes > 0) mapping_read_ahead(ahead.from, ahead.bytes);
    TRY(model_check_blocks(u->model, b, 0, n));
    void *memory = malloc(bytes);
    if (!memory) return err_set(ERR_MEMORY, "out of memory for the packed tensor '%s'", b->name);
    packed_fill(&b->packed, b->weight, stored_ids(b), (int)b->rows, memory, device_threads(u->model->device));
    int rc = send_bytes(u, memory, bytes, to);
    free(memory);
    u->done_bytes += source_of(u->model, b).bytes;
    if (rc == 0) report(u, (int64_t)n);
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
    const size_t bytes = stored_packed_bytes(&b->stored, binding_rows(b).count);
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

static int send_all(struct upload *u) {
    const struct model *m = u->model;
    TRY(staging_create(&u->staging, u->stream));
    if (m->is_random) TRY(random_weights_create(&u->random));
    for (int i = 0; i < AHEAD / STAGING_BYTES; i++) {
        const struct gather_ahead first = look_ahead(u);
        if (first.bytes > 0) mapping_read_ahead(first.from, first.bytes);
    }
    char *to = m->weights;
    for (int i = 0; i < m->binding_count; i++) {
        struct binding *b = &m->bindings[i];
        char *at = place_of(m, b, &to);
        if (is_sent(m, b)) TRY(send_weight(u, b, at));
    }
    return stream_sync(u->stream);
}

static void point_to_device(struct model *m) {
    char *next = m->weights;
    for (int i = 0; i < m->binding_count; i++) {
        struct binding *b = &m->bindings[i];
        char *at = place_of(m, b, &next);
        if (is_sent(m, b)) {
            b->weight->data = at;
            b->weight->format = b->is_packed ? DTYPE_PACKED : model_copied_type(m, b);
            b->weight->packed = b->is_packed ? &b->packed : NULL;
            b->weight->stride = 0;
            b->weight->scales = NULL;
            if (b->norm) b->norm->offset += b->held;
        }
    }
    if (model_is_tied(m)) m->head = m->embedding;
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
    char *next = m->weights, what[32];
    snprintf(what, sizeof what, "%s %s", m->makes_quantised ? "quantising" : "repacking", m->name);
    for (int i = 0; i < m->binding_count; i++) {
        struct binding *b = &m->bindings[i];
        char *at = place_of(m, b, &next);
        if (b->weight && model_reads_quantised(m, b)) TRY(pack(m, b, b->is_copied ? at : NULL));
        if (m->is_quantised) progress_report(progress, what, i + 1, m->binding_count);
    }
    if (model_is_tied(m)) m->head = m->embedding;
    return 0;
}

int model_upload_weights(struct model *m, struct stream *stream, const struct progress *progress) {
    struct upload u = {.model = m, .stream = stream, .progress = progress};
    snprintf(u.what, sizeof u.what, "%s %s", m->is_mapped ? "reordering" : "loading", m->name);
    if (m->keeps_quantised && m->is_quantised) TRY(pack_all(m, progress));
    for (int i = 0; i < m->binding_count; i++)
        if (is_sent(m, &m->bindings[i])) u.total += (int64_t)binding_elements(&m->bindings[i]);
    if (u.total == 0) return 0;
    int rc = send_all(&u);
    if (rc != 0) (void)stream_sync(stream);
    free(u.random);
    staging_destroy(&u.staging);
    if (rc != 0) return rc;
    point_to_device(m);
    measure_all_experts(m);
    return 0;
}
