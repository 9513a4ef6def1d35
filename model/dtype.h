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
    struct dtype_block b = {1, 1};
    switch (t) {
    case DTYPE_F32:
        b.bytes = 4;
        break;
    case DTYPE_BF16:
    case DTYPE_F16:
        b.bytes = 2;
        break;
    case DTYPE_INT4:
    case DTYPE_FP4:
    case DTYPE_NF4:
        b.numbers = 2;
        break;
    case DTYPE_FP8:
    case DTYPE_E8M0:
    case DTYPES:
        break;
    }
    return b;
}

/* Of `count` numbers that lie one behind the other, whole blocks. */
static inline int64_t dtype_span_bytes(enum dtype t, int64_t count) {
    const struct dtype_block b = dtype_block(t);
    return count / b.numbers * b.bytes;
}

#endif
