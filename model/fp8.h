/* Vectors of E4M3 numbers with one scale each, a power of two: what keys and values are kept as with KV_FP8 (model/kv_pages.h). For
 * the host and for kernels, which so write the same bits.
 *
 * A power of two, since a number divided by it keeps its mantissa: it is rounded once, to E4M3, and what is read, code times scale, is
 * exact in bf16 and f32. amax / 448 would use the last of 448's places, but its products have to be rounded again to 16 bits. E4M3's
 * relative error does not depend on the scale, so that a power of two costs nothing but up to one of the 17 binades below the
 * largest number. */
#ifndef DUET_MODEL_FP8_H
#define DUET_MODEL_FP8_H

#include "base/fmath.h"

enum { FP8_SCALE_LEAST = 1, FP8_SCALE_MOST = 246, FP8_SCALE_NAN = 255 };

/* The scale of a vector whose largest magnitude has these bits, as an E8M0: 2^(scale - 127) is the least power of two that takes it to
 * 448 or less. Of zeros it is the least one. Where a number is NaN, infinite or above 1.75 * 2^127 it is FP8_SCALE_NAN, and all of the
 * vector reads as NaN. Magnitudes compare as their bits do, NaN being the largest. */
DUET_INLINE uint8_t fp8_scale(uint32_t largest) {
    const int32_t scale = (int32_t)((largest + 0x1FFFFFu) >> 23) - 8; /* 448 = 1.75 * 2^8 */
    if (scale > FP8_SCALE_MOST) return FP8_SCALE_NAN;
    return (uint8_t)(scale < FP8_SCALE_LEAST ? FP8_SCALE_LEAST : scale);
}

/* To nearest, ties to even; |x| is at most 448 but for rounding. */
DUET_INLINE uint8_t fp8_nearest(float x) {
    const uint32_t sign = fmath_bits(x) >> 24 & 0x80, bits = fmath_bits(x) & 0x7FFFFFFFu;
    if (bits < 0x3C800000u) /* below 2^-6: 2^14 has E4M3's smallest number, 2^-9, as its last place */
        return (uint8_t)(sign | (fmath_bits(fmath_from_bits(bits) + 0x1p14f) - 0x46800000u));
    const uint32_t code = ((bits + 0x7FFFFu + (bits >> 20 & 1)) >> 20) - ((127 - 7) << 3);
    return (uint8_t)(sign | (code > 0x7E ? 0x7E : code));
}

/* A number of a vector of this scale. */
DUET_INLINE uint8_t fp8_code(float x, uint8_t scale) {
    if (scale == FP8_SCALE_NAN) return 0;
    return fp8_nearest(x * fmath_from_bits((uint32_t)(254 - scale) << 23));
}

/* What an E4M3 whose bits are read as those of an f16, sign, exponent and mantissa in their places, is multiplied by: 256 times the
 * scale. */
DUET_INLINE float fp8_factor(uint8_t scale) {
    return fmath_from_bits(scale == FP8_SCALE_NAN ? 0x7FC00000u : (uint32_t)(scale + 8) << 23);
}

#endif
