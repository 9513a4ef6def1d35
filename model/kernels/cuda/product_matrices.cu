/* The product of several matrices, one behind the other, in one launch; and of many tokens with a packed one. */
#include "model/kernels/cuda/product_matrix.cuh"

int cuda_product_of_several(struct stream *s, const struct matrix_product *p, int matrices) {
    return product_of_matrices<MATRICES>(s, p, matrices);
}
