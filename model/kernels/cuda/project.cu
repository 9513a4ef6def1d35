/* x[t, :] += scale * (W h[t, :] + bias), or =: the product with the residual add in its epilogue. h is 16 bit, x f32. */
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product_matrix.h"
#include "model/kernels/cuda/table.h"

int cuda_op_project(struct stream *s, const struct op_project *op) {
    if (prefill_takes(s, &op->rows, &op->w)) return cuda_prefill_project(s, op);
    struct matrix_product product = {};
    product.name = "project";
    product.of[0] = {&op->w, &op->bias, op->x, 0};
    product.x = op->h, product.x_is_for_it = op->h_is_for_w;
    product.tokens = rows_count(&op->rows);
    product.adds = !op->stores, product.scale = op->scale;
    return cuda_matrix_product(s, &product);
}
