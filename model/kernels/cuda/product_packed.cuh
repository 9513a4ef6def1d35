/* Quantised weights in the narrow product: codes from memory to registers in their stored width, 16 bits there, scales on the sums.
 *
 * Shapes: codes, scales and factors as model/packed.h lays them out; tokens as in product_narrow.cuh.
 * Mapping: a lane's 16 bytes are numbers of 2 (eight bits) or 4 blocks of 32 columns; a block is two mma over 16 columns each, as in
 *   plain_stream, but of columns in their own order. The lanes that share a weight row each fetch the scale of one block beside its codes,
 *   and hand it round when it is needed.
 * Numerics: codes are exact in 16 bits (NF4's values are rounded), a block's sum is multiplied by its scale in f32 and added to those
 *   before it, and its minimum times the sum of the tokens, which a matrix of ones makes; at the end a row's factor. All by the
 *   weight's shape alone, so a token's bits do not depend on the others.
 * Any number of tokens is taken, COLUMNS at most by a block: weights are read again for more. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_PACKED_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_PACKED_CUH

#include "model/kernels/cuda/product_narrow.cuh"
extern "C" {
#include "model/packed.h"
}

/* --- codes to 16 bits -------------------------------------------------------------------------------------------- */

/* The 16 values of a table by bytes: low ones of 4 each, then high ones. */
struct packed_table {
    uint32_t low[4], high[4];
};

/* Two pairs of 16-bit numbers: their differences, their products. */
template <typename T> __device__ __forceinline__ uint32_t less(uint32_t x, uint32_t y) {
    typedef typename pair_of<T>::type pair;
    const pair d = __hsub2(*(const pair *)&x, *(const pair *)&y);
    return *(const uint32_t *)&d;
}
template <typename T> __device__ __forceinline__ uint32_t times(uint32_t x, uint32_t y) {
    typedef typename pair_of<T>::type pair;
    const pair p = __hmul2(*(const pair *)&x, *(const pair *)&y);
    return *(const uint32_t *)&p;
}

/* Two whole numbers, each in 16 bits of its own, as mantissas of a power of two, which is then subtracted with `zero`. */
template <typename T> __device__ __forceinline__ uint32_t from_integers(uint32_t pair, int zero);
template <> __device__ __forceinline__ uint32_t from_integers<bf16>(uint32_t pair, int zero) { /* below 128 */
    return less<bf16>(pair | 0x43004300u, (0x4300u + (uint32_t)zero) * 0x10001u);
}
template <> __device__ __forceinline__ uint32_t from_integers<half>(uint32_t pair, int zero) { /* below 1024 */
    return less<half>(pair | 0x64006400u, (0x6400u + (uint32_t)zero) * 0x10001u);
}

__device__ __forceinline__ uint32_t pair_of_ones(bf16) {
    return 0x3F803F80u;
}
__device__ __forceinline__ uint32_t pair_of_ones(half) {
    return 0x3C003C00u;
}

/* Four of 16 bytes, chosen by the low halves of the nibbles of `at`, whose fourth bits are moved to those of `second`. */
__device__ __forceinline__ uint32_t look_up(const uint32_t (&table)[4], uint32_t at, uint32_t second) {
    return __byte_perm(__byte_perm(table[0], table[1], at), __byte_perm(table[2], table[3], at), second);
}

/* A block's numbers of one lane: eight, in pairs, of which the first two are of its first 16 columns. */
template <typename T, packed_code CODE> struct unpacked;

template <typename T> struct unpacked<T, PACKED_INT4> {
    uint32_t pairs[4];
    __device__ __forceinline__ unpacked(const uint4 &codes, int block, const packed_table &) {
        const uint32_t word = block == 0 ? codes.x : block == 1 ? codes.y : block == 2 ? codes.z : codes.w;
#pragma unroll
        for (int t = 0; t < 4; t++) pairs[t] = from_integers<T>(word >> 4 * t & 0x000F000Fu, 8);
    }
};

