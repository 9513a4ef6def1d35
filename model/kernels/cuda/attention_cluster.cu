/* Paged attention on tensor cores, for heads of whole 16 bytes, by clusters of blocks (cuda_takes_clusters).
 *
 * Shapes: q [T, H DH] f32; K, V pages [P, HKV, PAGE, DH] 16 bit or FP8 (attention_cells.cuh); out [T, H DH] 16 bit.
 * Mapping: a query is one row and one of the H / HKV heads that share a key head; a chunk is up to 8 TILES queries of a graph
 *   row. Cluster (b, chunk | key/value head) has 1, 2, 4 or 8 ranks, a block each, so many that the grid fills the device
 *   about once. 4 warps are a walker: rank, rank + ranks, and in large blocks two more. Walker w of W walks parts w, w + W, ...,
 *   each split by split in ascending order with an online softmax a query. For the scores a warp owns 16 keys of a split and all
 *   dimensions, for the values all 64 keys and a quarter of the dimensions; maxima and weights go from warp to warp by way of
 *   shared memory. Keys go from memory to the registers of mma, values by way of shared memory, each byte once a chunk; keys of the
 *   next split arrive while values are multiplied, and the other way round.
 * Order: the 16 parts are added in a fixed tree (attention_tree.cuh). Walker w of W makes its node T_W(w), depth first, and the
 *   cluster the rest. So the number of ranks changes no bit, nor do parts without keys, which are left out.
 * Bytes: every visible key and value once a chunk. FLOPs: 8 DH a query and visible key.
 * Numerics: queries are the rows of mma for scores and its columns for values, so their number and neighbours change no bit. q and
 *   the weights of the softmax are each a sum of two 16-bit numbers, which leaves an error near 2^-17 (f16 takes |q| up to 65504).
 *   A query's result is that of its own visible keys: scores of others are selected away; values that no query of the chunk may see
 *   are not read but zero; where not all queries see the same of 16 keys, queries of one position are multiplied on their own, with
 *   the values that they do not see put to zero, and a query that sees none keeps its sum. */
#include "model/kernels/cuda/attention_join.cuh"

/* The walk of this thread's walker: where it is and goes next, with the keys and values that are there or on their way. */
template <int DH, bool IS_FP8> struct walking {
    int walker, walker_bits, leaves; /* number w of W = 2^walker_bits; parts that it has */
    int turns; /* splits of the block's walker that has most: racecheck wants as many barriers of all threads */
    struct place now, next;
    int page; /* of the next place */
    struct held_keys<DH, IS_FP8> k;
    struct held_values<DH, IS_FP8> v;
    __device__ __forceinline__ walking(const struct op_attention &op, const struct chunk &c, int rank, int rank_bits)
        : walker(rank + (own_walker() << rank_bits)), walker_bits(rank_bits + (int)blockDim.x / THREADS_ALL + 1),
          leaves(PARTS >> walker_bits), turns(0), k(op, c), v(op, c) {
        now = find_place(c, walker, leaves, place{0, first_of_leaf(c, walker, 0)});
        next = after(c, now);
        for (int i = 0; i < (int)blockDim.x / (WARPS * 32); i++)
            turns = max(turns, count_splits(c, rank + (i << rank_bits), walker_bits));
    }
    __device__ __forceinline__ struct place after(const struct chunk &c, const struct place &at) const {
        return find_place(c, walker, leaves, place{at.leaf, at.first + STEP});
    }
};

/* T_W(w) of this thread's walker, from its first split on. */
template <typename T, bool IS_FP8, int DH, int TILES>
__device__ __forceinline__ void walk(struct plan<DH, TILES> &s, struct running<DH, TILES> &r,
                                     struct walking<DH, IS_FP8> &w, struct inputs<DH, TILES> &in,
                                     const struct op_attention &op, const struct chunk &c, struct scoring scoring) {
    const int mine = own_walker();
    auto &values = s.walkers[mine].cells;
    struct waiting<DH, TILES> waiting((float2 *)&s.walkers[blockDim.x / (WARPS * 32)]);
    struct place &now = w.now, &next = w.next;
    put_queries<T>(s, in);
    __syncthreads();
#pragma unroll 1
    for (; now.leaf != NO_LEAF; w.turns--) {
        const bool is_next = next.leaf != NO_LEAF;
        struct scores<TILES> scores;
        score<T>(scores, s, w.k, in.position, c, now.first, op.window, scoring);
        clear(w.k);
        load_keys(w.k, op, c, w.page, next.first, is_next);
        put_maxima(s, scores);
        sync_walker(mine);
        weigh<T>(s, r, scores);
        sync_walker(mine);
        wait_for_values<T, DH>(w.v, values);
        add_split<T>(r, s, values, in.position, c, now.first, op.window);
        __syncwarp();
        if (is_next) load_values<DH>(w.v, values, op, c, w.page, next.first);
        if (next.leaf != now.leaf) end_leaf(r, waiting, now.leaf, next.leaf);
        now = next, next = w.after(c, now);
        w.page = c.pages[next.first / KV_PAGE];
    }
#pragma unroll 1
    for (; w.turns > 0; w.turns--) {
        sync_walker(mine);
        sync_walker(mine);
    }
}

