#include "model/format.h"

#include "model/format_blocks.h"
#include "model/packed.h"

/* --- scales ------------------------------------------------------------------------------------------------- */

/* As an f16 an E4M3 is 2^8 too small: sign, exponent and mantissa lie side by side in both. */
float format_from_fp8(uint8_t x) {
    const uint16_t magnitude = x & 0x7F;
    if (magnitude == 0x7F) return NAN;
    return fmath_from_f16((uint16_t)((x & 0x80) << 8 | magnitude << 7)) * 256;
}

float format_widen(const void *data, enum dtype type, int64_t index) {
    uint16_t half;
    if (type == DTYPE_F32) return ((const float *)data)[index];
    if (type == DTYPE_FP8) return format_from_fp8(((const uint8_t *)data)[index]);
    if (type == DTYPE_E8M0) return format_from_e8m0(((const uint8_t *)data)[index]);
    half = ((const uint16_t *)data)[index];
    return type == DTYPE_F16 ? fmath_from_f16(half) : fmath_from_bits((uint32_t)half << 16);
}

uint16_t format_to_f16(float x) {
    const uint32_t bits = fmath_bits(x);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return sign | 0x7E00;
    if (magnitude >= 0x477FF000u) return sign | 0x7C00;
    if (magnitude < 0x38800000u) /* subnormal: 0.5 has f16's smallest number as its last place */
        return (uint16_t)(sign | (fmath_bits(fmath_from_bits(magnitude) + 0.5f) - fmath_bits(0.5f)));
    magnitude += 0xC8000FFFu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | magnitude >> 13);
}

static int64_t scale_index(const struct scales *s, int row, int group) {
    return (int64_t)((s->first + row) / s->rows) * s->stride + group;
}

float scales_at(const struct scales *s, int row, int group) {
    return format_widen(s->data, s->type, scale_index(s, row, group)) * s->factor;
}

/* --- formats ------------------------------------------------------------------------------------------------ */

const float format_fp4_values[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static void read_plain(float *out, const struct weight *w, int row, int first, int count) {
    for (int i = 0; i < count; i++) out[i] = format_widen(weight_row(w, row), w->format, first + i);
}

static int group_of(const struct scales *s, int col) {
    return s->group_of ? s->group_of[col] : col / s->group;
}

/* Columns from `col` on, below `end`, that certainly share a scale. */
static int run_end(const struct scales *s, int col, int end) {
    int next = s->group_of ? col + 1 : (col / s->group + 1) * s->group;
    return next < end ? next : end;
}

static void read_fp8(float *out, const struct weight *w, int row, int first, int count) {
    const uint8_t *data = weight_row(w, row);
    for (int c = first, next; c < first + count; c = next) {
        const float scale = scales_at(w->scales, row, group_of(w->scales, c));
        next = run_end(w->scales, c, first + count);
        for (int i = c; i < next; i++) out[i - first] = format_from_fp8(data[i]) * scale;
    }
}

/* Columns in any order of groups, whose scales are f32. */
static void read_int4_by_column(float *out, const struct weight *w, int row, int first, int count) {
    const uint8_t *data = weight_row(w, row);
    const struct scales *s = w->scales;
    const float *scales = (const float *)s->data + scale_index(s, row, 0);
    const uint8_t *zeros = s->zeros ? s->zeros + scale_index(s, row, 0) : NULL;
    for (int i = first; i < first + count; i++) {
        const int group = s->group_of[i], zero = zeros ? zeros[group] : 8;
        out[i - first] = (float)((data[i / 2] >> i % 2 * 4 & 15) - zero) * (scales[group] * s->factor);
    }
}

static void read_int4(float *out, const struct weight *w, int row, int first, int count) {
    const uint8_t *data = weight_row(w, row);
    const struct scales *s = w->scales;
    if (s->group_of && s->type == DTYPE_F32) {
        read_int4_by_column(out, w, row, first, count);
        return;
    }
    for (int c = first, next; c < first + count; c = next) {
        const int group = group_of(s, c), zero = s->zeros ? s->zeros[scale_index(s, row, group)] : 8;
        const float scale = scales_at(s, row, group);
        next = run_end(s, c, first + count);
        for (int i = c; i < next; i++) out[i - first] = (float)((data[i / 2] >> i % 2 * 4 & 15) - zero) * scale;
    }
}

/* `flip` 1: the first of two lies in the high half. */
static void read_listed(float *out, const struct weight *w, int row, int first, int count, const float *values,
                        int flip) {
    const uint8_t *data = weight_row(w, row);
    for (int c = first, next; c < first + count; c = next) {
        const float scale = scales_at(w->scales, row, group_of(w->scales, c));
        next = run_end(w->scales, c, first + count);
        for (int i = c; i < next; i++) out[i - first] = values[data[i / 2] >> (i ^ flip) % 2 * 4 & 15] * scale;
    }
}

static void read_fp4(float *out, const struct weight *w, int row, int first, int count) {
    read_listed(out, w, row, first, count, format_fp4_values, 0);
}

static void read_nf4(float *out, const struct weight *w, int row, int first, int count) {
    read_listed(out, w, row, first, count, w->scales->values, 1);
}

static void read_blocks(float *out, const struct weight *w, int row, int first, int count) {
    const struct dtype_block block = dtype_block(w->format);
    const uint8_t *data = (const uint8_t *)weight_row(w, row) + dtype_span_bytes(w->format, first);
    for (int i = 0; i < count; i += block.numbers, data += block.bytes) block_dequantise(w->format, out + i, data);
}

const struct format *format_of(enum dtype type) {
    static const struct format formats[DTYPES] = {
        [DTYPE_F32] = {"F32", read_plain},        [DTYPE_BF16] = {"BF16", read_plain},
        [DTYPE_F16] = {"F16", read_plain},        [DTYPE_FP8] = {"FP8", read_fp8},
        [DTYPE_INT4] = {"INT4", read_int4},       [DTYPE_FP4] = {"FP4", read_fp4},
        [DTYPE_NF4] = {"NF4", read_nf4},          [DTYPE_Q8_0] = {"Q8_0", read_blocks},
        [DTYPE_Q4_0] = {"Q4_0", read_blocks},     [DTYPE_Q4_1] = {"Q4_1", read_blocks},
        [DTYPE_Q5_0] = {"Q5_0", read_blocks},     [DTYPE_Q5_1] = {"Q5_1", read_blocks},
        [DTYPE_IQ4_NL] = {"IQ4_NL", read_blocks}, [DTYPE_MXFP4] = {"MXFP4", read_blocks},
        [DTYPE_Q2_K] = {"Q2_K", read_blocks},     [DTYPE_Q3_K] = {"Q3_K", read_blocks},
        [DTYPE_Q4_K] = {"Q4_K", read_blocks},     [DTYPE_Q5_K] = {"Q5_K", read_blocks},
        [DTYPE_Q6_K] = {"Q6_K", read_blocks},     [DTYPE_IQ4_XS] = {"IQ4_XS", read_blocks},
        [DTYPE_PACKED] = {"packed", packed_read},
    };
    return &formats[type];
}
