/* x[t, :] += sum_j weights[t, j] (W_e h[t, j, :] + b_e), e = ids[t, j], or =.
 *   1. The product (experts.cuh) of every entry into sums [T, chosen, D] f32, bias in its epilogue.
 *   2. A row's sums, weighted, j ascending; 0 for a row that chose none. Bytes: T (chosen + 2) D 4. */
#include "model/kernels/cuda/experts.cuh"
#include "model/kernels/cuda/table.h"

template <typename T> struct expert_matrices {
    const T *weights;
    int64_t apart;
    int rows, k;
    __device__ __forceinline__ matrix_rows<T> of(int expert) const { return {weights + expert * apart, rows, k}; }
};

template <typename T> struct expert_sums {
    float *sums;
    const int32_t *sorted;
    const T *bias; /* may be NULL */
    int64_t apart;
    int rows;
    __device__ __forceinline__ expert_sums of(int expert) const {
        expert_sums its = *this;
        its.bias = of_expert(bias, apart, expert);
        return its;
    }
    static constexpr int each = PRODUCT_ROWS;
    struct held {};
    template <bool LATE> __device__ __forceinline__ held fetch(int, int, int, int) const { return {}; }
    template <typename Sum>
    __device__ __forceinline__ void finish(held, int group, int first, int count, int i, Sum sum) const {
        const int row = i % PRODUCT_ROWS, o = group * PRODUCT_ROWS + row, t = i / PRODUCT_ROWS;
        if (t < count && o < rows)
            sums[(size_t)sorted[first + t] * rows + o] = sum(row, t) + (bias ? to_float(bias[o]) : 0.0f);
    }
};

/* grid (D / BLOCK_THREADS, T) */
__global__ void __launch_bounds__(BLOCK_THREADS)
    add_experts_kernel(const float *sums, const float *weights, const int32_t *ids, int chosen, int width, bool stores,
                       float *x) {
    const int i = blockIdx.x * BLOCK_THREADS + threadIdx.x;
    const size_t row = blockIdx.y;
    next_may_start();
    inputs_are_ready();
    if (i >= width) return;
    const bool has_experts = ids[row * chosen] >= 0;
    float sum = 0;
#pragma unroll 4
    for (int j = 0; has_experts && j < chosen; j++)
        sum = fmaf(weights[row * chosen + j], sums[(row * chosen + j) * width + i], sum);
    x[row * width + i] = stores ? sum : x[row * width + i] + sum;
}

int cuda_op_experts_down(struct stream *s, const struct op_experts_down *op) {
    const int count = rows_count(&op->rows), entries = count * op->chosen, n = op->experts,
              columns = tile_columns(s, &op->rows, n, op->chosen, are_packed(op->down));
    TRY(check_experts("experts_down", entries, n, op->chosen));
    TRY(with_type("experts_down", {{op->down, n}, {op->bias, n}, op->h}, [&](auto type) {
        typedef decltype(type) T;
        const struct expert_lists lists = {const_cast<int32_t *>(op->lists), entries};
        expert_sums<T> out = {op->sums, op->lists + 1 + entries, first_expert<T>(op->bias), op->bias.apart, op->width};
        entry_rows<T> in = {(const T *)op->h.data, lists, 1, op->hidden};
        const int groups = ceil_div(op->width, PRODUCT_ROWS), tiles = tiles_at_most(entries, n, columns);
        if (are_packed(op->down))
            return packed_experts_product<T>(s, "experts_down", groups, tiles, columns, op->hidden, in, op->down,
                                             nullptr, matrix_map{op->width}, out);
        expert_matrices<T> rows = {first_expert<T>(op->down), op->down.apart, op->width, op->hidden};
        return experts_product<T>(s, "experts_down", groups, tiles, columns, op->hidden, in, rows, out);
    }));
    launch_dependent(s, add_experts_kernel, dim3(ceil_div(op->width, BLOCK_THREADS), count), BLOCK_THREADS, 0, 1,
                     (const float *)op->sums, op->weights, op->ids, op->chosen, op->width, op->stores, op->x);
    return cuda_launched(s, "experts' sum", 48);
}
