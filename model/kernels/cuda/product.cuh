/* The weight-streaming product: out[t, o] = sum_k x[t, k] w[o, k], for any number of tokens.
 *
 * Shapes: w [O, K] 16 bit, read once for up to 192 tokens (16 without clusters); x [T, K] 16 bit; sums in f32.
 * Mapping: the weights are the m operand of mma.m16n8k16 and the tokens the n operand, so a token is a column and never sees its
 *   neighbours; more tokens are more column tiles of 8. k is cut into 8 splits, each a multiple of 256, whose sums are
 *   added in a fixed order. Within 32 of k every lane takes 16 contiguous bytes of a row for two mma: k is permuted alike in both
 *   operands, which changes no product.
 *   Up to 16 tokens (product_narrow.cuh), of short outputs of short rows more: a block of 8 warps owns 16 weight rows, a warp is
 *   a split and streams to registers.
 *   More, on sm_90: a block owns up to 128 rows (product_bulk.cuh); long outputs add their splits in order.
 *   More: a cluster of 8 blocks owns 128 rows or more, a block is a split; weights and tokens pass through shared memory. By
 *   wgmma on sm_90, where it takes up to 64 tokens of short outputs and the experts' (product_wgmma.cuh), by mma after it
 *   (product_wide.cuh). Without clusters the first does it all.
 * Numerics: the order of additions is fixed by the weight's shape alone, so a token's result has the same bits in all of these. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_CUH

#include "model/kernels/cuda/product_bulk.cuh"
#include "model/kernels/cuda/product_packed_bulk.cuh"
#include "model/kernels/cuda/product_wgmma.cuh"
#include "model/kernels/cuda/product_wide.cuh"

/* Is a product of so many groups one whose sums of splits are added in order? */
static inline bool is_long(const struct device *d, int groups, int k) {
    enum { LONG = 1024 }; /* of 128 rows, a block or more for nearly every multiprocessor */
    return cuda_has_wgmma(d) && groups >= LONG && k % ORDER_GROUP == 0;
}

/* Which of the matrices of a product the rows of a group are: row_place at(group, i), and for the copy engine rows_of(matrix) and order()
 * (product_bulk.cuh). may_be_long: their outputs may be added in order; takes_many_packed: by product_packed_bulk.cuh, if packed. step: each
 * group's rows lie so many behind those of the one before, in one matrix or in the same of two, and if the first of row_limit(half) is there
 * so is that of the half; 0: they do not.
 *
 * Here groups of 16 rows of up to N matrices of so many, one behind the other; 0: there is none, nor any after it. Several are never
 * long, as another kernel may rotate their rows. Many tokens of one packed matrix are the work of the kernel for several: to look for the
 * matrix of a row costs little there (docs/PERFORMANCE.md), and fewer kernels compile sooner. */
template <int N> struct matrix_map {
    static constexpr int matrices = N;
    int rows[N];
    static constexpr bool may_be_long = N == 1, takes_many_packed = N > 1;
    static constexpr int step = N == 1 ? PRODUCT_ROWS : 0;
    __device__ __forceinline__ int row_limit(int half) const { return rows[0] - half * PRODUCT_HALF; }
    __device__ __forceinline__ row_place at(int group, int row) const {
        row_place place = {0, group * PRODUCT_ROWS + row};
        int limit = rows[0];
#pragma unroll
        for (int i = 1; i < N; i++)
            if (place.row >= limit) place = {i, place.row - limit}, limit = rows[i];
        if (place.row >= limit) place.matrix = -1;
        return place;
    }
    __host__ __device__ int rows_of(int matrix) const {
        return of_matrix(rows, matrix);
    }
    /* Boxes of one matrix. */
    bulk_order order(int groups) const {
        int box = groups * PRODUCT_ROWS;
        for (int i = 0; i + 1 < N && rows[i + 1] > 0; i++) box = common_part(box, rows[i]);
        return {groups, 1, box % BULK_ATOM == 0 ? box : 0};
    }
};

/* Those of one matrix that blocks take in turns, where the groups of the last turn are at most half as many as blocks: 2, 4 or 8 blocks share
 * each of these, with a row of a half in so many, and all end sooner, and at about the same time. Groups from `whole` on are such shares. */
