/* What both AVX variants share. */
#define VEC static inline __attribute__((always_inline))

/* The sums of four times eight lanes, each as l[i] += l[i + 4], + 2, + 1. */
VEC __m128 avx_sum4(__m256 a, __m256 b, __m256 c, __m256 d) {
    __m256 ac = _mm256_add_ps(_mm256_permute2f128_ps(a, c, 0x20), _mm256_permute2f128_ps(a, c, 0x31));
    __m256 bd = _mm256_add_ps(_mm256_permute2f128_ps(b, d, 0x20), _mm256_permute2f128_ps(b, d, 0x31));
    __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ac, bd, 0x44), _mm256_shuffle_ps(ac, bd, 0xEE));
    __m128 ab2 = _mm256_castps256_ps128(two), cd2 = _mm256_extractf128_ps(two, 1);
    return _mm_add_ps(_mm_shuffle_ps(ab2, cd2, 0x88), _mm_shuffle_ps(ab2, cd2, 0xDD));
}
