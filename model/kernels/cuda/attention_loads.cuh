/* What attention_cluster.cu loads: its chunk of queries, and keys and values of a split. */
#ifndef DUET_MODEL_KERNELS_CUDA_ATTENTION_LOADS_CUH
#define DUET_MODEL_KERNELS_CUDA_ATTENTION_LOADS_CUH

#include "model/kernels/cuda/attention_cells.cuh"
#include "model/kernels/cuda/tiles.cuh"

enum {
    SPLIT = ATTENTION_SPLIT,
    PARTS = ATTENTION_PARTS,
    PART_BITS = 4,
    STEP = PARTS * SPLIT, /* from a split to the next of its part */
    KEYS = 16,            /* of an mma */
    BLOCKS = SPLIT / KEYS,
    WARPS = 4,       /* a walker */
    WALKERS = 2,     /* a block, or */
    WALKERS_ALL = 4, /* where a multiprocessor has one block in place of two */
    RANKS = 8,       /* at most */
    NO_LEAF = PARTS,
    THREADS = WALKERS * WARPS * 32,
    THREADS_ALL = WALKERS_ALL * WARPS * 32
};
static_assert(WARPS == BLOCKS, "a warp scores a block of keys");
static_assert(PARTS == 1 << PART_BITS && PARTS == WALKERS * RANKS, "a part for each walker, if all are there");

/* The least walkers of a block for heads of up to so many dimensions: of the largest one finds room. */
__host__ __device__ constexpr int walkers_of(int dims) {
    return dims > 256 ? 1 : WALKERS;
}
/* Levels of the tree in which a walker's sum waits for another, where a block has 1, 2 or 4 walkers and a cluster 2^rank_bits blocks. */
__host__ __device__ constexpr int levels_of(int walkers, int rank_bits) {
    return PART_BITS - walkers / 2 - rank_bits;
}
/* Pairs of numbers that a thread has of 8 queries' sums: maximum and sum, and values. */
__host__ __device__ constexpr int pairs_of(int dims) {
    return 1 + dims / 32;
}

/* Keys and values of a split in shared memory: 8 dims a place, and those of a row change places (swizzled). FP8 comes as codes and scales, and
 * values are widened there. */
template <int DH, bool IS_FP8> struct stage { uint4 keys[SPLIT][DH / 8], values[SPLIT][DH / 8]; };
template <int DH> struct stage<DH, true> {
    uint2 keys[SPLIT][DH / 8], codes[SPLIT][DH / 8];
    uint4 values[SPLIT][DH / 8];
    uint4 key_scales[BLOCKS], value_scales[BLOCKS]; /* a byte a row */
};

/* Shared memory for heads of up to DH dimensions and TILES times 8 queries, and STAGES splits of each walker. Queries are the rows of a for
 * scores, two tiles at once. */
template <int DH, int TILES, int STAGES, bool IS_FP8> struct plan {
    static constexpr int DIMS = DH, QUERIES = 8 * TILES, STRIDE = SPLIT + 8 /* other banks */;
    /* High and low parts as the lanes of mma take them, of two tiles first one, then the other; of a tile alone both at once. */
    uint4 queries[TILES][DH / 16][32];
    struct {
        struct {
            uint16_t high[QUERIES][STRIDE], low[QUERIES][STRIDE];
        } weights;                    /* of a split's keys, high + low */
        float4 of_warps[QUERIES];     /* each one's maximum of a split */
        float2 state[QUERIES][WARPS]; /* the maximum, and the sum of each warp's keys */
        union {
            struct stage<DH, IS_FP8> stages[STAGES];
            float out[QUERIES][DH + 4]; /* when all values are used up */
        };
    } walkers[WALKERS_ALL]; /* the last ones only if there are so many */
    static constexpr size_t bytes(int count) {
        return sizeof(struct plan) - (WALKERS_ALL - count) * sizeof(walkers[0]);
    }
    /* Sums that wait (attention_tree.cuh). Those of few queries lie behind the plan, as memory of all threads would be more than the first
     * cache. */
    static constexpr bool HOLDS_SUMS = TILES == 1 && DH <= 256;
    static constexpr size_t bytes_of_sums(int count, int levels) {
        return HOLDS_SUMS ? sizeof(float2) * TILES * pairs_of(DH) * count * WARPS * 32 * levels : 0;
    }
};

/* This thread's walker in its block. */
__device__ __forceinline__ int own_walker(void) {
    return threadIdx.x / (WARPS * 32);
}

/* What the threads of a cluster work on. */
struct chunk {
    int b, head, group, first_query, count;
    int nearest, last, oldest; /* least and largest position of a row; no key before `oldest` is visible to any */
    int begins;                /* the pass: at this position */
    const int *pages;
};