/* grid (batch chunks ranks, HKV), clusters of `ranks` along x. IS_PLAIN: no caps, no sinks; FP8 has no kernels of its own for these. A kernel that has just started waits
 * for its instructions, and for more of them where code that it leaves out lies between. */
template <typename T, int DH, int TILES, bool IS_PLAIN, bool IS_FP8>
__global__ void __launch_bounds__(DH > 128 ? THREADS : THREADS_ALL, 1)
    attention_cluster_kernel(const struct op_attention op, int chunks, int rank_bits, struct scoring scoring,
                             enum token_order order) {
#if __CUDA_ARCH__ >= 900
    /* Keys older than the pass are asked for before its inputs are ready. With more queries registers would spill. */
    constexpr bool IS_EARLY = TILES <= 2;
    extern __shared__ __align__(16) unsigned char shared[];
    struct plan<DH, TILES> &s = *(struct plan<DH, TILES> *)shared;
    next_may_start();
    if (IS_PLAIN) scoring.cap = 0;
    const int rank = blockIdx.x & ((1 << rank_bits) - 1);
    struct inputs<DH, TILES> in;
    struct chunk c = open_chunk<DH, TILES, IS_EARLY>(in, op, chunks, blockIdx.x >> rank_bits);
    const int page_index = min((rank + (own_walker() << rank_bits)) * SPLIT / KV_PAGE, op.rows.pages_per_slot - 1);
    int page = load_fixed(c.pages + page_index);
    const int there = c.last < 0 ? 0 : min(c.last / SPLIT + 1, (int)(blockDim.x / (WARPS * 32)) << rank_bits);
    struct walking<DH, IS_FP8> w(op, c, rank, rank_bits);
    const int first = w.now.first;
    const bool has_split = rank < there && w.now.leaf != NO_LEAF,
               is_older = IS_EARLY && first >= c.oldest && first + SPLIT <= c.begins;
    if (has_split && first / KV_PAGE != page_index) page = load_fixed(c.pages + first / KV_PAGE);
    clear(w.k);
    if (IS_EARLY) load_keys(w.k, op, c, page, first, has_split && is_older);
    w.page = has_split ? load_fixed(c.pages + w.next.first / KV_PAGE) : 0;
    inputs_are_ready();
    load_queries(in, op);
    load_keys(w.k, op, c, page, first, has_split && !is_older);
    if (has_split) load_values<DH>(w.v, s.walkers[own_walker()].cells, op, c, page, first);
    if (rank < there) {
        struct running<DH, TILES> r;
        clear(r);
        walk<T>(s, r, w, in, op, c, scoring);
        sync_walker(own_walker()); /* no value is read any more */
        put_sums(s, r);
    }
    cluster_arrive();
    join_walkers<T, IS_PLAIN>(s, op, c, rank, rank_bits, there, order);
    cluster_wait(); /* nobody ends while its memory is read */
#endif
}

/* Chunks of a graph row, walkers of a block, and the blocks of a cluster as a power of two. */
struct mapping {
    int chunks, walkers, rank_bits;
};

