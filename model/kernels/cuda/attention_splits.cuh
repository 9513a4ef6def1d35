/* What attention_cluster.cu does with a split: scores, and the softmax of a walker. */
#ifndef DUET_MODEL_KERNELS_CUDA_ATTENTION_SPLITS_CUH
#define DUET_MODEL_KERNELS_CUDA_ATTENTION_SPLITS_CUH

#include "model/kernels/cuda/attention_loads.cuh"
#include "model/kernels/cuda/product_mma.cuh"

/* Scores of a warp's 16 keys for query lane / 4 of each tile, times log2(e): of keys 2 (lane % 4) and the next, and 8 further on. */
template <int TILES> struct scores { float of[TILES][4]; };

/* Do all queries of the chunk see all of `count` keys from `first` on? */
__device__ __forceinline__ bool is_seen_by_all(const struct chunk &c, int first, int count, int window) {
    return first + count - 1 <= c.nearest && (window == 0 || first > c.last - window);
}

/* A warp's 16 keys of the split at `first` against all queries. */
template <typename T, typename Plan, int DH, int TILES>
__device__ __forceinline__ void score(struct scores<TILES> &scores, const Plan &s, const struct held_keys<DH> &k,
                                      const int (&position)[TILES], const struct chunk &c, int first, int window,
                                      struct scoring scoring) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < TILES; tile += 2) {
        const bool is_alone = tile == TILES - 1;
        float high[2][4] = {}, low[2][4] = {}; /* sums for 8 keys each; those of a tile alone are both in the first */
#pragma unroll
        for (int i = 0; i < DH / 16; i++) {
            const uint4 x = s.queries[tile][i][lane], y = s.queries[is_alone ? tile : tile + 1][i][lane];
            const uint32_t first_a[4] = {x.x, x.y, x.z, x.w}, second_a[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 &key = k.x[half][i / 2];
                mma(high[half], first_a, i % 2 ? key.z : key.x, i % 2 ? key.w : key.y, T());
                if (!is_alone) mma(low[half], second_a, i % 2 ? key.z : key.x, i % 2 ? key.w : key.y, T());
            }
        }
#pragma unroll
        for (int i = 0; i < (is_alone ? 4 : 8); i++) {
            const int half = i / 2 % 2, at = i / 4 * 2 + i % 2;
            float x = (high[half][at] + (is_alone ? high[half][at + 2] : low[half][at])) * scoring.factor;
            if (scoring.cap != 0) x = cap_score(x, scoring.cap);
            scores.of[tile + i / 4][i % 4] = x;
        }
    }
    if (is_seen_by_all(c, first, SPLIT, window)) return;
    const int key = first + threadIdx.x / 32 % WARPS * KEYS + lane % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (!is_visible(key + j / 2 * 8 + j % 2, position[tile], window)) scores.of[tile][j] = -CUDART_INF_F;
}

/* The sum or maximum of what four neighbouring lanes have, in all of them; `lanes`: those that are here. */
template <typename Join> __device__ __forceinline__ float join_lanes(float x, Join join, unsigned lanes = 0xffffffffu) {
    x = join(x, __shfl_xor_sync(lanes, x, 1));
    return join(x, __shfl_xor_sync(lanes, x, 2));
}

/* The largest scores of the warp's keys, for the walker's other warps. */
template <typename Plan, int TILES>
__device__ __forceinline__ void put_maxima(Plan &s, const struct scores<TILES> &scores) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS;
    float largest[TILES];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const float(&x)[4] = scores.of[tile];
        largest[tile] = join_lanes(max_or_nan(max_or_nan(x[0], x[1]), max_or_nan(x[2], x[3])), max_or_nan);
    }
    if (lane % 4 != 0) return;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
        ((float *)&s.walkers[own_walker()].of_warps[8 * tile + lane / 4])[warp] = largest[tile];
}

/* The softmax of TILES times 8 queries over splits: maximum and sum of query 8 tile + lane / 4. The sum is that of the lane's keys, from
 * the end of a leaf on of the warp's. */
