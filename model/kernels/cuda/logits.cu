/* logits[i, :] = W (RMSNorm(x[row_i, :])): the product of the norm (product.cuh) of the rows wanted, into f32. */
#include "model/kernels/cuda/product.cuh"
#include "model/kernels/cuda/table.h"

int cuda_op_logits(struct stream *s, const struct op_logits *op) {
    int count = op->last_only ? op->rows.batch : rows_count(&op->rows);
    int stride = op->last_only ? op->rows.q_len : 1;
    return with_type(op->w.type, [&](auto type) {
        typedef decltype(type) T;
        norm_rows<T> norm = {op->x, (const T *)op->norm.data, op->eps, stride, stride - 1};
        matrix_rows<T> rows = {(const T *)op->w.data, op->vocab, op->width};
        return product_of_norm<T>(s, "logits", (op->vocab + PRODUCT_ROWS - 1) / PRODUCT_ROWS, count, op->width, norm,
                                  (T *)op->normed, rows, matrix_sums<false>{op->logits, op->vocab});
    });
}
