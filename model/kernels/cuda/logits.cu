/* logits[i, :] = cap(scale * (W norm(x[row_i, :]) + bias)): the product of the norm of the rows wanted, into f32. */
#include "model/kernels/cuda/product_matrix.h"
#include "model/kernels/cuda/table.h"

int cuda_op_logits(struct stream *s, const struct op_logits *op) {
    struct matrix_product product = {};
    product.name = "logits";
    product.of[0] = {&op->w, &op->bias, op->logits, 0};
    product.x = op->normed;
    product.rows = op->x, product.norm = &op->norm;
    product.step = op->last_only ? op->rows.q_len : 1, product.first = product.step - 1;
    product.tokens = op->last_only ? op->rows.batch : rows_count(&op->rows);
    product.scale = op->scale, product.cap = op->cap;
    return cuda_matrix_product(s, &product);
}
