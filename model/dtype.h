/* Types of numbers in memory. */
#ifndef DUET_MODEL_DTYPE_H
#define DUET_MODEL_DTYPE_H

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };
static inline int dtype_bytes(enum dtype t) {
    return t == DTYPE_F32 ? 4 : 2;
}

#endif