/* Two numbers as high + low. */
template <typename T> __device__ __forceinline__ void cut(float x, float y, uint32_t *high, uint32_t *low) {
    *high = pack(x, y, T());
    const float2 rounded = to_floats(*reinterpret_cast<typename pair_of<T>::type *>(high));
    *low = pack(x - rounded.x, y - rounded.y, T());
}

/* The part of a chunk that the launch decides. */
__device__ __forceinline__ struct chunk find_chunk(const struct op_attention &op, int chunks, int index, int queries) {
    struct chunk c = {};
    c.group = quotient(op.heads, op.kv_heads);
    c.b = quotient(index, chunks), c.head = blockIdx.y, c.first_query = (index - c.b * chunks) * queries;
    c.count = min(op.rows.q_len * c.group - c.first_query, queries);
    return c;
}

/* The row and head of a query as one index. */
__device__ __forceinline__ int row_head(const struct op_attention &op, const struct chunk &c, int query) {
    const int i = c.first_query + query, row = quotient(i, c.group);
    return (c.b * op.rows.q_len + row) * op.heads + (c.head - row) * c.group + i;
}

/* What one of the first LOADERS threads loads before it looks for keys: 8 elements of each of some queries, and the positions of
 * queries 8 tile + lane / 4, -1 past the chunk. Indexes first, as they need no input. */
template <int DH, int TILES> struct inputs {
    static constexpr int EIGHTS = DH / 8, LOADERS = walkers_of(DH) * WARPS * 32,
                         LOADS = (8 * TILES * EIGHTS + LOADERS - 1) / LOADERS;
    float4 x[LOADS], y[LOADS];
    int position[TILES];
    int row_head[LOADS], row[TILES]; /* -1: none */
};

template <int DH, int TILES>
__device__ __forceinline__ void index_inputs(struct inputs<DH, TILES> &in, const struct op_attention &op,
                                             const struct chunk &c) {
    constexpr int EIGHTS = inputs<DH, TILES>::EIGHTS, LOADERS = inputs<DH, TILES>::LOADERS;
#pragma unroll
    for (int n = 0; n < inputs<DH, TILES>::LOADS; n++) {
        const int query = (n * LOADERS + threadIdx.x) / EIGHTS;
        in.row_head[n] = query < c.count && threadIdx.x < LOADERS ? row_head(op, c, query) : -1;
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const int query = 8 * tile + threadIdx.x % 32 / 4;
        in.row[tile] = query < c.count ? c.b * op.rows.q_len + quotient(c.first_query + query, c.group) : -1;
    }
}

template <int DH, int TILES>
__device__ __forceinline__ void load_positions(struct inputs<DH, TILES> &in, const struct op_attention &op) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
        in.position[tile] = in.row[tile] < 0 ? -1 : load_fixed(rows_sight(&op.rows) + in.row[tile]);
}

/* The chunk number `index` of a graph row and key head, with what positions say of it. */
template <int DH, int TILES>
__device__ __forceinline__ struct chunk open_chunk(struct inputs<DH, TILES> &in, const struct op_attention &op,
                                                   int chunks, int index) {
    struct chunk c = find_chunk(op, chunks, index, 8 * TILES);
    const int *first = op.rows.positions + c.b * op.rows.q_len, *seen = rows_sight(&op.rows) + c.b * op.rows.q_len,
              *nearest = seen + quotient(c.first_query, c.group),
              *last = seen + quotient(c.first_query + c.count - 1, c.group);
    index_inputs(in, op, c);
    c.pages = op.rows.page_table + (size_t)load_fixed(op.rows.row_slot + c.b) * op.rows.pages_per_slot;
    c.nearest = load_fixed(nearest), c.last = load_fixed(last);
    c.begins = load_fixed(first);
    load_positions(in, op);
    c.oldest = op.window > 0 ? max(max(c.nearest, 0) - op.window + 1, 0) : 0;
    return c;
}

template <int DH, int TILES>
__device__ __forceinline__ void load_queries(struct inputs<DH, TILES> &in, const struct op_attention &op) {
    constexpr int EIGHTS = inputs<DH, TILES>::EIGHTS, LOADERS = inputs<DH, TILES>::LOADERS;
#pragma unroll
    for (int n = 0; n < inputs<DH, TILES>::LOADS; n++) {
        const int d = (n * LOADERS + threadIdx.x) % EIGHTS * 8;
        in.x[n] = in.y[n] = make_float4(0, 0, 0, 0);
        if (in.row_head[n] < 0 || d >= op.head_dim) continue;
        const float4 *q = (const float4 *)(op.q + (size_t)in.row_head[n] * op.head_dim + d);
        in.x[n] = q[0], in.y[n] = q[1];
    }
}

