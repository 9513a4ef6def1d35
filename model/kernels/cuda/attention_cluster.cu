/* Paged attention on tensor cores, for head sizes of whole 16 bytes, by clusters of blocks (cuda_takes_clusters).
 *
 * Shapes: q [T, H DH] f32; K, V pages [P, HKV, PAGE, DH] 16 bit; out [T, H DH] 16 bit.
 * Mapping: a query is one row and one of the H / HKV heads that share a key head; a chunk is up to 8 TILES queries of a graph
 *   row. Cluster (b, chunk | key/value head) of RANKS blocks; half a block, 4 warps, walks the splits of one part, rank or
 *   rank + RANKS, in ascending order with an online softmax a query. For the scores a warp owns 16 keys of a split and all
 *   dimensions, for the values all 64 keys and a quarter of the dimensions. Keys go from memory to the registers of mma,
 *   values by way of shared memory, each byte once a chunk; keys of the next split arrive while values are multiplied, and the
 *   other way round. In the end a block adds its two parts and the cluster its blocks, each in ascending order, through shared
 *   memory.
 * Bytes: every visible key and value once a chunk. FLOPs: 8 DH a query and visible key.
 * Numerics: queries are the columns of every mma, so their number and neighbours change no bit. q and the weights of the
 *   softmax are each a sum of two 16-bit numbers, which leaves an error near 2^-17 (f16 takes |q| up to 65504). A query's
 *   result is that of its own visible keys: scores of others are selected away; values that no query of the chunk may see are
 *   not read but zero; where not all queries see the same of 16 keys, queries of one position are multiplied on their own, with
 *   the values that they do not see put to zero, and a query that sees none keeps its sum. */
#include <math_constants.h>

#include "model/kernels/cuda/attention.cuh"
#include "model/kernels/cuda/product_mma.cuh"
#include "model/kernels/cuda/tiles.cuh"

enum {
    SPLIT = ATTENTION_SPLIT,
    STEP = ATTENTION_PARTS * SPLIT, /* from a split to the next of its part */
    KEYS = 16,                      /* of an mma */
    BLOCKS = SPLIT / KEYS,
    WARPS = 4, /* a part */
    RANKS = 8,
    PARTS = ATTENTION_PARTS / RANKS,
    THREADS = PARTS * WARPS * 32,
    SCORE_STRIDE = SPLIT + 8 /* keeps 8-byte reads off bank conflicts */
};
static_assert(WARPS == BLOCKS, "a warp scores a block of keys");

/* Shared memory for heads of up to DH dimensions and TILES times 8 queries. */
template <int DH, int TILES> struct plan {
    static constexpr int QUERIES = 8 * TILES;
    uint4 high[TILES][DH / 32][32], low[TILES][DH / 32][32]; /* q as the lanes of mma_half take it: high + low */
    float scores[PARTS][2][QUERIES][SCORE_STRIDE];           /* times log2(e); written and read in turns */
    union {
        uint16_t values[SPLIT][DH + 8];
        float out[QUERIES][DH + 4]; /* when all values are used up */
    } part[PARTS];
    float2 state[PARTS][QUERIES], merged[QUERIES]; /* maximum and sum */
};

/* What the threads of a cluster work on. */
struct chunk {
    int b, head, first_query, count;
    int nearest, last, oldest; /* least and largest position of a row; no key before `oldest` is visible to any */
    const int *pages;
};

/* Two numbers as high + low. */
__device__ __forceinline__ float2 unpack(uint32_t x, bf16) {
    return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162 *>(&x));
}
__device__ __forceinline__ float2 unpack(uint32_t x, half) {
    return __half22float2(*reinterpret_cast<__half2 *>(&x));
}
template <typename T> __device__ __forceinline__ void cut(float x, float y, uint32_t *high, uint32_t *low) {
    *high = pack(x, y, T());
    const float2 rounded = unpack(*high, T());
    *low = pack(x - rounded.x, y - rounded.y, T());
}

/* Which of two neighbouring keys a position sees, as a mask of a word. */
__device__ __forceinline__ uint32_t visible_pair(int key, int position, int window) {
    return (is_visible(key, position, window) ? 0x0000FFFFu : 0) |
           (is_visible(key + 1, position, window) ? 0xFFFF0000u : 0);
}

