/* Quantised weights as f32, in the bits that model/format.c defines. Included by kernels.h alone.
 *
 * A row is read in steps of 32 columns, two vectors, by what its kind does with a step; what has no kind here is read by its
 * function of model/format.c. Sixteen values that four bits stand for, times their scale, are a list of products. */
#include "model/format.h"

enum { STEP = 32, STEPS_MAX = 32, PIECE = STEP * STEPS_MAX };

enum kind {
    KIND_OTHER,
    KIND_FP8,
    KIND_INT4, /* all zeros are 8 */
    KIND_INT4_ZEROS,
    KIND_FP4,
    KIND_FP4_HALVES, /* a scale of its own for each half of a step */
    KIND_NF4,
};

static enum kind kind_of(const struct weight *w) {
    const struct scales *s = w->scales;
    if (!s || s->group_of) return KIND_OTHER;
    if (w->format == DTYPE_FP4 && s->group == STEP / 2) return KIND_FP4_HALVES;
    if (s->group % STEP != 0 && s->group < w->cols) return KIND_OTHER;
    switch (w->format) {
    case DTYPE_FP8:
        return KIND_FP8;
    case DTYPE_INT4:
        return s->zeros ? KIND_INT4_ZEROS : KIND_INT4;
    case DTYPE_FP4:
        return KIND_FP4;
    case DTYPE_NF4:
        return KIND_NF4;
    default:
        return KIND_OTHER;
    }
}

/* What four bits stand for before the scale, or the zero and the scale. */
VEC vec listed_values(const enum kind kind, const struct weight *w) {
    if (kind == KIND_INT4) return vec_load(from_8_below);
    if (kind == KIND_INT4_ZEROS) return vec_load(from_0);
    if (kind == KIND_NF4) return vec_load(w->scales->values);
    if (kind == KIND_FP8) return vec_zero();
    return vec_load(format_fp4_values);
}

/* One piece of a row: where its numbers begin, and what each step (KIND_FP4_HALVES: each half) is multiplied by. */
struct piece {
    const unsigned char *data;
    float scale[2 * STEPS_MAX], zero[STEPS_MAX];
};

/* Scales [at, at + count) times their factor. */
static void read_scales(float *out, const struct scales *s, int64_t at, int count) {
    const unsigned char *data = (const unsigned char *)s->data + dtype_span_bytes(s->type, at);
    const float factor = s->factor;
    switch (s->type) {
    case DTYPE_FP8:
        for (int i = 0; i < count; i += LANES) {
            unsigned char padded[LANES] = {0};
            memcpy(padded, data + i, count - i < LANES ? (size_t)(count - i) : LANES);
            store_part(out + i, vec_mul(vec_fp8(padded), vec_set(256)), count - i);
        }
        break;
    case DTYPE_E8M0:
        for (int i = 0; i < count; i++) out[i] = format_from_e8m0(data[i]);
        break;
    case DTYPE_F32:
        memcpy(out, data, (size_t)count * sizeof *out);
        break;
    default:
        widen(out, data, s->type, count);
        break;
    }
    for (int i = 0; i < count && factor != 1; i++) out[i] *= factor;
}

/* Columns [first, first + count) of a row, at most PIECE of them; `first` is a multiple of STEP. */
VEC void open_piece(const enum kind kind, struct piece *p, const struct weight *w, int row, int first, int count) {
    const struct scales *s = w->scales;
    const int of = kind == KIND_FP4_HALVES ? STEP / 2 : STEP, steps = (count + of - 1) / of;
    const int64_t at = (int64_t)((s->first + row) / s->rows) * s->stride;
    const int group = first / s->group;
    p->data = (const unsigned char *)weight_row(w, row) + dtype_span_bytes(w->format, first);
    if (s->group == of) {
        read_scales(p->scale, s, at + group, steps);
        for (int i = 0; kind == KIND_INT4_ZEROS && i < steps; i++) p->zero[i] = s->zeros[at + group + i];
        return;
    }
    for (int i = 0, g = group; i < steps; g++) {
        float scale;
        int64_t end = ((int64_t)(g + 1) * s->group - first + of - 1) / of; /* the row's end may cut its last step */
        if (end > steps) end = steps;
        read_scales(&scale, s, at + g, 1);
        for (; i < end; i++) {
            p->scale[i] = scale;
            if (kind == KIND_INT4_ZEROS) p->zero[i] = s->zeros[at + g];
        }
    }
}