/* Number `eighth` of a row's eights of dims: four pairs, of which a lane of mma takes two as the halves of 16 dims, and two more as those
 * of the next. Keys lie in memory so, and the order of dims in a sum is free. */
template <typename T, typename Plan, int DH, int TILES>
__device__ __forceinline__ void put_queries(Plan &s, const struct inputs<DH, TILES> &in) {
    constexpr int EIGHTS = inputs<DH, TILES>::EIGHTS, LOADERS = inputs<DH, TILES>::LOADERS;
#pragma unroll
    for (int n = 0; n < inputs<DH, TILES>::LOADS; n++) {
        const int i = n * LOADERS + threadIdx.x, query = i / EIGHTS, eighth = i % EIGHTS;
        if (query >= 8 * TILES || threadIdx.x >= LOADERS) continue;
        const float pairs[4][2] = {
            {in.x[n].x, in.x[n].y}, {in.x[n].z, in.x[n].w}, {in.y[n].x, in.y[n].y}, {in.y[n].z, in.y[n].w}};
        const int lane = query % 8 * 4 + eighth % 4, tile = query / 8;
        const bool is_alone = TILES % 2 == 1 && tile == TILES - 1;
        auto &high = s.queries[tile / 2 * 2], &low = s.queries[is_alone ? tile : tile / 2 * 2 + 1];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int sixteen = eighth / 4 * 2 + j / 2, at = j % 2 * 2;
            cut<T>(pairs[j][0], pairs[j][1], (uint32_t *)&high[sixteen][lane] + at + (is_alone ? 0 : tile % 2),
                   (uint32_t *)&low[sixteen][lane] + at + (is_alone ? 1 : tile % 2));
        }
    }
}

/* Where 8 dims of a row lie in a stage: those of 8 rows in as many banks, and of two neighbours 64 bytes beside each other. */
__device__ __forceinline__ int swizzled(int row, int eighth) {
    return eighth ^ (row % 2 * 4 | row / 2 % 4);
}

__device__ __forceinline__ void copy_place(uint4 *to, const uint4 *from, bool wanted) {
    copy_async_once(to, from, wanted);
}
__device__ __forceinline__ void copy_place(uint2 *to, const uint2 *from, bool wanted) {
    copy_async_once_8(to, from, wanted);
}

/* A lane's places of 16 rows of a split that its warp copies: whole rows by neighbouring lanes, from row `row` of the split on. */
template <int DH> struct places {
    static constexpr int EIGHTS = DH / 8, AT_ONCE = EIGHTS < 32 ? 32 / EIGHTS : 1, LOADS = KEYS / AT_ONCE,
                         OF_ROW = EIGHTS < 32 ? 1 : EIGHTS / 32;
    int row, eighth;
    __device__ __forceinline__ places()
        : row(threadIdx.x / 32 % WARPS * KEYS + threadIdx.x % 32 / EIGHTS), eighth(threadIdx.x % 32 % EIGHTS) {}
};

/* Asks for the split at `first` of keys, or values, of a head, which lie in a page from `head` on; zeros for those that no query sees. */
template <int DH, typename Place>
__device__ __forceinline__ void copy_rows(Place (&to)[SPLIT][DH / 8], const void *head, const struct op_attention &op,
                                          const struct chunk &c, int first) {
    typedef places<DH> places;
    const places at;
    const int pitch = op.head_dim / 8;
    const Place *from = (const Place *)head + ((first % KV_PAGE + at.row) * pitch + at.eighth);
#pragma unroll
    for (int i = 0; i < places::LOADS; i++) {
        const int row = at.row + i * places::AT_ONCE, key = first + row;
#pragma unroll
        for (int j = 0; j < places::OF_ROW; j++) {
            const int eighth = at.eighth + 32 * j;
            copy_place(&to[row][swizzled(row, eighth)], from + i * places::AT_ONCE * pitch + 32 * j,
                       key <= c.last && key >= c.oldest && eighth < pitch);
        }
    }
}

/* A key/value head's numbers in a page of 16 bits. */
__device__ __forceinline__ const uint16_t *find_cells(const struct op_attention &op, const void *cache, int page,
                                                      int head) {
    const unsigned of_head = KV_PAGE * op.head_dim;
    return (const uint16_t *)cache + ((size_t)page * (op.kv_heads * of_head) + head * of_head);
}

