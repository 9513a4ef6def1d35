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

/* Sums of subtrees that wait for their right neighbour, in memory of the thread. */
template <int DH, int TILES> struct waiting {
    struct running<DH, TILES> sums[LEVELS];
    int count, leaves; /* a leaf of each, 4 bits, the last one lowest */
};

template <int DH, int TILES>
__device__ __forceinline__ void join_left(struct running<DH, TILES> &right, const struct running<DH, TILES> &left) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const float2 factor = join_factors(left.max[tile], right.max[tile]), of_left = of_columns(factor.x),
                     of_right = of_columns(factor.y);
#pragma unroll
        for (int i = 0; i < DH / 16; i++) {
            float *x = &right.out[tile][i / 4][i % 4];
            *x = join(left.out[tile][i / 4][i % 4], *x,
                      i % 2 ? make_float2(of_left.y, of_right.y) : make_float2(of_left.x, of_right.x));
        }
        right.sum[tile] = join(left.sum[tile], right.sum[tile], factor);
        right.max[tile] = max_or_nan(left.max[tile], right.max[tile]);
    }
}

/* After the last split of a leaf: its sums become those of the warp's keys, in all lanes, as no other order of additions is that of
 * every number of ranks. Then adds what ends here, and lets the sum wait where a leaf follows. Two leaves' subtree is the
 * smaller, the lower the highest bit in which they differ. */
template <int DH, int TILES>
__device__ __forceinline__ void end_leaf(struct running<DH, TILES> &r, struct waiting<DH, TILES> &w, int leaf,
                                         int next_leaf) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
        r.sum[tile] = join_lanes(r.sum[tile], [](float x, float y) { return x + y; });
#pragma unroll 1
    for (; w.count > 0 && (leaf ^ next_leaf) > (leaf ^ (w.leaves & 15)); w.leaves >>= 4)
        join_left(r, w.sums[--w.count]);
    if (next_leaf == NO_LEAF) return;
    w.sums[w.count++] = r;
    w.leaves = w.leaves << 4 | leaf;
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
