/* What attention_cluster.cu does with a split: scores, and the softmax of a walker. */
#ifndef DUET_MODEL_KERNELS_CUDA_ATTENTION_SPLITS_CUH
#define DUET_MODEL_KERNELS_CUDA_ATTENTION_SPLITS_CUH

#include "model/kernels/cuda/attention_loads.cuh"
#include "model/kernels/cuda/product_mma.cuh"

/* A warp's 16 keys against all queries, to shared memory. */
template <typename T, int DH, int TILES, bool IS_FP8>
__device__ __forceinline__ void score(struct plan<DH, TILES> &s, float (*scores)[SCORE_STRIDE],
                                      const struct held_keys<DH, IS_FP8> &held, const int (&position)[TILES], int first,
                                      int window, struct scoring scoring) {
    const struct held_keys<DH, false> &k = widen_keys<T>(held);
    const int lane = threadIdx.x % 32, at = threadIdx.x / 32 % WARPS * KEYS + lane / 4;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        float sums[4][4] = {}; /* of high and low parts, of either half of 32 dims: short chains */
#pragma unroll
        for (int i = 0; i < DH / 32; i++) {
            const uint4 high = s.high[tile][i][lane], low = s.low[tile][i][lane];
#pragma unroll
            for (int second = 0; second < 2; second++) {
                mma_half<T>(sums[second], k.x[0][i], k.x[1][i], high, second);
                mma_half<T>(sums[2 + second], k.x[0][i], k.x[1][i], low, second);
            }
        }
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = ((sums[0][j] + sums[1][j]) + (sums[2][j] + sums[3][j])) * scoring.factor;
        if (scoring.cap != 0) {
#pragma unroll
            for (int j = 0; j < 4; j++) x[j] = cap_score(x[j], scoring.cap);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int query = lane % 4 * 2 + j % 2, key = at + j / 2 * 8;
            const int its_position = __shfl_sync(0xffffffffu, position[tile], query * 4);
            scores[8 * tile + query][key] = is_visible(first + key, its_position, window) ? x[j] : -CUDART_INF_F;
        }
    }
}

/* The softmax of TILES times 8 queries over splits. */
template <int DH, int TILES> struct running {
    float max[TILES], sum[TILES]; /* of query 8 tile + lane / 4 */
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

/* Takes a query's maximum up to its scores of a split, [64] at `row`; the factor that what was summed so far must take. */
__device__ __forceinline__ float raise_maximum(const float *row, float *max) {
    float largest = *max;
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS; i++) {
        const float2 x = *(const float2 *)(row + threadIdx.x % 4 * 2 + i * 8);
        largest = fmaxf(largest, fmaxf(x.x, x.y));
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const float keep = exp2f(*max - shift_of(largest));
    *max = largest;
    return keep;
}

/* Weights of 16 keys for query lane / 4, high and low, as the registers of B. */
struct weights {
    uint32_t high[2], low[2];
};
template <typename T>
__device__ __forceinline__ void weigh(struct weights &w, const float *row, float shift, float *added) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float2 x = *(const float2 *)(row + threadIdx.x % 4 * 2 + i * 8);
        x.x = exp2f(x.x - shift), x.y = exp2f(x.y - shift);
        *added += x.x + x.y;
        cut<T>(x.x, x.y, &w.high[i], &w.low[i]);
    }
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

/* Values of 16 keys: 16 dims a row of `a`, as mma takes them. Is none of them inf or NaN? Then an invisible value's weight of 0
 * adds 0. */
template <typename T, int DH>
__device__ __forceinline__ bool take_values(uint32_t (&a)[DH / 64][4], const uint16_t (*values)[DH + 8]) {
    const int lane = threadIdx.x % 32, d = threadIdx.x / 32 % WARPS * (DH / WARPS);
    bool is_finite = true;
#pragma unroll
    for (int i = 0; i < DH / 64; i++) {
        load_transposed(a[i], &values[lane % 8 + lane / 16 * 8][d + 16 * i + lane / 8 % 2 * 8]);
#pragma unroll
        for (int j = 0; j < 4; j++) is_finite = is_finite && is_finite_pair(a[i][j], T());
    }
    return is_finite;
}

/* A split whose scores are there into the softmax, 16 keys by 16. */
template <typename T, int DH, int TILES>
__device__ __forceinline__ void add_split(struct running<DH, TILES> &r, const float (*scores)[SCORE_STRIDE],
                                          const uint16_t (&values)[SPLIT][DH + 8], const int (&position)[TILES],
                                          const struct chunk &c, int first, int window) {
    const int query = threadIdx.x % 32 / 4;
    float keep[TILES], added[TILES] = {};
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        keep[tile] = raise_maximum(scores[8 * tile + query], &r.max[tile]);
        const float2 factor = of_columns(keep[tile]);
#pragma unroll
        for (int i = 0; i < DH / 16; i++) r.out[tile][i / 4][i % 4] *= i % 2 ? factor.y : factor.x;
    }
#pragma unroll 1
    for (int block = 0; block < BLOCKS; block++) {
        const int at = first + block * KEYS;
        if (at > c.last || at + KEYS <= c.oldest) continue;
        const bool is_whole = at + KEYS - 1 <= c.nearest && (window == 0 || at > c.last - window);
        uint32_t a[DH / 64][4];
        const bool is_finite = take_values<T, DH>(a, values + block * KEYS),
                   is_plain = is_whole || __all_sync(0xffffffffu, is_finite);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            struct weights w;
            weigh<T>(w, &scores[8 * tile + query][block * KEYS], shift_of(r.max[tile]), &added[tile]);
            if (is_plain) {
#pragma unroll
                for (int i = 0; i < DH / 64; i++) mma(r.out[tile][i], a[i], w.high[0], w.high[1], T());
#pragma unroll
                for (int i = 0; i < DH / 64; i++) mma(r.out[tile][i], a[i], w.low[0], w.low[1], T());
            } else {
                add_edge<T>(r.out[tile], a, w, position[tile], at, window);
            }
        }
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        added[tile] += __shfl_xor_sync(0xffffffffu, added[tile], 1);
        added[tile] += __shfl_xor_sync(0xffffffffu, added[tile], 2);
        r.sum[tile] = fmaf(r.sum[tile], keep[tile], added[tile]);
    }
}

#endif
