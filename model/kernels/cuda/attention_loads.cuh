/* What attention_cluster.cu and attention_staged.cu load: their chunk of queries, and keys and values of a split. */
#ifndef DUET_MODEL_KERNELS_CUDA_ATTENTION_LOADS_CUH
#define DUET_MODEL_KERNELS_CUDA_ATTENTION_LOADS_CUH

#include "model/kernels/cuda/attention_cells.cuh"
#include "model/kernels/cuda/tiles.cuh"

enum {
    SPLIT = ATTENTION_SPLIT,
    PARTS = ATTENTION_PARTS,
    STEP = PARTS * SPLIT, /* from a split to the next of its part */
    KEYS = 16,            /* of an mma */
    BLOCKS = SPLIT / KEYS,
    WARPS = 4,       /* a walker */
    WALKERS = 2,     /* a block, or */
    WALKERS_ALL = 4, /* where a multiprocessor has one block in place of two */
    RANKS = 8,       /* at most */
    LEVELS = 3,      /* of the tree, in which a sum of a single rank waits for another */
    NO_LEAF = PARTS,
    THREADS = WALKERS * WARPS * 32,
    THREADS_ALL = WALKERS_ALL * WARPS * 32
};
static_assert(WARPS == BLOCKS, "a warp scores a block of keys");
static_assert(PARTS == WALKERS * RANKS, "a part for each walker, if all are there");

/* Keys and values of a split in 16 bits, as they lie in memory; the 16 bytes of a row change places (swizzled). */
template <int DH> struct stage { uint4 keys[SPLIT][DH / 8], values[SPLIT][DH / 8]; };

/* Shared memory for heads of up to DH dimensions and TILES times 8 queries. Queries are the rows of a for scores, two tiles at once. STAGES:
 * the splits that a walker has there; 0: the values of one. */
