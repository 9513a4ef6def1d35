/* exp and log1p in f32 with the same bits on every device: attention, softmax and the draws use these and no
 * library's, so that host and GPU agree on tokens and not only to a tolerance.
 *
 * Only correctly rounded operations are used (+, *, fmaf, bit operations), and outside fmaf no product feeds a
 * sum, so no compiler can contract anything. Both are branch-free and vectorise; a loop over them should be built
 * for a CPU with fma, because without it fmaf is a library call (the bits are the same). */
#ifndef DUET_BASE_FMATH_H
#define DUET_BASE_FMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/inline.h"

DUET_INLINE uint32_t fmath_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

DUET_INLINE float fmath_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The value of an f16: exponent and mantissa in their places, times 2^112, the difference of the biases: exact, for subnormal
 * numbers too. Infinity and NaN keep their mantissa and get f32's largest exponent. */
DUET_INLINE float fmath_from_f16(uint16_t h) {
    uint32_t magnitude = (uint32_t)(h & 0x7FFF) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    if (magnitude >= 0x0F800000u) return fmath_from_bits(sign | magnitude | 0x7F800000u);
    return fmath_from_bits(sign | fmath_bits(fmath_from_bits(magnitude) * 0x1p112f));
}

/* e^r of x = n ln 2 + r with |r| <= ln 2 / 2, where n is x / ln 2 rounded to an integer: by adding
 * `shift`, near 1.5 * 2^23, which leaves *shifted with n in its low bits. e^r = 1 + r + r^2 P(r), P interpolated at Chebyshev nodes. */
DUET_INLINE float fmath_exp_rest(float x, float shift, float *shifted) {
    *shifted = fmaf(x, 0x1.715476p+0f, shift);
    float n = *shifted - shift;
    float r = fmaf(n, 0x1.05c610p-29f, fmaf(n, -0x1.62e430p-1f, x));
    float p = fmaf(r, 0x1.6d1270p-10f, 0x1.120cd4p-7f);
    p = fmaf(r, p, 0x1.555518p-5f);
    p = fmaf(r, p, 0x1.5554dcp-3f);
    p = fmaf(r, p, 0.5f);
    return fmaf(r * r, p, r) + 1.0f;
}

/* e^x for any x: +inf above 88.73, subnormal results down to 1e-45, then 0; NaN stays NaN. Within 1.1 ulp
 * (1 ulp of the subnormal spacing). */
DUET_INLINE float fmath_exp(float x) {
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted, y = fmath_exp_rest(x, 12582912.0f /* 1.5 * 2^23 */, &shifted);
    /* 2^n in two factors: n reaches -150 and 128, beyond one float's exponent */
    int32_t e = (int32_t)(fmath_bits(shifted) - 0x4B400000u), half = e >> 1;
    return y * fmath_from_bits((uint32_t)(half + 127) << 23) * fmath_from_bits((uint32_t)(e - half + 127) << 23);
}

/* fmath_exp(x) for -106 <= x <= 0, the same bits with fewer operations: n >= -153, so that 2^(n + 64) is added to y's exponent,
 * and the product with 2^-64 rounds once where the result is subnormal. */
DUET_INLINE float fmath_exp_negative(float x) {
    float shifted, y = fmath_exp_rest(x, 12582976.0f /* 1.5 * 2^23 + 64 */, &shifted);
    return fmath_from_bits(fmath_bits(y) + (fmath_bits(shifted) << 23)) * 0x1p-64f;
}

/* a / b where reciprocal = 1 / b: the bits of a division, for many by one number. For b in [2^-20, 2^20] and 0 or 2^-100 <= |a| <=
 * 2^100, so that the rest a - b q is exact; a smaller |a| gives something as small.
 * Markstein: q is one of the two floats around a / b, and a rest of it times a correctly rounded reciprocal rounds aright. */
DUET_INLINE float fmath_quotient(float a, float b, float reciprocal) {
    float q = a * reciprocal;
    return fmaf(fmaf(-b, q, a), reciprocal, q);
}

/* log(1 + x) for -1 < x < 2^100 (no meaning outside). Within 1.6 ulp; log1p(x) = x for tiny x.
 * 1 + x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)]; f = x 2^-e + (2^-e - 1) is rounded once;
 * log(1 + f) = f - f^2 / 2 + f^3 Q(f), Q interpolated at Chebyshev nodes. */
DUET_INLINE float fmath_log1p(float x) {
    uint32_t k = (fmath_bits(1.0f + x) - 0x3F3504F3u) & 0xFF800000u; /* e << 23 */
    float s = fmath_from_bits(0x3F800000u - k);                      /* 2^-e */
    float e = (float)((int32_t)k >> 23);
    float f = fmaf(x, s, s - 1.0f);
    float q = fmaf(f, 0x1.1d8ea6p-4f, -0x1.d635bcp-4f);
    q = fmaf(f, q, 0x1.dea282p-4f);
    q = fmaf(f, q, -0x1.fcf4c6p-4f);
    q = fmaf(f, q, 0x1.23d21ap-3f);
    q = fmaf(f, q, -0x1.555b4ap-3f);
    q = fmaf(f, q, 0x1.999d5ap-3f);
    q = fmaf(f, q, -0x1.fffffcp-3f);
    q = fmaf(f, q, 0x1.555554p-2f);
    float y = fmaf(f * f, fmaf(f, q, -0.5f), f);
    return fmaf(e, 0x1.62e430p-1f, y);
}

#endif
