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

/* One piece of a row: where its numbers begin, and the scales and zeros of its groups (KIND_FP4_HALVES: of each half of a step). */
struct piece {
    const unsigned char *data;
    float scale[2 * STEPS_MAX], zero[STEPS_MAX];
};

/* The columns of a piece, which all rows share: where[i] is the group of step i, counted from that of the first. */
struct columns {
    int first, count, groups;
    uint8_t where[STEPS_MAX];
};
VEC void open_columns(const enum kind kind, struct columns *c, const struct weight *w, int first, int count) {
    const int group = w->scales->group, steps = (count + STEP - 1) / STEP;
    c->first = first, c->count = count;
    c->groups =
        kind == KIND_FP4_HALVES ? (count + STEP / 2 - 1) / (STEP / 2) : (first + count - 1) / group - first / group + 1;
    if (kind == KIND_FP4_HALVES) return;
    for (int i = 0, g = 0, left = group - first % group; i < steps; i++, left -= STEP) {
        if (left <= 0) g++, left += group;
        c->where[i] = (uint8_t)g;
    }
}

VEC float scalar_scale(const unsigned char *data, enum dtype type) {
    uint16_t half;
    if (type == DTYPE_E8M0) return format_from_e8m0(*data);
    memcpy(&half, data, sizeof half);
    return type == DTYPE_F16 ? fmath_from_f16(half) : fmath_from_bits((uint32_t)half << 16);
}

/* Scales that lie side by side, times their factor. `out` has room for whole vectors. */
VEC void read_scales(float *out, const struct scales *s, int64_t at, int count) {
    const unsigned char *data = (const unsigned char *)s->data + dtype_span_bytes(s->type, at);
    unsigned char padded[LANES] = {0};
    int i = 0;
    switch (s->type) {
    case DTYPE_F32:
        for (; i < count; i++) memcpy(&out[i], data + (size_t)i * sizeof *out, sizeof *out);
        break;
    case DTYPE_FP8:
        for (; i + LANES <= count; i += LANES) vec_store(out + i, vec_mul(vec_fp8(data + i), vec_set(256)));
        for (int j = 0; i + j < count; j++) padded[j] = data[i + j];
        if (i < count) vec_store(out + i, vec_mul(vec_fp8(padded), vec_set(256)));
        break;
    case DTYPE_E8M0:
        for (; i < count; i++) out[i] = scalar_scale(data + i, DTYPE_E8M0);
        break;
    case DTYPE_F16:
        for (; i + LANES <= count; i += LANES) vec_store(out + i, vec_widen(data + 2 * i, DTYPE_F16));
        for (; i < count; i++) out[i] = scalar_scale(data + 2 * i, DTYPE_F16);
        break;
    default:
        for (; i + LANES <= count; i += LANES) vec_store(out + i, vec_widen(data + 2 * i, DTYPE_BF16));
        for (; i < count; i++) out[i] = scalar_scale(data + 2 * i, DTYPE_BF16);
        break;
    }
    for (i = 0; i < count && s->factor != 1; i++) out[i] *= s->factor;
}

VEC void open_piece(const enum kind kind, struct piece *p, const struct columns *c, const struct weight *w, int row) {
    const struct scales *s = w->scales;
    const int64_t at = (int64_t)((s->first + row) / s->rows) * s->stride + c->first / s->group;
    p->data = (const unsigned char *)weight_row(w, row) + dtype_span_bytes(w->format, c->first);
    read_scales(p->scale, s, at, c->groups);
    for (int g = 0; kind == KIND_INT4_ZEROS && g < c->groups; g++) p->zero[g] = s->zeros[at + g];
}

/* The weights of a step of group `g`, whose numbers begin at `from`. */
VEC void read_step(const enum kind kind, const struct piece *p, int step, int g, const unsigned char *from, vec values,
                   vec out[2]) {
    if (kind == KIND_FP8) {
        const vec scale = vec_set(p->scale[g] * 256);
        out[0] = vec_mul(vec_fp8(from), scale), out[1] = vec_mul(vec_fp8(from + LANES), scale);
        return;
    }
    const int flip = kind == KIND_NF4, half = kind == KIND_FP4_HALVES;
    if (kind == KIND_INT4_ZEROS) values = vec_sub(values, vec_set(p->zero[g]));
    const vec_list first = vec_list_of(vec_mul(values, vec_set(p->scale[half ? 2 * step : g])));
    const vec_list second = half ? vec_list_of(vec_mul(values, vec_set(p->scale[2 * step + 1]))) : first;
    out[0] = vec_pick(first, ivec_pairs(from, flip));
    out[1] = vec_pick(second, ivec_pairs(from + LANES / 2, flip));
}

VEC int step_bytes(const enum kind kind) {
    return kind == KIND_FP8 ? STEP : STEP / 2;
}

/* The last step of a row, of which `count` columns are there: the others are 0 and their bytes are not read. */
VEC void read_last_step(const enum kind kind, const struct piece *p, int step, int g, int count, vec values,
                        vec out[2]) {
    unsigned char padded[STEP] = {0};
    float wide[STEP];
    memcpy(padded, p->data + step * step_bytes(kind), (size_t)(kind == KIND_FP8 ? count : (count + 1) / 2));
    read_step(kind, p, step, g, padded, values, out);
    vec_store(wide, out[0]), vec_store(wide + LANES, out[1]);
    for (int i = count; i < STEP; i++) wide[i] = 0;
    out[0] = vec_load(wide), out[1] = vec_load(wide + LANES);
}

VEC void unpack_kind(const enum kind kind, float *out, const struct weight *w, int row, int first, int count) {
    const vec values = listed_values(kind, w);
    struct columns columns;
    struct piece p;
    vec step[2];
    for (int k = 0; k < count; k += PIECE) {
        const int n = count - k < PIECE ? count - k : PIECE;
        open_columns(kind, &columns, w, first + k, n);
        open_piece(kind, &p, &columns, w, row);
        for (int i = 0; i * STEP < n; i++) {
            const int left = n - i * STEP, g = kind == KIND_FP4_HALVES ? 0 : columns.where[i];
            float *to = out + k + i * STEP;
            if (left >= STEP)
                read_step(kind, &p, i, g, p.data + i * step_bytes(kind), values, step);
            else
                read_last_step(kind, &p, i, g, left, values, step);
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
