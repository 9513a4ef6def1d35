/* out[t, :] = scale * table[tokens[t], :], 16 bit to f32. One block a row. Bytes: T D (2 + 4). */
#include "model/kernels/cuda/common.cuh"
#include "model/kernels/cuda/table.h"
#include "model/kernels/cuda/unpack.h"

template <typename T> __global__ void embed_kernel(const struct op_embed op) {
    inputs_are_ready();
    next_may_start(); /* the first kernel of a pass */
    int token = op.rows.tokens[blockIdx.x];
    if (token < 0 || token >= op.table.rows) token = 0;
    const T *row = (const T *)op.table.data + (size_t)token * op.table.cols;
    for (int i = threadIdx.x; i < op.table.cols; i += blockDim.x)
        op.out[(size_t)blockIdx.x * op.table.cols + i] = op.scale * to_float(row[i]);
}

int cuda_op_embed(struct stream *s, const struct op_embed *op) {
    if (op->table.packed) return cuda_embed_packed(s, op);
    return with_type("embed", {op->table}, [&](auto type) {
        launch_dependent(s, embed_kernel<decltype(type)>, dim3(rows_count(&op->rows)), BLOCK_THREADS, 0, 1, *op);
        return cuda_launched(s, "embed", sizeof *op);
    });
}
