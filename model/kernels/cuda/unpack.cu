/* Packed weights (model/packed.h) as numbers of their own, each rounded once. A block of 32 columns has eight numbers in a lane's part of a
 * piece: four columns, and four 16 behind them. Bytes: those of the codes, and 2 or 4 a number. */
#include "model/kernels/cuda/unpack.h"

#include "model/kernels/cuda/product_packed.cuh"

enum { THREADS = 256, PART_BYTES = 16, PARTS = PACKED_PIECE_BYTES / PART_BYTES };

template <typename T> __device__ __forceinline__ float2 two_of(uint32_t pair) {
    return to_floats(*(const typename pair_of<T>::type *)&pair);
}

template <typename Kind> constexpr int blocks_of_piece = packed_piece_columns(Kind::code) / PACKED_BLOCK;

/* Scale and minimum of a row's columns from `behind`, a constant, behind the first one of a piece on. Loads that the compiler knows to be of what
 * no store changes: it makes one of those of a group. */
template <typename Kind>
__device__ __forceinline__ float2 scale_of(const packed_matrix &m, int row, int piece, int behind) {
    if (Kind::grain == PACKED_GRAIN_ROW) return make_float2(1, 0);
    constexpr int PIECE = unpacked_as<half, Kind::code>::piece, GROUP = Kind::grain ? Kind::grain : 128;
    const int index = GROUP > PIECE ? piece * PIECE / GROUP : piece * (PIECE / GROUP) + behind / GROUP;
    const uint8_t *scales = m.scales + (size_t)row * m.scale_bytes;
    if (Kind::minima) return __half22float2(__ldg((const __half2 *)scales + index));
    return make_float2(__half2float(__ldg((const __half *)scales + index)), 0);
}

/* Hands those of part `part` of a row, whose codes these are, to put(column, four numbers), twice. */
template <typename T, typename Kind, typename Put>
__device__ __forceinline__ void unpack_block(const packed_matrix &m, const packed_table &table, int row, int part,
                                             const uint4 &codes, int block, Put put) {
    typedef unpacked_as<T, Kind::code> as;
    const unpacked<T, Kind::code> its(codes, block, table);
    const float factor = __ldg(m.factors + row);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int piece = part / PARTS, behind = block * PACKED_BLOCK + half * 16;
        const float2 of = scale_of<Kind>(m, row, piece, behind), first = two_of<T>(its.pairs[2 * half]),
                     second = two_of<T>(its.pairs[2 * half + 1]);
        auto value = [=](float x) { return (of.x * as::unit * x - of.y) * factor; };
        put(piece * as::piece + behind + part % PARTS * 4,
            make_float4(value(first.x), value(first.y), value(second.x), value(second.y)));
    }
}

/* A thread has a part of a row. Of a block it and its neighbour have four columns side by side, and four 16 behind them: one takes those, the other
 * these, so that each stores eight. */
template <typename T, typename Kind>
__global__ void __launch_bounds__(THREADS)
    unpack_kernel(packed_matrix m, packed_table table, const int32_t *order, int first, int count, int cols, T *to) {
    const int parts = m.row_bytes / PART_BYTES, at = blockIdx.x * THREADS + threadIdx.x, part = at % parts,
              row = min(at / parts, count - 1); /* past the last row that once more */
    const bool is_second = part % 2;
    next_may_start();
    inputs_are_ready();
    const uint4 codes = __ldg((const uint4 *)(m.codes + (size_t)(first + row) * m.row_bytes) + part);
    T *its = to + (size_t)row * cols;
#pragma unroll
    for (int block = 0; block < blocks_of_piece<Kind>; block++) {
        uint2 fours[2];
        int column = 0, half = 0;
        unpack_block<T, Kind>(m, table, first + row, part, codes, block, [&](int first_column, float4 x) {
            alignas(8)
                const T four[4] = {from_float<T>(x.x), from_float<T>(x.y), from_float<T>(x.z), from_float<T>(x.w)};
            if (order && first_column < cols)
                for (int i = 0; i < 4; i++) its[order[first_column + i]] = four[i];
            if (half == is_second) column = first_column - is_second * 4;
            fours[half++] = *(const uint2 *)four;
        });
        if (order) continue;
        const uint2 given = fours[!is_second], kept = fours[is_second],
                    taken =
                        make_uint2(__shfl_xor_sync(0xffffffffu, given.x, 1), __shfl_xor_sync(0xffffffffu, given.y, 1));
        if (column < cols)
            *(uint4 *)(its + column) =
                is_second ? make_uint4(taken.x, taken.y, kept.x, kept.y) : make_uint4(kept.x, kept.y, taken.x, taken.y);
    }
}

template <typename T> static int unpack_as(struct stream *s, const struct weight *w, int first, int count, T *to) {
    return with_kind(w->packed, [&](auto kind) {
        const packed_matrix m = packed_matrix_of(w);
        launch_dependent(s, unpack_kernel<T, decltype(kind)>,
                         dim3(ceil_div(count * (m.row_bytes / PART_BYTES), THREADS)), THREADS, 0, 1, m,
                         packed_table_of<T>(w->packed), packed_order_of(w), first, count, w->cols, to);
        return cuda_launched(s, "unpack", sizeof(packed_matrix) + sizeof(packed_table) + 28);
    });
}

int cuda_unpack(struct stream *s, const struct weight *w, int first, int count, struct buffer to) {
    return to.type == DTYPE_F16 ? unpack_as(s, w, first, count, (half *)to.data)
                                : unpack_as(s, w, first, count, (bf16 *)to.data);
}

/* A block a row, as embed_kernel. */
template <typename Kind>
__global__ void __launch_bounds__(THREADS)
    embed_packed_kernel(const struct op_embed op, packed_matrix m, packed_table table, const int32_t *order) {
    inputs_are_ready();
    next_may_start(); /* the first kernel of a pass */
    int token = op.rows.tokens[blockIdx.x];
    if (token < 0 || token >= op.table.rows) token = 0;
    const int cols = op.table.cols, parts = m.row_bytes / PART_BYTES;
    const uint4 *codes = (const uint4 *)(m.codes + (size_t)token * m.row_bytes);
    float *out = op.out + (size_t)blockIdx.x * cols;
    for (int i = threadIdx.x; i < parts * blocks_of_piece<Kind>; i += THREADS) {
        const int block = i / PARTS % blocks_of_piece<Kind>,
                  part = i / PARTS / blocks_of_piece<Kind> * PARTS + i % PARTS;
        unpack_block<half, Kind>(m, table, token, part, codes[part], block, [&](int column, float4 x) {
            const float four[4] = {x.x, x.y, x.z, x.w};
            for (int j = 0; j < 4 && column < cols; j++)
                out[order ? order[column + j] : column + j] = op.scale * four[j];
        });
    }
}

int cuda_embed_packed(struct stream *s, const struct op_embed *op) {
    return with_kind(op->table.packed, [&](auto kind) {
        launch_dependent(s, embed_packed_kernel<decltype(kind)>, dim3(rows_count(&op->rows)), THREADS, 0, 1, *op,
                         packed_matrix_of(&op->table), packed_table_of<half>(op->table.packed),
                         packed_order_of(&op->table));
        return cuda_launched(s, "embed", sizeof *op + sizeof(packed_matrix) + sizeof(packed_table) + 8);
    });
}
