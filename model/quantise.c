/* Matrices that are quantised at loading, whatever the files hold: FP8 with a scale a row, int4 with one for 32 columns. Heads are FP8
 * in either case: all of the vocabulary hangs on them, and they are read once. Routers, embeddings that are no head, norms and
 * biases stay as they are, and so does what the files have quantised. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "base/fmath.h"
#include "base/parallel.h"
#include "model/format.h"
#include "model/fp8.h"
#include "model/model_internal.h"
#include "model/packed.h"

enum { INT4_GROUP = 32, PIECE = 512 };

/* --- which -------------------------------------------------------------------------------------------------- */

static bool is_router(const struct model *m, const struct weight *w) {
    for (int l = 0; l < m->config.layers; l++)
        if (w == &m->layers[l].router) return true;
    return false;
}

/* Few numbers that decide much: those of a recurrent layer's beta and decay, which files leave as they are, too. */
static bool is_gate(const struct model *m, const struct weight *w) {
    for (int l = 0; l < m->config.layers; l++)
        for (int i = m->config.recurrent.qkvz_by_head ? 1 : 2; i < PRODUCTS_MAX; i++)
            if (w == &m->layers[l].inputs[i]) return true;
    return false;
}

static bool is_head(const struct model *m, const struct weight *w) {
    return w == &m->head || (model_is_tied(m) && w == &m->embedding);
}

static bool is_product(const struct model *m, const struct binding *b) {
    const struct weight *w = b->weight;
    if (!w || b->rows == 1 || b->is_conv) return false;
    return is_head(m, w) || (w != &m->embedding && w != &m->layer_embedding && !is_router(m, w) && !is_gate(m, w));
}

static bool comes_quantised(const struct binding *b) {
    return binding_is_quantised(b) || dtype_is_quantised(b->file_format);
}

static void choose(const struct model *m, struct binding *b, enum model_weights weights) {
    const bool is_int4 = weights == WEIGHTS_INT4 && !is_head(m, b->weight) && b->cols % INT4_GROUP == 0;
    const int64_t group = is_int4 ? INT4_GROUP : b->cols;
    b->stored = (struct stored){.form = STORED_MADE,
                                .format = is_int4 ? DTYPE_INT4 : DTYPE_FP8,
                                .scale_type = is_int4 ? DTYPE_F16 : DTYPE_F32,
                                .rows = b->rows,
                                .cols = b->cols,
                                .scale_rows = 1,
                                .group = (int32_t)group,
                                .groups = b->cols / group,
                                .scale_factor = 1};
}

int model_choose_quantised(struct model *m, enum model_weights weights) {
    for (int i = 0; i < m->binding_count; i++) {
        struct binding *b = &m->bindings[i];
        if (!is_product(m, b)) continue;
        m->products++;
        m->products_stored += comes_quantised(b);
        if (comes_quantised(b) || weights == WEIGHTS_AS_STORED) continue;
        choose(m, b, weights);
        m->is_quantised = m->makes_quantised = true;
    }
    if (m->makes_quantised || weights == WEIGHTS_AS_STORED) return 0;
    return err_set(ERR_USAGE, "%s: is quantised already, and all of it would stay as it is (--%s-weights)",
                   checkpoint_name(m->checkpoint), m->name);
}

int model_products(const struct model *m, int *stored) {
    *stored = m->products_stored;
    return m->products;
}

/* --- which are packed ----------------------------------------------------------------------------------------- */

static void plan(const struct model *m, struct binding *b) {
    if (!is_product(m, b) || !comes_quantised(b)) return;
    const struct stored_rows rows = binding_rows(b);
    struct weight w = *b->weight;
    struct scales scales;
    float values[16];
    if (binding_is_quantised(b)) stored_place(&b->stored, &rows, &w, &scales, NULL);
    if (b->stored.values) scales.values = memcpy(values, b->stored.values->data, sizeof values);
    b->is_packed = packed_plan(&b->packed, &w, b->stored.zeros != NULL) &&
                   (m->weight_type != DTYPE_F16 || packed_takes_f16(b->packed.code, b->packed.group));
}

/* Matrices that one product reads: gate and up, those of all experts (which lie at one distance, besides). */
struct together {
    const struct weight *first[2]; /* the second may be absent */
    int count;                     /* of each */
    bool reorders;                 /* what they are multiplied with comes in any order */
};

static bool is_among(const struct together *t, const struct weight *w) {
    return (w >= t->first[0] && w < t->first[0] + t->count) ||
           (t->first[1] && w >= t->first[1] && w < t->first[1] + t->count);
}

/* All packed alike, or none. */
static void keep_alike(struct model *m, const struct together *t) {
    const struct binding *first = NULL;
    bool are_alike = true;
    for (int i = 0; i < m->binding_count; i++) {
        const struct binding *b = &m->bindings[i];
        if (!is_among(t, b->weight)) continue;
        if (!first) first = b;
        are_alike = are_alike && b->is_packed && packed_is_alike(&b->packed, &first->packed) &&
                    (t->reorders || b->packed.order == 0);
    }
    for (int i = 0; i < m->binding_count && !are_alike; i++)
        if (is_among(t, m->bindings[i].weight)) m->bindings[i].is_packed = false;
}

