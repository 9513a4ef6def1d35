/* The numbers of a binding, from wherever they lie in the mapped file, one after the other in host memory. By several threads. */
#ifndef DUET_MODEL_GATHER_H
#define DUET_MODEL_GATHER_H

#include "model/model_internal.h"

/* What is about to be read after this: the disk is told while the rest is copied. bytes 0: nothing. */
struct gather_ahead {
    const void *from;
    size_t bytes;
};

/* to [n] `type`: elements [first, first + n) of a binding without scales beside it. The type is that of the file, of which quantised
 * ones are read by whole rows, or BF16, rounded to nearest, and without what f32 ones hold. ERR_IO where the file was cut short. */
int gather_elements(const struct binding *, enum dtype type, size_t first, size_t n, void *to, int threads,
                    const struct gather_ahead *);

#endif
