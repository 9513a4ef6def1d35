/* Sixteen f32 lanes in four NEON registers. Included by isa_neon.c alone. */
#define VEC static inline __attribute__((always_inline))

typedef float32x4x4_t vec;

#define VEC_EACH(expression)                                    \
    do {                                                        \
        vec out_;                                               \
        for (int i = 0; i < 4; i++) out_.val[i] = (expression); \
        return out_;                                            \
    } while (0)

VEC vec vec_zero(void) {
    VEC_EACH(vdupq_n_f32(0));
}
VEC vec vec_set(float x) {
    VEC_EACH(vdupq_n_f32(x));
}
VEC vec vec_load(const float *p) {
    VEC_EACH(vld1q_f32(p + 4 * i));
}
VEC vec vec_load_part(const float *p, int n) { /* n < 16 lanes, the others 0 */
    float lanes[16] = {0};
    memcpy(lanes, p, (size_t)n * sizeof *p);
    return vec_load(lanes);
}
VEC void vec_store(float *p, vec a) {
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, a.val[i]);
}
VEC void vec_store_part(float *p, vec a, int n) {
    float lanes[16];
    vec_store(lanes, a);
    memcpy(p, lanes, (size_t)n * sizeof *p);
}
VEC vec vec_add(vec a, vec b) {
    VEC_EACH(vaddq_f32(a.val[i], b.val[i]));
}
VEC vec vec_sub(vec a, vec b) {
    VEC_EACH(vsubq_f32(a.val[i], b.val[i]));
}
VEC vec vec_mul(vec a, vec b) {
    VEC_EACH(vmulq_f32(a.val[i], b.val[i]));
}
VEC vec vec_div(vec a, vec b) {
    VEC_EACH(vdivq_f32(a.val[i], b.val[i]));
}
VEC vec vec_fma(vec a, vec b, vec c) { /* a b + c */
    VEC_EACH(vfmaq_f32(c.val[i], a.val[i], b.val[i]));
}
VEC vec vec_max(vec a, vec b) { /* a > b ? a : b */
    VEC_EACH(vbslq_f32(vcgtq_f32(a.val[i], b.val[i]), a.val[i], b.val[i]));
}
VEC vec vec_min(vec a, vec b) { /* a < b ? a : b */
    VEC_EACH(vbslq_f32(vcltq_f32(a.val[i], b.val[i]), a.val[i], b.val[i]));
}
VEC float32x4_t neon_scale(float32x4_t y, float32x4_t shifted) {
    int32x4_t n = vsubq_s32(vreinterpretq_s32_f32(shifted), vdupq_n_s32(0x4B400000));
    int32x4_t half = vshrq_n_s32(n, 1), bias = vdupq_n_s32(127);
    int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
    int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(n, half), bias), 23);
    return vmulq_f32(vmulq_f32(y, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
}
/* y * 2^n where `shifted` = n + 1.5 * 2^23, in two factors (fmath_exp). */
VEC vec vec_scale(vec y, vec shifted) {
    VEC_EACH(neon_scale(y.val[i], shifted.val[i]));
}
VEC float32x4_t neon_widen(uint16x4_t bits, const enum dtype type) {
    if (type == DTYPE_F16) return vcvt_f32_f16(vreinterpret_f16_u16(bits));
    return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}
VEC vec vec_widen(const void *p, const enum dtype type) {
    if (type == DTYPE_F32) return vec_load(p);
    const uint16_t *halves = p;
    VEC_EACH(neon_widen(vld1_u16(halves + 4 * i), type));
}

#define VEC_PARTS 4
typedef float32x4_t vec_part;
VEC vec_part part_load(const float *p, int part) {
    return vld1q_f32(p + 4 * part);
}
VEC vec_part part_widen(const void *p, const enum dtype type, int part) {
    return type == DTYPE_F32 ? part_load(p, part) : neon_widen(vld1_u16((const uint16_t *)p + 4 * part), type);
}
VEC void part_fma(vec *c, int part, vec_part a, vec_part b) { /* c += a b */
    c->val[part] = vfmaq_f32(c->val[part], a, b);
}

VEC float32x4_t vec_fold(vec a) {
    return vaddq_f32(vaddq_f32(a.val[0], a.val[2]), vaddq_f32(a.val[1], a.val[3]));
}
VEC float32x4_t neon_sum2(vec a, vec b) {
    float64x2_t a4 = vreinterpretq_f64_f32(vec_fold(a)), b4 = vreinterpretq_f64_f32(vec_fold(b));
    return vaddq_f32(vreinterpretq_f32_f64(vtrn1q_f64(a4, b4)), vreinterpretq_f32_f64(vtrn2q_f64(a4, b4)));
}
VEC void vec_sum4(float *out, vec a, vec b, vec c, vec d) {
    vst1q_f32(out, vpaddq_f32(neon_sum2(a, b), neon_sum2(c, d)));
}

/* --- quantised weights: sixteen small integers ------------------------------------------------------------------- */

typedef int32x4x4_t ivec;

#define IVEC_EACH(expression)                                   \
    do {                                                        \
        ivec out_;                                              \
        for (int i = 0; i < 4; i++) out_.val[i] = (expression); \
        return out_;                                            \
    } while (0)

VEC ivec neon_of_u8(uint8x16_t bytes) {
    const uint16x8_t lo = vmovl_u8(vget_low_u8(bytes)), hi = vmovl_u8(vget_high_u8(bytes));
    ivec out = {
        {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(lo))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(lo))),
         vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(hi))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(hi)))}};
    return out;
}
VEC ivec ivec_u8(const unsigned char *p) {
    return neon_of_u8(vld1q_u8(p));
}
VEC ivec ivec_i8(const unsigned char *p) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
    const int16x8_t lo = vmovl_s8(vget_low_s8(bytes)), hi = vmovl_s8(vget_high_s8(bytes));
    ivec out = {{vmovl_s16(vget_low_s16(lo)), vmovl_s16(vget_high_s16(lo)), vmovl_s16(vget_low_s16(hi)),
                 vmovl_s16(vget_high_s16(hi))}};
    return out;
}
/* The halves of eight bytes, the low one first unless `flip`; bits above the low four are anything. */
VEC ivec ivec_pairs(const unsigned char *p, const int flip) {
    const uint8x8_t bytes = vld1_u8(p), low = vand_u8(bytes, vdup_n_u8(15)), high = vshr_n_u8(bytes, 4);
    const uint8x8x2_t both = flip ? vzip_u8(high, low) : vzip_u8(low, high);
    return neon_of_u8(vcombine_u8(both.val[0], both.val[1]));
}
VEC ivec ivec_and(ivec a, int32_t mask) {
    IVEC_EACH(vandq_s32(a.val[i], vdupq_n_s32(mask)));
}
VEC ivec ivec_down(ivec a, const int bits) {
    IVEC_EACH(vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.val[i]), vdupq_n_s32(-bits))));
}
VEC ivec ivec_up(ivec a, const int bits) {
    IVEC_EACH(vshlq_s32(a.val[i], vdupq_n_s32(bits)));
}
VEC ivec ivec_or(ivec a, ivec b) {
    IVEC_EACH(vorrq_s32(a.val[i], b.val[i]));
}
VEC vec vec_of(ivec a) {
    VEC_EACH(vcvtq_f32_s32(a.val[i]));
}
/* By the low four bits: the bytes of a value lie side by side in the list. */
VEC float32x4_t neon_pick(uint8x16x4_t list, int32x4_t index) {
    const uint32x4_t at = vandq_u32(vreinterpretq_u32_s32(index), vdupq_n_u32(15));
    const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), at, vdupq_n_u32(0x04040404));
    return vreinterpretq_f32_u8(vqtbl4q_u8(list, vreinterpretq_u8_u32(bytes)));
}
VEC vec vec_pick(vec values, ivec index) {
    uint8x16x4_t bytes;
    for (int i = 0; i < 4; i++) bytes.val[i] = vreinterpretq_u8_f32(values.val[i]);
    VEC_EACH(neon_pick(bytes, index.val[i]));
}
VEC vec vec_gather(const float *values, const int32_t *at) {
    float lanes[16];
    for (int i = 0; i < 16; i++) lanes[i] = values[at[i]];
    return vec_load(lanes);
}
/* Four words as sixteen bytes. */
VEC ivec ivec_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return neon_of_u8(vcombine_u8(vcreate_u8(a | (uint64_t)b << 32), vcreate_u8(c | (uint64_t)d << 32)));
}
/* `value` where one of sixteen bits is 1. */
VEC ivec ivec_bits(const unsigned char *p, int32_t value) {
    const uint32x4_t bits = vdupq_n_u32((uint32_t)(p[0] | p[1] << 8)), first = {1, 2, 4, 8};
    IVEC_EACH(
        vandq_s32(vreinterpretq_s32_u32(vtstq_u32(bits, vshlq_u32(first, vdupq_n_s32(4 * i)))), vdupq_n_s32(value)));
}
/* An f16 that is no NaN. */
VEC float float_of_half(uint16_t half) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}
/* The same in all lanes. */
VEC vec vec_half(const unsigned char *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return vec_set(float_of_half(half));
}
/* The first eight lanes, and the others. */
VEC vec vec_two(float first, float second) {
    VEC_EACH(vdupq_n_f32(i < 2 ? first : second));
}
/* E4M3 as f16, which is 2^8 too small. There is no NaN among weights. */
VEC vec vec_fp8(const unsigned char *p) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
    uint16x8_t halves[2] = {vreinterpretq_u16_s16(vmovl_s8(vget_low_s8(bytes))),
                            vreinterpretq_u16_s16(vmovl_s8(vget_high_s8(bytes)))};
    for (int i = 0; i < 2; i++) halves[i] = vandq_u16(vshlq_n_u16(halves[i], 7), vdupq_n_u16(0xBF80));
    VEC_EACH(neon_widen(i % 2 ? vget_high_u16(halves[i / 2]) : vget_low_u16(halves[i / 2]), DTYPE_F16));
}
#undef IVEC_EACH
#undef VEC_EACH

#include "model/kernels/host/vec_nibbles.h"

/* Sixteen bytes, each a number low and the next one high. */
VEC nibbles nibbles_pairs(const unsigned char *p) {
    nibbles out = {{ivec_pairs(p, 0), ivec_pairs(p + 8, 0)}};
    return out;
}
