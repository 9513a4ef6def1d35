/* Paged attention on tensor cores, for heads of whole 16 bytes, by clusters of blocks (cuda_takes_clusters).
 *
 * Shapes: q [T, H DH] f32; K, V pages [P, HKV, PAGE, DH] 16 bit or FP8 (attention_cells.cuh); out [T, H DH] 16 bit.
 * Mapping: a query is one row and one of the H / HKV heads that share a key head; a chunk is up to 8 TILES queries of a graph
 *   row. Cluster (b, chunk | key/value head) has 1, 2, 4 or 8 ranks, a block each, so many that the grid fills the device
 *   about once. 4 warps are a walker: rank, rank + ranks, and in large blocks two more; of the largest heads a block has one. Walker w
 *   of W walks parts w, w + W, ..., each split by split in ascending order with an online softmax a query. For the scores a warp owns
 *   16 keys of a split and all dimensions, for the values all 64 keys and a quarter of the dimensions; maxima and weights go from warp to
 *   warp by way of shared memory. So do keys and values, each byte once a chunk, copied by whole rows of 16 keys a warp. Keys of the next
 *   split arrive while values are multiplied, and the other way round; where blocks are few, two splits are on their way. Those that are
 *   older than the pass are asked for before its inputs are ready.
 * Order: the 16 parts are added in a fixed tree (attention_tree.cuh). Walker w of W makes its node T_W(w), depth first, and the
 *   cluster the rest. So the number of ranks changes no bit, nor do parts without keys, which are left out.
 * Bytes: every visible key and value once a chunk. FLOPs: 8 DH a query and visible key.
 * Numerics: queries are the rows of mma for scores and its columns for values, so their number and neighbours change no bit. q and
 *   the weights of the softmax are each a sum of two 16-bit numbers, which leaves an error near 2^-17 (f16 takes |q| up to 65504).
 *   A query's result is that of its own visible keys: scores of others are selected away; values that no query of the chunk may see
 *   are not read but zero; where not all queries see the same of 16 keys, queries of one position are multiplied on their own, with
 *   the values that they do not see put to zero, and a query that sees none keeps its sum. */
#include "model/kernels/cuda/attention_join.cuh"

/* The walk of this thread's walker: the split where it is, and those after it, of which STAGES are there or on their way, with the page of the
 * next one to ask for. */
template <int STAGES> struct walking {
    static constexpr bool is_single = STAGES > 1; /* A walker has one leaf: launch_tiles sees to it. */
    int walker, walker_bits, leaves;              /* number w of W = 2^walker_bits; parts that it has */
    int turns; /* splits of the block's walker that has most: racecheck wants as many barriers of all threads */
    struct place at[STAGES + 2];
    int page;
    __device__ __forceinline__ walking(const struct chunk &c, int rank, int rank_bits)
        : walker(rank + (own_walker() << rank_bits)),
          walker_bits(PART_BITS - levels_of((int)blockDim.x / (WARPS * 32), rank_bits)),
          leaves(is_single ? 1 : PARTS >> walker_bits) {
        const int first = first_of_leaf(c, walker, 0);
        at[0] = is_single ? after(c, place{0, first - STEP}) : find_place(c, walker, leaves, place{0, first});
        for (int i = 1; i < STAGES; i++) at[i] = after(c, at[i - 1]);
    }
    __device__ __forceinline__ struct place after(const struct chunk &c, const struct place &at) const {
        const int first = at.first + STEP;
        if (is_single) return place{first <= c.last ? 0 : (int)NO_LEAF, first};
        return find_place(c, walker, leaves, place{at.leaf, first});
    }
    __device__ __forceinline__ int load_page(const struct chunk &c, const struct place &at) const {
        return load_fixed<true>(c.pages + (at.leaf == NO_LEAF ? 0 : at.first / KV_PAGE));
    }
    /* What is not needed before the first splits are on their way. */
    __device__ __forceinline__ void look_ahead(const struct chunk &c, int rank, int rank_bits) {
        at[STAGES] = after(c, at[STAGES - 1]);
        page = load_page(c, at[STAGES]);
        at[STAGES + 1] = after(c, at[STAGES]);
        turns = 0;
        for (int i = 0; i < (int)blockDim.x / (WARPS * 32); i++)
            turns = max(turns, count_splits(c, rank + (i << rank_bits), walker_bits));
    }
    __device__ __forceinline__ void step(const struct chunk &c) {
#pragma unroll
        for (int i = 0; i < STAGES + 1; i++) at[i] = at[i + 1];
        at[STAGES + 1] = after(c, at[STAGES + 1]);
    }
};

