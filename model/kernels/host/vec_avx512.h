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

/* --- quantised weights: sixteen small integers ------------------------------------------------------------------- */

typedef __m512i ivec;

VEC ivec ivec_u8(const unsigned char *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
VEC ivec ivec_i8(const unsigned char *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
/* The halves of eight bytes, the low one first unless `flip`; bits above the low four are anything. */
VEC ivec ivec_pairs(const unsigned char *p, const int flip) {
    const __m512i down = flip ? _mm512_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24, 4, 0, 12, 8, 20, 16, 28, 24)
                              : _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i word = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i words = _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm512_srlv_epi32(_mm512_permutexvar_epi32(word, words), down);
}
VEC ivec ivec_and(ivec a, int32_t mask) {
    return _mm512_and_si512(a, _mm512_set1_epi32(mask));
}
VEC ivec ivec_down(ivec a, const int bits) {
    return _mm512_srli_epi32(a, bits);
}
VEC ivec ivec_up(ivec a, const int bits) {
    return _mm512_slli_epi32(a, bits);
}
VEC ivec ivec_or(ivec a, ivec b) {
    return _mm512_or_si512(a, b);
}
VEC vec vec_of(ivec a) {
    return _mm512_cvtepi32_ps(a);
}
VEC vec vec_pick(vec values, ivec index) { /* by the low four bits */
    return _mm512_permutexvar_ps(index, values);
}
VEC vec vec_gather(const float *values, const int32_t *at) {
    return _mm512_i32gather_ps(_mm512_loadu_si512(at), values, 4);
}
/* Four words as sixteen bytes. */
VEC ivec ivec_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return _mm512_cvtepu8_epi32(_mm_setr_epi32((int)a, (int)b, (int)c, (int)d));
}
/* `value` where one of sixteen bits is 1. */
VEC ivec ivec_bits(const unsigned char *p, int32_t value) {
    return _mm512_maskz_set1_epi32((__mmask16)(p[0] | p[1] << 8), value);
}
/* An f16 that is no NaN. */
VEC float float_of_half(uint16_t half) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}
/* The same in all lanes. */
VEC vec vec_half(const unsigned char *p) {
    int16_t half;
    memcpy(&half, p, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
}
/* The first eight lanes, and the others. */
VEC vec vec_two(float first, float second) {
    return _mm512_mask_blend_ps(0xFF00, _mm512_set1_ps(first), _mm512_set1_ps(second));
}
#include "model/kernels/host/vec_nibbles.h"

/* Sixteen bytes, each a number low and the next one high: byte j goes to lanes 2j and 2j + 1, byte 8 + j beside it. */
VEC nibbles nibbles_pairs(const unsigned char *p) {
    const __m512i bytes = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
#define AT(j) (int)(0x80800800u + 0x101u * (j))
    const __m512i place = _mm512_setr_epi32(AT(0), AT(0), AT(1), AT(1), AT(2), AT(2), AT(3), AT(3), AT(4), AT(4), AT(5),
                                            AT(5), AT(6), AT(6), AT(7), AT(7));
#undef AT
    const __m512i down = _mm512_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4);
    const __m512i first = _mm512_srlv_epi32(_mm512_shuffle_epi8(bytes, place), down);
    nibbles out = {{first, _mm512_srli_epi32(first, 8)}};
    return out;
}
/* E4M3 as f16, which is 2^8 too small. There is no NaN among weights. */
VEC __m256i avx_halves_of_fp8(const unsigned char *p) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((int16_t)0xBF80));
}
VEC vec vec_fp8(const unsigned char *p) {
    return _mm512_cvtph_ps(avx_halves_of_fp8(p));
}
