/* Sixteen f32 lanes in one AVX-512 register. Included by isa_avx512.c alone. */
#include "model/kernels/host/vec_avx_sum.h"

typedef __m512 vec;

VEC vec vec_zero(void) {
    return _mm512_setzero_ps();
}
VEC vec vec_set(float x) {
    return _mm512_set1_ps(x);
}
VEC vec vec_load(const float *p) {
    return _mm512_loadu_ps(p);
}
VEC vec vec_load_part(const float *p, int n) { /* n < 16 lanes, the others 0 */
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
VEC void vec_store(float *p, vec a) {
    _mm512_storeu_ps(p, a);
}
VEC void vec_store_part(float *p, vec a, int n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}
VEC vec vec_add(vec a, vec b) {
    return _mm512_add_ps(a, b);
}
VEC vec vec_sub(vec a, vec b) {
    return _mm512_sub_ps(a, b);
}
VEC vec vec_mul(vec a, vec b) {
    return _mm512_mul_ps(a, b);
}
VEC vec vec_div(vec a, vec b) {
    return _mm512_div_ps(a, b);
}
VEC vec vec_fma(vec a, vec b, vec c) { /* a b + c */
    return _mm512_fmadd_ps(a, b, c);
}
VEC vec vec_max(vec a, vec b) { /* a > b ? a : b */
    return _mm512_max_ps(a, b);
}
VEC vec vec_min(vec a, vec b) { /* a < b ? a : b */
    return _mm512_min_ps(a, b);
}
/* y * 2^n where `shifted` = n + 1.5 * 2^23, in two factors (fmath_exp). */
VEC vec vec_scale(vec y, vec shifted) {
    __m512i n = _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(0x4B400000));
    __m512i half = _mm512_srai_epi32(n, 1), bias = _mm512_set1_epi32(127);
    __m512i first = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
    __m512i second = _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(n, half), bias), 23);
    return _mm512_mul_ps(_mm512_mul_ps(y, _mm512_castsi512_ps(first)), _mm512_castsi512_ps(second));
}
VEC vec vec_widen(const void *p, const enum dtype type) {
    if (type == DTYPE_F32) return _mm512_loadu_ps(p);
    __m256i bits = _mm256_loadu_si256(p);
    if (type == DTYPE_F16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
VEC __m256 vec_fold(vec a) {
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
VEC void vec_sum4(float *out, vec a, vec b, vec c, vec d) {
    _mm_storeu_ps(out, avx_sum4(vec_fold(a), vec_fold(b), vec_fold(c), vec_fold(d)));
}
