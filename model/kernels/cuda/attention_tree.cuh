/* The order in which attention_cluster.cu adds parts: T16(p) = part p, T8(p) = T16(p) + T16(p + 8), and so on by halves to
 * T1 = T2(0) + T2(1). */
#ifndef DUET_MODEL_KERNELS_CUDA_ATTENTION_TREE_CUH
#define DUET_MODEL_KERNELS_CUDA_ATTENTION_TREE_CUH

#include "model/kernels/cuda/attention_splits.cuh"

/* Factors that bring the sums of two maxima to one maximum; ALONE where the other has no key: then a value passes as it is. A maximum
 * without a key is -inf; it is NaN where one score is, which so comes out. */
static constexpr float ALONE = -1;
__device__ __forceinline__ float2 join_factors(float left, float right) {
    if (right == -CUDART_INF_F) return make_float2(ALONE, 0);
    if (left == -CUDART_INF_F) return make_float2(0, ALONE);
    const float max = max_or_nan(left, right);
    return make_float2(power_of_2(left - max), power_of_2(right - max));
}
__device__ __forceinline__ float join(float left, float right, float2 factor) {
    const float both = fmaf(right, factor.y, left * factor.x);
    return factor.x == ALONE ? left : factor.y == ALONE ? right : both;
}

/* Sums of subtrees that wait for their right neighbour, each at the level of the highest bit in which its leaves differ from that one's: as
 * pairs of numbers, `apart` from each other. */
struct waiting_sums {
    float2 *pairs;
    int apart;
};
template <typename Plan> struct waiting {
    static constexpr int OWN = Plan::HOLDS_SUMS ? 1 : levels_of(walkers_of(Plan::DIMS), 0),
                         PAIRS = Plan::QUERIES / 8 * pairs_of(Plan::DIMS);
    float2 *shared, own[OWN][PAIRS];
    unsigned levels; /* that have one, as bits */
    __device__ __forceinline__ explicit waiting(float2 *shared) : shared(shared), levels(0) {}
    __device__ __forceinline__ struct waiting_sums at(int level) {
        if constexpr (Plan::HOLDS_SUMS)
            return {shared + level * PAIRS * blockDim.x + threadIdx.x, (int)blockDim.x};
        else
            return {own[level], 1};
    }
};

template <int DH, int TILES>
__device__ __forceinline__ void put_waiting(const struct waiting_sums &to, const struct running<DH, TILES> &r) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        float2 *its = to.pairs + tile * pairs_of(DH) * to.apart;
        its[0] = make_float2(r.max[tile], r.sum[tile]);
#pragma unroll
        for (int i = 0; i < DH / 32; i++)
            its[(1 + i) * to.apart] = make_float2(r.out[tile][i / 2][i % 2 * 2], r.out[tile][i / 2][i % 2 * 2 + 1]);
    }
}

template <int DH, int TILES>
__device__ __forceinline__ void join_left(struct running<DH, TILES> &right, const struct waiting_sums &left) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const float2 *its = left.pairs + tile * pairs_of(DH) * left.apart, state = its[0],
                     factor = join_factors(state.x, right.max[tile]), of_left = of_columns(factor.x),
                     of_right = of_columns(factor.y);
#pragma unroll
        for (int i = 0; i < DH / 32; i++) {
            const float2 x = its[(1 + i) * left.apart];
            float *out = &right.out[tile][i / 2][i % 2 * 2];
            out[0] = join(x.x, out[0], make_float2(of_left.x, of_right.x));
            out[1] = join(x.y, out[1], make_float2(of_left.y, of_right.y));
        }
        right.sum[tile] = join(state.y, right.sum[tile], factor);
        right.max[tile] = max_or_nan(state.x, right.max[tile]);
    }
}

/* After the last split of a leaf: its sums become those of the warp's keys, in all lanes, as no other order of additions is that of
 * every number of ranks. Then adds what ends here, the smaller first, and lets the sum wait where a leaf follows. */
template <typename Plan, int DH, int TILES>
__device__ __forceinline__ void end_leaf(struct running<DH, TILES> &r, struct waiting<Plan> &w, int leaf,
                                         int next_leaf) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
        r.sum[tile] = join_lanes(r.sum[tile], [](float x, float y) { return x + y; });
    const int level = 31 - __clz(leaf ^ next_leaf); /* above all levels if there is no leaf any more */
#pragma unroll 1
    for (; w.levels & ((1u << level) - 1); w.levels &= w.levels - 1) join_left(r, w.at(__ffs(w.levels) - 1));
    if (next_leaf == NO_LEAF) return;
    put_waiting(w.at(level), r);
    w.levels |= 1u << level;
    clear(r);
}

/* A place in the walk of `walker`. Its leaf number i is the part whose number follows from the bits of i in reverse, so that
 * neighbours in the tree follow each other. */
struct place {
    int leaf, first; /* of a split; NO_LEAF: the end */
};
__device__ __forceinline__ int first_of_leaf(const struct chunk &c, int walker, int leaf) {
    const int part = walker + (int)(__brev((unsigned)leaf) >> 28), before = c.oldest / SPLIT - part;
    return (part + (before > 0 ? (before + PARTS - 1) / PARTS * PARTS : 0)) * SPLIT;
}
__device__ __forceinline__ struct place find_place(const struct chunk &c, int walker, int leaves, struct place at) {
    while (at.first > c.last) {
        if (++at.leaf >= leaves) return place{NO_LEAF, 0};
        at.first = first_of_leaf(c, walker, at.leaf);
    }
    return at;
}

/* Splits that walker w of 2^bits meets. */
__device__ __forceinline__ int count_splits(const struct chunk &c, int walker, int bits) {
    const int before = c.oldest / SPLIT, end = c.last < 0 ? 0 : c.last / SPLIT + 1, up = (1 << bits) - 1 - walker;
    return ((end + up) >> bits) - ((before + up) >> bits);
}

#endif
