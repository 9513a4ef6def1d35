/* x[t, :] += sum_j weights[t, j] (W_e h[t, j, :] + b_e), e = ids[t, j], or =.
 *   1. The product (experts.cuh) of every entry into sums [T, chosen, D] f32, bias in its epilogue.
 *   2. A row's sums, weighted, j ascending; 0 for a row that chose none. Bytes: T (chosen + 2) D 4.
 * Of a single row one launch does both: a block, or a cluster of them, has 16 numbers and goes from expert to expert. */
#include "model/kernels/cuda/experts.cuh"
#include "model/kernels/cuda/table.h"

/* Matrices of so many rows. */
static matrix_map<1> down_map(const struct op_experts_down *op) {
    return {{op->width}};
}
template <typename T> static plain_expert_rows<T, matrix_map<1>> plain_rows_of(const struct op_experts_down *op) {
    return {{down_map(op), {first_expert<T>(op->down)}, op->hidden, false}, {op->down.apart}};
}

template <typename T> struct expert_sums {
    float *sums;
    const int32_t *sorted;
    const T *bias; /* may be NULL */
    int64_t apart;
    int rows;
    __device__ __forceinline__ expert_sums of(int expert) const {
        expert_sums its = *this;
        its.bias = of_expert(bias, apart, expert);
        return its;
    }
    static constexpr int each = PRODUCT_ROWS;
    struct place {
        int o;
        float bias;
    };
    struct held {};
    __device__ __forceinline__ place at(int group, int i) const {
        const int o = group * PRODUCT_ROWS + i;
        return {o, bias && o < rows ? to_float(bias[o]) : 0.0f};
    }
    __device__ __forceinline__ bool has(const place &at) const { return at.o < rows; }
    template <bool LATE> __device__ __forceinline__ held fetch(const place &, int) const { return {}; }
    __device__ __forceinline__ void finish_entry(const place &at, int entry, const float (&its)[1]) const {
        sums[(size_t)entry * rows + at.o] = its[0] + at.bias;
    }
    __device__ __forceinline__ void finish(held, const place &at, int token, const float (&its)[1]) const {
        finish_entry(at, sorted[token], its);
    }
};

/* grid (D / BLOCK_THREADS, T) */
__global__ void __launch_bounds__(BLOCK_THREADS)
    add_experts_kernel(const float *sums, const float *weights, const int32_t *ids, int chosen, int width, bool stores,
                       float *x) {
    const int i = blockIdx.x * BLOCK_THREADS + threadIdx.x;
    const size_t row = blockIdx.y;
    next_may_start();
    inputs_are_ready();
    if (i >= width) return;
    const bool has_experts = ids[row * chosen] >= 0;
    float sum = 0;
#pragma unroll 4
    for (int j = 0; has_experts && j < chosen; j++)
        sum = fmaf(weights[row * chosen + j], sums[(row * chosen + j) * width + i], sum);
    x[row * width + i] = stores ? sum : x[row * width + i] + sum;
}

/* What becomes of a single row's sums. */
template <typename T> struct row_total {
    const float *weights; /* [chosen] */
    const T *bias;        /* of expert 0; may be NULL */
    int64_t bias_apart;
    int rows;
    bool stores;
    float *x;
};

enum { DOWN_CLUSTER = 2 /* blocks */ };

/* The blocks of a cluster, if there are several: they arrive, and wait for all that have not ended to do so. A block that is alone meets. */
__device__ __forceinline__ void ranks_arrive(int ranks) {
#if __CUDA_ARCH__ >= 900
    if (ranks > 1) __cluster_barrier_arrive();
#endif
}
__device__ __forceinline__ void ranks_wait(int ranks) {
#if __CUDA_ARCH__ >= 900
    if (ranks > 1) return __cluster_barrier_wait();
#endif
    __syncthreads();
}
/* Where a number of a block's shared memory lies in that of the first of its cluster. */
__device__ __forceinline__ float *of_first_rank(float *mine, int ranks) {
#if __CUDA_ARCH__ >= 900
    if (ranks > 1) return (float *)__cluster_map_shared_rank(mine, 0);
#endif
    return mine;
}

/* A single token's sums of a warp: those of every fourth lane's first column. */
__device__ __forceinline__ void put_sums_of_token(float (&to)[PRODUCT_ROWS], const float (&c)[4]) {
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (threadIdx.x % 4 == 0) to[threadIdx.x % 32 / 4 + half * PRODUCT_HALF] = c[2 * half];
}
/* What the chosen experts bring to row r, each by its factor. */
__device__ __forceinline__ float total_of(const float (&of_experts)[CHOSEN_MAX][PRODUCT_ROWS],
                                          const float (&factors)[CHOSEN_MAX], bool has_experts, int chosen, int r) {
    float total = 0;
#pragma unroll 8
    for (int i = 0; has_experts && i < chosen; i++) total = fmaf(factors[i], of_experts[i][r], total);
    return total;
}