/* The weights of a step, whose numbers begin at `from`. */
VEC void read_step(const enum kind kind, const struct piece *p, int step, const unsigned char *from, vec values,
                   vec out[2]) {
    if (kind == KIND_FP8) {
        const vec scale = vec_set(p->scale[step] * 256);
        out[0] = vec_mul(vec_fp8(from), scale), out[1] = vec_mul(vec_fp8(from + LANES), scale);
        return;
    }
    const int flip = kind == KIND_NF4, half = kind == KIND_FP4_HALVES;
    if (kind == KIND_INT4_ZEROS) values = vec_sub(values, vec_set(p->zero[step]));
    const vec_list first = vec_list_of(vec_mul(values, vec_set(p->scale[half ? 2 * step : step])));
    const vec_list second = half ? vec_list_of(vec_mul(values, vec_set(p->scale[2 * step + 1]))) : first;
    out[0] = vec_pick(first, ivec_pairs(from, flip));
    out[1] = vec_pick(second, ivec_pairs(from + LANES / 2, flip));
}

VEC int step_bytes(const enum kind kind) {
    return kind == KIND_FP8 ? STEP : STEP / 2;
}

/* The last step of a row, of which `count` columns are there: the others are 0 and their bytes are not read. */
VEC void read_last_step(const enum kind kind, const struct piece *p, int step, int count, vec values, vec out[2]) {
    unsigned char padded[STEP] = {0};
    float wide[STEP];
    memcpy(padded, p->data + step * step_bytes(kind), (size_t)(kind == KIND_FP8 ? count : (count + 1) / 2));
    read_step(kind, p, step, padded, values, out);
    vec_store(wide, out[0]), vec_store(wide + LANES, out[1]);
    for (int i = count; i < STEP; i++) wide[i] = 0;
    out[0] = vec_load(wide), out[1] = vec_load(wide + LANES);
}

VEC void unpack_kind(const enum kind kind, float *out, const struct weight *w, int row, int first, int count) {
    const vec values = listed_values(kind, w);
    struct piece p;
    vec step[2];
    for (int k = 0; k < count; k += PIECE) {
        const int n = count - k < PIECE ? count - k : PIECE;
        open_piece(kind, &p, w, row, first + k, n);
        for (int i = 0; i * STEP < n; i++) {
            const int left = n - i * STEP;
            float *to = out + k + i * STEP;
            if (left >= STEP)
                read_step(kind, &p, i, p.data + i * step_bytes(kind), values, step);
            else
                read_last_step(kind, &p, i, left, values, step);
            store_part(to, step[0], left);
            if (left > LANES) store_part(to + LANES, step[1], left - LANES);
        }
    }
}

/* Numbers [first, first + count) of a row; `first` begins a block. */
static void unpack(float *out, const struct weight *w, int row, int first, int count) {
    const unsigned char *from = (const unsigned char *)weight_row(w, row) + dtype_span_bytes(w->format, first);
    if (!dtype_is_quantised(w->format)) {
        widen(out, from, w->format, count);
        return;
    }
    if (unpack_blocks(w->format, out, from, count)) return;
    switch (first % STEP == 0 ? kind_of(w) : KIND_OTHER) {
    case KIND_FP8:
        unpack_kind(KIND_FP8, out, w, row, first, count);
        break;
    case KIND_INT4:
        unpack_kind(KIND_INT4, out, w, row, first, count);
        break;
    case KIND_INT4_ZEROS:
        unpack_kind(KIND_INT4_ZEROS, out, w, row, first, count);
        break;
    case KIND_FP4:
        unpack_kind(KIND_FP4, out, w, row, first, count);
        break;
    case KIND_FP4_HALVES:
        unpack_kind(KIND_FP4_HALVES, out, w, row, first, count);
        break;
    case KIND_NF4:
        unpack_kind(KIND_NF4, out, w, row, first, count);
        break;
    case KIND_OTHER:
        format_of(w->format)->dequantise(out, w, row, first, count);
        break;
    }
}
