/* How the walkers of a cluster add what they have summed (attention_tree.cuh has the order). */
#ifndef DUET_MODEL_KERNELS_CUDA_ATTENTION_JOIN_CUH
#define DUET_MODEL_KERNELS_CUDA_ATTENTION_JOIN_CUH

#include "model/kernels/cuda/attention_tree.cuh"
#include "model/kernels/cuda/cluster.cuh"

/* A barrier of a walker's warps. Its number in a register takes all barriers of the block, of which a multiprocessor has enough; a branch for each
 * number costs more than the barrier. */
__device__ __forceinline__ void sync_walker(int walker) {
    asm volatile("bar.sync %0, %1;" ::"r"(walker + 1), "n"(WARPS * 32) : "memory");
}

/* What the walker has summed. */
template <typename Plan, int DH, int TILES>
__device__ __forceinline__ void put_sums(Plan &s, const struct running<DH, TILES> &r) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS;
    auto &walker = s.walkers[own_walker()];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const int query = 8 * tile + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < DH / 64 * 4; i++)
            walker.out[query + i % 2][warp * (DH / WARPS) + i / 4 * 16 + i / 2 % 2 * 8 + lane / 4] =
                r.out[tile][i / 4][i % 4];
        if (lane % 4 == 0) walker.state[8 * tile + lane / 4][warp] = make_float2(r.max[tile], r.sum[tile]);
    }
}

#if __CUDA_ARCH__ >= 900
/* A node of the tree: its maximum and the sum of one warp's keys, and 4 dims of the values' sum. */
struct node {
    float2 state;
    float4 x;
};
__device__ __forceinline__ struct node join_nodes(const struct node &left, const struct node &right) {
    const float2 factor = join_factors(left.state.x, right.state.x);
    return node{make_float2(max_or_nan(left.state.x, right.state.x), join(left.state.y, right.state.y, factor)),
                make_float4(join(left.x.x, right.x.x, factor), join(left.x.y, right.x.y, factor),
                            join(left.x.z, right.x.z, factor), join(left.x.w, right.x.w, factor))};
}

/* What a walker of the cluster put, the sum that of the keys of warp `warp`; walkers from `there` on have no keys. */
template <typename Plan>
__device__ __forceinline__ struct node load_node(Plan &s, int walker, int rank_bits, int there, int query, int d,
                                                 int warp) {
    struct node n = {make_float2(-CUDART_INF_F, 0), make_float4(0, 0, 0, 0)};
    if (walker >= there) return n;
    const auto &its = s.walkers[walker >> rank_bits];
    const int rank = walker & ((1 << rank_bits) - 1);
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                 : "=f"(n.state.x), "=f"(n.state.y)
                 : "r"(of_rank(&its.state[query][warp], rank)));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(n.x.x), "=f"(n.x.y), "=f"(n.x.z), "=f"(n.x.w)
                 : "r"(of_rank(&its.out[query][d], rank)));
    return n;
}

/* What the lane `apart` lanes on has, of pairs of them. */
__device__ __forceinline__ struct node neighbouring_node(const struct node &n, int apart) {
    auto of = [&](float x) { return __shfl_xor_sync(0xffffffffu, x, apart); };
    return node{make_float2(of(n.state.x), of(n.state.y)), make_float4(of(n.x.x), of(n.x.y), of(n.x.z), of(n.x.w))};
}

/* The tree above the walkers. Half as many lanes as there are walkers make 4 dims of a query, and with those of the next outputs the sum of
 * all warps' keys. Each block stores a share of the outputs, and arrives at the cluster's barrier when it has read what others put. */
template <typename T, bool IS_PLAIN, typename Plan>
__device__ __forceinline__ void join_walkers(Plan &s, const struct op_attention &op, const struct chunk &c, int rank,
                                             int rank_bits, int walker_bits, int there, enum token_order order) {
    constexpr int FOURS = Plan::DIMS / 4;
    const int lane_bits = walker_bits - 1, lanes = 1 << lane_bits, lane = threadIdx.x % 32, r = lane % lanes,
              all = c.count * FOURS, step = (int)blockDim.x << rank_bits >> lane_bits;
    auto output_of = [&](int i) { return row_head(op, c, i / FOURS) * op.head_dim + i % FOURS * 4; };
    /* Lanes past the last output make that once more. */
    auto index_of = [&](int first) { return min(first + (lane >> lane_bits), all - 1); };
    struct node left, right;
    auto load = [&](int i) {
        const int query = i / FOURS, d = i % FOURS * 4, warp = (lane >> lane_bits) % WARPS;
        left = load_node(s, r, rank_bits, there, query, d, warp);
        right = load_node(s, r + lanes, rank_bits, there, query, d, warp);
    };
    int first = (int)(rank * blockDim.x + threadIdx.x - lane) >> lane_bits, i = index_of(first), to = output_of(i);
    cluster_wait();
    if (first < all)
        load(i);
    else
        cluster_arrive();
    while (first < all) {
        struct node n = there > lanes ? join_nodes(left, right) : left;
        const int query = i / FOURS, d = i % FOURS * 4, its = to;
        first += step;
        if (first < all)
            i = index_of(first), load(i), to = output_of(i);
        else
            cluster_arrive();
#pragma unroll
        for (int half = RANKS / 2; half > 0; half /= 2) /* T_half is there where there are no more walkers with keys */
            if (half < lanes && there > half) n = join_nodes(n, neighbouring_node(n, half));
        const int of_row = c.first_query + query - quotient(c.first_query + query, c.group) * c.group,
                  head = c.head * c.group + of_row;
        float keys = n.state.y + __shfl_xor_sync(0xffffffffu, n.state.y, lanes);
        keys += __shfl_xor_sync(0xffffffffu, keys, 2 * lanes);
        const float sum = IS_PLAIN ? keys : add_sink<T>(op, head, keys, n.state.x);
        if (r > 0 || d >= op.head_dim) continue;
        alignas(8) T out[4] = {};
        if (sum != 0) {
            /* Within 2 ulp: a sum of weights is from 1 on, and far below 2^126. */
            out[0] = from_float<T>(__fdividef(n.x.x, sum)), out[1] = from_float<T>(__fdividef(n.x.y, sum));
            out[2] = from_float<T>(__fdividef(n.x.z, sum)), out[3] = from_float<T>(__fdividef(n.x.w, sum));
        }
        int at = its;
        if (order >= ORDER_BY_8) {
            const int width = op.heads * op.head_dim, token = quotient(its / 8, width / 8);
            at = (int)token_start(order, width, token) + place_start(order, its - token * width);
        }
        store_in_order(order, (T *)op.out.data, at, out);
    }
}
#endif

#endif
