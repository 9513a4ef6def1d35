/* Scales are f16; those of parts of a block (16 or 32 numbers) are integers of 4, 6 or 8 bits times one of them. Each value is rounded
 * as ggml's reference does it: d * part first, then times q, then less the minimum. */
#include "model/format_blocks.h"

#include <string.h>

#include "base/fmath.h"
#include "model/format.h"

enum { HALF = 16, SMALL = 32, PART = 16, LARGE = 256 };

static float half_at(const uint8_t *at) {
    return fmath_from_f16((uint16_t)(at[0] | at[1] << 8));
}

static uint32_t word_at(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* --- 32 numbers: low halves of the bytes are the first 16, high halves the others ----------------------------------- */

static void q8_0(float *out, const uint8_t *b) {
    const float d = half_at(b);
    for (int i = 0; i < SMALL; i++) out[i] = d * (float)(int8_t)b[2 + i];
}

static void q4_0(float *out, const uint8_t *b) {
    const float d = half_at(b);
    const uint8_t *q = b + 2;
    for (int i = 0; i < HALF; i++) {
        out[i] = d * (float)((q[i] & 15) - 8);
        out[i + HALF] = d * (float)((q[i] >> 4) - 8);
    }
}

static void q4_1(float *out, const uint8_t *b) {
    const float d = half_at(b), m = half_at(b + 2);
    const uint8_t *q = b + 4;
    for (int i = 0; i < HALF; i++) {
        out[i] = d * (float)(q[i] & 15) + m;
        out[i + HALF] = d * (float)(q[i] >> 4) + m;
    }
}

/* The fifth bits are the bits of one word. */
static void q5_0(float *out, const uint8_t *b) {
    const float d = half_at(b);
    const uint32_t high = word_at(b + 2);
    const uint8_t *q = b + 6;
    for (int i = 0; i < HALF; i++) {
        out[i] = d * (float)((int)((q[i] & 15) | (high >> i & 1) << 4) - 16);
        out[i + HALF] = d * (float)((int)(q[i] >> 4 | (high >> (i + HALF) & 1) << 4) - 16);
    }
}

static void q5_1(float *out, const uint8_t *b) {
    const float d = half_at(b), m = half_at(b + 2);
    const uint32_t high = word_at(b + 4);
    const uint8_t *q = b + 8;
    for (int i = 0; i < HALF; i++) {
        out[i] = d * (float)((q[i] & 15) | (high >> i & 1) << 4) + m;
        out[i + HALF] = d * (float)(q[i] >> 4 | (high >> (i + HALF) & 1) << 4) + m;
    }
}

const float block_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void listed(float *out, const uint8_t *q, float d) {
    for (int i = 0; i < HALF; i++) {
        out[i] = d * block_iq4_values[q[i] & 15];
        out[i + HALF] = d * block_iq4_values[q[i] >> 4];
    }
}

static void iq4_nl(float *out, const uint8_t *b) {
    listed(out, b + 2, half_at(b));
}

static void mxfp4(float *out, const uint8_t *b) {
    const float d = format_from_e8m0(b[0]);
    for (int i = 0; i < HALF; i++) {
        out[i] = format_fp4_values[b[1 + i] & 15] * d;
        out[i + HALF] = format_fp4_values[b[1 + i] >> 4] * d;
    }
}

/* --- 256 numbers ------------------------------------------------------------------------------------------------------ */

/* Two bits each: a byte holds four numbers that are 32 apart. */
static void q2_scales(const uint8_t *b, int part, float *scale, float *minimum) {
    *scale = half_at(b + 80) * (float)(b[part] & 15), *minimum = half_at(b + 82) * (float)(b[part] >> 4);
}

static void q2_k(float *out, const uint8_t *b) {
    const uint8_t *q = b + 16;
    for (int part = 0; part < LARGE / PART; part++) {
        const int at = part * PART, shift = at % 128 / 32 * 2;
        float scale, minimum;
        q2_scales(b, part, &scale, &minimum);
        for (int i = 0; i < PART; i++)
            out[at + i] = scale * (float)(q[at / 128 * 32 + at % 32 + i] >> shift & 3) - minimum;
    }
}

/* 16 scales of six bits: four in a byte's half, two in one of four bytes. */
static int q3_scale(const uint8_t *scales, int part) {
    const int low = part < 8 ? scales[part] & 15 : scales[part - 8] >> 4;
    return (low | (scales[8 + part % 4] >> part / 4 * 2 & 3) << 4) - 32;
}

/* As Q2_K, with a third bit in a mask: where it is 0, the number is 4 less. */
static void q3_k(float *out, const uint8_t *b) {
    const uint8_t *mask = b, *q = b + 32;
    for (int part = 0; part < LARGE / PART; part++) {
        const int at = part * PART, shift = at % 128 / 32 * 2, bit = at / 32;
        const float scale = half_at(b + 108) * (float)q3_scale(b + 96, part);
        for (int i = 0; i < PART; i++) {
            const int low = q[at / 128 * 32 + at % 32 + i] >> shift & 3, high = mask[at % 32 + i] >> bit & 1;
            out[at + i] = scale * (float)(low - 4 * (1 - high));
        }
    }
}

/* Eight scales and eight minima of six bits in 12 bytes. */
static void k_scale(const uint8_t *s, int part, int *scale, int *minimum) {
    if (part < 4) {
        *scale = s[part] & 63, *minimum = s[part + 4] & 63;
        return;
    }
    *scale = (s[part + 4] & 15) | s[part - 4] >> 6 << 4;
    *minimum = s[part + 4] >> 4 | s[part] >> 6 << 4;
}

static void k_scales(const uint8_t *b, int part, float *times, float *less) {
    int scale, minimum;
    k_scale(b + 4, part, &scale, &minimum);
    *times = half_at(b) * (float)scale, *less = half_at(b + 2) * (float)minimum;
}

/* Parts of 32; two of them share bytes. `high` [32]: a fifth bit of each part, or NULL. */
static void k_parts(float *out, const uint8_t *b, const uint8_t *high, const uint8_t *q) {
    for (int part = 0; part < 8; part++) {
        float times, less;
        k_scales(b, part, &times, &less);
        const uint8_t *bytes = q + part / 2 * 32;
        for (int i = 0; i < 32; i++) {
            const int bit = high ? high[i] >> part & 1 : 0;
            out[part * 32 + i] = times * (float)((bytes[i] >> part % 2 * 4 & 15) | bit << 4) - less;
        }
    }
}

static void q4_k(float *out, const uint8_t *b) {
    k_parts(out, b, NULL, b + 16);
}

static void q5_k(float *out, const uint8_t *b) {
    k_parts(out, b, b + 16, b + 48);
}

static float q6_scale(const uint8_t *b, int part) {
    return half_at(b + 208) * (float)(int8_t)b[192 + part];
}

static void q6_k(float *out, const uint8_t *b) {
    const uint8_t *low = b, *high = b + 128;
    for (int part = 0; part < LARGE / PART; part++) {
        const int at = part * PART, half = at / 128, quarter = at % 128 / 32, col = at % 32;
        const float scale = q6_scale(b, part);
        for (int i = 0; i < PART; i++) {
            const int nibble = low[half * 64 + quarter % 2 * 32 + col + i] >> quarter / 2 * 4 & 15;
            const int bits = high[half * 32 + col + i] >> quarter * 2 & 3;
            out[at + i] = scale * (float)((nibble | bits << 4) - 32);
        }
    }
}

static float iq4_xs_scale(const uint8_t *b, int part) {
    const int high = b[2] | b[3] << 8;
    return half_at(b) * (float)(((b[4 + part / 2] >> part % 2 * 4 & 15) | (high >> part * 2 & 3) << 4) - 32);
}

static void iq4_xs(float *out, const uint8_t *b) {
    for (int part = 0; part < 8; part++) listed(out + part * 32, b + 8 + part * HALF, iq4_xs_scale(b, part));
}

int block_part(enum dtype type) {
    return type == DTYPE_Q2_K || type == DTYPE_Q3_K || type == DTYPE_Q6_K ? PART : SMALL;
}

void block_scales(enum dtype type, const uint8_t *b, int part, float *scale, float *minimum) {
    *minimum = 0;
    switch (type) {
    case DTYPE_Q2_K:
        q2_scales(b, part, scale, minimum);
        return;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        k_scales(b, part, scale, minimum);
        return;
    case DTYPE_Q3_K:
        *scale = half_at(b + 108) * (float)q3_scale(b + 96, part);
        return;
    case DTYPE_Q6_K:
        *scale = q6_scale(b, part);
        return;
    case DTYPE_IQ4_XS:
        *scale = iq4_xs_scale(b, part);
        return;
    case DTYPE_MXFP4:
        *scale = format_from_e8m0(b[0]);
        return;
    default:
        *scale = half_at(b);
        if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1) *minimum = -half_at(b + 2);
    }
}