template <int DH, int TILES> struct running {
    float max[TILES], sum[TILES];
    float out[TILES][DH / 64][4]; /* of queries 2 (lane % 4) and the next, dims lane / 4 and 8 further on of each 16 */
};

template <int DH, int TILES> __device__ __forceinline__ void clear(struct running<DH, TILES> &r) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        r.max[tile] = -CUDART_INF_F, r.sum[tile] = 0;
#pragma unroll
        for (int i = 0; i < DH / 16; i++) r.out[tile][i / 4][i % 4] = 0;
    }
}

/* x is of query lane / 4; those of queries 2 (lane % 4) and the next. */
__device__ __forceinline__ float2 of_columns(float x) {
    const int lane = threadIdx.x % 32;
    return make_float2(__shfl_sync(0xffffffffu, x, lane % 4 * 8), __shfl_sync(0xffffffffu, x, lane % 4 * 8 + 4));
}

/* What is subtracted from scores; before any key the maximum is -inf, and NaN alone may come out. */
__device__ __forceinline__ float shift_of(float max) {
    return max == -CUDART_INF_F ? 0.0f : max;
}

/* Takes the maxima up to those of all warps, scales what was summed so far, and puts the weights of the warp's keys for all warps. */
template <typename T, typename Plan, int DH, int TILES>
__device__ __forceinline__ void weigh(Plan &s, struct running<DH, TILES> &r, const struct scores<TILES> &scores) {
    const int lane = threadIdx.x % 32, key = threadIdx.x / 32 % WARPS * KEYS + lane % 4 * 2;
    auto &walker = s.walkers[own_walker()];
    auto &weights = walker.weights;
    float keep[TILES];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const int query = 8 * tile + lane / 4;
        const float(&x)[4] = scores.of[tile];
        const float4 of_warps = walker.of_warps[query];
        const float largest =
                        max_or_nan(max_or_nan(max_or_nan(of_warps.x, of_warps.y), max_or_nan(of_warps.z, of_warps.w)),
                                   r.max[tile]),
                    shift = shift_of(largest), near[2] = {power_of_2(x[0] - shift), power_of_2(x[1] - shift)},
                    far[2] = {power_of_2(x[2] - shift), power_of_2(x[3] - shift)};
        cut<T>(near[0], near[1], (uint32_t *)&weights.high[query][key], (uint32_t *)&weights.low[query][key]);
        cut<T>(far[0], far[1], (uint32_t *)&weights.high[query][key + 8], (uint32_t *)&weights.low[query][key + 8]);
        keep[tile] = power_of_2(r.max[tile] - shift);
        r.sum[tile] = fmaf(r.sum[tile], keep[tile], (near[0] + near[1]) + (far[0] + far[1]));
        r.max[tile] = largest;
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const float2 factor = of_columns(keep[tile]);
#pragma unroll
        for (int i = 0; i < DH / 16; i++) r.out[tile][i / 4][i % 4] *= i % 2 ? factor.y : factor.x;
    }
}

/* Weights of 16 keys for query lane / 4, high and low, as the registers of B. */
struct weights {
    uint32_t high[2], low[2];
};
template <typename Plan> __device__ __forceinline__ struct weights take_weights(const Plan &s, int block, int tile) {
    const int lane = threadIdx.x % 32, key = block * KEYS + lane / 8 % 2 * 8;
    const auto &weights = s.walkers[own_walker()].weights;
    uint32_t of[4];
    load_matrices(of, &(lane < 16 ? weights.high : weights.low)[8 * tile + lane % 8][key]);
    return {{of[0], of[1]}, {of[2], of[3]}};
}

/* Whether both halves of a register are finite. */
__device__ __forceinline__ bool is_finite_pair(uint32_t x, bf16) {
    return (x & 0x7F80u) != 0x7F80u && (x & 0x7F800000u) != 0x7F800000u;
}
__device__ __forceinline__ bool is_finite_pair(uint32_t x, half) {
    return (x & 0x7C00u) != 0x7C00u && (x & 0x7C000000u) != 0x7C000000u;
}

