/* Sixteen f32 lanes in an array. Included by isa_portable.c alone. */
#include "base/fmath.h"

#define VEC static inline __attribute__((always_inline))

typedef struct {
    float lane[16];
} vec;

#define VEC_EACH(expression)                                      \
    do {                                                          \
        vec out_;                                                 \
        for (int i = 0; i < 16; i++) out_.lane[i] = (expression); \
        return out_;                                              \
    } while (0)

/* a b + c, rounded once. Where fma is no instruction, libm's is slow; this is exact as well: the product of
 * two f32 is exact in f64, and the f64 sum is rounded to odd (Boldo & Melquiond 2008), so that the rounding
 * to f32 sees which side of a tie it is on. An infinite or NaN sum has no error term (NaN) and passes. */
VEC float portable_fma(float a, float b, float c) {
#ifdef FP_FAST_FMAF
    return fmaf(a, b, c);
#else
    double product = (double)a * (double)b, sum = product + (double)c;
    double back = sum - product, error = (product - (sum - back)) + ((double)c - back);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    uint64_t is_inexact = (error < 0) | (error > 0), is_even = ~bits & 1;
    uint64_t toward_zero = (error < 0) != (sum < 0);
    bits += is_inexact & is_even ? 1 - 2 * toward_zero : 0;
    memcpy(&sum, &bits, sizeof sum);
    return (float)sum;
#endif
}