template <int DH, int TILES, int STAGES = 0> struct plan {
    static constexpr int QUERIES = 8 * TILES, STRIDE = SPLIT + 8 /* other banks */;
    /* High and low parts as the lanes of mma take them, of two tiles first one, then the other; of a tile alone both at once. */
    uint4 queries[TILES][DH / 16][32];
    struct {
        struct {
            uint16_t high[QUERIES][STRIDE], low[QUERIES][STRIDE];
        } weights;                    /* of a split's keys, high + low */
        float4 of_warps[QUERIES];     /* each one's maximum of a split */
        float2 state[QUERIES][WARPS]; /* the maximum, and the sum of each warp's keys */
        union {
            typename std::conditional<STAGES == 0, uint16_t[SPLIT][DH + 8], struct stage<DH>[STAGES]>::type cells;
            float out[QUERIES][DH + 4]; /* when all values are used up */
        };
    } walkers[WALKERS_ALL]; /* the last two only if there are so many */
    static constexpr size_t bytes(int count) {
        return sizeof(struct plan) - (WALKERS_ALL - count) * sizeof(walkers[0]);
    }
    /* Sums that wait (attention_tree.cuh), in pairs of numbers, so many a thread and tile. Those of few queries lie behind the plan, as
     * memory of all threads would be more than the first cache. */
    static constexpr int PAIRS = 1 + DH / 32;
    static constexpr bool HOLDS_SUMS = TILES == 1 ? DH <= 256 : TILES == 2 && DH <= 128;
    static constexpr size_t bytes_of_sums(int count, int levels) {
        return HOLDS_SUMS ? sizeof(float2) * TILES * PAIRS * count * WARPS * 32 * levels : 0;
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
    int begins;                /* the pass, if that is wanted: at this position */
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

/* What one of the first THREADS threads loads before it looks for keys: 8 elements of each of some queries, and the positions of
 * queries 8 tile + lane / 4, -1 past the chunk. Indexes first, as they need no input. */
template <int DH, int TILES> struct inputs {
    static constexpr int EIGHTS = DH / 8, LOADS = (8 * TILES * EIGHTS + THREADS - 1) / THREADS;
    float4 x[LOADS], y[LOADS];
    int position[TILES];
    int row_head[LOADS], row[TILES]; /* -1: none */
};

template <int DH, int TILES>
__device__ __forceinline__ void index_inputs(struct inputs<DH, TILES> &in, const struct op_attention &op,
                                             const struct chunk &c) {
    constexpr int EIGHTS = inputs<DH, TILES>::EIGHTS;
#pragma unroll
    for (int n = 0; n < inputs<DH, TILES>::LOADS; n++) {
        const int query = (n * THREADS + threadIdx.x) / EIGHTS;
        in.row_head[n] = query < c.count && threadIdx.x < THREADS ? row_head(op, c, query) : -1;
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
        in.position[tile] = in.row[tile] < 0 ? -1 : load_fixed(op.rows.positions + in.row[tile]);
}

/* The chunk number `index` of a graph row and key head, with what positions say of it. IS_EARLY: and where the pass begins. */
template <int DH, int TILES, bool IS_EARLY>
__device__ __forceinline__ struct chunk open_chunk(struct inputs<DH, TILES> &in, const struct op_attention &op,
                                                   int chunks, int index) {
    struct chunk c = find_chunk(op, chunks, index, 8 * TILES);
    const int *first = op.rows.positions + c.b * op.rows.q_len, *nearest = first + quotient(c.first_query, c.group),
              *last = first + quotient(c.first_query + c.count - 1, c.group);
    index_inputs(in, op, c);
    c.pages = op.rows.page_table + (size_t)load_fixed(op.rows.row_slot + c.b) * op.rows.pages_per_slot;
    c.nearest = load_fixed(nearest), c.last = load_fixed(last);
    c.begins = IS_EARLY ? load_fixed(first) : 0;
    load_positions(in, op);
    c.oldest = op.window > 0 ? max(max(c.nearest, 0) - op.window + 1, 0) : 0;
    return c;
}

template <int DH, int TILES>
__device__ __forceinline__ void load_queries(struct inputs<DH, TILES> &in, const struct op_attention &op) {
    constexpr int EIGHTS = inputs<DH, TILES>::EIGHTS;
#pragma unroll
    for (int n = 0; n < inputs<DH, TILES>::LOADS; n++) {
        const int d = (n * THREADS + threadIdx.x) % EIGHTS * 8;
        in.x[n] = in.y[n] = make_float4(0, 0, 0, 0);
        if (in.row_head[n] < 0 || d >= op.head_dim) continue;
        const float4 *q = (const float4 *)(op.q + (size_t)in.row_head[n] * op.head_dim + d);
        in.x[n] = q[0], in.y[n] = q[1];
    }
}

/* Number `eighth` of a row's eights of dims: four pairs, of which a lane of mma takes two as the halves of 16 dims, and two more as those
 * of the next. Keys lie in memory so, and the order of dims in a sum is free. */
template <typename T, int DH, int TILES, int STAGES>
__device__ __forceinline__ void put_queries(struct plan<DH, TILES, STAGES> &s, const struct inputs<DH, TILES> &in) {
    constexpr int EIGHTS = inputs<DH, TILES>::EIGHTS;
#pragma unroll
    for (int n = 0; n < inputs<DH, TILES>::LOADS; n++) {
        const int i = n * THREADS + threadIdx.x, query = i / EIGHTS, eighth = i % EIGHTS;
        if (query >= 8 * TILES || threadIdx.x >= THREADS) continue;
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

/* A lane's first element of the split at `first`; `from` is that of a page's first split, in the page. */
__device__ __forceinline__ const uint16_t *split_cells(const void *cache, const struct op_attention &op, int page,
                                                       int first, unsigned from) {
    const unsigned of_page = op.kv_heads * op.head_dim * KV_PAGE, in_page = first % KV_PAGE * op.head_dim + from;
    return (const uint16_t *)cache + ((size_t)page * of_page + in_page);
}

/* 16 or 8 bytes past the first cache if they are wanted, else what was there. Without a branch: behind one, registers would be moved, which
 * waits for what they are to hold. Lanes ask for 64 bytes of a row at once, so L2 is asked for the line; that drops it first, and keeps
 * sums that wait. */
__device__ __forceinline__ void load_wanted(uint4 &x, const void *from, bool wanted) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
                 "@p ld.global.cg.L2::cache_hint.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4], %6;\n}"
                 : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)
                 : "l"(__cvta_generic_to_global(from)), "r"((int)wanted), "l"(dropped_first())
                 : "memory");
}
__device__ __forceinline__ void load_wanted(uint2 &x, const void *from, bool wanted) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n"
                 "@p ld.global.cg.L2::cache_hint.L2::128B.v2.u32 {%0, %1}, [%2], %4;\n}"
                 : "+r"(x.x), "+r"(x.y)
                 : "l"(__cvta_generic_to_global(from)), "r"((int)wanted), "l"(dropped_first())
                 : "memory");
}