void model_choose_packed(struct model *m) {
    for (int i = 0; i < m->binding_count; i++) plan(m, &m->bindings[i]);
    for (int l = 0; l < m->config.layers; l++) {
        const struct layer *layer = &m->layers[l];
        keep_alike(m, &(struct together){{&layer->gate, &layer->up}, 1, true});
        if (!layer->expert_gate.each) continue;
        keep_alike(m, &(struct together){{layer->expert_gate.each, layer->expert_up.each}, m->config.experts, false});
        keep_alike(m, &(struct together){{layer->expert_down.each, NULL}, m->config.experts, false});
    }
    for (int i = 0; i < m->binding_count; i++) m->packs_quantised |= m->bindings[i].is_packed;
}

/* --- how ---------------------------------------------------------------------------------------------------- */

struct quantising {
    const struct model *m;
    const struct binding *b;
    const struct weight *w;
    const struct scales *scales;
    atomic_bool *is_bad;
};

static void make_random(size_t at, int count, float *out) {
    for (int i = 0; i < count; i++)
        out[i] = ((float)((at + (size_t)i) * 2654435761u >> 8 & 0xFFFF) * 0x1p-16f - 0.5f) * 0.06f;
}

/* Columns [first, first + count) of a row of the file's numbers; random ones where there is none. */
static void read_source(const struct quantising *q, int row, int first, int count, float *out) {
    const struct binding *b = q->b;
    const size_t at = (size_t)row * (size_t)b->cols + (size_t)first;
    if (q->m->is_random) {
        make_random(at, count, out);
        return;
    }
    const char *from = binding_element(b, at);
    const uint16_t *halves = (const void *)from;
    for (int i = 0; i < count; i++) {
        if (b->is_transposed)
            out[i] = format_widen(binding_element(b, at + (size_t)i), b->file_format, 0);
        else if (b->file_format == DTYPE_BF16)
            out[i] = fmath_from_bits((uint32_t)halves[i] << 16);
        else
            out[i] = format_widen(from, b->file_format, i);
    }
}

/* The number of the largest magnitude. NaN and infinity are told. */
static float largest_of(const struct quantising *q, const float *x, int count) {
    float largest = 0;
    bool is_bad = false;
    for (int i = 0; i < count; i++) {
        is_bad |= !isfinite(x[i]);
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
    }
    if (is_bad) *q->is_bad = true;
    return largest;
}

static void quantise_fp8(const struct quantising *q, int row, uint8_t *numbers, float *scale) {
    float x[PIECE], largest = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int c = 0; c < q->w->cols; c += PIECE) {
            const int n = q->w->cols - c < PIECE ? q->w->cols - c : PIECE;
            read_source(q, row, c, n, x);
            const float here = pass == 0 ? fabsf(largest_of(q, x, n)) : 0;
            largest = here > largest ? here : largest;
            for (int i = 0; pass == 1 && i < n; i++) numbers[c + i] = fp8_nearest(x[i] / *scale);
        }
        if (pass == 0) *scale = largest >= 0x1p-100f ? largest / 448 : 1;
    }
}

/* The largest of a group becomes -8 times its scale, which has its sign. */
static void quantise_int4(const struct quantising *q, int row, uint8_t *numbers, uint16_t *scales) {
    float x[INT4_GROUP];
    for (int c = 0; c < q->w->cols; c += INT4_GROUP) {
        read_source(q, row, c, INT4_GROUP, x);
        const uint16_t half = format_to_f16(largest_of(q, x, INT4_GROUP) / -8);
        const float scale = fmath_from_f16(half);
        scales[c / INT4_GROUP] = half;
        for (int i = 0; i < INT4_GROUP; i++) {
            const float steps = scale != 0 ? x[i] / scale + 8 : 8;
            const int code = !(steps > 0) ? 0 : steps > 15 ? 15 : (int)lrintf(steps);
            uint8_t *byte = &numbers[(c + i) / 2];
            *byte = (uint8_t)(i % 2 ? *byte | code << 4 : code);
        }
    }
}

static void quantise_part(const void *context, int part, int parts) {
    const struct quantising *q = context;
    const struct range mine = parallel_range(q->w->rows, part, parts);
    for (int r = mine.first; r < mine.end; r++) {
        /* memory that stored_place was given, const for those who read it */
        uint8_t *numbers = (uint8_t *)(uintptr_t)weight_row(q->w, r);
        char *scales = (char *)(uintptr_t)q->scales->data;
        if (q->w->format == DTYPE_FP8)
            quantise_fp8(q, r, numbers, (float *)(void *)scales + r);
        else
            quantise_int4(q, r, numbers, (uint16_t *)(void *)scales + r * q->scales->stride);
    }
}

int model_quantise(const struct model *m, const struct binding *b, int threads) {
    atomic_bool is_bad = false;
    struct quantising q = {m, b, b->weight, &b->scales, &is_bad};
    parallel_run(threads, b->rows * b->cols * 4, quantise_part, &q);
    return is_bad ? err_set(ERR_FORMAT, "%s: tensor '%s' holds a number that is not finite",
                            checkpoint_name(m->checkpoint), b->name)
                  : 0;
}