/* A block has a group of weight rows of several experts at once, then of the next ones. Or the `ranks` blocks of a cluster, a power of two, have
 * it, each with experts of its own at once, where a block each would leave room on the GPU: they have no second group. Each puts what its experts
 * bring into the memory of the first, which adds up, and ends.
 * The choices, or the logits that they come from, are older than the kernel before, which lets this one start when its own inputs are
 * ready: so the first weights are asked for while that one runs. */
template <typename T, typename Rows>
__global__ void __launch_bounds__(BLOCK_THREADS, NARROW_BLOCKS)
    row_experts_down_kernel(Rows weights, int groups, row_entries<T> in, row_total<T> out, int ranks, int at_a_time) {
    typedef typename stream_of<T, Rows>::type stream;
    /* Turns whose sums wait for each other, so that warps meet once; a packed stream has factors for no more than one. */
    constexpr int SUMMED = stream::is_plain ? 2 : 1;
    /* Twice as many: some to be filled while the others are read. */
    __shared__ float parts[2 * SUMMED][PRODUCT_SPLITS][PRODUCT_ROWS];
    __shared__ typename stream::memory memory_of_stream;
    __shared__ float of_experts[CHOSEN_MAX][PRODUCT_ROWS], factors[CHOSEN_MAX];
    extern __shared__ __align__(16) unsigned char shared[];
    const narrow_cut cut = experts_cut<stream>(in.k);
    const int chosen = in.chosen, at_once = PRODUCT_SPLITS / cut.ways, warp = threadIdx.x / 32, mine = warp / cut.ways,
              turns = ceil_div(chosen, at_once * ranks), rank = blockIdx.x & (ranks - 1);
    next_may_start();
    ranks_arrive(ranks);
    const row_tiles tiles = in.tiles();
    const bool has_experts = tiles.count() > 0;
    stream rows(cut, in.k, memory_of_stream);
    auto group_of = [&](int number) { return (int)(blockIdx.x + number / turns * gridDim.x) / ranks; };
    auto entry_of = [&](int turn, int place) { return (turn * ranks + rank) * at_once + place; };
    auto expert_of = [&](int entry) { return max(tiles.tile(min(entry, chosen - 1)).expert, 0); };
    auto go_to = [&](int number) {
        const int group = group_of(number), entry = entry_of(number % turns, mine);
        rows.go_to(weights.of(expert_of(entry)), group, number, has_experts && entry < chosen && group < groups);
    };
    rows.start(go_to);
    inputs_are_ready();
    if ((int)threadIdx.x < chosen) factors[threadIdx.x] = out.weights[threadIdx.x];
    constexpr int PREPARES = !stream::is_plain;
    const int from = rows.first * stream::PIECE, share = rows.count * stream::PIECE;
    auto token_of = [&](int turn) { return in.x + (int64_t)min(entry_of(turn, mine), chosen - 1) * in.k; };
    /* The warp's shares of the tokens of several turns. */
    auto staged_of = [&](int turn) { return (T *)shared + (turn % at_a_time * PRODUCT_SPLITS + warp) * share; };
    auto stage_from = [&](int first) {
        if constexpr (PREPARES)
            for (int turn = first; turn < min(first + at_a_time, turns); turn++)
                stage_share(staged_of(turn), token_of(turn), from, share, in.k,
                            [](uint2 four) { return stream::prepared(four); });
    };
    const bool in_order = weights.of(0).adds_in_order();
    static_assert(SUMMED * PRODUCT_SPLITS <= BLOCK_THREADS / PRODUCT_ROWS, "a thread adds up one sum of a meeting");
    const int r = threadIdx.x % PRODUCT_ROWS, its = threadIdx.x / PRODUCT_ROWS; /* of those that are summed */
    const int place = its % at_once, ahead = its / at_once /* turns, of a meeting's first */;
    if (ranks > 1) ranks_wait(ranks); /* the first has begun, and its memory may be written */
    for (int number = 0; group_of(number) < groups; number++) {
        const int turn = number % turns, o = group_of(number) * PRODUCT_ROWS + r;
        const bool is_last = turn == turns - 1, adds = o < out.rows && its == 0 && rank == 0;
        const int waiting = turn % SUMMED + 1 /* turns */, back = waiting - 1 - ahead,
                  entry = entry_of(turn - back, place), expert = expert_of(entry);
        const bool meets = is_last || waiting == SUMMED, sums = meets && back >= 0 && entry < chosen;
        float there = 0;
        T bias = from_float<T>(0);
        if (is_last && adds && !out.stores) there = out.x[o];
        auto ask_for_bias = [&] {
            if (out.bias && sums && o < out.rows) bias = of_expert(out.bias, out.bias_apart, expert)[o];
        };
        if (stream::is_plain) ask_for_bias(); /* a packed stream would wait for it with its codes */
        if (number == 0 || (at_a_time < turns && turn % at_a_time == 0)) stage_from(turn);
        const narrow_view<T, 1, PREPARES> view = {PREPARES ? staged_of(turn) - from : token_of(turn), 0, 1, in.k};
        float c[1][4] = {};
        rows.multiply_group(c, number, view, go_to);
        put_sums_of_token(parts[number % (2 * SUMMED)][warp], c[0]);
        if (!meets) continue;
        __syncthreads();
        if (sums) {
            if (!stream::is_plain) ask_for_bias();
            const float sum = sum_of_splits(
                [&](int split) { return parts[(number - back) % (2 * SUMMED)][place * cut.ways + split][r]; }, cut.ways,
                in_order);
            *of_first_rank(&of_experts[entry][r], ranks) = rows.finish(sum, number - back, place, r) + to_float(bias);
        }
        if (!is_last) continue;
        ranks_arrive(ranks);
        if (rank > 0) return;
        ranks_wait(ranks);
        if (!adds) continue;
        const float total = total_of(of_experts, factors, has_experts, chosen, r);
        out.x[o] = out.stores ? total : there + total;
    }
}