/* Which of two neighbouring keys a position sees, as a mask of a word. */
__device__ __forceinline__ uint32_t visible_pair(int key, int position, int window) {
    return (is_visible(key, position, window) ? 0x0000FFFFu : 0) |
           (is_visible(key + 1, position, window) ? 0xFFFF0000u : 0);
}

/* 16 values, not all finite, of which not every query of the chunk sees all: position by position, with the others' sums left as
 * they are. */
template <typename T, int COUNT>
__device__ __forceinline__ void add_edge(float (&out)[COUNT][4], const uint32_t (&v)[COUNT][4], const struct weights &w,
                                         int position, int first, int window) {
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
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const uint32_t a[4] = {v[i][0] & near, v[i][1] & near, v[i][2] & far, v[i][3] & far};
            float sum[4] = {out[i][0], out[i][1], out[i][2], out[i][3]};
            mma(sum, a, w.high[0], w.high[1], T());
            mma(sum, a, w.low[0], w.low[1], T());
            if (left == now) out[i][0] = sum[0], out[i][2] = sum[2];
            if (right == now) out[i][1] = sum[1], out[i][3] = sum[3];
        }
    }
}

/* Values of 16 keys: 16 dims a row of `a`, as mma takes them. */
template <int DH>
__device__ __forceinline__ void take_values(uint32_t (&a)[DH / 64][4], const uint4 (*values)[DH / 8]) {
    const int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8,
              eighth = threadIdx.x / 32 % WARPS * (DH / WARPS / 8) + lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < DH / 64; i++) load_transposed(a[i], &values[row][swizzled(row, eighth + 2 * i)]);
}

/* Is none of a warp's values inf or NaN? Then an invisible value's weight of 0 adds 0. */
template <typename T, int COUNT> __device__ __forceinline__ bool are_finite(const uint32_t (&a)[COUNT][4]) {
    bool is_finite = true;
#pragma unroll
    for (int i = 0; i < COUNT * 4; i++) is_finite = is_finite && is_finite_pair(a[i / 4][i % 4], T());
    return __all_sync(0xffffffffu, is_finite);
}

template <typename T, int COUNT>
__device__ __forceinline__ void add_plain(float (&out)[COUNT][4], const uint32_t (&v)[COUNT][4],
                                          const struct weights &w) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) mma(out[i], v[i], w.high[0], w.high[1], T());
#pragma unroll
    for (int i = 0; i < COUNT; i++) mma(out[i], v[i], w.low[0], w.low[1], T());
}

/* The values of a split with the weights that all warps have put, 16 keys by 16. */
template <typename T, typename Plan, int DH, int TILES, int EIGHTS>
__device__ __forceinline__ void add_split(struct running<DH, TILES> &r, const Plan &s,
                                          const uint4 (&values)[SPLIT][EIGHTS], const int (&position)[TILES],
                                          const struct chunk &c, int first, int window) {
    if (is_seen_by_all(c, first, SPLIT, window)) {
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            uint32_t a[DH / 64][4];
            take_values<DH>(a, values + block * KEYS);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) add_plain<T>(r.out[tile], a, take_weights(s, block, tile));
        }
        return;
    }
#pragma unroll 1
    for (int block = 0; block < BLOCKS; block++) {
        const int at = first + block * KEYS;
        if (at > c.last || at + KEYS <= c.oldest) continue;
        uint32_t a[DH / 64][4];
        take_values<DH>(a, values + block * KEYS);
        const bool is_plain = is_seen_by_all(c, at, KEYS, window) || are_finite<T>(a);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const struct weights w = take_weights(s, block, tile);
            if (is_plain)
                add_plain<T>(r.out[tile], a, w);
            else
                add_edge<T>(r.out[tile], a, w, position[tile], at, window);
        }
    }
}

#endif
