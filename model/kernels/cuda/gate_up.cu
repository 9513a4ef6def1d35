/* h = silu(y Wg^T) * (y Wu^T), y = RMSNorm(x): one product of the norm (product.cuh) whose groups of 16 rows are 8 of gate and
 * 8 of up, so that both halves of an output meet in the epilogue. h is 16 bit. */
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product.cuh"
#include "model/kernels/cuda/table.h"

template <typename T> struct gate_up_rows {
    const T *gate, *up;
    int hidden, k;
    __device__ const T *row(int group, int i) const {
        int f = group * PRODUCT_HALF + i % PRODUCT_HALF;
        if (f >= hidden) return nullptr;
        return (i < PRODUCT_HALF ? gate : up) + (size_t)f * k;
    }
};

template <typename T> struct silu_times_up {
    T *h;
    int hidden;
    template <typename Sum> __device__ void store(int group, int first_token, int tokens, Sum sum) const {
#pragma unroll 4
        for (int i = threadIdx.x; i < PRODUCT_HALF * tokens; i += PRODUCT_THREADS) {
            int f = group * PRODUCT_HALF + i % PRODUCT_HALF, t = i / PRODUCT_HALF;
            float gate = sum(i % PRODUCT_HALF, t), up = sum(i % PRODUCT_HALF + PRODUCT_HALF, t);
            if (f < hidden) h[(size_t)(first_token + t) * hidden + f] = from_float<T>(silu_times(gate, up));
        }
    }
};

int cuda_op_gate_up(struct stream *s, const struct op_gate_up *op) {
    if (prefill_takes(s, &op->rows, op->width)) return cuda_prefill_gate_up(s, op);
    int count = rows_count(&op->rows);
    return with_type(op->gate.type, [&](auto type) {
        typedef decltype(type) T;
        norm_rows<T> norm = {op->x, (const T *)op->norm.data, op->eps, 1, 0};
        gate_up_rows<T> rows = {(const T *)op->gate.data, (const T *)op->up.data, op->hidden, op->width};
        return product_of_norm<T>(s, "gate_up", (op->hidden + PRODUCT_HALF - 1) / PRODUCT_HALF, count, op->width, norm,
                                  (T *)op->normed, rows, silu_times_up<T>{(T *)op->h, op->hidden});
    });
}
