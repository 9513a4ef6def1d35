/* logits[i, :] = W (RMSNorm(x[row_i, :])): the product of the norm (product.cuh) of the rows wanted, into f32. */
#include "model/kernels/cuda/product.cuh"
#include "model/kernels/cuda/table.h"

struct write_logits {
    float *logits;
    int vocab;
    template <typename Sum> __device__ void store(int group, int first_token, int tokens, Sum sum) const {
        for (int i = threadIdx.x; i < PRODUCT_ROWS * tokens; i += blockDim.x) {
            int o = group * PRODUCT_ROWS + i % PRODUCT_ROWS, t = i / PRODUCT_ROWS;
            if (o < vocab) logits[(size_t)(first_token + t) * vocab + o] = sum(i % PRODUCT_ROWS, t);
        }
    }
};

int cuda_op_logits(struct stream *s, const struct op_logits *op) {
    int count = op->last_only ? op->rows.batch : rows_count(&op->rows);
    int stride = op->last_only ? op->rows.q_len : 1;
    return with_type(op->w.type, [&](auto type) {
        typedef decltype(type) T;
        norm_rows<T> norm = {op->x, (const T *)op->norm.data, op->eps, stride, stride - 1};
        matrix_rows<T> rows = {(const T *)op->w.data, op->vocab, op->width};
        return product_of_norm<T>(s, "logits", (op->vocab + PRODUCT_ROWS - 1) / PRODUCT_ROWS, count, op->width, norm,
                                  (T *)op->normed, rows, write_logits{op->logits, op->vocab});
    });
}