template <typename T> struct unpacked<T, PACKED_TABLE> {
    uint32_t pairs[4];
    __device__ __forceinline__ unpacked(const uint4 &codes, int block, const packed_table &table) {
        const uint32_t word = block == 0 ? codes.x : block == 1 ? codes.y : block == 2 ? codes.z : codes.w;
        const uint32_t at = word & 0x77777777u, fourth = word >> 1 & 0x44444444u;
        const uint32_t first = (fourth & 0xFFFFu) | 0x3210u, second = fourth >> 16 | 0x3210u;
        const uint32_t low0 = look_up(table.low, at, first), high0 = look_up(table.high, at, first),
                       low1 = look_up(table.low, at >> 16, second), high1 = look_up(table.high, at >> 16, second);
        const uint32_t even01 = __byte_perm(low0, high0, 0x5140), even23 = __byte_perm(low0, high0, 0x7362),
                       odd01 = __byte_perm(low1, high1, 0x5140), odd23 = __byte_perm(low1, high1, 0x7362);
        pairs[0] = __byte_perm(even01, odd01, 0x5410), pairs[1] = __byte_perm(even01, odd01, 0x7632);
        pairs[2] = __byte_perm(even23, odd23, 0x5410), pairs[3] = __byte_perm(even23, odd23, 0x7632);
    }
};

/* A block of eight bits is two words of four. */
__device__ __forceinline__ uint2 words_of(const uint4 &codes, int block) {
    return block == 0 ? make_uint2(codes.x, codes.y) : make_uint2(codes.z, codes.w);
}

/* bf16 has no room for eight bits beside a power of two: by way of f32. */
__device__ __forceinline__ uint32_t from_bytes(uint32_t word, int pair, bf16) {
    const uint32_t first = __byte_perm(word, 0x4B000000u, 0x7440 + 2 * pair),
                   second = __byte_perm(word, 0x4B000000u, 0x7441 + 2 * pair);
    const __nv_bfloat162 both =
        __floats2bfloat162_rn(__uint_as_float(first) - 8388736.0f, __uint_as_float(second) - 8388736.0f);
    return *(const uint32_t *)&both;
}
__device__ __forceinline__ uint32_t from_bytes(uint32_t word, int pair, half) {
    return from_integers<half>(__byte_perm(word, 0, pair ? 0x4342 : 0x4140), 128);
}

template <typename T> struct unpacked<T, PACKED_INT8> {
    uint32_t pairs[4];
    __device__ __forceinline__ unpacked(const uint4 &codes, int block, const packed_table &) {
        const uint2 words = words_of(codes, block);
#pragma unroll
        for (int t = 0; t < 2; t++) pairs[t] = from_bytes(words.x, t, T()), pairs[2 + t] = from_bytes(words.y, t, T());
    }
};

/* Two of four E4M3 as the high bytes of 16 bits each. Moved down by the bits that the exponent has more there, they are a power of two
 * too small, subnormal ones too. */
__device__ __forceinline__ uint32_t from_fp8(uint32_t word, int pair, bf16) {
    const uint32_t high = __byte_perm(word, 0, pair ? 0x3424 : 0x1404);
    return times<bf16>((high & 0x80008000u) | (high & 0x7F007F00u) >> 4, 0x7B807B80u /* 2^120 */);
}
__device__ __forceinline__ uint32_t from_fp8(uint32_t word, int pair, half) {
    const uint32_t high = __byte_perm(word, 0, pair ? 0x3424 : 0x1404);
    return times<half>((high & 0x80008000u) | (high & 0x7F007F00u) >> 1, 0x5C005C00u /* 2^8 */);
}

template <typename T> struct unpacked<T, PACKED_FP8> {
    uint32_t pairs[4];
    __device__ __forceinline__ unpacked(const uint4 &codes, int block, const packed_table &) {
        const uint2 words = words_of(codes, block);
#pragma unroll
        for (int t = 0; t < 2; t++) pairs[t] = from_fp8(words.x, t, T()), pairs[2 + t] = from_fp8(words.y, t, T());
    }
};

template <typename T, packed_code CODE> struct packed_stream;

/* --- a packed matrix --------------------------------------------------------------------------------------------- */

