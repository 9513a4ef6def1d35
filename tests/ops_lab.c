#include "tests/ops_lab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "tests/support.h"

void lab_open(struct lab *lab, int threads) {
    *lab = (struct lab){0};
    struct device_options options = {.threads = threads};
    ck_ok(device_open(&lab->device, "host", &options));
    ck_ok(stream_create(lab->device, &lab->stream));
}

void lab_close(struct lab *lab) {
    stream_destroy(lab->stream);
    device_close(lab->device);
    for (int i = 0; i < lab->block_count; i++) free(lab->blocks[i]);
}

void *lab_alloc(struct lab *lab, size_t bytes) {
    ck_assert_int_lt(lab->block_count, LAB_BLOCKS_MAX);
    void *block = malloc(bytes);
    ck_assert_ptr_nonnull(block);
    memset(block, 0xFF, bytes);
    return lab->blocks[lab->block_count++] = block;
}

static uint32_t draw(struct lab *lab) {
    return philox_word(20240229, lab->draws++, 0, 0);
}

float lab_random(struct lab *lab) {
    return (float)(draw(lab) >> 8) * 0x1p-23f - 1.0f;
}

float *lab_random_floats(struct lab *lab, size_t n) {
    float *out = lab_alloc(lab, n * sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = lab_random(lab);
    return out;
}

int lab_pick(struct lab *lab, int first, int end) {
    return first + (int)(draw(lab) % (uint32_t)(end - first));
}

/* The f16 next to x toward zero; tiny values become subnormal. */
static uint16_t f16_from(float x) {
    int exponent;
    float magnitude = frexpf(fabsf(x), &exponent); /* [0.5, 1) * 2^exponent */
    uint16_t sign = x < 0 ? 0x8000 : 0;
    if (exponent < -13) return sign | (uint16_t)ldexpf(fabsf(x), 24);
    return sign | (uint16_t)((unsigned)(exponent + 14) << 10 | ((unsigned)ldexpf(magnitude, 11) & 0x3FF));
}

struct weight lab_weight(struct lab *lab, int rows, int cols, enum dtype type, float scale) {
    struct weight w = {.format = type, .rows = rows, .cols = cols};
    if (rows == 0) return (struct weight){0};
    const size_t n = (size_t)rows * (size_t)cols, bytes = (size_t)dtype_bytes(type);
    unsigned char *data = (unsigned char *)lab_alloc(lab, (n + 1) * bytes) + bytes;
    for (size_t i = 0; i < n; i++) {
        float value = lab_random(lab) * scale;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint16_t half = type == DTYPE_F16 ? f16_from(value) : (uint16_t)(bits >> 16);
        memcpy(data + i * bytes, type == DTYPE_F32 ? (void *)&value : (void *)&half, bytes);
    }
    w.data = data;
    return w;
}

static double f16_value(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 0x3FF;
    double magnitude = exponent == 0    ? ldexp(mantissa, -24)
                       : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                        : ldexp(mantissa + 1024, exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

double lab_weight_at(const struct weight *w, int row, int col) {
    const unsigned char *p = w->data;
    p += ((size_t)row * (size_t)w->cols + (size_t)col) * (size_t)dtype_bytes(w->format);
    float value;
    uint16_t half;
    if (w->format == DTYPE_F32) {
        memcpy(&value, p, sizeof value);
        return value;
    }
    memcpy(&half, p, sizeof half);
    if (w->format == DTYPE_F16) return f16_value(half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static const float eps = 1e-5f;

/* rows = 0: no norm. */
static struct norm lab_norm(struct lab *lab, int rows, int cols, enum dtype type, float scale) {
    return (struct norm){
        .kind = rows > 0 ? NORM_RMS : NORM_NONE, .weight = lab_weight(lab, rows, cols, type, scale), .eps = eps};
}

/* --- the layer ------------------------------------------------------------------------------------ */

static void make_weights(struct lab *lab, struct mini *m) {
    const struct mini_shape *s = &m->shape;
    const enum dtype type = s->type;
    const int q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const float in = 1.7f / sqrtf((float)s->width), from_hidden = 1.7f / sqrtf((float)s->hidden);
    m->embedding = lab_weight(lab, s->vocab, s->width, type, 1);
    m->norm = lab_norm(lab, 1, s->width, type, 1), m->post_norm = lab_norm(lab, 1, s->width, type, 1);
    m->wq = lab_weight(lab, q, s->width, type, in);
    m->wk = lab_weight(lab, kv, s->width, type, in), m->wv = lab_weight(lab, kv, s->width, type, in);
    m->bq = lab_weight(lab, s->has_bias, q, type, 1);
    m->bk = lab_weight(lab, s->has_bias, kv, type, 1), m->bv = lab_weight(lab, s->has_bias, kv, type, 1);
    m->q_norm = lab_norm(lab, s->has_qk_norm, s->head_dim, type, 2);
    m->k_norm = lab_norm(lab, s->has_qk_norm, s->head_dim, type, 2);
    m->wo = lab_weight(lab, s->width, q, type, 1.7f / sqrtf((float)q));
    m->gate = lab_weight(lab, s->hidden, s->width, type, 2 * in),
    m->up = lab_weight(lab, s->hidden, s->width, type, in);
    m->down = lab_weight(lab, s->width, s->hidden, type, from_hidden);
    m->head = lab_weight(lab, s->vocab, s->width, type, in);
}

/* Every slot's pages, in random order; page 0 and the table's row 0 belong to padding. */
static void make_pages(struct lab *lab, struct mini *m) {
    const struct mini_shape *s = &m->shape;
    const int entries = s->slots * s->pages_per_slot;
    m->pages = entries - s->pages_per_slot + 1;
    m->page_table = lab_alloc(lab, (size_t)entries * sizeof(int32_t));
    for (int i = 0; i < entries; i++) m->page_table[i] = i < s->pages_per_slot ? 0 : i - s->pages_per_slot + 1;
    for (int i = s->pages_per_slot; i < entries; i++) {
        int other = lab_pick(lab, i, entries);
        int32_t page = m->page_table[i];
        m->page_table[i] = m->page_table[other], m->page_table[other] = page;
    }
    m->kv_floats = (size_t)m->pages * (size_t)s->kv_heads * KV_PAGE * (size_t)s->head_dim;
    m->kv.k = lab_alloc(lab, m->kv_floats * sizeof(float));
    m->kv.v = lab_alloc(lab, m->kv_floats * sizeof(float));
}

void mini_make(struct lab *lab, struct mini *m, struct mini_shape s) {
    *m = (struct mini){.shape = s};
    make_weights(lab, m);
    make_pages(lab, m);
    const size_t t = (size_t)s.max_rows, width = (size_t)s.width, f = sizeof(float);
    const size_t q = (size_t)s.heads * (size_t)s.head_dim, kv = (size_t)s.kv_heads * (size_t)s.head_dim;
    const int positions = s.pages_per_slot * KV_PAGE;
    m->tokens = lab_alloc(lab, t * sizeof(int32_t)), m->positions = lab_alloc(lab, t * sizeof(int32_t));
    m->row_slot = lab_alloc(lab, t * sizeof(int32_t));
    m->rope = lab_alloc(lab, (size_t)positions * (size_t)s.head_dim * f);
    for (int p = 0; p < positions; p++)
        for (int i = 0; i < s.head_dim / 2; i++) {
            double angle = p * pow(10000, -2.0 * i / s.head_dim);
            m->rope[p * s.head_dim + 2 * i] = (float)cos(angle),
                                         m->rope[p * s.head_dim + 2 * i + 1] = (float)sin(angle);
        }
    m->x = lab_alloc(lab, t * width * f), m->normed = lab_alloc(lab, t * width * f);
    m->q = lab_alloc(lab, t * q * f), m->attended = lab_alloc(lab, t * q * f);
    m->kv_rows = lab_alloc(lab, t * 2 * kv * f);
    m->h = lab_alloc(lab, t * (size_t)s.hidden * f), m->logits = lab_alloc(lab, t * (size_t)s.vocab * f);
}

struct rows mini_rows(const struct mini *m, int batch, int q_len) {
    return (struct rows){.batch = batch,
                         .q_len = q_len,
                         .tokens = m->tokens,
                         .positions = m->positions,
                         .row_slot = m->row_slot,
                         .page_table = m->page_table,
                         .pages_per_slot = m->shape.pages_per_slot};
}

size_t mini_cell(const struct mini *m, int slot, int position, int head) {
    const struct mini_shape *s = &m->shape;
    size_t page = (size_t)m->page_table[slot * s->pages_per_slot + position / KV_PAGE];
    return ((page * (size_t)s->kv_heads + (size_t)head) * KV_PAGE + (size_t)(position % KV_PAGE)) * (size_t)s->head_dim;
}

struct buffer mini_buffer(const struct mini *m, void *data) {
    return (struct buffer){data, m->kv.type};
}

struct op_embed mini_embed(const struct mini *m, struct rows rows) {
    return (struct op_embed){.rows = rows, .table = m->embedding, .scale = 1, .out = m->x};
}

struct op_qkv mini_qkv(const struct mini *m, struct rows rows) {
    const struct mini_shape *s = &m->shape;
    return (struct op_qkv){.rows = rows,
                           .x = m->x,
                           .norm = m->norm,
                           .wq = m->wq,
                           .wk = m->wk,
                           .wv = m->wv,
                           .bq = m->bq,
                           .bk = m->bk,
                           .bv = m->bv,
                           .q_norm = m->q_norm,
                           .k_norm = m->k_norm,
                           .rope = {.table = m->rope, .positions = s->pages_per_slot * KV_PAGE, .dims = s->head_dim},
                           .width = s->width,
                           .heads = s->heads,
                           .kv_heads = s->kv_heads,
                           .head_dim = s->head_dim,
                           .kv = m->kv,
                           .normed = mini_buffer(m, m->normed),
                           .q = m->q,
                           .kv_rows = m->kv_rows};
}

struct op_attention mini_attention(const struct mini *m, struct rows rows) {
    const struct mini_shape *s = &m->shape;
    return (struct op_attention){.rows = rows,
                                 .q = m->q,
                                 .kv = m->kv,
                                 .out = mini_buffer(m, m->attended),
                                 .partials = m->partials,
                                 .scale = 1 / sqrtf((float)s->head_dim),
                                 .heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .head_dim = s->head_dim,
                                 .window = s->window};
}

struct op_project mini_project(const struct mini *m, struct rows rows) {
    return (struct op_project){.rows = rows, .h = mini_buffer(m, m->attended), .w = m->wo, .scale = 1, .x = m->x};
}

struct op_gate_up mini_gate_up(const struct mini *m, struct rows rows) {
    return (struct op_gate_up){.rows = rows,
                               .x = m->x,
                               .norm = m->post_norm,
                               .gate = m->gate,
                               .up = m->up,
                               .width = m->shape.width,
                               .hidden = m->shape.hidden,
                               .normed = mini_buffer(m, m->normed),
                               .gated = m->gated,
                               .h = mini_buffer(m, m->h)};
}

struct op_project mini_down(const struct mini *m, struct rows rows) {
    return (struct op_project){.rows = rows, .h = mini_buffer(m, m->h), .w = m->down, .scale = 1, .x = m->x};
}

struct op_logits mini_logits(const struct mini *m, struct rows rows) {
    return (struct op_logits){.rows = rows,
                              .x = m->x,
                              .norm = m->post_norm,
                              .w = m->head,
                              .scale = 1,
                              .width = m->shape.width,
                              .vocab = m->shape.vocab,
                              .normed = mini_buffer(m, m->normed),
                              .logits = m->logits};
}

void mini_forward(struct lab *lab, const struct mini *m, struct rows rows) {
    const struct ops *ops = ops_for(lab->device);
    const struct op_embed embed = mini_embed(m, rows);
    const struct op_qkv qkv = mini_qkv(m, rows);
    const struct op_attention attention = mini_attention(m, rows);
    const struct op_project project = mini_project(m, rows), down = mini_down(m, rows);
    const struct op_gate_up gate_up = mini_gate_up(m, rows);
    const struct op_logits logits = mini_logits(m, rows);
    ck_ok(ops->embed(lab->stream, &embed));
    ck_ok(ops->qkv(lab->stream, &qkv));
    ck_ok(ops->attention(lab->stream, &attention));
    ck_ok(ops->project(lab->stream, &project));
    ck_ok(ops->gate_up(lab->stream, &gate_up));
    ck_ok(ops->project(lab->stream, &down));
    ck_ok(ops->logits(lab->stream, &logits));
}
