/* Quantised weights in the narrow product: codes from memory in their stored width, 16 bits in registers, scales on the sums.
 *
 * Shapes: codes, scales and factors as model/packed.h lays them out; tokens as in product_narrow.cuh.
 * Mapping: a lane's 16 bytes of a piece are numbers of 2 (eight bits) or 4 blocks of 32 columns; a block is two mma over 16 columns
 *   each, as in plain_stream, but of columns in their own order. Scales and factors come by way of shared memory, scales 16 bytes of a row
 *   at once: loads to registers would share the counter by which a warp waits for codes, which are asked for later. Tokens in shared memory
 *   lie there as they are multiplied, made so once for all groups of a block; two or more in memory so that a warp's load of them is of few
 *   lines (product_order.cuh).
 * Numerics: codes become 16 bits exactly (a table's values are rounded to them), the sum of the columns of a `grain` is multiplied by its
 *   scale in f32 and added to those before it. What all numbers of a grain have too much, the minimum, is taken off times the sum of
 *   the tokens, which a matrix of ones makes; where is_raw, together with what integers have too much. At the end a row's factor. All by
 *   the weight's shape alone, so a token's bits do not depend on the others.
 * Any number of tokens is taken, COLUMNS at most by a block: weights are read again, from L2, for more. On Hopper product_packed_bulk.cuh takes
 * those. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_PACKED_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_PACKED_CUH

#include "model/kernels/cuda/product_narrow.cuh"
#include "model/kernels/cuda/tiles.cuh"
extern "C" {
#include "model/packed.h"
}

/* --- codes to 16 bits -------------------------------------------------------------------------------------------- */

/* The 16 values of a table by bytes: low ones of 4 each, then high ones. */
struct packed_table {
    uint32_t low[4], high[4];
};

template <typename T> struct is_half { static constexpr bool value = false; };
template <> struct is_half<half> { static constexpr bool value = true; };

/* Two pairs of 16-bit numbers: their products, and those and a third. */
template <typename T> __device__ __forceinline__ uint32_t times(uint32_t x, uint32_t y) {
    typedef typename pair_of<T>::type pair;
    const pair p = __hmul2(*(const pair *)&x, *(const pair *)&y);
    return *(const uint32_t *)&p;
}
template <typename T> __device__ __forceinline__ uint32_t times_plus(uint32_t x, uint32_t y, uint32_t z) {
    uint32_t sum;
    if (is_half<T>::value)
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(z));
    else
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(z));
    return sum;
}

/* (a & b) | c as one instruction, which the compiler does not find for two constants. */
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* 2^power, twice. */
template <typename T> __host__ __device__ constexpr uint32_t pair_of_power(int power) {
    return (uint32_t)(is_half<T>::value ? (15 + power) << 10 : (127 + power) << 7) * 0x10001u;
}
/* An integer of up to 8 bits (f16: 11) at the end of 16 is as many times the least number that they hold, 2^-133 (2^-24): a subnormal one or
 * of the first exponent. So a pair of them, which may lie `up` bits higher, becomes one of numbers by one instruction: what they are less
 * 2^MIDDLE, times 2^integer_power. */
template <typename T> constexpr int integer_power = is_half<T>::value ? -9 : -7;
template <typename T, int MIDDLE> __device__ __forceinline__ uint32_t integers(uint32_t pair, int up) {
    return times_plus<T>(pair, pair_of_power<T>((is_half<T>::value ? 24 : 133) + integer_power<T> - up),
                         0x80008000u | pair_of_power<T>(MIDDLE + integer_power<T>));
}

/* Columns of a piece; a number is what unpacked has times unit. */
template <typename T, packed_code CODE> struct unpacked_as {
    static constexpr int piece = packed_piece_columns(CODE);
    static constexpr bool is_integer = CODE == PACKED_INT4 || CODE == PACKED_INT8;
    static constexpr float unit = is_integer           ? 1 << -integer_power<T>
                                  : !is_half<T>::value ? 1
                                  : CODE == PACKED_FP8 ? 256
                                  : CODE == PACKED_FP4 ? 16384
                                                       : 1;
};

/* Four of 16 bytes, chosen by the low halves of the nibbles of `at`, whose fourth bits are moved to those of `second`. */
__device__ __forceinline__ uint32_t look_up(const uint32_t (&table)[4], uint32_t at, uint32_t second) {
    return __byte_perm(__byte_perm(table[0], table[1], at), __byte_perm(table[2], table[3], at), second);
}