block_function block_unpacker(enum dtype type) {
    static const block_function functions[DTYPES] = {
        [DTYPE_Q8_0] = q8_0,     [DTYPE_Q4_0] = q4_0,     [DTYPE_Q4_1] = q4_1,   [DTYPE_Q5_0] = q5_0,
        [DTYPE_Q5_1] = q5_1,     [DTYPE_IQ4_NL] = iq4_nl, [DTYPE_MXFP4] = mxfp4, [DTYPE_Q2_K] = q2_k,
        [DTYPE_Q3_K] = q3_k,     [DTYPE_Q4_K] = q4_k,     [DTYPE_Q5_K] = q5_k,   [DTYPE_Q6_K] = q6_k,
        [DTYPE_IQ4_XS] = iq4_xs,
    };
    return functions[type];
}

bool block_codes(enum dtype type, uint8_t *codes, const uint8_t *b) {
    static const uint8_t halves[DTYPES] = {
        [DTYPE_Q4_0] = 2, [DTYPE_Q4_1] = 4, [DTYPE_IQ4_NL] = 2, [DTYPE_MXFP4] = 1, [DTYPE_IQ4_XS] = 8};
    const int numbers = dtype_block(type).numbers;
    const uint8_t *q = b + halves[type];
    if (type == DTYPE_Q8_0)
        for (int i = 0; i < SMALL; i++) codes[i] = b[2 + i] ^ 0x80;
    for (int at = 0; halves[type] && at < numbers; at += 2 * HALF, q += HALF)
        for (int i = 0; i < HALF; i++) codes[at + i] = q[i] & 15, codes[at + HALF + i] = q[i] >> 4;
    q = b + 16;
    for (int at = 0; type == DTYPE_Q4_K && at < LARGE; at += 2 * SMALL, q += SMALL)
        for (int i = 0; i < SMALL; i++) codes[at + i] = q[i] & 15, codes[at + SMALL + i] = q[i] >> 4;
    return halves[type] || type == DTYPE_Q8_0 || type == DTYPE_Q4_K;
}

