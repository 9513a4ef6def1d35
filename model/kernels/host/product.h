/* What the ops with products share. */
#ifndef DUET_KERNELS_HOST_PRODUCT_H
#define DUET_KERNELS_HOST_PRODUCT_H

#include "model/kernels/host/isa.h"

/* All output rows of one to three products over the same tokens, spread over the threads as one range. */
struct products {
    struct product each[3];
    int count;
};
void products_run(const struct products *, int threads);

/* normed[i, :] = RMSNorm(x[row_i, :]) * norm for `count` rows, row_i = first + i * step. */
struct norm_rows {
    const float *x; /* [.., width] */
    struct weight norm;
    float eps;
    int count, first, step;
    float *normed; /* [count, width] */
};
void norm_rows_run(const struct norm_rows *, int threads);

#endif