struct shared_map {
    static constexpr int matrices = 1, step = 0;
    static constexpr bool may_be_long = false, takes_many_packed = false;
    int rows, whole, share_log;
    int groups; /* shares included; 0: nothing is shared */
    shared_map(int rows, int groups, int blocks)
        : rows(rows), whole(groups / blocks * blocks), share_log(0), groups(0) {
        const int left = groups - whole;
        while (whole > 0 && left > 0 && share_log < 3 && left << (share_log + 1) <= blocks) share_log++;
        if (share_log > 0) this->groups = whole + (left << share_log);
    }
    __device__ __forceinline__ row_place at(int group, int i) const {
        const int share = group - whole, parts = (1 << share_log) - 1;
        if (share >= 0 && (i % PRODUCT_HALF) >> (3 - share_log) != (share & parts)) return {-1, 0};
        const int row = (share < 0 ? group : whole + (share >> share_log)) * PRODUCT_ROWS + i;
        return {row < rows ? 0 : -1, row};
    }
};
static_assert(PRODUCT_HALF == 8, "of which a share is a part");

/* Groups of 8 rows of one matrix of so many and the same 8 of another, where it is there: what an activation takes of both meets in the
 * epilogue. */
struct paired_map {
    static constexpr int matrices = 2;
    int rows;
    bool has_second;
    static constexpr bool may_be_long = true, takes_many_packed = true;
    static constexpr int step = PRODUCT_HALF;
    __device__ __forceinline__ int row_limit(int half) const { return half == 0 || has_second ? rows : 0; }
    __device__ __forceinline__ row_place at(int group, int i) const {
        const int o = group * PRODUCT_HALF + i % PRODUCT_HALF, matrix = i / PRODUCT_HALF;
        return {o < rows && (matrix == 0 || has_second) ? matrix : -1, o};
    }
    __host__ __device__ int rows_of(int) const { return rows; }
    bulk_order order(int groups) const { return {groups, groups, groups * PRODUCT_HALF}; }
};

/* Rows of 16-bit matrices by a map; another is packed_rows. */
template <typename T, typename Map> struct plain_rows {
    static constexpr int matrices = Map::matrices, step = 0 /* each group's are found by the map */;
    static constexpr bool may_be_long = Map::may_be_long;
    Map map;
    const T *weights[matrices]; /* NULL: there is none */
    int k;
    bool in_order; /* the sums of splits are added in order (is_long) */
    __host__ __device__ bool adds_in_order() const { return may_be_long && in_order; }
    __device__ __forceinline__ const T *row(int group, int i) const {
        const row_place place = map.at(group, i);
        return place.matrix < 0 ? nullptr : of_matrix(weights, place.matrix) + (size_t)place.row * k;
    }
};

/* Widths that 16-byte loads cannot read: one warp a weight row and token, the same promise. */
template <typename T> __device__ __forceinline__ float plain_sum(const T *row, const T *x, int k) {
    float sum = 0;
    for (int i = threadIdx.x % 32; i < k; i += 32) sum = fmaf(to_float(row[i]), to_float(x[i]), sum);
    return warp_sum(sum);
}
template <typename T, typename Rows, typename Out>
__global__ void __launch_bounds__(512) product_plain_kernel(Rows weights, const T *x, int k, Out out) {
    __shared__ float parts[PRODUCT_ROWS];
    const int warp = threadIdx.x / 32, token = blockIdx.y;
    next_may_start();
    inputs_are_ready();
    const T *row = weights.row(blockIdx.x, warp);
    const float sum = row ? plain_sum(row, x + (size_t)token * k, k) : 0.0f;
    if (threadIdx.x % 32 == 0) parts[warp] = sum;
    __syncthreads();
    store_groups<1, 1, 1>(out, blockIdx.x, token, 1, [=](int r, int) { return parts[r]; });
}

/* Who transposes the tokens of product_bulk.cuh: their norm, the op that makes them, or a kernel of its own. */
enum token_source { TOKENS_NORMED, TOKENS_MADE, TOKENS_PLAIN };

/* Does the narrow product take them? Of long rows no more tokens than a block's: what L2 brings, tokens and the weights again, is what
 * limits it there. */
static bool is_narrow_plain(const struct stream *s, int groups, int tokens, int k) {
    enum { LONG_ROWS = 6144 };
    return (tokens <= NARROW_TOKENS || k <= LONG_ROWS) && is_narrow(s, groups, tokens);
}

