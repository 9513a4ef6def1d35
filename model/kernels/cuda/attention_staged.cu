/* Attention as attention_cluster.cu has it, where few clusters have few queries, as in one sequence's decoding: what takes the time there is not
 * the bytes of keys and values but waiting for them. So a walker has two splits in shared memory or on their way, in rows of whole lines, and
 * those that are older than the pass are asked for before its inputs are ready. Its bits are the other's.
 *
 * Mapping: clusters of 8 blocks, a multiprocessor each, of two walkers: one for each of the 16 parts. A warp copies, and scores, 16 keys of a
 *   split, and copies 16 rows of values, of which all warps of the walker take their dimensions. */
#include "model/kernels/cuda/attention_join.cuh"

enum { STAGES = 2, STAGED_DIMS_MAX = 128, STAGED_QUERIES_MAX = 8, RANK_BITS = 3 };
static_assert(1 << RANK_BITS == RANKS && RANKS * WALKERS == PARTS, "a walker for each part");

/* The walk of a walker through its part, from the split at `first` on: the pages of its next 32 splits, one a lane. */
struct staged_walk {
    int first, pages, pages_from;
    __device__ __forceinline__ void load_pages(const struct op_attention &op, const struct chunk &c) {
        const int at = (first + (int)(threadIdx.x % 32) * STEP) / KV_PAGE;
        pages_from = first, pages = load_fixed(c.pages + min(at, op.rows.pages_per_slot - 1));
    }
    /* The page of the split `ahead` splits on. */
    __device__ __forceinline__ int page_of(const struct op_attention &op, const struct chunk &c, int ahead) {
        if ((first - pages_from) / STEP + ahead >= 32) load_pages(op, c);
        return __shfl_sync(0xffffffffu, pages, (first - pages_from) / STEP + ahead);
    }
};

/* Asks for keys, or values, of the split at `first`, if there is one: a group of copies either way. */
template <int DH>
__device__ __forceinline__ void begin_rows(uint4 (&to)[SPLIT][DH / 8], const void *cache, const struct op_attention &op,
                                           const struct chunk &c, int page, int first) {
    if (first <= c.last) copy_rows<DH>(to, cache, op, c, page, first);
    copies_commit_group();
}

/* grid (batch RANKS, HKV), clusters of RANKS along x. IS_PLAIN: no caps, no sinks. */
template <typename T, int DH, bool IS_PLAIN>
__global__ void __launch_bounds__(THREADS, 1)
    attention_staged_kernel(const struct op_attention op, struct scoring scoring, enum token_order order) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) unsigned char shared[];
    struct plan<DH, 1, STAGES> &s = *(struct plan<DH, 1, STAGES> *)shared;
    next_may_start();
    if (IS_PLAIN) scoring.cap = 0;
    const int rank = blockIdx.x % RANKS, mine = own_walker(), walker = rank + mine * RANKS;
    auto &stages = s.walkers[mine].cells;
    struct inputs<DH, 1> in;
    const struct chunk c = open_chunk<DH, 1, true>(in, op, 1, blockIdx.x / RANKS);
    const int there = c.last < 0 ? 0 : min(c.last / SPLIT + 1, PARTS);
    int turns = 0; /* splits of the block's walker that has most: racecheck wants as many barriers of all threads */
    for (int i = 0; i < WALKERS; i++) turns = max(turns, count_splits(c, rank + i * RANKS, RANK_BITS + 1));
    struct staged_walk w = {first_of_leaf(c, walker, 0)};
    w.load_pages(op, c);
    bool are_ready = false;
#pragma unroll 1
    for (int i = 0; i < STAGES; i++) {
        const int at = w.first + i * STEP, page = w.page_of(op, c, i);
        if (!are_ready && (at < c.oldest || at + SPLIT > c.begins)) inputs_are_ready(), are_ready = true;
        begin_rows<DH>(stages[i].keys, op.kv.k, op, c, page, at);
        begin_rows<DH>(stages[i].values, op.kv.v, op, c, page, at);
    }
    if (!are_ready) inputs_are_ready();
    load_queries(in, op);
    put_queries<T>(s, in);
    __syncthreads();
    struct running<DH, 1> r;
    clear(r);
#pragma unroll 1
    for (int i = 0; w.first <= c.last; w.first += STEP, turns--, i = (i + 1) % STAGES) {
        struct stage<DH> &now = stages[i];
        const int page = w.page_of(op, c, STAGES), next = w.first + STAGES * STEP;
        struct held_keys<DH, false> k;
        struct scores<1> scores;
        copies_wait_group<2 * STAGES - 1>();
        __syncwarp();
        take_keys(k, now.keys);
        score<T>(scores, s, k, in.position, c, w.first, op.window, scoring);
        __syncwarp();
        begin_rows<DH>(now.keys, op.kv.k, op, c, page, next);
        put_maxima(s, scores);
        sync_walker(mine);
        weigh<T>(s, r, scores);
        copies_wait_group<2 * STAGES - 1>();
        sync_walker(mine);
        add_split<T>(r, s, now.values, in.position, c, w.first, op.window);
        sync_walker(mine);
        begin_rows<DH>(now.values, op.kv.v, op, c, page, next);
    }
#pragma unroll 1
    for (; turns > 0; turns--) {
        sync_walker(mine);
        sync_walker(mine);
        sync_walker(mine);
    }
    struct waiting<DH, 1> none(nullptr);
    end_leaf(r, none, 0, NO_LEAF);
    if (walker < there) put_sums(s, r);
    cluster_arrive();
    join_walkers<T, IS_PLAIN>(s, op, c, rank, RANK_BITS, there, order);
    cluster_wait(); /* nobody ends while its memory is read */
#endif
}

template <typename T, int DH> static int launch_staged(struct stream *s, const struct op_attention *op) {
    const dim3 grid(op->rows.batch * RANKS, op->kv_heads);
    const size_t shared = spread_bytes({SHARED_PERCENT, 1}, plan<DH, 1, STAGES>::bytes(WALKERS));
    auto kernel =
        op->cap == 0 && !op->sinks.data ? attention_staged_kernel<T, DH, true> : attention_staged_kernel<T, DH, false>;
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    launch_sharing(s, kernel, grid, THREADS, shared, RANKS, SHARED_PERCENT_MORE, *op, scoring_of(op),
                   cuda_order_for(s, &op->rows, &op->reader));
    return cuda_launched(s, "attention", sizeof *op);
}

bool cuda_attention_is_staged(const struct stream *s, const struct op_attention *op) {
    return op->kv.type != DTYPE_FP8 && op->head_dim <= STAGED_DIMS_MAX &&
           op->rows.q_len * (op->heads / op->kv_heads) <= STAGED_QUERIES_MAX &&
           spread_each(s, op->rows.batch * op->kv_heads * RANKS) == 1;
}

int cuda_attention_staged(struct stream *s, const struct op_attention *op) {
    return with_type("attention", {op->kv, op->sinks, op->out}, [&](auto type) {
        typedef decltype(type) T;
        return op->head_dim <= 64 ? launch_staged<T, 64>(s, op) : launch_staged<T, STAGED_DIMS_MAX>(s, op);
    });
}
