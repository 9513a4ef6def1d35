/* Sixteen f32 lanes in two AVX registers. Included by isa_avx2.c alone. */
#include "model/kernels/host/vec_avx_sum.h"

typedef struct {
    __m256 lo, hi;
} vec;

VEC vec vec_pair(__m256 lo, __m256 hi) {
    vec out = {lo, hi};
    return out;
}
VEC vec vec_zero(void) {
    return vec_pair(_mm256_setzero_ps(), _mm256_setzero_ps());
}
VEC vec vec_set(float x) {
    return vec_pair(_mm256_set1_ps(x), _mm256_set1_ps(x));
}
VEC vec vec_load(const float *p) {
    return vec_pair(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
VEC __m256i vec_lanes_below(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VEC vec vec_load_part(const float *p, int n) { /* n < 16 lanes, the others 0 */
    __m256 lo = _mm256_maskload_ps(p, vec_lanes_below(n));
    return vec_pair(lo, n > 8 ? _mm256_maskload_ps(p + 8, vec_lanes_below(n - 8)) : _mm256_setzero_ps());
}
VEC void vec_store(float *p, vec a) {
    _mm256_storeu_ps(p, a.lo), _mm256_storeu_ps(p + 8, a.hi);
}
VEC void vec_store_part(float *p, vec a, int n) {
    _mm256_maskstore_ps(p, vec_lanes_below(n), a.lo);
    if (n > 8) _mm256_maskstore_ps(p + 8, vec_lanes_below(n - 8), a.hi);
}
VEC vec vec_add(vec a, vec b) {
    return vec_pair(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi));
}
VEC vec vec_sub(vec a, vec b) {
    return vec_pair(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi));
}
VEC vec vec_mul(vec a, vec b) {
    return vec_pair(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi));
}
VEC vec vec_div(vec a, vec b) {
    return vec_pair(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi));
}
VEC vec vec_fma(vec a, vec b, vec c) { /* a b + c */
    return vec_pair(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
VEC vec vec_max(vec a, vec b) { /* a > b ? a : b */
    return vec_pair(_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi));
}
VEC vec vec_min(vec a, vec b) { /* a < b ? a : b */
    return vec_pair(_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi));
}
VEC __m256 avx_scale(__m256 y, __m256 shifted) {
    __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x4B400000));
    __m256i half = _mm256_srai_epi32(n, 1), bias = _mm256_set1_epi32(127);
    __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
/* y * 2^n where `shifted` = n + 1.5 * 2^23, in two factors (fmath_exp). */
VEC vec vec_scale(vec y, vec shifted) {
    return vec_pair(avx_scale(y.lo, shifted.lo), avx_scale(y.hi, shifted.hi));
}
VEC __m256 avx_widen(__m128i bits, const enum dtype type) {
    if (type == DTYPE_F16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
VEC vec vec_widen(const void *p, const enum dtype type) {
    if (type == DTYPE_F32) return vec_load(p);
    const __m128i *halves = p;
    return vec_pair(avx_widen(_mm_loadu_si128(halves), type), avx_widen(_mm_loadu_si128(halves + 1), type));
}
VEC __m256 vec_fold(vec a) {
    return _mm256_add_ps(a.lo, a.hi);
}
VEC void vec_sum4(float *out, vec a, vec b, vec c, vec d) {
    _mm_storeu_ps(out, avx_sum4(vec_fold(a), vec_fold(b), vec_fold(c), vec_fold(d)));
}

/* --- quantised weights: sixteen small integers ------------------------------------------------------------------- */

typedef struct {
    __m256i lo, hi;
} ivec;
typedef struct {
    __m256 lo, hi;
} vec_list; /* sixteen values */

VEC ivec ivec_pair(__m256i lo, __m256i hi) {
    ivec out = {lo, hi};
    return out;
}
VEC __m128i avx_load8(const unsigned char *p) {
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}
VEC ivec ivec_u8(const unsigned char *p) {
    return ivec_pair(_mm256_cvtepu8_epi32(avx_load8(p)), _mm256_cvtepu8_epi32(avx_load8(p + 8)));
}
VEC ivec ivec_i8(const unsigned char *p) {
    return ivec_pair(_mm256_cvtepi8_epi32(avx_load8(p)), _mm256_cvtepi8_epi32(avx_load8(p + 8)));
}
/* The halves of eight bytes, the low one first unless `flip`; bits above the low four are anything. */
VEC ivec ivec_pairs(const unsigned char *p, const int flip) {
    const __m256i down =
        flip ? _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24) : _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    int32_t first, second; /* apart, so that each is broadcast from memory */
    memcpy(&first, p, sizeof first), memcpy(&second, p + sizeof first, sizeof second);
    return ivec_pair(_mm256_srlv_epi32(_mm256_set1_epi32(first), down),
                     _mm256_srlv_epi32(_mm256_set1_epi32(second), down));
}
VEC ivec ivec_and(ivec a, int32_t mask) {
    return ivec_pair(_mm256_and_si256(a.lo, _mm256_set1_epi32(mask)), _mm256_and_si256(a.hi, _mm256_set1_epi32(mask)));
}
VEC ivec ivec_down(ivec a, const int bits) {
    return ivec_pair(_mm256_srli_epi32(a.lo, bits), _mm256_srli_epi32(a.hi, bits));
}
VEC ivec ivec_up(ivec a, const int bits) {
    return ivec_pair(_mm256_slli_epi32(a.lo, bits), _mm256_slli_epi32(a.hi, bits));
}
VEC ivec ivec_or(ivec a, ivec b) {
    return ivec_pair(_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi));
}
VEC vec vec_of(ivec a) {
    return vec_pair(_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi));
}
VEC vec_list vec_list_of(vec values) {
    vec_list out = {values.lo, values.hi};
    return out;
}
VEC __m256 avx_pick(vec_list list, __m256i index) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(list.lo, index), _mm256_permutevar8x32_ps(list.hi, index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
VEC vec vec_pick(vec_list list, ivec index) { /* by the low four bits */
    return vec_pair(avx_pick(list, index.lo), avx_pick(list, index.hi));
}
/* An f16 that is no NaN. */
VEC float float_of_half(uint16_t half) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}
/* E4M3 as f16, which is 2^8 too small. There is no NaN among weights. */
VEC vec vec_fp8(const unsigned char *p) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((int16_t)0xBF80));
    return vec_pair(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
}