__device__ __forceinline__ struct chunk find_chunk(const struct op_attention &op, int chunks, int queries) {
    const int group = op.heads / op.kv_heads, index = blockIdx.x / RANKS;
    struct chunk c;
    c.b = index / chunks, c.head = blockIdx.y, c.first_query = index % chunks * queries;
    c.count = min(op.rows.q_len * group - c.first_query, queries);
    const int *positions = op.rows.positions + (size_t)c.b * op.rows.q_len;
    c.nearest = positions[c.first_query / group], c.last = positions[(c.first_query + c.count - 1) / group];
    c.oldest = op.window > 0 ? max(max(c.nearest, 0) - op.window + 1, 0) : 0;
    c.pages = op.rows.page_table + (size_t)op.rows.row_slot[c.b] * op.rows.pages_per_slot;
    return c;
}

/* Position of query 8 tile + lane / 4, -1 past the chunk. */
template <int TILES>
__device__ __forceinline__ void find_positions(int (&position)[TILES], const struct op_attention &op,
                                               const struct chunk &c) {
    const int group = op.heads / op.kv_heads;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        int query = 8 * tile + threadIdx.x % 32 / 4;
        position[tile] =
            query < c.count ? op.rows.positions[(size_t)c.b * op.rows.q_len + (c.first_query + query) / group] : -1;
    }
}

/* The row and head of a query as one index. */
__device__ __forceinline__ size_t row_head(const struct op_attention &op, const struct chunk &c, int query) {
    const int group = op.heads / op.kv_heads, i = c.first_query + query;
    return ((size_t)c.b * op.rows.q_len + i / group) * op.heads + c.head * group + i % group;
}

template <typename T, int DH, int TILES>
__device__ __forceinline__ void load_queries(struct plan<DH, TILES> &s, const struct op_attention &op,
                                             const struct chunk &c) {
    constexpr int EIGHTS = DH / 8;
#pragma unroll
    for (int i = threadIdx.x; i < 8 * TILES * EIGHTS; i += THREADS) {
        const int query = i / EIGHTS, d = i % EIGHTS * 8;
        float4 x = {}, y = {};
        if (query < c.count && d < op.head_dim) {
            const float4 *q = (const float4 *)(op.q + row_head(op, c, query) * op.head_dim + d);
            x = q[0], y = q[1];
        }
        uint4 high, low;
        cut<T>(x.x, x.y, &high.x, &low.x);
        cut<T>(x.z, x.w, &high.y, &low.y);
        cut<T>(y.x, y.y, &high.z, &low.z);
        cut<T>(y.z, y.w, &high.w, &low.w);
        const int lane = query % 8 * 4 + d / 8 % 4;
        s.high[query / 8][d / 32][lane] = high;
        s.low[query / 8][d / 32][lane] = low;
    }
}

/* Where the cell of a position begins, in elements. `first` begins a split. */
__device__ __forceinline__ size_t split_cell(const struct op_attention &op, const struct chunk &c, int page,
                                             int first) {
    return (((size_t)page * op.kv_heads + c.head) * KV_PAGE + first % KV_PAGE) * op.head_dim;
}

/* A warp's 16 keys: dims 32 i + 8 (lane % 4) of keys lane / 4 and lane / 4 + 8. */
template <typename T, int DH>
__device__ __forceinline__ void load_keys(uint4 (&k)[2][DH / 32], const struct op_attention &op, const struct chunk &c,
                                          int page, int first) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS;
    const T *cells = (const T *)op.kv.k + split_cell(op, c, page, first);
#pragma unroll
    for (int half_tile = 0; half_tile < 2; half_tile++) {
        const int key = warp * KEYS + half_tile * 8 + lane / 4;
        const bool wanted = first + key <= c.last && first + key >= c.oldest;
#pragma unroll
        for (int i = 0; i < DH / 32; i++) {
            const int d = 32 * i + lane % 4 * 8;
            k[half_tile][i] = make_uint4(0, 0, 0, 0);
            if (wanted && d < op.head_dim) k[half_tile][i] = __ldcg((const uint4 *)(cells + key * op.head_dim + d));
        }
    }
}

