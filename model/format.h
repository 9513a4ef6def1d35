/* What stored numbers stand for: the one definition of a dequantised weight, in f32. Kernels that are faster give the same bits.
 *
 * Every value is one product, rounded once: FP8, FP4, NF4 value * scale, INT4 (q - zero) * scale, where the scale is the stored one
 * times its factor, rounded to f32 first. GGUF's blocks: model/format_blocks.h.
 *
 * A new format is a member of enum dtype, its blocks (dtype_block), and a function here; where its scales lie inside its blocks,
 * weights of it have no struct scales. The host's products read it from then on (model/kernels/host/kernel_unpack.h). */
#ifndef DUET_MODEL_FORMAT_H
#define DUET_MODEL_FORMAT_H

#include "base/fmath.h"
#include "model/operands.h"

struct format {
    const char *name; /* as plans and errors say it */
    /* out[i] = number first + i of a row. `first` begins a block, and `count` ends one or the row. */
    void (*dequantise)(float *out, const struct weight *, int row, int first, int count);
};
const struct format *format_of(enum dtype);

/* E4M3: one sign, four bits of exponent with bias 7, three of mantissa; S.1111.111 is NaN, nothing is infinite. */
float format_from_fp8(uint8_t);
static inline float format_from_e8m0(uint8_t x) { /* 2^(x - 127); 255 is NaN */
    return fmath_from_bits(x == 0xFF ? 0x7FC00000u : x ? (uint32_t)x << 23 : 0x00400000u);
}
extern const float format_fp4_values[16]; /* E2M1 */

/* Element `index` of what is no quantised weight: F32, BF16, F16, and scales in FP8 and E8M0. */
float format_widen(const void *data, enum dtype, int64_t index);
/* To nearest, ties to even; what is too large becomes infinite. NaN stays NaN. */
uint16_t format_to_f16(float);
/* To nearest, ties to even; NaN stays NaN. */
static inline uint16_t format_to_bf16(float x) {
    const uint32_t bits = fmath_bits(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* The scale of a row in a group of columns. */
float scales_at(const struct scales *, int row, int group);

#endif