/* Device memory, but for the numbers. */
struct packed_matrix {
    const uint8_t *codes;
    const uint8_t *scales;
    const float *factors;
    int row_bytes, scale_bytes; /* of a row */
    int shift;                  /* 1 << shift columns share a scale; 0: all */
    bool has_minima;
};
static inline packed_matrix packed_matrix_of(const struct weight *w) {
    const struct packed *p = w->packed;
    if (!w->data) return packed_matrix{};
    const struct packed_parts parts = packed_parts(p, (void *)w->data, w->rows, w->cols);
    int shift = 0;
    while (p->group > 1 << shift) shift++;
    return {parts.codes,
            (const uint8_t *)parts.scales,
            parts.factors,
            (int)packed_row_bytes(p, w->cols),
            packed_row_scales(p, w->cols) * (p->has_minima ? 4 : 2),
            shift,
            p->has_minima};
}

/* Do products read both alike, so that one launch takes them? */
static inline bool are_packed_alike(const struct weight *a, const struct weight *b) {
    return a->packed && b->packed && packed_is_alike(a->packed, b->packed);
}

template <typename T> static packed_table packed_table_of(const struct packed *p) {
    packed_table table = {};
    for (int i = 0; i < 16; i++) {
        const T x = from_float<T>(p->values[i]);
        uint16_t bits;
        memcpy(&bits, &x, sizeof bits);
        table.low[i / 4] |= (uint32_t)(bits & 255) << i % 4 * 8, table.high[i / 4] |= (uint32_t)(bits >> 8)
                                                                                      << i % 4 * 8;
    }
    return table;
}

/* Calls `run` with the code of packed weights as a type's constant. */
template <packed_code CODE> struct code_constant { static constexpr packed_code value = CODE; };
template <typename Run> static int with_code(enum packed_code code, Run run) {
    switch (code) {
    case PACKED_INT4:
        return run(code_constant<PACKED_INT4>());
    case PACKED_TABLE:
        return run(code_constant<PACKED_TABLE>());
    case PACKED_INT8:
        return run(code_constant<PACKED_INT8>());
    default:
        return run(code_constant<PACKED_FP8>());
    }
}

/* Rows of up to three packed matrices of one code, groups and minima; `Map` says which: row_place at(group, i). */
template <typename T, packed_code CODE, typename Map> struct packed_rows {
    Map map;
    packed_matrix of[3];
    packed_table table;
    static constexpr bool is_boxed = false;
    __device__ bool adds_in_order() const { return false; }
};

template <typename T, packed_code CODE, typename Map> struct stream_of<T, packed_rows<T, CODE, Map>> {
    typedef packed_stream<T, CODE> type;
};

/* --- the stream -------------------------------------------------------------------------------------------------- */