/* A warp's quarter of the dims of 64 values; zeros for those that no query sees. Nobody else reads them. */
template <int DH>
__device__ __forceinline__ void load_values(uint16_t (&values)[SPLIT][DH + 8], const struct op_attention &op,
                                            const struct chunk &c, int page, int first) {
    constexpr int EIGHTS = DH / WARPS / 8;
    const int lane = threadIdx.x % 32, d = threadIdx.x / 32 % WARPS * (DH / WARPS) + lane % EIGHTS * 8;
    const uint16_t *cells = (const uint16_t *)op.kv.v + split_cell(op, c, page, first) + d;
#pragma unroll
    for (int i = 0; i < SPLIT * EIGHTS / 32; i++) {
        const int key = i * (32 / EIGHTS) + lane / EIGHTS;
        const bool wanted = first + key <= c.last && first + key >= c.oldest && d < op.head_dim;
        copy_async(&values[key][d], wanted ? cells + key * op.head_dim : op.kv.v, wanted);
    }
}
__device__ __forceinline__ void wait_for_values() {
    copies_wait_all();
    __syncwarp();
}

/* A warp's 16 keys against all queries, to shared memory. */
template <typename T, int DH, int TILES>
__device__ __forceinline__ void score(struct plan<DH, TILES> &s, float (*scores)[SCORE_STRIDE],
                                      const uint4 (&k)[2][DH / 32], const int (&position)[TILES], int first, int window,
                                      float factor) {
    const int lane = threadIdx.x % 32, at = threadIdx.x / 32 % WARPS * KEYS + lane / 4;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        float sums[4][4] = {}; /* of high and low parts, of either half of 32 dims: short chains */
#pragma unroll
        for (int i = 0; i < DH / 32; i++) {
            const uint4 high = s.high[tile][i][lane], low = s.low[tile][i][lane];
#pragma unroll
            for (int second = 0; second < 2; second++) {
                mma_half<T>(sums[second], k[0][i], k[1][i], high, second);
                mma_half<T>(sums[2 + second], k[0][i], k[1][i], low, second);
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int query = lane % 4 * 2 + j % 2, key = at + j / 2 * 8;
            const int its_position = __shfl_sync(0xffffffffu, position[tile], query * 4);
            const float sum = (sums[0][j] + sums[1][j]) + (sums[2][j] + sums[3][j]);
            scores[8 * tile + query][key] =
                is_visible(first + key, its_position, window) ? sum * factor : -CUDART_INF_F;
        }
    }
}

/* Weights of a split for query lane / 4, high and low, as the registers of B. */
struct weights {
    uint32_t high[BLOCKS][2], low[BLOCKS][2];
};

/* Scores into weights, and the maximum and sum of the query; the factor that what was summed so far must take. */
template <typename T>
__device__ __forceinline__ float update_softmax(struct weights &w, const float *scores, float *max, float *sum) {
    const float *row = scores + threadIdx.x % 4 * 2;
    float2 p[BLOCKS][2];
    float largest = *max;
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS; i++) {
        p[i / 2][i % 2] = *(const float2 *)(row + i * 8);
        largest = fmaxf(largest, fmaxf(p[i / 2][i % 2].x, p[i / 2][i % 2].y));
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const float shift = largest == -CUDART_INF_F ? 0.0f : largest; /* no key yet: NaN alone may come out */
    float added = 0;
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS; i++) {
        float2 &x = p[i / 2][i % 2];
        x.x = exp2f(x.x - shift), x.y = exp2f(x.y - shift);
        added += x.x + x.y;
        cut<T>(x.x, x.y, &w.high[i / 2][i % 2], &w.low[i / 2][i % 2]);
    }
    added += __shfl_xor_sync(0xffffffffu, added, 1);
    added += __shfl_xor_sync(0xffffffffu, added, 2);
    const float keep = exp2f(*max - shift);
    *sum = fmaf(*sum, keep, added);
    *max = largest;
    return keep;
}

/* Whether both halves of a register are finite. */
__device__ __forceinline__ bool is_finite_pair(uint32_t x, bf16) {
    return (x & 0x7F80u) != 0x7F80u && (x & 0x7F800000u) != 0x7F800000u;
}
__device__ __forceinline__ bool is_finite_pair(uint32_t x, half) {
    return (x & 0x7C00u) != 0x7C00u && (x & 0x7C000000u) != 0x7C000000u;
}

/* 16 values, not all finite, of which not every query of the chunk sees all: position by position, with the others' sums left as
 * they are. */