/* Ask for keys, and for values, of the split at `first`, if it is wanted: a group of copies either way. */
template <int DH>
__device__ __forceinline__ void begin_keys(struct stage<DH, false> &to, const struct op_attention &op,
                                           const struct chunk &c, int page, int first, bool is_wanted) {
    if (is_wanted) copy_rows<DH>(to.keys, find_cells(op, op.kv.k, page, c.head), op, c, first);
    copies_commit_group();
}
template <int DH>
__device__ __forceinline__ void begin_values(struct stage<DH, false> &to, const struct op_attention &op,
                                             const struct chunk &c, int page, int first, bool is_wanted) {
    if (is_wanted) copy_rows<DH>(to.values, find_cells(op, op.kv.v, page, c.head), op, c, first);
    copies_commit_group();
}
template <int DH>
__device__ __forceinline__ void begin_codes(uint2 (&codes)[SPLIT][DH / 8], uint4 (&scales)[BLOCKS], const void *cache,
                                            const struct op_attention &op, const struct chunk &c, int page, int first,
                                            bool is_wanted) {
    if (is_wanted) {
        const struct coded from = find_coded(op, cache, page, c.head);
        const int warp = threadIdx.x / 32 % WARPS;
        copy_rows<DH>(codes, from.codes, op, c, first);
        if (threadIdx.x % 32 == 0) copy_async_once(&scales[warp], from.scales + first % KV_PAGE + warp * KEYS, true);
    }
    copies_commit_group();
}
template <int DH>
__device__ __forceinline__ void begin_keys(struct stage<DH, true> &to, const struct op_attention &op,
                                           const struct chunk &c, int page, int first, bool is_wanted) {
    begin_codes<DH>(to.keys, to.key_scales, op.kv.k, op, c, page, first, is_wanted);
}
template <int DH>
__device__ __forceinline__ void begin_values(struct stage<DH, true> &to, const struct op_attention &op,
                                             const struct chunk &c, int page, int first, bool is_wanted) {
    begin_codes<DH>(to.codes, to.value_scales, op.kv.v, op, c, page, first, is_wanted);
}

/* What the codes of a row of the split at `first` are multiplied by; zeros stand for rows that no query sees. */
__device__ __forceinline__ float factor_of(const uint4 (&scales)[BLOCKS], const struct chunk &c, int first, int row) {
    const int key = first + row;
    return fp8_factor(key <= c.last && key >= c.oldest ? ((const uint8_t *)scales)[row] : (uint8_t)SCALE_ONE);
}

/* A warp's 16 keys, as lanes of mma take them: dims 32 i + 8 (lane % 4) of keys lane / 4 and lane / 4 + 8. */
template <int DH> struct held_keys { uint4 x[2][DH / 32]; };

/* The warp's keys of the split at `first`, in 16 bits. */
template <typename T, int DH>
__device__ __forceinline__ void take_keys(struct held_keys<DH> &k, const struct stage<DH, false> &from,
                                          const struct chunk &, int) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % WARPS * KEYS + lane / 4;
#pragma unroll
    for (int i = 0; i < DH / 16; i++) {
        const int at = row + i % 2 * 8;
        k.x[i % 2][i / 2] = from.keys[at][swizzled(at, i / 2 * 4 + lane % 4)];
    }
}
template <typename T, int DH>
__device__ __forceinline__ void take_keys(struct held_keys<DH> &k, const struct stage<DH, true> &from,
                                          const struct chunk &c, int first) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % WARPS * KEYS + lane / 4;
    const float factors[2] = {factor_of(from.key_scales, c, first, row), factor_of(from.key_scales, c, first, row + 8)};
#pragma unroll
    for (int i = 0; i < DH / 16; i++) {
        const int at = row + i % 2 * 8;
        k.x[i % 2][i / 2] = widen_eight<T>(from.keys[at][swizzled(at, i / 2 * 4 + lane % 4)], factors[i % 2]);
    }
}

/* The values that the warp copied, in 16 bits. */
template <typename T, int DH>
__device__ __forceinline__ void widen_values(struct stage<DH, false> &, const struct chunk &, int) {}
template <typename T, int DH>
__device__ __forceinline__ void widen_values(struct stage<DH, true> &s, const struct chunk &c, int first) {
    typedef places<DH> places;
    const places at;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < places::LOADS; i++) {
        const int row = at.row + i * places::AT_ONCE;
        const float factor = factor_of(s.value_scales, c, first, row);
#pragma unroll
        for (int j = 0; j < places::OF_ROW; j++) {
            const int place = swizzled(row, at.eighth + 32 * j);
            s.values[row][place] = widen_eight<T>(s.codes[row][place], factor);
        }
    }
}

#endif