/* T_W(w) of this thread's walker, from its first split on. */
template <typename T, int STAGES, typename Plan, int DH, int TILES>
__device__ __forceinline__ void walk(Plan &s, struct running<DH, TILES> &r, struct walking<STAGES> &w,
                                     const int (&position)[TILES], const struct op_attention &op, const struct chunk &c,
                                     struct scoring scoring) {
    const int mine = own_walker();
    struct waiting<Plan> waiting((float2 *)&s.walkers[blockDim.x / (WARPS * 32)]);
    int i = 0;
#pragma unroll 1
    for (; w.at[0].leaf != NO_LEAF; w.turns--) {
        auto &stage = s.walkers[mine].stages[i];
        const int first = w.at[0].first, next = w.at[STAGES].first, page = w.page;
        const bool is_next = w.at[STAGES].leaf != NO_LEAF;
        w.page = w.load_page(c, w.at[STAGES + 1]);
        struct held_keys<DH> k;
        struct scores<TILES> scores;
        copies_wait_group<2 * STAGES - 1>();
        __syncwarp();
        take_keys<T>(k, stage, c, first);
        score<T>(scores, s, k, position, c, first, op.window, scoring);
        __syncwarp();
        begin_keys(stage, op, c, page, next, is_next);
        put_maxima(s, scores);
        sync_walker(mine);
        weigh<T>(s, r, scores);
        copies_wait_group<2 * STAGES - 1>();
        widen_values<T>(stage, c, first);
        sync_walker(mine);
        add_split<T>(r, s, stage.values, position, c, first, op.window);
        sync_walker(mine);
        begin_values(stage, op, c, page, next, is_next);
        if (w.at[1].leaf != w.at[0].leaf) end_leaf(r, waiting, w.at[0].leaf, w.is_single ? NO_LEAF : w.at[1].leaf);
        w.step(c);
        i = (i + 1) % STAGES;
    }
#pragma unroll 1
    for (; w.turns > 0; w.turns--) {
        sync_walker(mine);
        sync_walker(mine);
        sync_walker(mine);
    }
}

/* grid (batch chunks ranks, HKV), clusters of `ranks` along x. IS_PLAIN: no caps, no sinks; FP8 has no kernels of its own for these. A kernel
 * that has just started waits for its instructions, and for more of them where code that it leaves out lies between. */
template <typename T, int DH, int TILES, int STAGES, bool IS_PLAIN, bool IS_FP8>
__global__ void __launch_bounds__(DH > 128 || STAGES > 1 ? THREADS : THREADS_ALL, 1)
    attention_cluster_kernel(const struct op_attention op, int chunks, int rank_bits, struct scoring scoring,
                             enum token_order order) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) unsigned char shared[];
    auto &s = *(struct plan<DH, TILES, STAGES, IS_FP8> *)shared;
    next_may_start();
    if (IS_PLAIN) scoring.cap = 0;
    const int rank = blockIdx.x & ((1 << rank_bits) - 1), mine = own_walker();
    struct inputs<DH, TILES> in;
    const struct chunk c = open_chunk<DH, TILES>(in, op, chunks, blockIdx.x >> rank_bits);
    /* The pages of the first splits, before it is known that they are these. */
    int guesses[STAGES], pages[STAGES];
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        const int first = (rank + (mine << rank_bits)) * SPLIT + i * STEP;
        guesses[i] = min(first / KV_PAGE, op.rows.pages_per_slot - 1);
        pages[i] = load_fixed(c.pages + guesses[i]);
    }
    const int there = c.last < 0 ? 0 : min(c.last / SPLIT + 1, (int)(blockDim.x / (WARPS * 32)) << rank_bits);
    struct walking<STAGES> w(c, rank, rank_bits);
    bool are_ready = false;
#pragma unroll 1
    for (int i = 0; i < STAGES; i++) {
        auto &stage = s.walkers[mine].stages[i];
        const struct place at = i == 0 ? w.at[0] : w.at[STAGES - 1];
        const int guessed = i == 0 ? guesses[0] : guesses[STAGES - 1];
        int page = i == 0 ? pages[0] : pages[STAGES - 1];
        const bool is_wanted = at.leaf != NO_LEAF,
                   is_older = is_wanted && at.first >= c.oldest && at.first + SPLIT <= c.begins;
        if (is_wanted && at.first / KV_PAGE != guessed) page = load_fixed(c.pages + at.first / KV_PAGE);
        if (!are_ready && !is_older) inputs_are_ready(), are_ready = true;
        begin_keys(stage, op, c, page, at.first, is_wanted);
        begin_values(stage, op, c, page, at.first, is_wanted);
    }
    if (!are_ready) inputs_are_ready();
    load_queries(in, op);
    w.look_ahead(c, rank, rank_bits);
    if (rank < there) {
        struct running<DH, TILES> r;
        clear(r);
        put_queries<T>(s, in);
        __syncthreads();
        walk<T>(s, r, w, in.position, op, c, scoring);
        put_sums(s, r);
    }
    cluster_arrive();
    join_walkers<T, IS_PLAIN>(s, op, c, rank, rank_bits, w.walker_bits, there, order);
    cluster_wait(); /* nobody ends while its memory is read */