template <typename T>
__device__ __forceinline__ void add_edge(float (&out)[4], const uint32_t (&v)[4], const uint32_t (&high)[2],
                                         const uint32_t (&low)[2], int position, int first, int window) {
    const int lane = threadIdx.x % 32, key = first + lane % 4 * 2;
    const int left = __shfl_sync(0xffffffffu, position, lane % 4 * 8),
              right = __shfl_sync(0xffffffffu, position, lane % 4 * 8 + 4);
    int before = -1;
#pragma unroll 1
    for (int query = 0; query < 8; query++) {
        const int now = __shfl_sync(0xffffffffu, position, query * 4);
        const bool is_done = now == before;
        before = now;
        if (is_done || now < first || (window > 0 && first + KEYS - 1 <= now - window)) continue;
        const uint32_t near = visible_pair(key, now, window), far = visible_pair(key + 8, now, window);
        const uint32_t a[4] = {v[0] & near, v[1] & near, v[2] & far, v[3] & far};
        float sum[4] = {out[0], out[1], out[2], out[3]};
        mma(sum, a, high[0], high[1], T());
        mma(sum, a, low[0], low[1], T());
        if (left == now) out[0] = sum[0], out[2] = sum[2];
        if (right == now) out[1] = sum[1], out[3] = sum[3];
    }
}

/* The weighted values of a split to the sums of 8 queries: lane l holds queries 2 (l % 4) and the next, of dims l / 4 and 8
 * further on of each 16. */
template <typename T, int DH>
__device__ __forceinline__ void add_values(float (&out)[DH / 64][4], const uint16_t (&values)[SPLIT][DH + 8],
                                           const struct weights &w, float keep, int position, const struct chunk &c,
                                           int first, int window) {
    const int lane = threadIdx.x % 32, d = threadIdx.x / 32 % WARPS * (DH / WARPS);
    const float left = __shfl_sync(0xffffffffu, keep, lane % 4 * 8),
                right = __shfl_sync(0xffffffffu, keep, lane % 4 * 8 + 4);
#pragma unroll
    for (int i = 0; i < DH / 64; i++) out[i][0] *= left, out[i][1] *= right, out[i][2] *= left, out[i][3] *= right;
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        const int at = first + block * KEYS, end = at + KEYS - 1;
        if (at > c.last || end < c.oldest) continue;
        const bool is_whole = end <= c.nearest && (window == 0 || at > c.last - window);
#pragma unroll
        for (int i = 0; i < DH / 64; i++) {
            uint32_t a[4]; /* 16 dims of 16 values */
            load_transposed(a, &values[block * KEYS + lane % 8 + lane / 16 * 8][d + 16 * i + lane / 8 % 2 * 8]);
            bool is_finite = true; /* then an invisible value's weight of 0 adds 0 */
#pragma unroll
            for (int j = 0; j < 4; j++) is_finite = is_finite && is_finite_pair(a[j], T());
            if (is_whole || __all_sync(0xffffffffu, is_finite)) {
                mma(out[i], a, w.high[block][0], w.high[block][1], T());
                mma(out[i], a, w.low[block][0], w.low[block][1], T());
            } else {
                add_edge<T>(out[i], a, w.high[block], w.low[block], position, at, window);
            }
        }
    }
}

/* A barrier of the warps of a part. Two instructions, as a number in a register would take all barriers of the block. */
__device__ __forceinline__ void sync_part(int half_block) {
    static_assert(PARTS == 2, "a barrier a part");
    if (half_block == 0)
        asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
    else
        asm volatile("bar.sync 2, %0;" ::"n"(WARPS * 32) : "memory");
}

/* The softmax of TILES times 8 queries over the splits of a part. */
template <int DH, int TILES> struct running {
    float max[TILES], sum[TILES]; /* of query 8 tile + lane / 4 */
    float out[TILES][DH / 64][4];
};