/* The most normalised tokens that the narrow product takes where product_bulk.cuh could. Outputs that fill the GPU go that way from 9 on, but
 * from 15 where some blocks walk a third tile while the others have ended. */
static int most_narrow_normed(const struct stream *s, int groups) {
    const int tiles = ceil_div(groups, BULK_GROUPS), at_once = cuda_multiprocessors(s->device);
    if (tiles <= at_once) return NARROW_TOKENS;
    return tiles <= 2 * at_once || tiles >= 3 * at_once ? 8 : 14;
}

/* Does product_bulk.cuh take a product? */
template <typename Rows>
static bool is_bulk(const struct stream *s, int groups, int tokens, int k, const Rows &rows, enum token_source source) {
    /* Without a norm clusters are faster up to 64 tokens, but where blocks fill three quarters of the GPU and need no kernel before. */
    const bool fills = ceil_div(groups, BULK_GROUPS) * BULK_CUTS * 4 >= cuda_multiprocessors(s->device) * 3;
    const int few = source == TOKENS_NORMED          ? most_narrow_normed(s, groups)
                    : source == TOKENS_MADE && fills ? NARROW_TOKENS
                                                     : 64;
    return cuda_has_wgmma(s->device) && k % ORDER_GROUP == 0 && tokens > few &&
           (tokens <= NARROW_TOKENS || !is_narrow_plain(s, groups, tokens, k)) && rows.map.order(BULK_GROUPS).box > 0 &&
           (rows.adds_in_order() || is_cut(s, groups));
}

template <typename T, typename Rows, typename Out>
static int launch_many(struct stream *s, int groups, int tokens, int k, const T *x, Rows rows, Out out) {
    if (cuda_has_wgmma(s->device)) {
        if (tokens <= 32) return launch_hopper<T, 32>(s, groups, tokens, k, x, rows, out);
        if (tokens <= 48) return launch_hopper<T, 48>(s, groups, tokens, k, x, rows, out);
        return launch_hopper<T, 64>(s, groups, tokens, k, x, rows, out);
    }
    if (tokens <= 32) return launch_wide<T, 4>(s, groups, tokens, k, x, rows, out);
    if (tokens <= 64) return launch_wide<T, 8>(s, groups, tokens, k, x, rows, out);
    if (tokens <= 128) return launch_wide<T, 16>(s, groups, tokens, k, x, rows, out);
    return launch_wide<T, 24>(s, groups, tokens, k, x, rows, out);
}

/* The narrow product of rows that nobody normalises; what may be shared is, where blocks have all of k. */
template <typename T, int TILES, typename Rows, typename Out>
static int launch_narrow_rows(struct stream *s, int groups, int tokens, int k, const T *x, Rows rows, Out out) {
    if constexpr (Out::may_share) {
        const dim3 grid = narrow_grid<plain_stream<T>, TILES>(s, groups, tokens, TILES * 8, k);
        const shared_map map(rows.map.rows[0], groups, grid.y);
        const bool has_all = plain_stream<T>::cut(map.groups, k, narrow_at_once<TILES>).ways == PRODUCT_SPLITS;
        const plain_rows<T, shared_map> shares = {map, {rows.weights[0]}, k, false};
        if (map.groups > 0 && has_all && !rows.in_order)
            return launch_narrow<T, TILES>(s, map.groups, tokens, k, nullptr, x, shares, out.by(map));
    }
    return launch_narrow<T, TILES>(s, groups, tokens, k, nullptr, x, rows, out);
}

/* `Rows` is a plain_rows, `Out` as in product_out.cuh. x may be left transposed (product_order.cuh); TOKENS_MADE: where is_bulk takes it, it
 * comes so. */
template <typename T, typename Rows, typename Out>
static int product(struct stream *s, const char *name, int groups, int tokens, int k, T *x, enum token_source source,
                   Rows rows, Out out) {
    if (is_bulk(s, groups, tokens, k, rows, source)) {
        if (source == TOKENS_PLAIN) TRY(transpose_tokens(s, x, tokens, k));
        return launch_bulk<T>(s, name, groups, tokens, k, x, rows, out);
    }
    if (k % 8 != 0)
        launch_dependent(s, product_plain_kernel<T, Rows, Out>, dim3(groups, tokens), 512, 0, 1, rows, (const T *)x, k,
                         out);
    else if (tokens <= 8)
        TRY((launch_narrow_rows<T, 1>(s, groups, tokens, k, (const T *)x, rows, out)));
    else if (!cuda_takes_clusters(s->device) || is_narrow_plain(s, groups, tokens, k))
        TRY((launch_narrow_rows<T, 2>(s, groups, tokens, k, (const T *)x, rows, out)));
    else
        TRY((launch_many(s, groups, tokens, k, (const T *)x, rows, out)));
    return cuda_launched(s, name, sizeof rows + sizeof out + 24);
}

