/* The product of one matrix into f32, by the kernels of product.cuh: what project and logits share. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_MATRIX_H
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_MATRIX_H

#include "model/ops.h"

/* out[t, :] = cap(scale * (W x[t, :] + bias)), or, with `adds`, onto what lies there. */
struct matrix_product {
    const char *name;
    const struct weight *w, *bias;
    struct buffer x; /* [tokens, w.cols] */
    int tokens;
    int columns; /* as many tokens as the product takes, those past `tokens` being scratch */
    /* Row t of x is norm(rows[t * step + first, :]), and made here. rows NULL: it is there. */
    const float *rows;
    const struct norm *norm;
    int step, first;
    bool adds;
    float scale, cap; /* cap 0: none */
    float *out;       /* [columns, w.rows] */
    int stride;       /* floats between its rows; 0: w.rows */
};

int cuda_matrix_product(struct stream *, const struct matrix_product *);

#endif