template <typename T, int DH, int TILES>
__device__ __forceinline__ void walk(struct plan<DH, TILES> &s, struct running<DH, TILES> &r,
                                     const struct op_attention &op, const struct chunk &c, int part, float factor) {
    const int half_block = threadIdx.x / (WARPS * 32), query = threadIdx.x % 32 / 4;
    const int ahead =
        half_block * RANKS * SPLIT; /* of the other half, which takes as many turns: racecheck counts them */
    auto &values = s.part[half_block].values;
    int position[TILES], first = part * SPLIT;
    uint4 k[2][DH / 32];
    while (first - ahead + (PARTS - 1) * RANKS * SPLIT + SPLIT <= c.oldest) first += STEP;
    if (first <= c.last) {
        const int page = c.pages[first / KV_PAGE];
        load_keys<T, DH>(k, op, c, page, first);
        load_values<DH>(values, op, c, page, first);
    }
    find_positions(position, op, c);
    load_queries<T>(s, op, c);
    __syncthreads();
#pragma unroll 1
    for (int turn = 0; first - ahead <= c.last; turn ^= 1) {
        const int next = first + STEP, page = next <= c.last ? c.pages[next / KV_PAGE] : 0;
        float(*scores)[SCORE_STRIDE] = s.scores[half_block][turn];
        if (first <= c.last) score<T>(s, scores, k, position, first, op.window, factor);
        if (next <= c.last) load_keys<T, DH>(k, op, c, page, next);
        sync_part(half_block);
        if (first > c.last) break;
        wait_for_values();
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            struct weights w;
            const float keep = update_softmax<T>(w, scores[8 * tile + query], &r.max[tile], &r.sum[tile]);
            add_values<T, DH>(r.out[tile], values, w, keep, position[tile], c, first, op.window);
        }
        __syncwarp();
        if (next <= c.last) load_values<DH>(values, op, c, page, next);
        first = next;
    }
}

template <int DH, int TILES>
__device__ __forceinline__ void put_part(struct plan<DH, TILES> &s, const struct running<DH, TILES> &r) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS, half_block = threadIdx.x / (WARPS * 32);
    auto &out = s.part[half_block].out;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const int query = 8 * tile + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < DH / 64 * 4; i++)
            out[query + i % 2][warp * (DH / WARPS) + i / 4 * 16 + i / 2 % 2 * 8 + lane / 4] = r.out[tile][i / 4][i % 4];
        if (warp == 0 && lane % 4 == 0)
            s.state[half_block][8 * tile + lane / 4] = make_float2(r.max[tile], r.sum[tile]);
    }
}

/* Factors that bring COUNT maxima and sums to one maximum, and the sum of all. One without a key, whose sum is 0, is left out;
 * not by its maximum, which is -inf where all scores are NaN, and NaN must come out. */
template <int COUNT>
__device__ __forceinline__ float2 join_states(const float2 (&state)[COUNT], float (&factor)[COUNT]) {
    float max = -CUDART_INF_F, sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) max = fmaxf(max, state[i].x);
    const float shift = max == -CUDART_INF_F ? 0.0f : max;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        factor[i] = state[i].y != 0 ? exp2f(state[i].x - shift) : 0.0f;
        if (state[i].y != 0) sum = fmaf(state[i].y, factor[i], sum);
    }
    return make_float2(max, sum);
}
template <int COUNT>
__device__ __forceinline__ float4 join(const float4 (&x)[COUNT], const float2 (&state)[COUNT],
                                       const float (&factor)[COUNT]) {
    float4 sum = {};
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (state[i].y == 0) continue;
        sum.x = fmaf(x[i].x, factor[i], sum.x), sum.y = fmaf(x[i].y, factor[i], sum.y);
        sum.z = fmaf(x[i].z, factor[i], sum.z), sum.w = fmaf(x[i].w, factor[i], sum.w);
    }
    return sum;
}

/* The parts of this block into the first of them. */
template <int DH, int TILES>
__device__ __forceinline__ void join_parts(struct plan<DH, TILES> &s, const struct op_attention &op, int count) {
    const int fours = op.head_dim / 4;
    for (int i = threadIdx.x; i < count * fours; i += THREADS) {
        const int query = i / fours, d = i % fours * 4;
        float2 state[PARTS];
        float4 x[PARTS];
        float factor[PARTS];
#pragma unroll
        for (int p = 0; p < PARTS; p++) state[p] = s.state[p][query], x[p] = *(const float4 *)&s.part[p].out[query][d];
        const float2 all = join_states(state, factor);
        *(float4 *)&s.part[0].out[query][d] = join(x, state, factor);
        if (d == 0) s.merged[query] = all;
    }
}