VEC vec vec_zero(void) {
    VEC_EACH(0);
}
VEC vec vec_set(float x) {
    VEC_EACH(x);
}
VEC vec vec_load(const float *p) {
    VEC_EACH(p[i]);
}
VEC vec vec_load_part(const float *p, int n) { /* n < 16 lanes, the others 0 */
    VEC_EACH(i < n ? p[i] : 0);
}
VEC void vec_store(float *p, vec a) {
    memcpy(p, a.lane, sizeof a);
}
VEC void vec_store_part(float *p, vec a, int n) {
    memcpy(p, a.lane, (size_t)n * sizeof *p);
}
VEC vec vec_add(vec a, vec b) {
    VEC_EACH(a.lane[i] + b.lane[i]);
}
VEC vec vec_sub(vec a, vec b) {
    VEC_EACH(a.lane[i] - b.lane[i]);
}
VEC vec vec_mul(vec a, vec b) {
    VEC_EACH(a.lane[i] * b.lane[i]);
}
VEC vec vec_div(vec a, vec b) {
    VEC_EACH(a.lane[i] / b.lane[i]);
}
VEC vec vec_fma(vec a, vec b, vec c) { /* a b + c */
    VEC_EACH(portable_fma(a.lane[i], b.lane[i], c.lane[i]));
}
VEC vec vec_max(vec a, vec b) { /* a > b ? a : b */
    VEC_EACH(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}
VEC vec vec_min(vec a, vec b) { /* a < b ? a : b */
    VEC_EACH(a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
}
VEC float portable_scale(float y, float shifted) {
    int32_t n = (int32_t)(fmath_bits(shifted) - 0x4B400000u), half = n >> 1;
    return y * fmath_from_bits((uint32_t)(half + 127) << 23) * fmath_from_bits((uint32_t)(n - half + 127) << 23);
}
/* y * 2^n where `shifted` = n + 1.5 * 2^23, in two factors (fmath_exp). */
VEC vec vec_scale(vec y, vec shifted) {
    VEC_EACH(portable_scale(y.lane[i], shifted.lane[i]));
}
VEC float portable_widen(const unsigned char *p, const enum dtype type) {
    float wide;
    uint16_t half;
    if (type == DTYPE_F32) {
        memcpy(&wide, p, sizeof wide);
        return wide;
    }
    memcpy(&half, p, sizeof half);
    return type == DTYPE_F16 ? fmath_from_f16(half) : fmath_from_bits((uint32_t)half << 16);
}
VEC vec vec_widen(const void *p, const enum dtype type) {
    const unsigned char *bytes = p;
    VEC_EACH(portable_widen(bytes + i * dtype_bytes(type), type));
}
VEC float portable_sum(vec a) {
    for (int half = 8; half >= 1; half /= 2)
        for (int i = 0; i < half; i++) a.lane[i] += a.lane[i + half];
    return a.lane[0];
}
VEC void vec_sum4(float *out, vec a, vec b, vec c, vec d) {
    out[0] = portable_sum(a), out[1] = portable_sum(b), out[2] = portable_sum(c), out[3] = portable_sum(d);
}

/* --- quantised weights: sixteen small integers ------------------------------------------------------------------- */

typedef struct {
    int32_t lane[16];
} ivec;

#define IVEC_EACH(expression)                                     \
    do {                                                          \
        ivec out_;                                                \
        for (int i = 0; i < 16; i++) out_.lane[i] = (expression); \
        return out_;                                              \
    } while (0)

VEC ivec ivec_u8(const unsigned char *p) {
    IVEC_EACH(p[i]);
}
VEC ivec ivec_i8(const unsigned char *p) {
    IVEC_EACH((signed char)p[i]);
}
/* The halves of eight bytes, the low one first unless `flip`; bits above the low four are anything. */
VEC ivec ivec_pairs(const unsigned char *p, const int flip) {
    IVEC_EACH(p[i / 2] >> (i ^ flip) % 2 * 4);
}
VEC ivec ivec_and(ivec a, int32_t mask) {
    IVEC_EACH(a.lane[i] & mask);
}
VEC ivec ivec_down(ivec a, const int bits) {
    IVEC_EACH((int32_t)((uint32_t)a.lane[i] >> bits));
}
VEC ivec ivec_up(ivec a, const int bits) {
    IVEC_EACH((int32_t)((uint32_t)a.lane[i] << bits));
}
VEC ivec ivec_or(ivec a, ivec b) {
    IVEC_EACH(a.lane[i] | b.lane[i]);
}
VEC vec vec_of(ivec a) {
    VEC_EACH((float)a.lane[i]);
}
VEC vec vec_pick(vec values, ivec index) { /* by the low four bits */
    VEC_EACH(values.lane[index.lane[i] & 15]);
}
VEC vec vec_gather(const float *values, const int32_t *at) {
    VEC_EACH(values[at[i]]);
}
/* Four words as sixteen bytes. */
VEC ivec ivec_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t words[4] = {a, b, c, d};
    IVEC_EACH((int32_t)(words[i / 4] >> i % 4 * 8 & 0xFF));
}
/* `value` where one of sixteen bits is 1. */
VEC ivec ivec_bits(const unsigned char *p, int32_t value) {
    IVEC_EACH(p[i / 8] >> i % 8 & 1 ? value : 0);
}
/* An f16 that is no NaN. */
VEC float float_of_half(uint16_t half) {
    return fmath_from_f16(half);
}
/* The same in all lanes. */
VEC vec vec_half(const unsigned char *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return vec_set(float_of_half(half));
}
/* The first eight lanes, and the others. */
VEC vec vec_two(float first, float second) {
    VEC_EACH(i < 8 ? first : second);
}
/* E4M3 as f16, which is 2^8 too small. There is no NaN among weights. */
VEC vec vec_fp8(const unsigned char *p) {
    VEC_EACH(fmath_from_f16((uint16_t)((p[i] & 0x80) << 8 | (p[i] & 0x7F) << 7)));
}
#undef IVEC_EACH
#undef VEC_EACH

#include "model/kernels/host/vec_nibbles.h"

/* Sixteen bytes, each a number low and the next one high. */
VEC nibbles nibbles_pairs(const unsigned char *p) {
    nibbles out = {{ivec_pairs(p, 0), ivec_pairs(p + 8, 0)}};
    return out;
}
