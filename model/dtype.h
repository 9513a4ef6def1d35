/* Types of numbers in memory, and how many bytes they take. What a quantised number stands for, model/format.h says. */
#ifndef DUET_MODEL_DTYPE_H
#define DUET_MODEL_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32,
    DTYPE_BF16,
    DTYPE_F16,
    /* Quantised weights, whose scales lie beside them (struct scales). */
    DTYPE_FP8,  /* E4M3 without infinities; also a type of scales */
    DTYPE_INT4, /* 0..15 less the zero; two a byte, the first in the low half */
    DTYPE_FP4,  /* E2M1; likewise */
    DTYPE_NF4,  /* an index into a list of 16; two a byte, the first in the high half */
    DTYPE_E8M0, /* 2^(x - 127), of scales alone */
    /* GGUF's blocks of 32 or 256 numbers with their scales (model/format_blocks.h). */
    DTYPE_Q8_0,
    DTYPE_Q4_0,
    DTYPE_Q4_1,
    DTYPE_Q5_0,
    DTYPE_Q5_1,
    DTYPE_IQ4_NL,
    DTYPE_MXFP4,
    DTYPE_Q2_K,
    DTYPE_Q3_K,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    DTYPE_IQ4_XS,
    DTYPE_PACKED, /* any of these, on a device that repacks them (model/packed.h) */
    DTYPES
};

static inline bool dtype_is_quantised(enum dtype t) {
    return t > DTYPE_F16;
}

/* Of a type that is not quantised. */
static inline int dtype_bytes(enum dtype t) {
    return t == DTYPE_F32 ? 4 : 2;
}

/* `bytes` bytes hold `numbers` numbers of a row, never of two rows. */
struct dtype_block {
    int32_t numbers, bytes;
};
static inline struct dtype_block dtype_block(enum dtype t) {
    switch (t) {
    case DTYPE_F32:
        return (struct dtype_block){1, 4};
    case DTYPE_BF16:
    case DTYPE_F16:
        return (struct dtype_block){1, 2};
    case DTYPE_INT4:
    case DTYPE_FP4:
    case DTYPE_NF4:
        return (struct dtype_block){2, 1};
    case DTYPE_Q8_0:
        return (struct dtype_block){32, 34};
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL:
        return (struct dtype_block){32, 18};
    case DTYPE_Q4_1:
        return (struct dtype_block){32, 20};
    case DTYPE_Q5_0:
        return (struct dtype_block){32, 22};
    case DTYPE_Q5_1:
        return (struct dtype_block){32, 24};
    case DTYPE_MXFP4:
        return (struct dtype_block){32, 17};
    case DTYPE_Q2_K:
        return (struct dtype_block){256, 84};
    case DTYPE_Q3_K:
        return (struct dtype_block){256, 110};
    case DTYPE_Q4_K:
        return (struct dtype_block){256, 144};
    case DTYPE_Q5_K:
        return (struct dtype_block){256, 176};
    case DTYPE_Q6_K:
        return (struct dtype_block){256, 210};
    case DTYPE_IQ4_XS:
        return (struct dtype_block){256, 136};
    case DTYPE_FP8:
    case DTYPE_E8M0:
    case DTYPE_PACKED:
    case DTYPES:
        break;
    }
    return (struct dtype_block){1, 1};
}

/* Of `count` numbers that lie one behind the other, whole blocks. */
static inline int64_t dtype_span_bytes(enum dtype t, int64_t count) {
    const struct dtype_block b = dtype_block(t);
    return count / b.numbers * b.bytes;
}

#endif