/* The order in which such a product takes tokens that are made for it. */
template <typename Kind> static enum token_order packed_token_order(const struct weight *w, int tokens, bool is_many) {
    if (is_many) return spreads<Kind>(w) ? ORDER_SPREAD : ORDER_OWN;
    return narrow_order<Kind>(w, tokens);
}

/* The product of packed matrices that are alike (product_packed.cuh, product_packed_bulk.cuh), of the norm of tokens as below; norm NULL: x
 * is there, and may be left in another order, or, is_made, was made for it (cuda_order_for). in_order: as in plain_rows. */
template <typename T, typename Map, typename Out>
static int product_of_packed(struct stream *s, const char *name, int groups, int tokens, int k,
                             const norm_rows<T> *norm_of, T *x, bool is_made,
                             std::initializer_list<const struct weight *> weights, Map map, bool in_order, Out out) {
    const struct packed *p = (*weights.begin())->packed;
    const int32_t *order = packed_order_of(*weights.begin());
    const bool norms_itself = norm_of && !order && narrow_norms_itself(tokens, k);
    return with_kind_of<T>(p, [&](auto kind) {
        typedef decltype(kind) Kind;
        packed_rows<T, Kind, Map> rows = {map, {}, packed_table_of<T>(p), in_order};
        int i = 0;
        for (const struct weight *w : weights) rows.of[i++] = packed_matrix_of(w);
        packed_bulk_memory memory = {};
        const bool is_many = is_packed_bulk(s, groups, tokens, k, rows, &memory);
        enum token_order comes = ORDER_OWN;
        if (norm_of || is_made) comes = packed_token_order<Kind>(*weights.begin(), tokens, is_many);
        bool is_normed = !norm_of || norms_itself;
        if constexpr (Kind::minima && Map::takes_many_packed)
            if (!is_normed && is_many && !order) {
                TRY((packed_norm<T, Kind>(s, *norm_of, x, tokens, k, memory)));
                comes = ORDER_SPREAD, is_normed = true;
            }
        const struct spread spread = is_many ? packed_norm_spread(s, tokens) : narrow_norm_spread(s, tokens);
        if (!is_normed) TRY(norm(s, *norm_of, x, tokens, k, comes, spread));
        if (order) TRY(reorder_tokens(s, x, order, tokens, k, spread));
        if constexpr (Map::takes_many_packed)
            if (is_many)
                return launch_packed_bulk(s, name, groups, tokens, k, x, comes == ORDER_SPREAD, weights, rows, memory,
                                          out);
        TRY((launch_narrow_packed(s, groups, tokens, k, norms_itself ? norm_of : nullptr, (const T *)x, comes, rows,
                                  out)));
        return cuda_launched(s, name, sizeof rows + sizeof out + 24);
    });
}

/* The product of normalised rows; `normed` [tokens, k] is scratch. A single token is normalised by
 * the product itself. */
template <typename T, typename Rows, typename Out>
static int product_of_norm(struct stream *s, const char *name, int groups, int tokens, int k, norm_rows<T> norm_of,
                           T *normed, Rows rows, Out out) {
    if (k % 8 == 0 && narrow_norms_itself(tokens, k)) {
        TRY((launch_narrow<T, 1>(s, groups, tokens, k, &norm_of, normed, rows, out)));
        return cuda_launched(s, name, sizeof rows + sizeof norm_of + sizeof out + 24);
    }
    const bool is_transposed = is_bulk(s, groups, tokens, k, rows, TOKENS_NORMED);
    TRY(norm(s, norm_of, normed, tokens, k, is_transposed ? ORDER_TRANSPOSED : ORDER_OWN,
             narrow_norm_spread(s, tokens)));
    if (is_transposed) return launch_bulk<T>(s, name, groups, tokens, k, normed, rows, out);
    return product<T>(s, name, groups, tokens, k, normed, TOKENS_PLAIN, rows, out);
}

#endif