template <typename T, int DH, int TILES, bool IS_FP8>
static int launch_tiles(struct stream *s, const struct op_attention *op, struct mapping m) {
    typedef plan<DH, TILES> plan;
    const int levels = LEVELS + 1 - m.rank_bits - m.walkers / WALKERS; /* of the tree, for a walker */
    static_assert(plan::bytes(WALKERS) + plan::bytes_of_sums(WALKERS, LEVELS) <= (DH > 128 ? 226u : 113u) << 10,
                  "as many blocks a multiprocessor as launch_chunks counts on");
    const dim3 grid(op->rows.batch * m.chunks << m.rank_bits, op->kv_heads);
    /* Never three blocks on a multiprocessor, as then others would have none. */
    const int each = spread_each(s, (int)(grid.x * grid.y));
    const size_t needed = plan::bytes(m.walkers) + plan::bytes_of_sums(m.walkers, levels),
                 shared = spread_bytes({SHARED_PERCENT, each}, needed);
    const bool is_plain = op->cap == 0 && !op->sinks.data;
    auto kernel = is_plain ? attention_cluster_kernel<T, DH, TILES, !IS_FP8, IS_FP8>
                           : attention_cluster_kernel<T, DH, TILES, false, IS_FP8>;
    if (shared > 48 << 10)
        CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    const size_t of_multiprocessor = m.walkers == WALKERS ? (size_t)each * shared : shared;
    const int percent = of_multiprocessor <= SHARED_BYTES ? SHARED_PERCENT : SHARED_PERCENT_ANY;
    launch_sharing(s, kernel, grid, m.walkers * WARPS * 32, shared, 1 << m.rank_bits, percent, *op, m.chunks,
                   m.rank_bits, scoring_of(op), cuda_order_for(s, &op->rows, &op->reader));
    return cuda_launched(s, "attention", sizeof *op);
}

/* As many blocks as run at once, if there is work for so many. Clusters of 8 do not find the last tenth of the room, those of 4 not the
 * last sixteenth: there clusters of 2 blocks twice as large do. */
static struct mapping map_chunks(int chunks, int pairs, int room, bool may_be_large) {
    const int rooms[] = {room, room, room * 15 / 16, room * 9 / 10};
    for (int bits = 3; bits > 0; bits--) {
        const int blocks = pairs * chunks << bits;
        if (blocks <= rooms[bits]) return {chunks, WALKERS, bits};
        if (bits == 2 && blocks <= room && may_be_large) return {chunks, WALKERS_ALL, bits - 1};
    }
    return {chunks, WALKERS, 0};
}

/* Small grids take small chunks, which are done sooner, and all ranks; larger ones chunks as large as may be, of equal size, as that
 * reads keys and values less often, and fewer ranks. */
template <typename T, int DH, bool IS_FP8> static int launch_chunks(struct stream *s, const struct op_attention *op) {
    constexpr int most = DH > 256 ? 1 : DH > 128 ? 2 : 4, two = most < 2 ? most : 2, three = most < 3 ? most : 3;
    const int tiles = (op->rows.q_len * (op->heads / op->kv_heads) + 7) / 8, pairs = op->rows.batch * op->kv_heads,
              room = cuda_multiprocessors(s->device) * (DH > 128 ? 1 : 2);
    int a_chunk = 1;
    while (a_chunk < most && pairs * ((tiles + a_chunk - 1) / a_chunk) * RANKS > room * 9 / 10) a_chunk++;
    const int chunks = (tiles + a_chunk - 1) / a_chunk;
    const struct mapping m = map_chunks(chunks, pairs, room, DH <= 128);
    switch ((tiles + chunks - 1) / chunks) {
    case 1:
        return launch_tiles<T, DH, 1, IS_FP8>(s, op, m);
    case 2:
        return launch_tiles<T, DH, two, IS_FP8>(s, op, m);
    case 3:
        return launch_tiles<T, DH, three, IS_FP8>(s, op, m);
    default:
        return launch_tiles<T, DH, most, IS_FP8>(s, op, m);
    }
}

int cuda_attention_cluster(struct stream *s, const struct op_attention *op) {
    if (cuda_attention_is_staged(s, op)) return cuda_attention_staged(s, op);
    return with_cells(op, [&](auto type, auto is_fp8) {
        typedef decltype(type) T;
        constexpr bool IS_FP8 = decltype(is_fp8)::value;
        if (op->head_dim <= 64) return launch_chunks<T, 64, IS_FP8>(s, op);
        if (op->head_dim <= 128) return launch_chunks<T, 128, IS_FP8>(s, op);
        if (op->head_dim <= 256) return launch_chunks<T, 256, IS_FP8>(s, op);
        return launch_chunks<T, 512, IS_FP8>(s, op);
    });
}
