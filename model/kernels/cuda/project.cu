/* x[t, :] += W h[t, :]: the product with the residual add in its epilogue. h is 16 bit, x f32. */
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product.cuh"
#include "model/kernels/cuda/table.h"

struct add_residual {
    float *x;
    int width;
    template <typename Sum> __device__ void store(int group, int first_token, int tokens, Sum sum) const {
        for (int i = threadIdx.x; i < PRODUCT_ROWS * tokens; i += blockDim.x) {
            int o = group * PRODUCT_ROWS + i % PRODUCT_ROWS, t = i / PRODUCT_ROWS;
            if (o < width) x[(size_t)(first_token + t) * width + o] += sum(i % PRODUCT_ROWS, t);
        }
    }
};

int cuda_op_project(struct stream *s, const struct op_project *op) {
    if (prefill_takes(s, &op->rows, op->w.cols)) return cuda_prefill_project(s, op);
    int blocks = (op->w.rows + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
    return with_type(op->w.type, [&](auto type) {
        typedef decltype(type) T;
        matrix_rows<T> rows = {(const T *)op->w.data, op->w.rows, op->w.cols};
        return product<T>(s, "project", blocks, rows_count(&op->rows), op->w.cols, (const T *)op->h, rows,
                          add_residual{op->x, op->w.rows});
    });
}
