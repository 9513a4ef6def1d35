/* Packed weights (model/packed.h) as numbers of their own, each rounded once. A thread has a block's eight numbers of one lane of a
 * product: four columns, and four 16 behind them. Bytes: those of the codes, and 2 or 4 a number. */
#include "model/kernels/cuda/unpack.h"

#include "model/kernels/cuda/product_packed.cuh"

enum { THREADS = 256, EIGHT = 8 };

template <typename T> __device__ __forceinline__ float2 two_of(uint32_t pair) {
    return to_floats(*(const typename pair_of<T>::type *)&pair);
}

/* Eights of a row. */
template <packed_code CODE> __host__ __device__ static inline int eights_of(const packed_matrix &m) {
    return m.row_bytes / PACKED_PIECE_BYTES * (unpacked_as<half, CODE>::piece / EIGHT);
}

/* Hands the eight numbers `i` of a row to put(column, value). */
template <typename T, packed_code CODE, typename Put>
__device__ __forceinline__ void unpack_eight(const packed_matrix &m, const packed_table &table, int row, int i,
                                             Put put) {
    constexpr int PIECE = unpacked_as<T, CODE>::piece, BLOCKS = PIECE / PACKED_BLOCK;
    const int part = i % 4, block = i / 4 % BLOCKS, piece = i / 4 / BLOCKS;
    const uint8_t *at = m.codes + (size_t)row * m.row_bytes + piece * PACKED_PIECE_BYTES + part * 16;
    const unpacked<T, CODE> codes(*(const uint4 *)at, block, table);
    const float factor = m.factors[row];
#pragma unroll
    for (int t = 0; t < 4; t++) {
        const int column = piece * PIECE + block * PACKED_BLOCK + t / 2 * 16 + part * 4 + t % 2 * 2;
        const __half *of =
            (const __half *)(m.scales + (size_t)row * m.scale_bytes) + (column >> m.shift) * (m.has_minima ? 2 : 1);
        const float scale = (m.scale_bytes ? __half2float(of[0]) : 1.0f) * unpacked_as<T, CODE>::unit,
                    minimum = m.has_minima ? __half2float(of[1]) : 0.0f;
        const float2 two = two_of<T>(codes.pairs[t]);
        put(column, (scale * two.x - minimum) * factor);
        put(column + 1, (scale * two.y - minimum) * factor);
    }
}

template <typename T, packed_code CODE>
__global__ void __launch_bounds__(THREADS)
    unpack_kernel(packed_matrix m, packed_table table, const int32_t *order, int first, int cols, T *to) {
    const int i = blockIdx.x * THREADS + threadIdx.x, row = blockIdx.y;
    next_may_start();
    inputs_are_ready();
    if (i >= eights_of<CODE>(m)) return;
    unpack_eight<T, CODE>(m, table, first + row, i, [&](int column, float value) {
        if (column < cols) to[(size_t)row * cols + (order ? order[column] : column)] = from_float<T>(value);
    });
}

template <typename T> static int unpack_as(struct stream *s, const struct weight *w, int first, int count, T *to) {
    enum { MOST_ROWS = 65535 };
    return with_kind(w->packed, [&](auto kind) {
        constexpr packed_code CODE = decltype(kind)::code;
        const packed_matrix m = packed_matrix_of(w);
        for (int done = 0; done < count; done += MOST_ROWS) {
            const dim3 grid(ceil_div(eights_of<CODE>(m), THREADS), min(count - done, (int)MOST_ROWS));
            launch_dependent(s, unpack_kernel<T, CODE>, grid, THREADS, 0, 1, m, packed_table_of<T>(w->packed),
                             packed_order_of(w), first + done, w->cols, to + (size_t)done * w->cols);
        }
        return cuda_launched(s, "unpack", sizeof(packed_matrix) + sizeof(packed_table) + 24);
    });
}

int cuda_unpack(struct stream *s, const struct weight *w, int first, int count, struct buffer to) {
    return to.type == DTYPE_F16 ? unpack_as(s, w, first, count, (half *)to.data)
                                : unpack_as(s, w, first, count, (bf16 *)to.data);
}

/* A block a row, as embed_kernel. */
template <packed_code CODE>
__global__ void __launch_bounds__(THREADS)
    embed_packed_kernel(const struct op_embed op, packed_matrix m, packed_table table, const int32_t *order) {
    inputs_are_ready();
    next_may_start(); /* the first kernel of a pass */
    int token = op.rows.tokens[blockIdx.x];
    if (token < 0 || token >= op.table.rows) token = 0;
    const int cols = op.table.cols;
    for (int i = threadIdx.x; i < eights_of<CODE>(m); i += THREADS)
        unpack_eight<half, CODE>(m, table, token, i, [&](int column, float value) {
            if (column < cols) op.out[(size_t)blockIdx.x * cols + (order ? order[column] : column)] = op.scale * value;
        });
}

int cuda_embed_packed(struct stream *s, const struct op_embed *op) {
    return with_kind(op->table.packed, [&](auto kind) {
        launch_dependent(s, embed_packed_kernel<decltype(kind)::code>, dim3(rows_count(&op->rows)), THREADS, 0, 1, *op,
                         packed_matrix_of(&op->table), packed_table_of<half>(op->table.packed),
                         packed_order_of(&op->table));
        return cuda_launched(s, "embed", sizeof *op + sizeof(packed_matrix) + sizeof(packed_table) + 8);
    });
}