/* A warp's 16 keys, in registers: dims 32 i + 8 (lane % 4) of keys lane / 4 and lane / 4 + 8. */
template <int DH, bool IS_FP8> struct held_keys {
    uint4 x[2][DH / 32];
    unsigned from; /* where in a page the lane's first element of a page's first split lies */
    __device__ __forceinline__ held_keys() {}
    __device__ __forceinline__ held_keys(const struct op_attention &op, const struct chunk &c) {
        const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % WARPS * KEYS + lane / 4;
        from = (c.head * KV_PAGE + row) * op.head_dim + lane % 4 * 8;
    }
};
template <int DH> struct held_keys<DH, true> {
    uint2 x[2][DH / 32];
    int scale[2];
    __device__ __forceinline__ held_keys(const struct op_attention &, const struct chunk &) {}
};

/* What stands for keys that no query sees. */
template <int DH> __device__ __forceinline__ void clear(struct held_keys<DH, false> &k) {
#pragma unroll
    for (int i = 0; i < DH / 16; i++) k.x[i % 2][i / 2] = make_uint4(0, 0, 0, 0);
}
template <int DH> __device__ __forceinline__ void clear(struct held_keys<DH, true> &k) {
#pragma unroll
    for (int i = 0; i < DH / 16; i++) k.x[i % 2][i / 2] = make_uint2(0, 0);
    k.scale[0] = k.scale[1] = SCALE_ONE;
}

/* Those of the split at `first` that some query sees, if the split is wanted. */
template <int DH>
__device__ __forceinline__ void load_keys(struct held_keys<DH, false> &k, const struct op_attention &op,
                                          const struct chunk &c, int page, int first, bool is_wanted) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % WARPS * KEYS + lane / 4, dims = lane % 4 * 8;
    const uint16_t *cells = split_cells(op.kv.k, op, page, first, k.from);
#pragma unroll
    for (int half_tile = 0; half_tile < 2; half_tile++) {
        const int key = first + row + half_tile * 8;
        const bool wanted = is_wanted && key <= c.last && key >= c.oldest;
#pragma unroll
        for (int i = 0; i < DH / 32; i++)
            load_wanted(k.x[half_tile][i], cells + half_tile * 8 * op.head_dim + 32 * i,
                        wanted && 32 * i + dims < op.head_dim);
    }
}
template <int DH>
__device__ __forceinline__ void load_keys(struct held_keys<DH, true> &k, const struct op_attention &op,
                                          const struct chunk &c, int page, int first, bool is_wanted) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS;
    const struct coded from = find_coded(op, op.kv.k, page, c.head);
#pragma unroll
    for (int half_tile = 0; half_tile < 2; half_tile++) {
        const int key = warp * KEYS + half_tile * 8 + lane / 4, at = first % KV_PAGE + key;
        const bool wanted = is_wanted && first + key <= c.last && first + key >= c.oldest;
        if (wanted) k.scale[half_tile] = __ldcg(from.scales + at);
#pragma unroll
        for (int i = 0; i < DH / 32; i++) {
            const int d = 32 * i + lane % 4 * 8;
            load_wanted(k.x[half_tile][i], from.codes + at * op.head_dim + d, wanted && d < op.head_dim);
        }
    }
}

