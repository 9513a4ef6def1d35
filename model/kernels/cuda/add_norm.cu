/* x[i, :] = (x[i, :] + scale * norm(y[i, :])) * layer_scale, or without x in the sum: a block a row. Bytes: T D (4 + 8). */
#include "model/kernels/cuda/add_norm.cuh"
#include "model/kernels/cuda/table.h"

int cuda_op_add_norm(struct stream *s, const struct op_add_norm *op) {
    return with_type("add_norm", {op->norm, op->layer_scale}, [&](auto type) {
        typedef decltype(type) T;
        norm_sums<T> sums = {rows_to_norm<T>(op->y, op->norm),
                             op->x,
                             (const T *)op->layer_scale.data,
                             op->scale,
                             op->last_scale,
                             op->stores};
        return add_norm(s, sums, rows_count(&op->rows) * op->parts, op->width);
    });
}
