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

#define VEC_PARTS 2
typedef __m256 vec_part;
/* Into a register: a load in each instruction that needs it would be one load more than there are products. */
VEC vec_part part_load(const float *p, int part) {
    __m256 its = _mm256_loadu_ps(p + 8 * part);
    __asm__("" : "+x"(its));
    return its;
}
VEC vec_part part_widen(const void *p, const enum dtype type, int part) {
    if (type == DTYPE_F32) return part_load(p, part);
    return avx_widen(_mm_loadu_si128((const __m128i *)p + part), type);
}
VEC void part_fma(vec *c, int part, vec_part a, vec_part b) { /* c += a b */
    __m256 *its = part ? &c->hi : &c->lo;
    *its = _mm256_fmadd_ps(a, b, *its);
}
VEC void vec_sum4(float *out, vec a, vec b, vec c, vec d) {
    _mm_storeu_ps(out, avx_sum4(vec_fold(a), vec_fold(b), vec_fold(c), vec_fold(d)));
}

/* --- quantised weights: sixteen small integers ------------------------------------------------------------------- */

typedef struct {
    __m256i lo, hi;
} ivec;

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
VEC __m256 avx_pick(vec values, __m256i index) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(values.lo, index), _mm256_permutevar8x32_ps(values.hi, index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
VEC vec vec_pick(vec values, ivec index) { /* by the low four bits */
    return vec_pair(avx_pick(values, index.lo), avx_pick(values, index.hi));
}
VEC vec vec_gather(const float *values, const int32_t *at) {
    const __m256i *places = (const __m256i *)(const void *)at;
    return vec_pair(_mm256_i32gather_ps(values, _mm256_loadu_si256(places), 4),
                    _mm256_i32gather_ps(values, _mm256_loadu_si256(places + 1), 4));
}
/* Four words as sixteen bytes. */
VEC ivec ivec_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return ivec_pair(_mm256_cvtepu8_epi32(_mm_setr_epi32((int)a, (int)b, 0, 0)),
                     _mm256_cvtepu8_epi32(_mm_setr_epi32((int)c, (int)d, 0, 0)));
}
/* `value` where one of sixteen bits is 1. */
VEC ivec ivec_bits(const unsigned char *p, int32_t value) {
    const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), high = _mm256_slli_epi32(low, 8);
    const __m256i bits = _mm256_set1_epi32(p[0] | p[1] << 8), all = _mm256_set1_epi32(value);
    return ivec_pair(_mm256_and_si256(_mm256_cmpeq_epi32(_mm256_and_si256(bits, low), low), all),
                     _mm256_and_si256(_mm256_cmpeq_epi32(_mm256_and_si256(bits, high), high), all));
}
/* An f16 that is no NaN. */
VEC float float_of_half(uint16_t half) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}
/* The same in all lanes. */
VEC vec vec_half(const unsigned char *p) {
    int16_t half;
    memcpy(&half, p, sizeof half);
    const __m256 all = _mm256_cvtph_ps(_mm_set1_epi16(half));
    return vec_pair(all, all);
}
/* The first eight lanes, and the others. */
VEC vec vec_two(float first, float second) {
    return vec_pair(_mm256_set1_ps(first), _mm256_set1_ps(second));
}
/* E4M3 as f16, which is 2^8 too small. There is no NaN among weights. */
VEC vec vec_fp8(const unsigned char *p) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((int16_t)0xBF80));
    return vec_pair(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
}

/* --- four bits ----------------------------------------------------------------------------------------------------
 * There is no permutation of sixteen f32, but one of sixteen bytes. A value of at most eight significant bits is the upper half of
 * its f32: two permutations find its bytes for 32 numbers, and interleaving them with each other and with zeros leaves the f32s
 * of eight columns in order if the low lane has columns 0-3, 8-11, 16-19, 24-27 and the high lane the others. */
#include "model/kernels/host/vec_map.h"

typedef __m256i nibbles; /* bytes in that order, below 16 */
typedef struct {
    __m256i low, high; /* bytes of the values' upper halves */
} vec_list;

VEC vec_list vec_list_of(const float *values) {
    const __m256i bits = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(_mm256_srli_epi32(_mm256_castps_si256(_mm256_loadu_ps(values)), 16),
                            _mm256_srli_epi32(_mm256_castps_si256(_mm256_loadu_ps(values + 8)), 16)),
        0xD8);
    const __m256i low = _mm256_and_si256(bits, _mm256_set1_epi16(0xFF)), high = _mm256_srli_epi16(bits, 8);
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xD8);
    vec_list out = {_mm256_permute4x64_epi64(both, 0x44), _mm256_permute4x64_epi64(both, 0xEE)};
    return out;
}
VEC __m256i avx_load16_twice(const unsigned char *p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
}
/* Sixteen bytes hold the step's first half low, its second half high. */
VEC nibbles nibbles_halves(const unsigned char *p) {
    const __m256i place = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11, /* */
                                           4, 5, 6, 7, 12, 13, 14, 15, 4, 5, 6, 7, 12, 13, 14, 15);
    const __m256i bytes = _mm256_shuffle_epi8(avx_load16_twice(p), place);
    return _mm256_and_si256(_mm256_srlv_epi64(bytes, _mm256_setr_epi64x(0, 4, 0, 4)), _mm256_set1_epi8(15));
}
/* Sixteen bytes, each a number low and the next one high. */
VEC nibbles nibbles_pairs(const unsigned char *p) {
    const __m256i place = _mm256_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1, /* */
                                           2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1);
    const __m256i words = _mm256_shuffle_epi8(avx_load16_twice(p), place);
    return _mm256_and_si256(_mm256_or_si256(words, _mm256_slli_epi16(words, 4)), _mm256_set1_epi8(15));
}
/* The four bits from `shift` on of 32 bytes. */
VEC nibbles nibbles_bytes(const unsigned char *p, const int shift) {
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m256i order = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    return _mm256_and_si256(_mm256_srli_epi16(order, shift), _mm256_set1_epi8(15));
}
VEC vec avx_upper_halves(__m256i halves) {
    const __m256i zero = _mm256_setzero_si256();
    return vec_pair(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, halves)),
                    _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, halves)));
}
/* The two halves have scales of their own. */
VEC void vec_listed(const enum map map, vec_list list, nibbles n, const vec times[2], vec other, vec out[2]) {
    const __m256i low = _mm256_shuffle_epi8(list.low, n), high = _mm256_shuffle_epi8(list.high, n);
    out[0] = vec_mapped(map, avx_upper_halves(_mm256_unpacklo_epi8(low, high)), times[0], other);
    out[1] = vec_mapped(map, avx_upper_halves(_mm256_unpackhi_epi8(low, high)), times[1], other);
}