template <typename T, packed_code CODE> struct packed_stream {
    static constexpr bool is_4 = CODE == PACKED_INT4 || CODE == PACKED_TABLE;
    static constexpr int HALF = is_4 ? 128 : 64, PIECE = 2 * HALF, AHEAD = 2, BLOCKS = HALF / PACKED_BLOCK;
    struct piece {
        uint4 codes[2][2]; /* halves, rows */
        uint2 scales
            [2]
            [2]; /* of the lane's block: one, or one for each 16 columns, each with its minimum where there are minima */
    };
    const uint8_t *codes[2], *scales[2]; /* of rows; NULL: zeros */
    float factors[2], next_factors[2];
    int shift;
    bool has_minima;
    packed_table table;

    template <typename Rows> __device__ __forceinline__ void go_to(const Rows &weights, int group, bool is_there) {
        shift = weights.of[0].shift, has_minima = weights.of[0].has_minima;
        table = weights.table;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const row_place place = is_there ? weights.map.at(group, threadIdx.x % 32 / 4 + 8 * i) : row_place{-1, 0};
            const packed_matrix m = place.matrix == 2   ? weights.of[2]
                                    : place.matrix == 1 ? weights.of[1]
                                                        : weights.of[0];
            codes[i] = place.matrix < 0 ? nullptr : m.codes + (size_t)place.row * m.row_bytes;
            scales[i] = place.matrix < 0 ? nullptr : m.scales + (size_t)place.row * m.scale_bytes;
            next_factors[i] = place.matrix < 0 ? 0.0f : __ldg(m.factors + place.row);
        }
    }
    __device__ __forceinline__ void begin() {
        factors[0] = next_factors[0], factors[1] = next_factors[1];
    }

    __device__ __forceinline__ uint2 fetch_scales(int i, int at) const {
        if (shift == 0) return make_uint2(0x3C00 /* 1 */, 0);
        const int scale = (at + threadIdx.x % BLOCKS * PACKED_BLOCK) >> shift;
        if (shift == 4 && has_minima) return __ldg((const uint2 *)scales[i] + scale / 2);
        if (shift == 4 || has_minima)
            return make_uint2(__ldg((const uint32_t *)scales[i] + (has_minima ? scale : scale / 2)), 0);
        return make_uint2(__ldg((const unsigned short *)scales[i] + scale), 0);
    }
    __device__ __forceinline__ void fetch(piece &to, int at, int k) const {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const bool wanted = codes[i] && at < k; /* a piece's codes are there to its end */
                to.codes[h][i] =
                    load_streamed(codes[i] + at / PIECE * PACKED_PIECE_BYTES + h * 64 + threadIdx.x % 4 * 16, wanted);
                to.scales[h][i] = wanted ? fetch_scales(i, at + h * HALF) : make_uint2(0, 0);
            }
    }

    /* A scale, or with `second` what lies behind it, of both rows, of the block whose lane is `from`. */
    struct rows_scales {
        float of[2], minima[2];
    };
    __device__ __forceinline__ rows_scales scales_of(const piece &a, int h, int block, int column_half) const {
        const int from = (threadIdx.x % 32 & ~3) | block;
        rows_scales s = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool is_later = column_half && shift == 4;
            const uint32_t word =
                __shfl_sync(0xffffffffu, is_later && has_minima ? a.scales[h][i].y : a.scales[h][i].x, from);
            const unsigned short low = (unsigned short)(word & 0xFFFF), high = (unsigned short)(word >> 16);
            s.of[i] = __half2float(__ushort_as_half(is_later && !has_minima ? high : low));
            s.minima[i] = has_minima ? __half2float(__ushort_as_half(high)) : 0.0f;
        }
        return s;
    }
    /* c += scale * sum - minimum * of_ones, for the rows of a lane's four sums. */
    __device__ __forceinline__ void add(float (&c)[4], const rows_scales &s, float (&sum)[4],
                                        float (&of_ones)[4]) const {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            c[j] = fmaf(s.of[j / 2], sum[j], c[j]);
            if (has_minima) c[j] = fmaf(-s.minima[j / 2], of_ones[j], c[j]);
            sum[j] = of_ones[j] = 0;
        }
    }
    template <int TILES, typename Tokens>
    __device__ __forceinline__ void multiply(float (&c)[TILES][4], const piece &a, int at, const Tokens &tokens) const {
        if (at >= tokens.k) return; /* the same for all lanes of a warp */
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int block = 0; block < BLOCKS; block++) {
                const unpacked<T, CODE> low(a.codes[h][0], block, table), high(a.codes[h][1], block, table);
                const rows_scales first = scales_of(a, h, block, 0), second = scales_of(a, h, block, 1);
                const uint32_t first_a[4] = {low.pairs[0], high.pairs[0], low.pairs[1], high.pairs[1]},
                               second_a[4] = {low.pairs[2], high.pairs[2], low.pairs[3], high.pairs[3]};
                const uint32_t one = pair_of_ones(T()), ones[4] = {one, one, one, one};
                const int column = at + h * HALF + block * PACKED_BLOCK + threadIdx.x % 4 * 4;
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) {
                    const uint2 x = tokens.template read<uint2>(tile, column),
                                y = tokens.template read<uint2>(tile, column + 16);
                    float sum[4] = {}, of_ones[4] = {};
                    mma(sum, first_a, x.x, x.y, T());
                    if (has_minima) mma(of_ones, ones, x.x, x.y, T());
                    if (shift == 4) add(c[tile], first, sum, of_ones);
                    mma(sum, second_a, y.x, y.y, T());
                    if (has_minima) mma(of_ones, ones, y.x, y.y, T());
                    add(c[tile], second, sum, of_ones);
                }
            }
    }
    template <int TILES> __device__ __forceinline__ void finish(float (&c)[TILES][4]) {
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int j = 0; j < 4; j++) c[tile][j] *= factors[j / 2];
        begin();
    }
};

#endif
