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