/* Where number `chunk` of a row's 16 bytes lies in a stage: 8 rows' in as many banks, and those of two neighbours' 64 bytes, too. */
__device__ __forceinline__ int swizzled(int row, int chunk) {
    return chunk ^ (row % 2 * 4 | row / 2 % 4);
}

/* Asks for the keys or values of the split at `first`, 16 a warp, whole rows by neighbouring lanes; zeros for those that no query sees. */
template <int DH>
__device__ __forceinline__ void copy_rows(uint4 (&to)[SPLIT][DH / 8], const void *cache, const struct op_attention &op,
                                          const struct chunk &c, int page, int first) {
    constexpr int CHUNKS = DH / 8, AT_ONCE = 32 / CHUNKS;
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % WARPS * KEYS + lane / CHUNKS, chunk = lane % CHUNKS;
    const uint16_t *cells = split_cells(cache, op, page, first, (c.head * KV_PAGE + row) * op.head_dim + chunk * 8);
#pragma unroll
    for (int i = 0; i < KEYS / AT_ONCE; i++) {
        const int at = row + i * AT_ONCE, key = first + at;
        copy_async_once(&to[at][swizzled(at, chunk)], cells + i * AT_ONCE * op.head_dim,
                        key <= c.last && key >= c.oldest && chunk * 8 < op.head_dim);
    }
}

/* The warp's keys of a stage, as load_keys has them. */
template <int DH>
__device__ __forceinline__ void take_keys(struct held_keys<DH, false> &k, const uint4 (&keys)[SPLIT][DH / 8]) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % WARPS * KEYS + lane / 4;
#pragma unroll
    for (int i = 0; i < DH / 16; i++) {
        const int at = row + i % 2 * 8;
        k.x[i % 2][i / 2] = keys[at][swizzled(at, i / 2 * 4 + lane % 4)];
    }
}

/* In 16 bits. */
template <typename T, int DH>
__device__ __forceinline__ const struct held_keys<DH, false> &widen_keys(const struct held_keys<DH, false> &k) {
    return k;
} template <typename T, int DH>
__device__ __forceinline__ struct held_keys<DH, false> widen_keys(const struct held_keys<DH, true> &k) {
    struct held_keys<DH, false> wide;
#pragma unroll
    for (int i = 0; i < DH / 16; i++)
        wide.x[i % 2][i / 2] = widen_eight<T>(k.x[i % 2][i / 2], fp8_factor(k.scale[i % 2]));
    return wide;
}

/* A warp's quarter of the dims of 64 values, in shared memory; zeros for those that no query sees. Nobody else reads them. FP8 waits
 * there as it came, in the second half of each quarter, and the lanes keep the scales of values lane and lane + 32. */
template <int DH, bool IS_FP8>
struct held_values {
    unsigned from; /* where in a page the lane's first element of a page's first split lies */
    __device__ __forceinline__ held_values(const struct op_attention &op, const struct chunk &c) {
        constexpr int EIGHTS = DH / WARPS / 8;
        const int lane = threadIdx.x % 32, d = threadIdx.x / 32 % WARPS * (DH / WARPS) + lane % EIGHTS * 8;
        from = (c.head * KV_PAGE + lane / EIGHTS) * op.head_dim + d;
    }
};
template <int DH> struct held_values<DH, true> {
    int scale[2];
    __device__ __forceinline__ held_values(const struct op_attention &, const struct chunk &) {}
};

