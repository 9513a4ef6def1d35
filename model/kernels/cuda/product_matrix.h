/* The product of up to three matrices into f32, by the kernels of product.cuh: what project, logits and, where it does not rotate, qkv
 * share. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_MATRIX_H
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_MATRIX_H

#include "model/kernels/cuda/product_order.cuh"

/* A matrix, and where its sums go. */
struct product_matrix {
    const struct weight *w; /* NULL or without data, behind the first: there is none, nor any after it */
    const struct weight *bias;
    float *out; /* [tokens, w.rows] */
    int stride; /* floats between its rows; 0: w.rows */
};

/* Of each matrix out[t, :] = cap(scale * (W x[t, :] + bias)), or, with `adds`, onto what lies there. */
struct matrix_product {
    const char *name;
    struct product_matrix of[3]; /* of one width */
    struct buffer x;             /* [tokens, width] */
    bool x_is_for_it;            /* in the order that cuda_order_for tells */
    int tokens;
    /* Row t of x is norm(rows[t * step + first, :]), and made here. rows NULL: it is there. */
    const float *rows;
    const struct norm *norm;
    int step, first;
    bool adds;
    float scale, cap; /* cap 0: none */
};

/* The order in which op_project reads rows by a matrix: what makes them for it alone writes them so. A matrix that is absent: nothing reads
 * them. */
enum token_order cuda_order_for(const struct stream *, const struct rows *, const struct weight *reader);
/* One launch where all matrices are of one kind, else one for each. */
int cuda_matrix_product(struct stream *, const struct matrix_product *);
/* Of so many that are of one kind: in one launch. A single one is packed, and its tokens are many. */
int cuda_product_of_several(struct stream *, const struct matrix_product *, int matrices);
/* op_gate_up of one matrix, with neither up nor `times`. */
int cuda_gate_alone(struct stream *, const struct op_gate_up *);

#endif