__device__ __forceinline__ uint32_t word_of(const uint4 &codes, int i) {
    return i == 0 ? codes.x : i == 1 ? codes.y : i == 2 ? codes.z : codes.w;
}

/* The eight numbers of a block that a lane has, in pairs; the first two are of its first 16 columns. A word of 4 bits has all eight. */
template <typename T, packed_code CODE> struct unpacked;

/* Pairs of a word as they are: the second and the fourth lie 4 bits higher than they should. */
__device__ __forceinline__ void pairs_of_nibbles(uint32_t (&pairs)[4], uint32_t word) {
    const uint32_t later = word >> 8;
    pairs[0] = word & 0x000F000Fu, pairs[1] = word & 0x00F000F0u;
    pairs[2] = later & 0x000F000Fu, pairs[3] = later & 0x00F000F0u;
}

/* Integers less 8. */
template <typename T> struct unpacked<T, PACKED_INT4> {
    uint32_t pairs[4];
    __device__ __forceinline__ unpacked(const uint4 &codes, int block, const packed_table &) {
        pairs_of_nibbles(pairs, word_of(codes, block));
#pragma unroll
        for (int t = 0; t < 4; t++) pairs[t] = integers<T, 3>(pairs[t], t % 2 * 4);
    }
};

template <typename T> struct unpacked<T, PACKED_TABLE> {
    uint32_t pairs[4];
    __device__ __forceinline__ unpacked(const uint4 &codes, int block, const packed_table &table) {
        const uint32_t word = word_of(codes, block);
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

/* FP4 as E2M1, whose bits lie where one shift brings those of a pair to the end of bf16's exponent and the top of its mantissa: there
 * they are 2^126 too small, subnormal ones too, and in f16 2^14. Those of the last pair lie in the gaps of the others. */
__device__ __forceinline__ void pairs_of_fp4(uint32_t (&pairs)[4], uint32_t word) {
#pragma unroll
    for (int t = 0; t < 3; t++) pairs[t] = word << 3 * t & 0x81C081C0u;
    pairs[3] = (word << 1 & 0x80008000u) | (word >> 5 & 0x01000100u) | (word >> 4 & 0x00C000C0u);
}
template <typename T> struct unpacked<T, PACKED_FP4> {
    uint32_t pairs[4];
    __device__ __forceinline__ unpacked(const uint4 &codes, int block, const packed_table &) {
        pairs_of_fp4(pairs, word_of(codes, block));
#pragma unroll
        for (int t = 0; t < 4; t++)
            pairs[t] = is_half<T>::value ? (pairs[t] & 0x80008000u) | (pairs[t] & 0x01C001C0u) << 3
                                         : times<bf16>(pairs[t], 0x7E807E80u /* 2^126 */);
    }
};

/* Eight bits: a block is two words, of which each has a pair in its even and one in its odd bytes. */

/* Integers less 128. */
template <typename T> struct unpacked<T, PACKED_INT8> {
    uint32_t pairs[4];
    __device__ __forceinline__ unpacked(const uint4 &codes, int block, const packed_table &) {
#pragma unroll
        for (int t = 0; t < 4; t++)
            pairs[t] = integers<T, 7>(word_of(codes, 2 * block + t / 2) >> t % 2 * 8 & 0x00FF00FFu, 0);
    }
};

/* E4M3, whose bits lie where bf16's sign, the end of its exponent and the top of its mantissa are, for the second pair; those of the first
 * are in the gaps. There they are 2^120 too small, subnormal ones too. */
__device__ __forceinline__ uint32_t pair_of_fp8(uint32_t word, int pair) {
    return pair ? word & 0x87F087F0u : and_or(word << 4, 0x80F080F0u, word >> 4 & 0x07000700u);
}
__device__ __forceinline__ uint32_t from_fp8(uint32_t word, int pair, bf16) {
    return times<bf16>(pair_of_fp8(word, pair), 0x7B807B80u);
}
__device__ __forceinline__ uint32_t from_fp8(uint32_t word, int pair, half) { /* 2^8 too small */
    const uint32_t first = and_or(word << 7, 0x07800780u, word >> 1 & 0x38003800u);
    return pair ? and_or(word, 0x80008000u, word << 3 & 0x3F803F80u) : and_or(word << 4, 0x80008000u, first);
}
template <typename T> struct unpacked<T, PACKED_FP8> {
    uint32_t pairs[4];
    __device__ __forceinline__ unpacked(const uint4 &codes, int block, const packed_table &) {
#pragma unroll
        for (int t = 0; t < 4; t++) pairs[t] = from_fp8(word_of(codes, 2 * block + t / 2), t % 2, T());
    }
};

template <typename T, typename Kind, bool EVEN = false> struct packed_stream;

/* What tokens are made larger by, as a power of two, where numbers are multiplied as they lie in their words. */
enum { TOKENS_LARGER = 80 };

/* Are numbers of a kind multiplied `raw`, as integers lie in their words: subnormal bf16 of 2^-133, 8 too large? Then tokens are made 2^80 larger,
 * those of the pairs that lie 4 bits higher 2^76, so that from 2^47 on they are infinite, and minima are taken off with those 8. */
template <typename T, typename Kind>
constexpr bool is_raw = Kind::code == PACKED_INT4 && !is_half<T>::value && Kind::minima;

struct raw_nibbles {
    uint32_t pairs[4];
    __device__ __forceinline__ raw_nibbles(const uint4 &codes, int block, const packed_table &) {
        pairs_of_nibbles(pairs, word_of(codes, block));
    }
};
template <typename T, bool RAW> struct multiplied_tokens {
    /* Two pairs of a token. */
    static __device__ __forceinline__ uint2 token(uint2 x) {
        if (!RAW) return x;
        return make_uint2(times<T>(x.x, pair_of_power<T>(TOKENS_LARGER)),
                          times<T>(x.y, pair_of_power<T>(TOKENS_LARGER - 4)));
    }
    /* A matrix of them makes the sums of tokens that minima need, in the unit of the other sums: raw 8 of each number, else 1. */
    static __device__ __forceinline__ uint32_t ones(int pair) {
        if (RAW) return pair ? 0x00800080u : 0x00080008u;
        return pair_of_power<T>(integer_power<T>);
    }
    /* What is taken off times such a sum. */
    static __device__ __forceinline__ float taken_off(float scale, float minimum) {
        return RAW ? fmaf(minimum, 0.125f, scale) : minimum;
    }
};
/* How products multiply the numbers of a kind; sums are as many times `unit`. */
template <typename T, typename Kind> struct multiplied_as : multiplied_tokens<T, is_raw<T, Kind>> {
    typedef multiplied_tokens<T, is_raw<T, Kind>> tokens;
    typedef typename std::conditional<is_raw<T, Kind>, raw_nibbles, unpacked<T, Kind::code>>::type numbers;
    static constexpr float unit = is_raw<T, Kind> ? 1ull << (133 - TOKENS_LARGER) : unpacked_as<T, Kind::code>::unit;
};

/* How the narrow product multiplies them, which makes tokens larger as it reads them: FP8 and FP4 in bf16 as their bits lie in words, too, 2^120
 * and 2^126 too small. Sums have the bits that bulk products make, who unpack them: those of tokens below 2^47, if above 2^-80. */
template <typename T, typename Kind>
constexpr bool is_raw_float = (Kind::code == PACKED_FP8 || Kind::code == PACKED_FP4) && !is_half<T>::value;

template <packed_code CODE> struct raw_floats {
    uint32_t pairs[4];
    __device__ __forceinline__ raw_floats(const uint4 &codes, int block, const packed_table &) {
        if (CODE == PACKED_FP4)
            pairs_of_fp4(pairs, word_of(codes, block));
        else
#pragma unroll
            for (int t = 0; t < 4; t++) pairs[t] = pair_of_fp8(word_of(codes, 2 * block + t / 2), t % 2);
    }
};
template <typename T, typename Kind, bool RAW = is_raw_float<T, Kind>> struct narrow_as : multiplied_as<T, Kind> {};
template <typename T, typename Kind> struct narrow_as<T, Kind, true> : multiplied_as<T, Kind> {
    typedef raw_floats<Kind::code> numbers;
    static_assert(!Kind::minima, "sums of tokens would be larger, too");
    static constexpr float unit = 1ull << ((Kind::code == PACKED_FP4 ? 126 : 120) - TOKENS_LARGER);
    static __device__ __forceinline__ uint2 token(uint2 x) {
        return make_uint2(times<T>(x.x, pair_of_power<T>(TOKENS_LARGER)),
                          times<T>(x.y, pair_of_power<T>(TOKENS_LARGER)));
    }
};

/* A row's sum by its factor: a product of its own, which no kernel adds to in the same instruction. */
template <typename As> __device__ __forceinline__ float times_factor(float sum, float factor) {
    return __fmul_rn(__fmul_rn(sum, factor), As::unit);
}

/* --- a packed matrix --------------------------------------------------------------------------------------------- */

/* Device memory, but for the numbers. */
struct packed_matrix {
    const uint8_t *codes;
    const uint8_t *scales;
    const float *factors;
    int row_bytes, scale_bytes; /* of a row */
};
static inline packed_matrix packed_matrix_of(const struct weight *w) {
    const struct packed *p = w->packed;
    if (!w->data) return packed_matrix{};
    const struct packed_parts parts = packed_parts(p, (void *)w->data, w->rows, w->cols);
    return {parts.codes, (const uint8_t *)parts.scales, parts.factors, (int)packed_row_bytes(p, w->cols),
            packed_row_scales(p, w->cols) * (p->has_minima ? 4 : 2)};
}

/* In device memory; NULL: columns are in their own. */
static inline const int32_t *packed_order_of(const struct weight *w) {
    return packed_parts(w->packed, (void *)w->data, w->rows, w->cols).order;
}

/* Do products read them alike, those that are there, so that one launch takes all? */
static inline bool are_read_alike(std::initializer_list<const struct weight *> weights) {
    const struct packed *first = (*weights.begin())->packed;
    for (const struct weight *w : weights) {
        if (!w->data || w->packed == first) continue;
        if (!first || !w->packed || !packed_is_alike(w->packed, first)) return false;
    }
    return true;
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

/* Calls `run` with a type that says how packed weights are read: `code`; `grain`, the columns whose sum a scale is for: 16, 32, or 0,
 * those of a piece, or ROW, which has no
 * scale but the factor; are there minima? */
enum { PACKED_GRAIN_ROW = 1 };
template <packed_code CODE, int GRAIN, bool MINIMA = false> struct packed_kind {
    static constexpr packed_code code = CODE;
    static constexpr int grain = GRAIN;
    static constexpr bool minima = MINIMA;
};
template <typename Run> static int with_kind(const struct packed *p, Run run) {
    const bool is_fine = p->group == 16;
    switch (p->code) {
    case PACKED_INT4:
        if (p->group == 128) return run(packed_kind<PACKED_INT4, 0, true>());
        if (is_fine) return run(packed_kind<PACKED_INT4, 16, true>());
        return p->has_minima ? run(packed_kind<PACKED_INT4, 32, true>()) : run(packed_kind<PACKED_INT4, 32>());
    case PACKED_FP4:
        return is_fine ? run(packed_kind<PACKED_FP4, 16>()) : run(packed_kind<PACKED_FP4, 32>());
    case PACKED_TABLE:
        return run(packed_kind<PACKED_TABLE, 32>());
    case PACKED_INT8:
        if (is_fine) return run(packed_kind<PACKED_INT8, 16>());
        return p->has_minima ? run(packed_kind<PACKED_INT8, 32, true>()) : run(packed_kind<PACKED_INT8, 32>());
    default:
        return p->group ? run(packed_kind<PACKED_FP8, 0>()) : run(packed_kind<PACKED_FP8, PACKED_GRAIN_ROW>());
    }
}

/* The same for a product with rows of T. */
template <typename T, typename Run> static int with_kind_of(const struct packed *p, Run run) {
    return with_kind(p, [&](auto kind) {
        typedef decltype(kind) Kind;
        if constexpr (is_half<T>::value && !packed_takes_f16(Kind::code, Kind::grain))
            return err_set(ERR_INTERNAL, "f16 rows of a product of packed weights that take bf16 alone");
        else
            return run(kind);
    });
}

/* Rows of up to three packed matrices of one kind and minima; `Map` says which: row_place at(group, i). */
template <typename T, typename Kind, typename Map> struct packed_rows {
    static constexpr int step = Map::step;
    Map map;
    packed_matrix of[3];
    packed_table table;
    bool in_order;
    __device__ bool adds_in_order() const { return in_order; }
    __device__ __forceinline__ const packed_matrix &matrix(int i) const { return of[i]; }
};

template <typename T, typename Kind, typename Map> struct stream_of<T, packed_rows<T, Kind, Map>> {
    typedef packed_stream<T, Kind> type;
};

/* --- the stream -------------------------------------------------------------------------------------------------- */

/* EVEN: warps have as many pieces each, not as many as are in flight. */
template <typename T, typename Kind, bool EVEN> struct packed_stream {
    static constexpr bool is_plain = false;
    static constexpr int LOADED = 4; /* numbers of a token that a lane loads at once */
    typedef narrow_as<T, Kind> as;
    typedef typename as::numbers numbers;
    static constexpr int GRAIN = Kind::grain, PIECE = packed_piece_columns(Kind::code), BLOCKS = PIECE / PACKED_BLOCK,
                         AHEAD = 4 /* pieces in flight */, MANY_GROUPS = 4096;
    static constexpr bool has_scales = GRAIN != PACKED_GRAIN_ROW;
    /* May tokens take more shared memory than kernels around a narrow product? Of 8 bits that is slower. */
    static constexpr bool takes_more = packed_is_4(Kind::code);
    /* Scales of a row in words: of a piece, of FP8's 64 columns a half of them; of those pieces whose scales are copied at once. */
    static constexpr int scale_bytes = (GRAIN ? PIECE / GRAIN : 1) * (Kind::minima ? 4 : 2),
                         pieces_of_scale = GRAIN == 0 && PIECE < 128 ? 128 / PIECE : 1,
                         words = scale_bytes < 4 ? 1 : scale_bytes / 4, AT_ONCE = words < 4 ? AHEAD / words : 1,
                         copied_words = scale_bytes < 4 ? 1 : AT_ONCE * words;
    /* Pieces that are multiplied together: of few columns. Of int4 that gains nothing. */
    static constexpr int TOGETHER = GRAIN == 0 && PIECE < 128 ? 2 : 1;
    struct memory {
        alignas(16) uint32_t scales[2][PRODUCT_SPLITS][PRODUCT_ROWS][has_scales ? copied_words : 0]; /* by turns */
        float factors[3][PRODUCT_SPLITS][PRODUCT_ROWS]; /* of the groups that are stored, read and asked for */
    };
    struct piece {
        uint4 codes[2]; /* rows */
    };
    piece pieces[AHEAD];
    struct memory &shared;
    const uint8_t *codes[2], *scales[2]; /* of rows: AHEAD pieces that are asked for */
    int first, count, k;                 /* the warp's pieces */
    int end;                             /* of pieces that are wanted */
    int row;                             /* of the matrix of the first, where rows have a step */
    int ways, turn;                      /* of scales that are read */
    packed_table table;

    /* A warp's pieces, of which the first has scales of its own. */
    static __host__ __device__ __forceinline__ int share(int pieces, int ways) {
        constexpr int FROM = pieces_of_scale * (scale_bytes < 4 ? 4 / scale_bytes : 1);
        return ceil_div(ceil_div(pieces, ways), FROM) * FROM;
    }
    /* As many warps a row as leave few of them idle, but more where there are few rows, and 4 for very many: a block, whose warps meet after
     * each group, has two of them at once then. */
    static __host__ __device__ __forceinline__ narrow_cut cut(int groups, int k, int) {
        const int pieces = ceil_div(k, PIECE);
        auto padded = [=](int ways) { return ceil_div(pieces, ways * AHEAD) * AHEAD; };
        int ways = PRODUCT_SPLITS;
        if (EVEN) {
            while (ways > 1 && share(pieces, ways / 2) <= AHEAD) ways /= 2;
            return {ways, padded(ways)};
        }
        if (groups > MANY_GROUPS && ways * padded(ways) == ways / 2 * padded(ways / 2)) ways /= 2;
        /* Those that take the most instructions stay spread over as many blocks as fill the GPU. */
        if constexpr (Kind::minima && GRAIN != 0) {
            if (groups > NARROW_FEW_GROUPS && 8 * padded(8) > 4 * padded(4) && ways == 8) ways = 4;
            if (groups > 2 * NARROW_FEW_GROUPS && 4 * padded(4) > 2 * padded(2) && ways == 4) ways = 2;
        } else {
            while (ways > 1 && groups > NARROW_FEW_GROUPS && ways * padded(ways) > ways / 2 * padded(ways / 2))
                ways /= 2;
        }
        return {ways, padded(ways)};
    }
    __device__ __forceinline__ packed_stream(const narrow_cut &cut, int of_k, struct memory &its)
        : shared(its), first(threadIdx.x / 32 % cut.ways * cut.pieces), count(cut.pieces), k(of_k), ways(cut.ways),
          turn(0) {
        if (!EVEN) return;
        const int its_share = share(ceil_div(of_k, PIECE), ways);
        first = threadIdx.x / 32 % ways * its_share, k = min(of_k, (first + its_share) * PIECE);
    }

    /* For the sums of half `i` of a group: by one of the warps that share it, a lane a row. */
    __device__ __forceinline__ void ask_factor(int number, int i, const float *from) {
        if (first == 0 && threadIdx.x % 4 == 0)
            copy_async_part<4>(&shared.factors[number % 3][threadIdx.x / 32 / ways][threadIdx.x % 32 / 4 + 8 * i],
                               from);
    }
    template <typename Rows>
    __device__ __forceinline__ void go_to(const Rows &weights, int group, int number, bool is_there) {
        table = weights.table;
        end = is_there ? ceil_div(k, PIECE) : 0;
        if (Rows::step) row = group * Rows::step + threadIdx.x % 32 / 4;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            row_place place = is_there ? weights.map.at(group, threadIdx.x % 32 / 4 + 8 * i) : row_place{0, 0};
            if (place.matrix < 0) place = {0, 0}; /* a row that is not there is read as the first one, for nobody */
            const packed_matrix &m = weights.matrix(place.matrix);
            codes[i] = m.codes + (int64_t)place.row * m.row_bytes + first * PACKED_PIECE_BYTES + threadIdx.x % 4 * 16;
            scales[i] = m.scales + (int64_t)place.row * m.scale_bytes + scales_before(first) + threadIdx.x % 4 * 4;
            ask_factor(number, i, m.factors + place.row);
        }
    }

    /* The same of rows that have a step, so many groups on from where it is: behind the last pieces of a group. */
    template <typename Rows>
    __device__ __forceinline__ void go_on(const Rows &weights, int groups, int number, bool is_there) {
        const int rows = groups * Rows::step, behind = count - AHEAD;
        const packed_matrix &its = weights.matrix(0); /* those of a product are of one shape */
        const uint32_t codes_on = rows * its.row_bytes - behind * PACKED_PIECE_BYTES,
                       scales_on = rows * its.scale_bytes - scales_before(behind);
        end = is_there ? ceil_div(k, PIECE) : 0;
        row += rows;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int matrix = Rows::step == PRODUCT_HALF ? i : 0;
            const bool is_row = row < weights.map.row_limit(i);
            codes[i] = is_row ? codes[i] + codes_on : its.codes;
            scales[i] = is_row ? scales[i] + scales_on : its.scales;
            if (is_row) ask_factor(number, i, weights.matrix(matrix).factors + row + (matrix == i ? 0 : PRODUCT_HALF));
        }
    }

    /* Where the scales of rows lie that a lane's sums belong to. */
    __device__ __forceinline__ uint32_t *scales_of(int turn, int row) const {
        return shared.scales[turn][threadIdx.x / 32][row * 8 + threadIdx.x % 32 / 4];
    }
    /* Bytes of a row's scales before the word with that of piece `index`. */
    static __host__ __device__ constexpr int scales_before(int index) {
        return index / pieces_of_scale * scale_bytes / 4 * 4;
    }
    /* Asks for the scales of AT_ONCE pieces, the first of which is piece from + i, that `rows` point to piece `from` of, if they have pieces
     * as far as that; and for what go_to asked for. */
    __device__ __forceinline__ void ask_scales(const uint8_t *const (&rows)[2], int from, int i, int end, int turn) {
        const int part = threadIdx.x % 4;
#pragma unroll
        for (int row = 0; row < 2; row++)
#pragma unroll
            for (int word = 0; word < copied_words; word += 4)
                if (word + part < copied_words && from + i + (word + part) / words < end)
                    copy_async_part<4>(scales_of(turn, row) + word + part, rows[row] + scales_before(i) + word * 4);
        copies_commit_group();
    }
    /* Piece from + i, of which `i` is a constant of the caller's. */
    __device__ __forceinline__ void fetch(int from, int i) {
        const bool wanted = from + i < end;
#pragma unroll
        for (int row = 0; row < 2; row++) {
            const uint8_t *at = codes[row] + i * PACKED_PIECE_BYTES;
            if (has_scales) /* what is not wanted is not multiplied */
                load_streamed_if(wanted, pieces[i].codes[row], at);
            else
                pieces[i].codes[row] = load_streamed(at, wanted);
        }
        if (!has_scales) copies_commit_group();
    }

    /* What the two rows of a lane's sums have for a piece. */
    struct piece_scales {
        alignas(16) uint32_t of[2][words];
        __device__ __forceinline__ float number(int row, int i) const {
            const uint32_t word = of[row][i / 2];
            return __half2float(__ushort_as_half((unsigned short)(i % 2 ? word >> 16 : word & 0xFFFF)));
        }
    };
    __device__ __forceinline__ piece_scales scales_of_piece(int i) const {
        piece_scales s;
#pragma unroll
        for (int row = 0; row < 2; row++) {
            const uint32_t *its = scales_of(turn, row) + (scale_bytes < 4 ? 0 : i % AT_ONCE * words);
#pragma unroll
            for (int j = 0; j < words; j += 4)
                if (words % 4 == 0)
                    *(uint4 *)&s.of[row][j] = *(const uint4 *)(its + j);
                else if (words % 2 == 0)
                    *(uint2 *)&s.of[row][j] = *(const uint2 *)(its + j);
                else
                    s.of[row][j] = its[j];
            if (scale_bytes < 4 && i / pieces_of_scale % 2) s.of[row][0] >>= 16;
        }
        return s;
    }
    /* The sums of the columns of a grain, and of the tokens alone. */
    template <int TILES> struct grain_sums {
        float of[TILES][4] = {}, ones[TILES][4] = {};
    };
    /* c += scale * sum - minimum * ones, for the rows of a lane's four sums; scale `i` of the piece. */
    template <int TILES>
    static __device__ __forceinline__ void add(float (&c)[TILES][4], const piece_scales &s, int i,
                                               grain_sums<TILES> &sums) {
        constexpr int EACH = Kind::minima ? 2 : 1;
        float scale[2], minimum[2];
#pragma unroll
        for (int row = 0; row < 2; row++) {
            scale[row] = s.number(row, i * EACH);
            if (Kind::minima) minimum[row] = as::taken_off(scale[row], s.number(row, i * EACH + 1));
        }
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                c[tile][j] = fmaf(scale[j / 2], sums.of[tile][j], c[tile][j]);
                if (Kind::minima) c[tile][j] = fmaf(-minimum[j / 2], sums.ones[tile][j], c[tile][j]);
            }
        sums = grain_sums<TILES>();
    }
    /* The products of 16 columns. */
    template <bool PREPARED, int TILES>
    static __device__ __forceinline__ void multiply_half(float (&sums)[TILES][4], float (&of_ones)[TILES][4],
                                                         const numbers &low, const numbers &high, int half,
                                                         const uint2 (&x)[TILES]) {
        const uint32_t ones[4] = {as::ones(0), as::ones(0), as::ones(1), as::ones(1)},
                       a[4] = {low.pairs[2 * half], high.pairs[2 * half], low.pairs[2 * half + 1],
                               high.pairs[2 * half + 1]};
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const uint2 token = PREPARED ? x[tile] : as::token(x[tile]);
            mma(sums[tile], a, token.x, token.y, T());
            if (Kind::minima) mma(of_ones[tile], ones, token.x, token.y, T());
        }
    }
    /* COUNT pieces from piece from + i on, of which `i` is a constant of the caller's: a block of each in turn, so that none waits for its own
     * sums. */
    template <int COUNT, int TILES, typename Tokens>
    __device__ __forceinline__ void multiply(float (&c)[TILES][4], int from, int i, const Tokens &tokens) const {
        static_assert(COUNT == 1 || (has_scales && !GRAIN), "a piece's sum is added to those before it once");
        const int columns = k - from * PIECE - i * PIECE; /* from the first piece on */
        if constexpr (COUNT > 1)
            if (columns <= (COUNT - 1) * PIECE) return multiply<COUNT - 1>(c, from, i, tokens);
        /* The same for all lanes of a warp. Without scales a piece past the end, which is zeros, is multiplied all the same: without a
         * branch the compiler mixes a piece's instructions with those of its neighbours. With scales it runs out of registers. */
        if (has_scales && columns <= 0) return;
        piece_scales s[COUNT];
#pragma unroll
        for (int p = 0; has_scales && p < COUNT; p++) s[p] = scales_of_piece(i + p);
        const T *x[TILES];
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
            x[tile] = tokens.lane(tile) + ((int64_t)from * PIECE + i * PIECE) * Tokens::apart;
        grain_sums<TILES> sums[COUNT];
#pragma unroll
        for (int step = 0; step < BLOCKS * COUNT; step++) {
            const int block = step / COUNT, p = step % COUNT, before = p * PIECE + block * PACKED_BLOCK;
            const piece &a = pieces[i + p];
            /* Of a piece past the end, which is multiplied where there are no scales, there are no tokens. */
            const bool is_there = (has_scales && (Tokens::is_whole || block == 0)) || columns > before;
            uint2 early[TILES], late[TILES];
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                const T *first = x[tile] + before * Tokens::apart, *second = first + ORDER_BLOCK * Tokens::apart;
                early[tile] = is_there ? *(const uint2 *)first : make_uint2(0, 0);
                late[tile] = is_there ? *(const uint2 *)second : make_uint2(0, 0);
            }
            const numbers low(a.codes[0], block, table), high(a.codes[1], block, table);
            if (!has_scales) {
                multiply_half<Tokens::is_prepared>(c, sums[p].ones, low, high, 0, early);
                multiply_half<Tokens::is_prepared>(c, sums[p].ones, low, high, 1, late);
                continue;
            }
            multiply_half<Tokens::is_prepared>(sums[p].of, sums[p].ones, low, high, 0, early);
            if (GRAIN == 16) add(c, s[p], 2 * block, sums[p]);
            multiply_half<Tokens::is_prepared>(sums[p].of, sums[p].ones, low, high, 1, late);
            if (GRAIN) add(c, s[p], GRAIN == 16 ? 2 * block + 1 : block, sums[p]);
        }
