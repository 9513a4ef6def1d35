/* GGUF's blocks as f32, in the bits of model/format_blocks.c, 32 columns a step: there each type's layout is told. Included by
 * kernels.h alone, behind the vectors. */
#include "model/format.h"

/* Lists of what four bits stand for. */
static const float from_0[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const float from_8_below[LANES] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
static const float iq4_values[LANES] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

VEC float half_at(const unsigned char *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return float_of_half(half);
}
VEC uint32_t word_at(const unsigned char *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* times (q - zero) */
VEC vec centred(ivec q, float zero, vec times) {
    return vec_mul(vec_sub(vec_of(q), vec_set(zero)), times);
}

VEC vec linear(ivec q, vec times, vec plus) {
    return vec_add(vec_mul(vec_of(q), times), plus);
}

VEC void listed_linear(vec_list list, nibbles n, vec times, vec plus, vec out[2]) {
    const vec both[2] = {times, times};
    vec_listed(MAP_LINEAR, list, n, both, plus, out);
}

VEC void listed_times(vec_list list, nibbles n, vec times, vec out[2]) {
    const vec both[2] = {times, times};
    vec_listed(MAP_TIMES, list, n, both, times, out);
}

/* --- scales of a block's parts ------------------------------------------------------------------------------ */

/* What the parts of a block of 256 have, in f32: of Q6_K and Q3_K a scale for 16 columns, of Q2_K and then as many minima, of Q4_K
 * and Q5_K a scale for 32 columns and then as many minima, of IQ4_XS a scale for 32 columns. Minima are negative. */
enum { PART_SCALES = 32 };

/* Six bits each: of the first four they lie in one byte, of the others in two. */
VEC void open_k_parts(const unsigned char *block, float *scales) {
    const uint32_t a = word_at(block + 4), b = word_at(block + 8), c = word_at(block + 12), six = 0x3F3F3F3F,
                   four = 0x0F0F0F0F, two = 0x30303030;
    const ivec all = ivec_words(a & six, (c & four) | (a >> 2 & two), b & six, (c >> 4 & four) | (b >> 2 & two));
    vec_store(scales, vec_mul(vec_of(all), vec_two(half_at(block), -half_at(block + 2))));
}

VEC void open_q2_parts(const unsigned char *block, float *scales) {
    const ivec both = ivec_u8(block);
    vec_store(scales, vec_mul(vec_of(ivec_and(both, 15)), vec_half(block + 80)));
    vec_store(scales + LANES, vec_mul(vec_of(ivec_down(both, 4)), vec_set(-half_at(block + 82))));
}

VEC void open_q3_parts(const unsigned char *block, float *scales) {
    const uint32_t a = word_at(block + 96), b = word_at(block + 100), c = word_at(block + 104), four = 0x0F0F0F0F,
                   two = 0x30303030;
    const ivec all = ivec_words((a & four) | (c << 4 & two), (b & four) | (c << 2 & two), (a >> 4 & four) | (c & two),
                                (b >> 4 & four) | (c >> 2 & two));
    vec_store(scales, centred(all, 32, vec_half(block + 108)));
}

VEC void open_iq4_parts(const unsigned char *block, float *scales) {
    const float d = half_at(block);
    for (int part = 0; part < 8; part++) {
        const int low = block[4 + part / 2] >> part % 2 * 4 & 15, high = (block[2] | block[3] << 8) >> 2 * part & 3;
        scales[part] = d * (float)((low | high << 4) - 32);
    }
}

VEC void open_block(const enum dtype type, const unsigned char *block, float *scales) {
    if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) open_k_parts(block, scales);
    if (type == DTYPE_Q6_K) vec_store(scales, vec_mul(vec_of(ivec_i8(block + 192)), vec_half(block + 208)));
    if (type == DTYPE_Q2_K) open_q2_parts(block, scales);
    if (type == DTYPE_Q3_K) open_q3_parts(block, scales);
    if (type == DTYPE_IQ4_XS) open_iq4_parts(block, scales);
}

/* --- numbers ------------------------------------------------------------------------------------------------ */

/* Q5_0 and Q5_1; the word of fifth bits lies before the numbers. */
VEC void read_five_bits(const enum dtype type, const unsigned char *block, vec out[2]) {
    const unsigned char *word = block + (type == DTYPE_Q5_0 ? 2 : 4);
    const ivec both = ivec_u8(word + 4);
    for (int h = 0; h < 2; h++) {
        const ivec q = ivec_or(ivec_and(ivec_down(both, 4 * h), 15), ivec_bits(word + 2 * h, 16));
        out[h] = type == DTYPE_Q5_0 ? centred(q, 16, vec_half(block)) : linear(q, vec_half(block), vec_half(block + 2));
    }
}

/* Bits [shift, shift + bits) of sixteen bytes. */
VEC ivec field(const unsigned char *p, const int shift, const int bits) {
    return ivec_and(ivec_down(ivec_u8(p), shift), (1 << bits) - 1);
}

VEC void read_k_part(const enum dtype type, const unsigned char *block, const float *scales, int part, vec_list list,
                     vec out[2]) {
    const unsigned char *q = block + (type == DTYPE_Q5_K ? 48 : 16) + part / 2 * 32;
    const vec times = vec_set(scales[part]), minimum = vec_set(scales[8 + part]);
    if (type == DTYPE_Q4_K) {
        listed_linear(list, nibbles_bytes(q, part % 2 * 4), times, minimum, out);
        return;
    }
    for (int h = 0; h < 2; h++) {
        const ivec fifth = field(block + 16 + h * LANES, part, 1);
        out[h] = linear(ivec_or(field(q + h * LANES, part % 2 * 4, 4), ivec_up(fifth, 4)), times, minimum);
    }
}

/* Of Q2_K, Q3_K and Q6_K half `h` of a part. */
VEC vec read_small_part(const enum dtype type, const unsigned char *block, const float *scales, int part, int h) {
    const vec times = vec_set(scales[2 * part + h]);
    const int four = part / 4, at = part % 4;
    block += h * LANES;
    if (type == DTYPE_Q2_K)
        return linear(field(block + 16 + four * 32, at * 2, 2), times, vec_set(scales[LANES + 2 * part + h]));
    if (type == DTYPE_Q3_K)
        return centred(ivec_or(field(block + 32 + four * 32, at * 2, 2), ivec_up(field(block, part, 1), 2)), 4, times);
    const ivec low = field(block + four * 64 + part % 2 * 32, at / 2 * 4, 4),
               high = field(block + 128 + four * 32, at * 2, 2);
    return centred(ivec_or(low, ivec_up(high, 4)), 32, times);
}

/* What a type's numbers of four bits pick from. */
VEC const float *block_values(const enum dtype type) {
    if (type == DTYPE_Q4_0) return from_8_below;
    if (type == DTYPE_IQ4_NL || type == DTYPE_IQ4_XS) return iq4_values;
    return type == DTYPE_MXFP4 ? format_fp4_values : from_0;
}

/* 32 columns of a block, whose parts have `scales` where there are several. */
VEC void read_part(const enum dtype type, const unsigned char *block, const float *scales, int part, vec_list list,
                   vec out[2]) {
    switch (type) {
    case DTYPE_Q8_0:
        for (int h = 0; h < 2; h++) out[h] = vec_mul(vec_of(ivec_i8(block + 2 + h * LANES)), vec_half(block));
        break;
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL:
        listed_times(list, nibbles_halves(block + 2), vec_half(block), out);
        break;
    case DTYPE_Q4_1:
        listed_linear(list, nibbles_halves(block + 4), vec_half(block), vec_half(block + 2), out);
        break;
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
        read_five_bits(type, block, out);
        break;
    case DTYPE_MXFP4:
        listed_times(list, nibbles_halves(block + 1), vec_set(format_from_e8m0(block[0])), out);
        break;
    case DTYPE_IQ4_XS:
        listed_times(list, nibbles_halves(block + 8 + part * LANES), vec_set(scales[part]), out);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        read_k_part(type, block, scales, part, list, out);
        break;
    case DTYPE_Q2_K:
    case DTYPE_Q3_K:
    case DTYPE_Q6_K:
        for (int h = 0; h < 2; h++) out[h] = read_small_part(type, block, scales, part, h);
        break;
    default:
        break;
    }
}
