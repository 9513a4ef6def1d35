/* GGUF's blocks as f32, in the bits of model/format_blocks.c, 32 columns a step: there each type's layout is told. Included by
 * kernels.h alone, behind the vectors. */
#include "model/format.h"

/* What four bits stand for: a list of sixteen values, made once a step, from which each number picks its own. */
static const float from_0[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const float from_8_below[LANES] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
static const float iq4_values[LANES] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

VEC float half_at(const unsigned char *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return float_of_half(half);
}

/* times (q - zero) */
VEC vec centred(ivec q, float zero, float times) {
    return vec_mul(vec_sub(vec_of(q), vec_set(zero)), vec_set(times));
}

VEC vec linear(ivec q, float times, float plus) {
    return vec_add(vec_mul(vec_of(q), vec_set(times)), vec_set(plus));
}

/* Sixteen bytes hold the step's first half low, its second half high. */
VEC ivec low_or_high(const unsigned char *bytes, int half) {
    return ivec_and(ivec_down(ivec_u8(bytes), 4 * half), 15);
}

VEC void pick_halves(const unsigned char *bytes, vec values, vec out[2]) {
    const vec_list list = vec_list_of(values);
    const ivec both = ivec_u8(bytes);
    out[0] = vec_pick(list, both), out[1] = vec_pick(list, ivec_down(both, 4));
}

VEC vec scaled(const float *values, float scale) {
    return vec_mul(vec_load(values), vec_set(scale));
}

/* Bit i of 16 as byte i, 0 or 16: of a byte that holds one bit, adding 0x7f carries it up to the highest. */
VEC ivec fifth_bits(const unsigned char *bits) {
    unsigned char bytes[LANES];
    for (int i = 0; i < 2; i++) {
        uint64_t wide = bits[i] * 0x0101010101010101u & 0x8040201008040201u;
        wide = (wide + 0x7f7f7f7f7f7f7f7fu) >> 3 & 0x1010101010101010u;
        memcpy(bytes + 8 * i, &wide, sizeof wide);
    }
    return ivec_u8(bytes);
}

/* Q5_0 and Q5_1; the word of fifth bits lies before the numbers. */
VEC void read_five_bits(const enum dtype type, const unsigned char *block, vec out[2]) {
    const unsigned char *word = block + (type == DTYPE_Q5_0 ? 2 : 4);
    const float d = half_at(block);
    for (int h = 0; h < 2; h++) {
        const ivec q = ivec_or(low_or_high(word + 4, h), fifth_bits(word + 2 * h));
        out[h] = type == DTYPE_Q5_0 ? centred(q, 16, d) : linear(q, d, half_at(block + 2));
    }
}

/* Q4_K and Q5_K, a part of 32: scales and minima of six bits in 12 bytes. */
VEC void read_k_part(const enum dtype type, const unsigned char *block, int part, vec out[2]) {
    const unsigned char *s = block + 4, *q = block + (type == DTYPE_Q5_K ? 48 : 16) + part / 2 * 32;
    const int scale = part < 4 ? s[part] & 63 : (s[part + 4] & 15) | s[part - 4] >> 6 << 4;
    const int minimum = part < 4 ? s[part + 4] & 63 : s[part + 4] >> 4 | s[part] >> 6 << 4;
    const float times = half_at(block) * (float)scale, less = half_at(block + 2) * (float)minimum;
    const vec_list list = vec_list_of(vec_sub(scaled(from_0, times), vec_set(less)));
    for (int h = 0; h < 2; h++) {
        const ivec low = ivec_down(ivec_u8(q + h * LANES), part % 2 * 4);
        if (type == DTYPE_Q4_K) {
            out[h] = vec_pick(list, low);
            continue;
        }
        const ivec high = ivec_and(ivec_down(ivec_u8(block + 16 + h * LANES), part), 1);
        const ivec bits = ivec_or(ivec_and(low, 15), ivec_up(high, 4));
        out[h] = vec_sub(vec_mul(vec_of(bits), vec_set(times)), vec_set(less));
    }
}

VEC void read_q2_part(const unsigned char *block, int part, vec out[2]) {
    const unsigned char *q = block + 16 + part / 4 * 32;
    const float d = half_at(block + 80), low = half_at(block + 82);
    for (int h = 0; h < 2; h++) {
        const int scale = block[2 * part + h];
        const ivec bits = ivec_and(ivec_down(ivec_u8(q + h * LANES), part % 4 * 2), 3);
        out[h] = vec_sub(vec_mul(vec_of(bits), vec_set(d * (float)(scale & 15))), vec_set(low * (float)(scale >> 4)));
    }
}

VEC void read_q3_part(const unsigned char *block, int part, vec out[2]) {
    const unsigned char *q = block + 32 + part / 4 * 32, *s = block + 96;
    const float d = half_at(block + 108);
    for (int h = 0; h < 2; h++) {
        const int at = 2 * part + h, low = at < 8 ? s[at] & 15 : s[at - 8] >> 4;
        const int scale = (low | (s[8 + at % 4] >> at / 4 * 2 & 3) << 4) - 32;
        const ivec bits = ivec_and(ivec_down(ivec_u8(q + h * LANES), part % 4 * 2), 3);
        const ivec high = ivec_and(ivec_down(ivec_u8(block + h * LANES), part), 1);
        out[h] = centred(ivec_or(bits, ivec_up(high, 2)), 4, d * (float)scale);
    }
}

VEC void read_q6_part(const unsigned char *block, int part, vec out[2]) {
    const unsigned char *low = block + part / 4 * 64 + part % 2 * 32, *high = block + 128 + part / 4 * 32;
    const float d = half_at(block + 208);
    for (int h = 0; h < 2; h++) {
        const ivec bits = ivec_and(ivec_down(ivec_u8(low + h * LANES), part % 4 / 2 * 4), 15);
        const ivec top = ivec_and(ivec_down(ivec_u8(high + h * LANES), part % 4 * 2), 3);
        out[h] = centred(ivec_or(bits, ivec_up(top, 4)), 32, d * (float)(signed char)block[192 + 2 * part + h]);
    }
}

/* Columns [32 step, 32 step + 32) of a row whose blocks begin at `data`. */
VEC void read_block_step(const enum dtype type, const unsigned char *data, int step, vec out[2]) {
    const struct dtype_block b = dtype_block(type);
    const int parts = b.numbers / 32, part = step % parts;
    const unsigned char *block = data + step / parts * b.bytes;
    switch (type) {
    case DTYPE_Q8_0:
        for (int h = 0; h < 2; h++) out[h] = vec_mul(vec_of(ivec_i8(block + 2 + h * LANES)), vec_set(half_at(block)));
        break;
    case DTYPE_Q4_0:
        pick_halves(block + 2, scaled(from_8_below, half_at(block)), out);
        break;
    case DTYPE_Q4_1:
        pick_halves(block + 4, vec_add(scaled(from_0, half_at(block)), vec_set(half_at(block + 2))), out);
        break;
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
        read_five_bits(type, block, out);
        break;
    case DTYPE_IQ4_NL:
        pick_halves(block + 2, scaled(iq4_values, half_at(block)), out);
        break;
    case DTYPE_MXFP4:
        pick_halves(block + 1, scaled(format_fp4_values, format_from_e8m0(block[0])), out);
        break;
    case DTYPE_Q2_K:
        read_q2_part(block, part, out);
        break;
    case DTYPE_Q3_K:
        read_q3_part(block, part, out);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        read_k_part(type, block, part, out);
        break;
    case DTYPE_Q6_K:
        read_q6_part(block, part, out);
        break;
    case DTYPE_IQ4_XS: {
        const int scale = (block[4 + part / 2] >> part % 2 * 4 & 15) | ((block[2] | block[3] << 8) >> 2 * part & 3)
                                                                           << 4;
        pick_halves(block + 8 + part * LANES, scaled(iq4_values, half_at(block) * (float)(scale - 32)), out);
        break;
    }
    default:
        break;
    }
}

VEC void unpack_blocks_of(const enum dtype type, float *out, const unsigned char *data, int steps) {
    vec two[2];
    for (int i = 0; i < steps; i++) {
        read_block_step(type, data, i, two);
        vec_store(out + i * 32, two[0]), vec_store(out + i * 32 + LANES, two[1]);
    }
}

/* Whole blocks; false: the type has none. */
static bool unpack_blocks(enum dtype type, float *out, const unsigned char *data, int count) {
#define BLOCKS(TYPE)                                   \
    case TYPE:                                         \
        unpack_blocks_of(TYPE, out, data, count / 32); \
        return true
    switch (type) {
        BLOCKS(DTYPE_Q8_0);
        BLOCKS(DTYPE_Q4_0);
        BLOCKS(DTYPE_Q4_1);
        BLOCKS(DTYPE_Q5_0);
        BLOCKS(DTYPE_Q5_1);
        BLOCKS(DTYPE_IQ4_NL);
        BLOCKS(DTYPE_MXFP4);
        BLOCKS(DTYPE_Q2_K);
        BLOCKS(DTYPE_Q3_K);
        BLOCKS(DTYPE_Q4_K);
        BLOCKS(DTYPE_Q5_K);
        BLOCKS(DTYPE_Q6_K);
        BLOCKS(DTYPE_IQ4_XS);
    default:
        return false;
    }
#undef BLOCKS
}