#endif
}

/* Chunks of a graph row, walkers of a block, and the blocks of a cluster as a power of two. */
struct mapping {
    int chunks, walkers, rank_bits;
};

template <typename T, int DH, int TILES, int STAGES, bool IS_FP8>
static int launch_stages(struct stream *s, const struct op_attention *op, struct mapping m, int each) {
    typedef plan<DH, TILES, STAGES, IS_FP8> plan;
    constexpr int least = walkers_of(DH), most = STAGES > 1 ? 0 : levels_of(least, 0);
    const int levels = levels_of(m.walkers, m.rank_bits);
    static_assert(plan::bytes(least) + plan::bytes_of_sums(least, most) <= (DH > 128 || STAGES > 1 ? 226u : 113u) << 10,
                  "as many blocks a multiprocessor as launch_chunks counts on");
    const dim3 grid(op->rows.batch * m.chunks << m.rank_bits, op->kv_heads);
    const size_t needed = plan::bytes(m.walkers) + plan::bytes_of_sums(m.walkers, levels),
                 shared = spread_bytes({SHARED_PERCENT, each}, needed);
    const bool is_plain = op->cap == 0 && !op->sinks.data;
    auto kernel = is_plain ? attention_cluster_kernel<T, DH, TILES, STAGES, !IS_FP8, IS_FP8>
                           : attention_cluster_kernel<T, DH, TILES, STAGES, false, IS_FP8>;
    const size_t of_multiprocessor = m.walkers < WALKERS_ALL ? (size_t)each * shared : shared;
    const int percent = of_multiprocessor <= SHARED_BYTES        ? SHARED_PERCENT
                        : of_multiprocessor <= SHARED_BYTES_MORE ? SHARED_PERCENT_MORE
                                                                 : SHARED_PERCENT_ANY;
    launch_sharing(s, kernel, grid, m.walkers * WARPS * 32, shared, 1 << m.rank_bits, percent, *op, m.chunks,
                   m.rank_bits, scoring_of(op), cuda_order_for(s, &op->rows, &op->reader));
    return cuda_launched(s, "attention", sizeof *op);
}

/* Never three blocks on a multiprocessor, as then others would have none. Where one has but a block, whose walkers have a part each, two splits
 * are on their way. */
template <typename T, int DH, int TILES, bool IS_FP8>
static int launch_tiles(struct stream *s, const struct op_attention *op, struct mapping m) {
    const int each = spread_each(s, op->rows.batch * m.chunks * op->kv_heads << m.rank_bits);
    if constexpr (TILES == 1 && DH <= 128)
        if (each == 1 && m.walkers << m.rank_bits == PARTS) return launch_stages<T, DH, 1, 2, IS_FP8>(s, op, m, each);
    return launch_stages<T, DH, TILES, 1, IS_FP8>(s, op, m, each);
}

/* As many blocks as run at once, if there is work for so many, of `walkers` each. Clusters of 8 do not find the last tenth of the room, those of
 * 4 not the last sixteenth: there clusters of 2 blocks twice as large do. A walker has a neighbour. */
static struct mapping map_chunks(int chunks, int pairs, int room, int walkers, bool may_be_large) {
    const int rooms[] = {room, room, room * 15 / 16, room * 9 / 10}, least = walkers > 1 ? 0 : 1;
    for (int bits = 3; bits > least; bits--) {
        const int blocks = pairs * chunks << bits;
        if (blocks <= rooms[bits]) return {chunks, walkers, bits};
        if (bits == 2 && blocks <= room && may_be_large) return {chunks, WALKERS_ALL, bits - 1};
    }
    return {chunks, walkers, least};
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
    const struct mapping m = map_chunks(chunks, pairs, room, walkers_of(DH), DH <= 128);
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
    return with_cells(op, [&](auto type, auto is_fp8) {
        typedef decltype(type) T;
        constexpr bool IS_FP8 = decltype(is_fp8)::value;
        if (op->head_dim <= 64) return launch_chunks<T, 64, IS_FP8>(s, op);
        if (op->head_dim <= 128) return launch_chunks<T, 128, IS_FP8>(s, op);
        if (op->head_dim <= 256) return launch_chunks<T, 256, IS_FP8>(s, op);
        return launch_chunks<T, 512, IS_FP8>(s, op);
    });
}
