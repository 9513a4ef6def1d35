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

/* --- stored numbers ----------------------------------------------------------------------------------------------- */

/* 32 numbers: low halves of the bytes are the first 16, high halves the others. */
static void halves(uint8_t *codes, const uint8_t *q) {
    for (int i = 0; i < HALF; i++) codes[i] = q[i] & 15, codes[i + HALF] = q[i] >> 4;
}

static void q8_0(uint8_t *codes, const uint8_t *b) {
    for (int i = 0; i < SMALL; i++) codes[i] = b[2 + i] ^ 0x80;
}
static void q4_0(uint8_t *codes, const uint8_t *b) { /* and IQ4_NL */
    halves(codes, b + 2);
}
static void q4_1(uint8_t *codes, const uint8_t *b) {
    halves(codes, b + 4);
}
static void mxfp4(uint8_t *codes, const uint8_t *b) {
    halves(codes, b + 1);
}

/* The fifth bits are the bits of one word, which lies before the halves. */
static void with_fifth_bits(uint8_t *codes, const uint8_t *word) {
    const uint32_t bits = word_at(word);
    halves(codes, word + 4);
    for (int i = 0; i < SMALL; i++) codes[i] = (uint8_t)(codes[i] | (bits >> i & 1) << 4);
}
static void q5_0(uint8_t *codes, const uint8_t *b) {
    with_fifth_bits(codes, b + 2);
}
static void q5_1(uint8_t *codes, const uint8_t *b) {
    with_fifth_bits(codes, b + 4);
}

/* 256 numbers. Two bits each: a byte holds four numbers that are 32 apart. */
static void q2_k(uint8_t *codes, const uint8_t *b) {
    const uint8_t *q = b + 16;
    for (int at = 0; at < LARGE; at += SMALL)
        for (int i = 0; i < SMALL; i++) codes[at + i] = q[at / 128 * 32 + i] >> at % 128 / 32 * 2 & 3;
}

/* Likewise, with a third bit in a mask. */
static void q3_k(uint8_t *codes, const uint8_t *b) {
    q2_k(codes, b + 16);
    for (int at = 0; at < LARGE; at += SMALL)
        for (int i = 0; i < SMALL; i++) codes[at + i] = (uint8_t)(codes[at + i] | (b[i] >> at / 32 & 1) << 2);
}

/* Parts of 32, two of which share bytes. */
static void shared_bytes(uint8_t *codes, const uint8_t *q) {
    for (int at = 0; at < LARGE; at += 2 * SMALL, q += SMALL)
        for (int i = 0; i < SMALL; i++) codes[at + i] = q[i] & 15, codes[at + SMALL + i] = q[i] >> 4;
}
static void q4_k(uint8_t *codes, const uint8_t *b) {
    shared_bytes(codes, b + 16);
}
static void q5_k(uint8_t *codes, const uint8_t *b) {
    const uint8_t *fifth = b + 16;
    shared_bytes(codes, b + 48);
    for (int at = 0; at < LARGE; at += SMALL)
        for (int i = 0; i < SMALL; i++) codes[at + i] = (uint8_t)(codes[at + i] | (fifth[i] >> at / 32 & 1) << 4);
}

/* Halves of bytes that are 64 apart, and two bits more of bytes that hold four of them. */
static void q6_k(uint8_t *codes, const uint8_t *b) {
    for (int at = 0; at < LARGE; at += SMALL) {
        const int half = at / 128, quarter = at % 128 / 32;
        const uint8_t *low = b + half * 64 + quarter % 2 * 32, *high = b + 128 + half * 32;
        for (int i = 0; i < SMALL; i++)
            codes[at + i] = (uint8_t)((low[i] >> quarter / 2 * 4 & 15) | (high[i] >> quarter * 2 & 3) << 4);
    }
}

static void iq4_xs(uint8_t *codes, const uint8_t *b) {
    for (int at = 0; at < LARGE; at += SMALL) halves(codes + at, b + 8 + at / 2);
}

block_function block_reader(enum dtype type) {
    static const block_function functions[DTYPES] = {
        [DTYPE_Q8_0] = q8_0,   [DTYPE_Q4_0] = q4_0,   [DTYPE_Q4_1] = q4_1,     [DTYPE_Q5_0] = q5_0, [DTYPE_Q5_1] = q5_1,
        [DTYPE_IQ4_NL] = q4_0, [DTYPE_MXFP4] = mxfp4, [DTYPE_Q2_K] = q2_k,     [DTYPE_Q3_K] = q3_k, [DTYPE_Q4_K] = q4_k,
        [DTYPE_Q5_K] = q5_k,   [DTYPE_Q6_K] = q6_k,   [DTYPE_IQ4_XS] = iq4_xs,
    };
    return functions[type];
}

/* --- scales of parts ---------------------------------------------------------------------------------------------- */

static void q2_scales(const uint8_t *b, int part, float *scale, float *minimum) {
    *scale = half_at(b + 80) * (float)(b[part] & 15), *minimum = half_at(b + 82) * (float)(b[part] >> 4);
}

/* 16 scales of six bits: four in a byte's half, two in one of four bytes. */
static int q3_scale(const uint8_t *scales, int part) {
    const int low = part < 8 ? scales[part] & 15 : scales[part - 8] >> 4;
    return (low | (scales[8 + part % 4] >> part / 4 * 2 & 3) << 4) - 32;
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

static float q6_scale(const uint8_t *b, int part) {
    return half_at(b + 208) * (float)(int8_t)b[192 + part];
}

static float iq4_xs_scale(const uint8_t *b, int part) {
    const int high = b[2] | b[3] << 8;
    return half_at(b) * (float)(((b[4 + part / 2] >> part % 2 * 4 & 15) | (high >> part * 2 & 3) << 4) - 32);
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

/* --- values --------------------------------------------------------------------------------------------------------- */

const float block_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static const float *list_of(enum dtype type) {
    if (type == DTYPE_MXFP4) return format_fp4_values;
    return type == DTYPE_IQ4_NL || type == DTYPE_IQ4_XS ? block_iq4_values : NULL;
}

int block_zero(enum dtype type) {
    static const uint8_t zeros[DTYPES] = {
        [DTYPE_Q8_0] = 128, [DTYPE_Q4_0] = 8, [DTYPE_Q5_0] = 16, [DTYPE_Q3_K] = 4, [DTYPE_Q6_K] = 32};
    return zeros[type];
}

void block_dequantise(enum dtype type, float *out, const uint8_t *b) {
    const float *list = list_of(type);
    const int numbers = dtype_block(type).numbers, each = block_part(type), zero = block_zero(type);
    uint8_t codes[LARGE];
    float scale, minimum;
    block_reader(type)(codes, b);
    for (int at = 0; at < numbers; at += each) {
        block_scales(type, b, at / each, &scale, &minimum);
        for (int i = at; i < at + each; i++)
            out[i] = list ? scale * list[codes[i]] : scale * (float)(codes[i] - zero) - minimum;
    }
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