template <typename T, typename Rows>
static int row_experts_down(struct stream *s, int groups, const row_entries<T> &in, Rows rows,
                            const row_total<T> &out) {
    const int room = NARROW_BLOCKS * cuda_multiprocessors(s->device);
    const int ranks = cuda_takes_clusters(s->device) && groups * DOWN_CLUSTER <= room ? DOWN_CLUSTER : 1;
    typedef typename stream_of<T, Rows>::type stream;
    const narrow_cut cut = experts_cut<stream>(in.k);
    const int turns = ceil_div(in.chosen, PRODUCT_SPLITS / cut.ways * ranks);
    const size_t of_turn = stream::is_plain ? 0 : PRODUCT_SPLITS * cut.pieces * stream::PIECE * sizeof(T);
    const int at_a_time = of_turn == 0 ? turns : min(turns, (int)(NARROW_SHARED / of_turn));
    launch_sharing(s, row_experts_down_kernel<T, Rows>, dim3(min(groups * ranks, room)), BLOCK_THREADS,
                   at_a_time * of_turn, ranks, SHARED_PERCENT, rows, groups, in, out, ranks, at_a_time);
    return cuda_launched(s, "experts_down", sizeof rows + sizeof in + sizeof out + 12);
}

template <typename T> static int single_row_down(struct stream *s, const struct op_experts_down *op) {
    const int groups = ceil_div(op->width, PRODUCT_ROWS);
    const row_entries<T> in = row_entries_of<T>(*op, (const T *)op->h.data, op->hidden, {});
    const row_total<T> out = {op->weights, first_expert<T>(op->bias), op->bias.apart, op->width, op->stores, op->x};
    if (are_packed(op->down))
        return with_packed_experts<T>("experts_down", op->down, nullptr, down_map(op),
                                      [&](auto rows) { return row_experts_down(s, groups, in, rows, out); });
    return row_experts_down(s, groups, in, plain_rows_of<T>(op), out);
}

int cuda_op_experts_down(struct stream *s, const struct op_experts_down *op) {
    const int count = rows_count(&op->rows), entries = count * op->chosen, n = op->experts,
              columns = tile_columns(s, &op->rows, n, op->chosen, are_packed(op->down));
    TRY(check_experts("experts_down", entries, n, op->chosen));
    if (is_single_row(&op->rows, op->width, op->hidden))
        return with_type("experts_down", {{op->down, n}, {op->bias, n}, op->h},
                         [&](auto type) { return single_row_down<decltype(type)>(s, op); });
    TRY(with_type("experts_down", {{op->down, n}, {op->bias, n}, op->h}, [&](auto type) {
        typedef decltype(type) T;
        const struct expert_lists lists = {const_cast<int32_t *>(op->lists), entries};
        expert_sums<T> out = {op->sums, op->lists + 1 + entries, first_expert<T>(op->bias), op->bias.apart, op->width};
        entry_rows<T> in = {(const T *)op->h.data, lists, 1, op->hidden};
        const int groups = ceil_div(op->width, PRODUCT_ROWS), tiles = tiles_at_most(entries, n, columns);
        if (are_packed(op->down))
            return packed_experts_product<T>(s, "experts_down", groups, tiles, columns, op->hidden, in, op->down,
                                             nullptr, down_map(op), out);
        return experts_product<T>(s, "experts_down", groups, tiles, columns, op->hidden, in, plain_rows_of<T>(op), out);
    }));
    launch_dependent(s, add_experts_kernel, dim3(ceil_div(op->width, BLOCK_THREADS), count), BLOCK_THREADS, 0, 1,
                     (const float *)op->sums, op->weights, op->ids, op->chosen, op->width, op->stores, op->x);
    return cuda_launched(s, "experts' sum", 48);
}