/* --- scales that are no numbers ----------------------------------------------------------------------------------------- */

/* Where a block has its f16 scale and, where it has one, its minimum. */
static void scale_places(enum dtype type, int place[2]) {
    static const uint8_t places[DTYPES][2] = {
        [DTYPE_Q2_K] = {80, 82}, [DTYPE_Q3_K] = {108, 108}, [DTYPE_Q6_K] = {208, 208}, [DTYPE_Q4_1] = {0, 2},
        [DTYPE_Q5_1] = {0, 2},   [DTYPE_Q4_K] = {0, 2},     [DTYPE_Q5_K] = {0, 2},
    };
    place[0] = places[type][0], place[1] = places[type][1];
}

static bool is_bad_half(const uint8_t *at) {
    return (at[1] & 0x7C) == 0x7C;
}

int64_t blocks_find_bad(enum dtype type, const uint8_t *blocks, int64_t count) {
    const int bytes = dtype_block(type).bytes;
    int place[2];
    scale_places(type, place);
    for (int64_t i = 0; i < count; i++, blocks += bytes) {
        bool is_bad =
            type == DTYPE_MXFP4 ? blocks[0] == 0xFF : is_bad_half(blocks + place[0]) || is_bad_half(blocks + place[1]);
        if (is_bad) return i;
    }
    return -1;
}