#if __CUDA_ARCH__ >= 900
/* Shared memory of a block of the cluster; all of its blocks wait for each other. */
__device__ __forceinline__ uint32_t of_rank(const void *mine, int rank) {
    uint32_t its, at = (uint32_t)__cvta_generic_to_shared(mine);
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its) : "r"(at), "r"(rank));
    return its;
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* Adds the blocks of the cluster; each stores a share of the outputs. Only the `active` ones are there. */
template <typename T, int DH, int TILES>
__device__ __forceinline__ void join_ranks(struct plan<DH, TILES> &s, const struct op_attention &op,
                                           const struct chunk &c, int rank, int active) {
    const int fours = op.head_dim / 4;
    for (int i = rank * THREADS + threadIdx.x; i < c.count * fours; i += active * THREADS) {
        const int query = i / fours, d = i % fours * 4;
        float2 state[RANKS];
        float4 x[RANKS];
        float factor[RANKS];
#pragma unroll
        for (int r = 0; r < RANKS; r++) {
            state[r] = make_float2(-CUDART_INF_F, 0), x[r] = make_float4(0, 0, 0, 0);
            if (r >= active) continue;
            asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                         : "=f"(state[r].x), "=f"(state[r].y)
                         : "r"(of_rank(&s.merged[query], r)));
            asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(x[r].x), "=f"(x[r].y), "=f"(x[r].z), "=f"(x[r].w)
                         : "r"(of_rank(&s.part[0].out[query][d], r)));
        }
        const float2 all = join_states(state, factor);
        const float4 sum = join(x, state, factor);
        T out[4] = {};
        if (all.y != 0) {
            out[0] = from_float<T>(sum.x / all.y), out[1] = from_float<T>(sum.y / all.y);
            out[2] = from_float<T>(sum.z / all.y), out[3] = from_float<T>(sum.w / all.y);
        }
        *(uint2 *)((T *)op.out + row_head(op, c, query) * op.head_dim + d) = *(const uint2 *)out;
    }
}
#endif

/* grid (batch chunks RANKS, HKV), clusters of RANKS along x */
template <typename T, int DH, int TILES>
__global__ void __launch_bounds__(THREADS, DH > 128 ? 1 : 2)
    attention_cluster_kernel(const struct op_attention op, int chunks, float factor) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) unsigned char shared[];
    next_may_start();
    inputs_are_ready();
    struct plan<DH, TILES> &s = *(struct plan<DH, TILES> *)shared;
    const int rank = blockIdx.x % RANKS;
    const struct chunk c = find_chunk(op, chunks, 8 * TILES);
    const int active = max(min(c.last / SPLIT + 1, (int)RANKS), 1);
    if (rank >= active)
        return; /* nothing to walk: others take its place sooner, and barriers of a cluster do not wait for it */
    struct running<DH, TILES> r = {};
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) r.max[tile] = -CUDART_INF_F;
    walk<T>(s, r, op, c, rank + threadIdx.x / (WARPS * 32) * RANKS, factor);
    __syncthreads();
    put_part(s, r);
    __syncthreads();
    join_parts(s, op, c.count);
    cluster_sync();
    join_ranks<T>(s, op, c, rank, active);
    cluster_sync(); /* nobody ends while its memory is read */
#endif
}

template <typename T, int DH, int TILES>
static int launch_tiles(struct stream *s, const struct op_attention *op, int chunks) {
    constexpr size_t shared = sizeof(struct plan<DH, TILES>);
    auto kernel = attention_cluster_kernel<T, DH, TILES>;
    if (shared > 48 << 10)
        CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    dim3 grid(op->rows.batch * chunks * RANKS, op->kv_heads);
    launch_dependent(s, kernel, grid, THREADS, shared, RANKS, *op, chunks, op->scale * 1.44269504f /* log2(e) */);
    return cuda_launched(s, "attention", sizeof *op);
}

/* Chunks of equal size, as small as their number allows. */
template <typename T, int DH> static int launch_chunks(struct stream *s, const struct op_attention *op) {
    constexpr int most = DH > 128 ? 2 : 4, three = most < 3 ? most : 3;
    const int tiles = (op->rows.q_len * (op->heads / op->kv_heads) + 7) / 8, chunks = (tiles + most - 1) / most;
    switch ((tiles + chunks - 1) / chunks) {
    case 1:
        return launch_tiles<T, DH, 1>(s, op, chunks);
    case 2:
        return launch_tiles<T, DH, 2>(s, op, chunks);
    case 3:
        return launch_tiles<T, DH, three>(s, op, chunks);
    default:
        return launch_tiles<T, DH, most>(s, op, chunks);
    }
}

int cuda_attention_cluster(struct stream *s, const struct op_attention *op) {
    return with_type(op->kv.type, [&](auto type) {
        typedef decltype(type) T;
        if (op->head_dim <= 64) return launch_chunks<T, 64>(s, op);
        if (op->head_dim <= 128) return launch_chunks<T, 128>(s, op);
        return launch_chunks<T, 256>(s, op);
    });
}
