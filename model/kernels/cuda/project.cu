/* x[t, :] += W h[t, :]: the product with the residual add in its epilogue. h is 16 bit, x f32. */
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product.cuh"
#include "model/kernels/cuda/table.h"

int cuda_op_project(struct stream *s, const struct op_project *op) {
    if (prefill_takes(s, &op->rows, op->w.cols)) return cuda_prefill_project(s, op);
    int blocks = (op->w.rows + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
    return with_type(op->w.type, [&](auto type) {
        typedef decltype(type) T;
        matrix_rows<T> rows = {(const T *)op->w.data, op->w.rows, op->w.cols};
        return product<T>(s, "project", blocks, rows_count(&op->rows), op->w.cols, (const T *)op->h, rows,
                          matrix_sums<true>{op->x, op->w.rows});
    });
}