template <int DH>
__device__ __forceinline__ void load_values(struct held_values<DH, false> &v, uint16_t (&values)[SPLIT][DH + 8],
                                            const struct op_attention &op, const struct chunk &c, int page, int first) {
    constexpr int EIGHTS = DH / WARPS / 8, AT_ONCE = 32 / EIGHTS;
    const int lane = threadIdx.x % 32, d = threadIdx.x / 32 % WARPS * (DH / WARPS) + lane % EIGHTS * 8,
              key = lane / EIGHTS;
    uint16_t *to = &values[key][d];
    const uint16_t *cells = split_cells(op.kv.v, op, page, first, v.from);
    if (first >= c.oldest && first + SPLIT - 1 <= c.last && op.head_dim == DH) { /* all of it, at constant distances */
#pragma unroll
        for (int i = 0; i < SPLIT / AT_ONCE; i++)
            copy_async_once(to + i * AT_ONCE * (DH + 8), cells + i * AT_ONCE * DH, true);
        return;
    }
    /* of keys from the first to the last that are wanted */
    const unsigned after = (unsigned)(first + key - c.oldest),
                   count = d < op.head_dim && c.last >= c.oldest ? (unsigned)(c.last - c.oldest + 1) : 0;
#pragma unroll
    for (int i = 0; i < SPLIT / AT_ONCE; i++)
        copy_async_once(to + i * AT_ONCE * (DH + 8), cells + (size_t)(i * AT_ONCE) * op.head_dim,
                        after + i * AT_ONCE < count);
}
template <typename T, int DH>
__device__ __forceinline__ void wait_for_values(const struct held_values<DH, false> &, uint16_t (&)[SPLIT][DH + 8]) {
    copies_wait_all();
    __syncwarp();
}

/* Where a lane's codes of a value wait: the second half of the warp's quarter. */
template <int DH> __device__ __forceinline__ uint8_t *code_place(uint16_t (&values)[SPLIT][DH + 8], int key) {
    constexpr int EIGHTS = DH / WARPS / 8, QUARTER = DH / WARPS;
    return (uint8_t *)&values[key][threadIdx.x / 32 % WARPS * QUARTER + QUARTER / 2] + threadIdx.x % EIGHTS * 8;
}
template <int DH>
__device__ __forceinline__ void load_values(struct held_values<DH, true> &v, uint16_t (&values)[SPLIT][DH + 8],
                                            const struct op_attention &op, const struct chunk &c, int page, int first) {
    constexpr int EIGHTS = DH / WARPS / 8;
    const int lane = threadIdx.x % 32, d = threadIdx.x / 32 % WARPS * (DH / WARPS) + lane % EIGHTS * 8;
    const struct coded from = find_coded(op, op.kv.v, page, c.head);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int key = lane + 32 * i;
        v.scale[i] = (first + key <= c.last && first + key >= c.oldest) ? __ldcg(from.scales + first % KV_PAGE + key)
                                                                        : SCALE_ONE;
    }
#pragma unroll
    for (int i = 0; i < SPLIT * EIGHTS / 32; i++) {
        const int key = i * (32 / EIGHTS) + lane / EIGHTS;
        const bool wanted = first + key <= c.last && first + key >= c.oldest && d < op.head_dim;
        const uint8_t *at = wanted ? from.codes + (first % KV_PAGE + key) * op.head_dim + d : from.codes;
        copy_async_once_8(code_place<DH>(values, key), at, wanted);
    }
}
/* A value is widened by the lanes that have read its codes. */
template <typename T, int DH>
__device__ __forceinline__ void wait_for_values(const struct held_values<DH, true> &v,
                                                uint16_t (&values)[SPLIT][DH + 8]) {
    constexpr int EIGHTS = DH / WARPS / 8;
    const int lane = threadIdx.x % 32, d = threadIdx.x / 32 % WARPS * (DH / WARPS) + lane % EIGHTS * 8;
    copies_wait_all();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < SPLIT * EIGHTS / 32; i++) {
        const int key = i * (32 / EIGHTS) + lane / EIGHTS;
        const uint2 codes = *(const uint2 *)code_place<DH>(values, key);
        const int scale = __shfl_sync(0xffffffffu, v.scale[i / EIGHTS], key % 32);
        __syncwarp();
        *(uint4 *)&values[key][d] = widen_eight<T>(codes, fp8_factor((uint8_t)scale));
    }
    __syncwarp();
}

#endif
