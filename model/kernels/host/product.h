/* What the ops with products share. */
#ifndef DUET_KERNELS_HOST_PRODUCT_H
#define DUET_KERNELS_HOST_PRODUCT_H

#include "model/kernels/host/isa.h"

/* All output rows of some products, spread over the threads as one range. */
struct products {
    const struct product *each;
    int count;
};
void products_run(const struct products *, int threads);

/* normed[i, :] = norm(x[row_i, :]) for `count` rows, row_i = first + i * step. */
struct norm_rows {
    const float *x; /* [.., width] */
    struct norm norm;
    int width, count, first, step;
    float *normed; /* [count, width] */
};
void norm_rows_run(const struct norm_rows *, int threads);

#endif