#pragma unroll
        for (int p = 0; !GRAIN && p < COUNT; p++) add(c, s[p], 0, sums[p]);
    }

    /* Four numbers of a token as they are multiplied. */
    static __device__ __forceinline__ uint2 prepared(uint2 four) {
        return as::token(four);
    }
    template <typename GoTo> __device__ __forceinline__ void start(GoTo go_to) {
        go_to(0);
        if (has_scales) ask_scales(scales, first, 0, end, turn);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) fetch(first, i);
    }
    template <int TILES, typename Tokens, typename GoTo>
    __device__ __forceinline__ void multiply_group(float (&c)[TILES][4], int number, const Tokens &tokens, GoTo go_to) {
        for (int done = 0; done < count; done += AHEAD) {
            const bool last = done + AHEAD >= count;
            const int here = first + done, later = last ? first : here + AHEAD, end_here = end;
            const uint8_t *const scales_here[2] = {scales[0], scales[1]};
            auto go_on = [&] {
                if (last) return go_to(number + 1);
#pragma unroll
                for (int row = 0; row < 2; row++)
                    codes[row] += AHEAD * PACKED_PIECE_BYTES, scales[row] += scales_before(AHEAD);
            };
            if (!has_scales) go_on();
#pragma unroll
            for (int i = 0; i < AHEAD; i += TOGETHER) {
                if (has_scales && i % AT_ONCE == 0) {
                    copies_wait_group<0>();
                    __syncwarp(); /* they are other lanes' copies, too, and all have read what lay there before */
                    if (AT_ONCE == AHEAD) go_on();
                    if (i + AT_ONCE < AHEAD)
                        ask_scales(scales_here, here, i + AT_ONCE, end_here, turn ^ 1);
                    else
                        ask_scales(scales, later, 0, end, turn ^ 1);
                    /* Factors are waited for with the scales that are asked for after them. */
                    if (AT_ONCE < AHEAD && i == 0) go_on();
                }
                multiply<TOGETHER>(c, here, i, tokens);
#pragma unroll
                for (int p = 0; p < TOGETHER; p++) fetch(later, i + p);
                if (has_scales)
                    __syncwarp(); /* so that the compiler asks for a piece here, and not for several later */
                if ((i + TOGETHER) % AT_ONCE == 0) turn ^= 1;
            }
        }
        /* The factors of this group, which were asked for before its pieces. */
        if (!has_scales) copies_wait_group<AHEAD>();
    }
    /* A sum of the group that has a place among those at once. */
    __device__ __forceinline__ float finish(float sum, int number, int place, int r) const {
        return times_factor<as>(sum, shared.factors[number % 3][place][r]);
    }
};

/* The order in which a narrow product takes so many tokens: what has no whole pieces through shared memory, and a single one where warps have
 * pieces enough for it. */
template <typename Kind> static enum token_order narrow_order(const struct weight *w, int tokens) {
    typedef packed_stream<bf16, Kind> stream;
    const bool is_deep = stream::cut(ceil_div(w->rows, PRODUCT_ROWS), w->cols, 1).pieces > stream::AHEAD;
    if (packed_order_of(w) || w->cols % stream::PIECE != 0 || (tokens == 1 && is_deep)) return ORDER_OWN;
    return tokens <= 8 ? ORDER_BY_8 : ORDER_BY_16;
}

#endif
