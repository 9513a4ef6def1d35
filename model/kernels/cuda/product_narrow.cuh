/* The product for few tokens: weights from memory to registers. See product.cuh.
 *
 * Blocks that fill the GPU once walk over the groups of 16 weight rows. A warp owns one split of k, keeps PRODUCT_UNIT pieces
 * (8 KB) in flight across the ends of groups, and asks for the first ones before it waits for the tokens. Tokens are read from L2,
 * or from shared memory where enough groups use them or the block normalises them itself; of packed weights a single one, too, where
 * warps have many pieces: each copies its share.
 * Bytes: O K 2 of weights. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_NARROW_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_NARROW_CUH

#include "model/kernels/cuda/norm.cuh"
#include "model/kernels/cuda/product_order.cuh"
#include "model/kernels/cuda/product_out.cuh"

/* Blocks a multiprocessor; the most tokens of a block; the shared memory that a token may take which a block normalises, which every GPU
 * has. Each block does that again, so it pays for one token alone. */
enum { NARROW_BLOCKS = 2, NARROW_TOKENS = 16, NARROW_SHARED = 66 << 10 };

/* Asks L2 for the whole line of 128 bytes, of which another load reads the rest next; 64 and 256 are slower on an H200. An ordinary
 * load: ptxas moves some of those that go by the cache of constants behind inputs_are_ready. */
__device__ __forceinline__ uint4 load_streamed(const void *address, bool wanted) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (wanted)
        asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(address));
    return v;
}
/* The same, or nothing: `to` stays as it is. */
__device__ __forceinline__ void load_streamed_if(bool wanted, uint4 &to, const void *address) {
    asm volatile(
        "{ .reg .pred p; setp.ne.s32 p, %5, 0; @p ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4]; }"
        : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
        : "l"(address), "r"((int)wanted));
}

/* How k is cut: the warps of a block, `ways` a group of rows, each have so many pieces at most. Where there are NARROW_FEW_GROUPS (of
 * packed weights: more), a block has several at once rather than warps without work. */
struct narrow_cut {
    int ways, pieces;
};
enum { NARROW_FEW_GROUPS = 256 };

/* How a warp reads its share of the weight rows of a group, and multiplies it by all tokens: here 16-bit numbers, as they lie. Another is
 * packed_stream (product_packed.cuh). The groups of a block have numbers; go_to(number) calls the stream's own with the rows. */
template <typename T> struct plain_stream {
    static constexpr bool is_plain = true;
    static constexpr int LOADED = 8; /* numbers of a token that a lane loads at once */
    static constexpr int PIECE = PRODUCT_PIECE,
                         AHEAD = PRODUCT_UNIT; /* of k; pieces in flight, k is cut by multiples of both */
    static __host__ __device__ __forceinline__ narrow_cut cut(int groups, int k, int most_at_once) {
        const int pieces = piece_count(k);
        int ways = PRODUCT_SPLITS;
        while (groups >= NARROW_FEW_GROUPS && PRODUCT_SPLITS < ways * most_at_once &&
               ways / 2 * pieces * PRODUCT_PIECE >= k)
            ways /= 2;
        return {ways, pieces};
    }
    struct piece {
        uint4 at[2][2]; /* halves, rows */
    };
    struct memory {}; /* shared */
    piece pieces[AHEAD];
    const T *low, *high; /* NULL: zeros */
    int first, count, k;
    __device__ __forceinline__ plain_stream(const narrow_cut &cut, int of_k, struct memory &)
        : first(threadIdx.x / 32 % cut.ways * cut.pieces), count(cut.pieces), k(of_k) {}
    template <typename Rows> __device__ __forceinline__ void go_to(const Rows &weights, int group, int, bool is_there) {
        const int row = threadIdx.x % 32 / 4;
        low = is_there ? weights.row(group, row) : nullptr;
        high = is_there ? weights.row(group, row + 8) : nullptr;
    }
    __device__ __forceinline__ void fetch(piece &to, int index) const {
        const int at = index * PIECE + threadIdx.x % 4 * 8;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            to.at[h][0] = load_streamed(low + at + h * 32, low && at + h * 32 < k);
            to.at[h][1] = load_streamed(high + at + h * 32, high && at + h * 32 < k);
        }
    }
    template <int TILES, typename Tokens>
    __device__ __forceinline__ void multiply(float (&c)[TILES][4], const piece &a, int index,
                                             const Tokens &tokens) const {
        const int at = index * PIECE + threadIdx.x % 4 * 8;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                const uint4 x = tokens.template read<uint4>(tile, at + h * 32);
                mma_half<T>(c[tile], a.at[h][0], a.at[h][1], x, 0);
                mma_half<T>(c[tile], a.at[h][0], a.at[h][1], x, 1);
            }
    }
    /* Asks for the first pieces. */
    template <typename GoTo> __device__ __forceinline__ void start(GoTo go_to) {
        go_to(0);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) fetch(pieces[i], first + i);
    }
    /* A group's sums; asks for the first pieces of the next. */
    template <int TILES, typename Tokens, typename GoTo>
    __device__ __forceinline__ void multiply_group(float (&c)[TILES][4], int number, const Tokens &tokens, GoTo go_to) {
        for (int done = 0; done < count; done += AHEAD) {
            const bool last = done + AHEAD >= count;
            if (last) go_to(number + 1);
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                multiply(c, pieces[i], first + done + i, tokens);
                fetch(pieces[i], first + (last ? i : done + AHEAD + i));
            }
        }
    }
    __device__ __forceinline__ float finish(float sum, int, int, int) const {
        return sum;
    }
};

/* Which stream reads what a `Rows` names. */
template <typename T, typename Rows> struct stream_of { typedef plain_stream<T> type; };

/* The sum of part(split) of `ways` warps, one after the other, as blocks that walk over all of k add (product_bulk.cuh); not in_order: in pairs, as
 * add_splits says, where splits that no warp has are 0. */
template <typename Part> __device__ __forceinline__ float sum_of_splits(Part part, int ways, bool in_order) {
    if (!in_order) return add_splits([&](int i) { return i < ways ? part(i) : 0.0f; });
    float all = part(0);
#pragma unroll
    for (int i = 1; i < PRODUCT_SPLITS; i++) {
        const float more = part(min(i, ways - 1));
        all = i < ways ? all + more : all;
    }
    return all;
}

/* The sums of every split of a group, in shared memory: one to be filled while the other is read. */
template <int TILES> struct narrow_sums {
    float parts[2][PRODUCT_SPLITS][PRODUCT_ROWS][TILES * 8 + 1];
    __device__ __forceinline__ void put(int turn, const float (&c)[TILES][4]) {
        const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, part = threadIdx.x % 4;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int j = 0; j < 4; j++) parts[turn][warp][row + j / 2 * 8][tile * 8 + part * 2 + j % 2] = c[tile][j];
    }
    /* Of the `ways` warps from `first` on. */
    __device__ __forceinline__ float sum(int turn, int first, int ways, int row, int token, bool in_order) const {
        return sum_of_splits([&](int split) { return parts[turn][first + split][row][token]; }, ways, in_order);
    }
};

/* Elements between tokens in shared memory: what a lane loads of one more than whole lines, so that neighbours lie in other banks. */
template <typename Stream> __host__ __device__ constexpr int staged_stride(int k) {
    return ceil_div(k, Stream::PIECE) * Stream::PIECE + Stream::LOADED * 4;
}

/* each(four numbers): what becomes of them. In ORDER_BY_8, if is_by_8, or their own. Ends with a barrier. */
template <typename T, typename Each>
__device__ void stage_tokens(T *to, const T *x, bool is_by_8, int tokens, int k, int stride, Each each) {
    auto copy = [&](const T *from, int at) {
        const uint4 its = *(const uint4 *)from;
        const uint2 low = each(make_uint2(its.x, its.y)), high = each(make_uint2(its.z, its.w));
        *(uint4 *)(to + at) = make_uint4(low.x, low.y, high.x, high.y);
    };
    if (is_by_8)
        for (int i = threadIdx.x; i < tokens * (k / 8); i += BLOCK_THREADS) { /* eights, block by block of 16 */
            const int block = quotient(i, 2 * tokens), its = i - block * 2 * tokens;
            copy(x + block * 8 * ORDER_BLOCK + its * 8, its / 2 * stride + block * ORDER_BLOCK + its % 2 * 8);
        }
    else
        for (int token = 0; token < tokens; token++)
            for (int i = threadIdx.x; i < k / 8; i += BLOCK_THREADS)
                copy(x + (size_t)token * k + i * 8, token * stride + i * 8);
    __syncthreads();
}

/* A warp's share of a token: `count` numbers from `from` on, a multiple of 256, zeros past k. For that warp alone. */
template <typename T, typename Each>
__device__ void stage_share(T *to, const T *x, int from, int count, int k, Each each) {
#pragma unroll 4
    for (int at = threadIdx.x % 32 * 8; at < count; at += 32 * 8) {
        uint4 its = make_uint4(0, 0, 0, 0);
        if (from + at < k) its = *(const uint4 *)(x + from + at);
        const uint2 low = each(make_uint2(its.x, its.y)), high = each(make_uint2(its.z, its.w));
        *(uint4 *)(to + at) = make_uint4(low.x, low.y, high.x, high.y);
    }
    __syncwarp();
}

/* Zeros behind each token, from number k on. */
template <typename T> __device__ void clear_past(T *to, int tokens, int k, int stride, int end) {
    const int past = end - k;
#pragma unroll 1
    for (int i = threadIdx.x; i < tokens * past; i += BLOCK_THREADS) to[i / past * stride + k + i % past] = T();
}

/* How the tokens come: a row to be normalised, or 16-bit x [tokens, k], in `order` if weights are packed; staged: through shared memory, as one
 * that is normalised always does; by_warps: a single one, of which each warp has its share there. A block has `columns` of them at most. */
template <typename T> struct narrow_tokens {
    norm_rows<T> norm;
    const T *x;
    enum token_order order;
    int tokens, columns;
    bool staged, by_warps = false;
};

/* Tokens of a block, from memory or shared memory: numbers at, at + 1, ... of the one that a lane has of a tile; zeros past the last
 * token and past k. PREPARED: they are as the stream multiplies them, and zeros follow as far as its last piece reaches. */
template <typename T, int TILES, bool PREPARED> struct narrow_view {
    /* As packed_stream reads them; if not prepared, COLUMNS tokens by blocks of 16 numbers (product_order.cuh), of whole pieces. */
    static constexpr bool is_prepared = PREPARED, is_whole = true;
    static constexpr int apart =
        PREPARED ? 1 : TILES * 8; /* from a number to the next of a token, in the first of each block */
    const T *x;
    int stride, tokens, k;
    /* Four numbers of each block of 16 of the token that a lane has of a tile, or, past the last one, of that. */
    __device__ __forceinline__ const T *lane(int tile) const {
        const int token = min(tile * 8 + (int)threadIdx.x % 32 / 4, tokens - 1);
        return x + (PREPARED ? token * stride : token * ORDER_BLOCK) + threadIdx.x % 4 * 4;
    }
    template <typename V> __device__ __forceinline__ V read(int tile, int at) const {
        const int token = tile * 8 + threadIdx.x % 32 / 4;
        return token < tokens && at < k ? *(const V *)(x + (size_t)token * stride + at) : V{};
    }
};

/* What a kernel does with its tokens first: copies them into shared memory, if they are `staged`; normalises a row there; or either, and
 * leaves them as the stream multiplies them. Code that it leaves out is code that it need not load: those of a layer together should
 * fit in the caches of instructions. */
enum narrow_start { START_STAGES, START_NORMS, START_PREPARES };

/* Groups that a block finishes at once, a thread a number. */
template <int TILES> constexpr int narrow_at_once = BLOCK_THREADS / (PRODUCT_ROWS * TILES * 8);

template <typename T, int TILES, enum narrow_start START, typename Rows, typename Out>
__global__ void __launch_bounds__(BLOCK_THREADS, NARROW_BLOCKS)
    narrow_product_kernel(Rows weights, int groups, narrow_tokens<T> in, int k, Out out) {
    typedef typename stream_of<T, Rows>::type stream;
    constexpr int COLUMNS = TILES * 8, NUMBERS = PRODUCT_ROWS * COLUMNS;
    __shared__ narrow_sums<TILES> sums;
    extern __shared__ __align__(16) unsigned char shared[];
    const int columns = stream::is_plain ? COLUMNS : in.columns, first_token = blockIdx.x * columns,
              tokens = min(in.tokens - first_token, columns);
    const narrow_cut cut = stream::cut(groups, k, narrow_at_once<TILES>);
    const int at_once = PRODUCT_SPLITS / cut.ways, mine = threadIdx.x / 32 / cut.ways;
    /* What a thread finishes: of the groups at once, the tokens and the numbers of a group. */
    const int its_group = threadIdx.x / NUMBERS, its_token = threadIdx.x % NUMBERS / Out::each;
    const bool finishes = its_group < at_once && its_token < tokens;
    __shared__ typename stream::memory memory_of_stream;
    stream rows(cut, k, memory_of_stream);
    auto first_of = [&](int number) { return (int)(blockIdx.y + number * gridDim.y) * at_once; };
    auto go_to = [&](int number) {
        const int group = first_of(number) + mine;
        rows.go_to(weights, group, number, group < groups);
    };
    auto go_on = [&](int number) {
        if constexpr (Rows::step == 0)
            go_to(number);
        else
            rows.go_on(weights, gridDim.y * at_once, number, first_of(number) + mine < groups);
    };
    next_may_start();
    rows.start(go_to);
    constexpr auto stride_of = staged_stride<stream>;
    T *staged = (T *)shared;
    constexpr bool PREPARES = START == START_PREPARES;
    const bool norms = START == START_NORMS || (PREPARES && in.norm.x),
               stages = START != START_STAGES || (stream::is_plain && in.staged);
    norm_memory<T> memory(shared, k);
    if (norms) memory.fetch(in.norm, k), staged = memory.weight;
    auto place_of = [&](int number) { return out.at(first_of(number) + its_group, threadIdx.x % Out::each); };
    typename Out::held held = {};
    auto fetch = [&](int number) {
        const auto place = place_of(number);
        if (finishes && out.has(place)) held = out.template fetch<false>(place, first_token + its_token);
    };
    if (stream::is_plain && Out::reads == READS_FIXED) fetch(0);
    inputs_are_ready();
    if (stream::is_plain && Out::reads == READS_INPUTS) fetch(0);
    narrow_view<T, TILES, PREPARES> view = {in.x + (size_t)first_token * k, k, tokens, k};
    auto prepared = [](uint2 four) {
        if constexpr (PREPARES) return stream::prepared(four);
        return four;
    };
    if (PREPARES && in.by_warps) {
        const int from = rows.first * stream::PIECE, count = rows.count * stream::PIECE;
        staged += threadIdx.x / 32 * count;
        stage_share(staged, view.x, from, count, k, prepared);
        view.x = staged - from;
    } else if (stages) {
        if (PREPARES) clear_past(staged, tokens, k, stride_of(k), ceil_div(k, stream::PIECE) * stream::PIECE);
        if (norms)
            norm_row(in.norm, 0, k, memory, staged,
                     [&](T *to, int at, const T(&four)[4]) { *(uint2 *)(to + at) = prepared(*(const uint2 *)four); });
        else
            stage_tokens(staged, view.x, !stream::is_plain && in.order == ORDER_BY_8, tokens, k, stride_of(k),
                         prepared);
        view.x = staged, view.stride = stride_of(k);
    }
    const bool in_order = weights.adds_in_order();
    for (int number = 0; first_of(number) < groups; number++) {
        const int turn = number & 1, first_group = first_of(number);
        float c[TILES][4] = {};
        rows.multiply_group(c, number, view, go_on);
        sums.put(turn, c);
        __syncthreads();
        /* A number of group i of those at once. */
        auto finish = [&](int i, const auto &place, const typename Out::held &its_held) {
            number_sums<Out> its;
            its.take(threadIdx.x % Out::each, [&](int r) {
                return rows.finish(sums.sum(turn, i * cut.ways, cut.ways, r, its_token, in_order), number, i, r);
            });
            out.finish(its_held, place, first_token + its_token, its.of);
        };
        if constexpr (stream::is_plain) {
            const auto place = place_of(number);
            if (finishes && out.has(place)) finish(its_group, place, held);
            if (first_of(number + 1) < groups) fetch(number + 1);
        } else {
#pragma unroll 1
            for (int i = its_group; i < at_once && first_group + i < groups; i += narrow_at_once<TILES>) {
                const auto place = out.at(first_group + i, threadIdx.x % Out::each);
                if (its_token < tokens && out.has(place))
                    finish(i, place, out.template fetch<true>(place, first_token + its_token));
            }
        }
    }
}

/* Does a block normalise what it multiplies? The token takes the place of the norm's weight. */
static inline bool narrow_norms_itself(int tokens, int k) {
    return tokens == 1 && norm_bytes(k) <= NARROW_SHARED;
}

/* What a block may have of `shared` bytes of a multiprocessor. */
static inline size_t narrow_share(size_t shared) {
    enum { RESERVED = 1 << 10 };
    return shared / NARROW_BLOCKS - RESERVED;
}
template <typename Stream, int TILES>
constexpr size_t narrow_has = sizeof(narrow_sums<TILES>) + sizeof(typename Stream::memory);

/* Shared memory for tokens that are not normalised, where it pays: groups enough for a block, and room for them in `most` bytes. */
template <typename Stream> static size_t staged_bytes(int groups, int blocks, int tokens, int k, size_t most) {
    enum { GROUPS = Stream::is_plain ? 3 : 5 };
    const size_t bytes = (size_t)tokens * staged_stride<Stream>(k) * 2;
    return tokens > 1 && groups >= GROUPS * blocks && bytes <= most ? bytes : 0;
}

/* Does the narrow product take them? More than a block's too where the blocks of all tokens run at once: they read the same weights at
 * about the same time, once from memory and then from L2. */
static inline bool is_narrow(const struct stream *s, int groups, int tokens) {
    return tokens <= NARROW_TOKENS ||
           groups * ceil_div(tokens, NARROW_TOKENS) <= NARROW_BLOCKS * cuda_multiprocessors(s->device);
}

/* How the blocks of a norm before a product of so many tokens lie. */
static inline struct spread narrow_norm_spread(const struct stream *s, int tokens) {
    return {SHARED_PERCENT, tokens <= NARROW_TOKENS && cuda_has_wgmma(s->device) ? 2 : 0};
}

/* A grid: chunks of tokens, whose blocks follow each other so that they read the same weights at about the same time, and blocks that
 * walk over the groups. */
template <typename Stream, int TILES>
static dim3 narrow_grid(const struct stream *s, int groups, int tokens, int columns, int k) {
    const int at_once = PRODUCT_SPLITS / Stream::cut(groups, k, narrow_at_once<TILES>).ways,
              chunks = ceil_div(tokens, columns), room = NARROW_BLOCKS * cuda_multiprocessors(s->device) / chunks;
    return dim3(chunks, max(min(ceil_div(groups, at_once), room), 1));
}

/* `shared`: bytes for tokens. */
template <typename T, int TILES, enum narrow_start START, typename Rows, typename Out>
static int launch_narrow_as(struct stream *s, int groups, int k, const narrow_tokens<T> &in, size_t shared, Rows rows,
                            Out out) {
    auto kernel = narrow_product_kernel<T, TILES, START, Rows, Out>;
    typedef typename stream_of<T, Rows>::type stream;
    const dim3 grid = narrow_grid<stream, TILES>(s, groups, in.tokens, in.columns, k);
    const bool are_few = cuda_takes_clusters(s->device) && spread_each(s, (int)(grid.x * grid.y)) == 1,
               is_large = shared + narrow_has<stream, TILES> > narrow_share(SHARED_BYTES);
    const size_t asked = spread_bytes({SHARED_PERCENT, are_few ? 1 : 0}, shared);
    launch_sharing(s, kernel, grid, BLOCK_THREADS, asked, 1, is_large ? SHARED_PERCENT_MORE : SHARED_PERCENT, rows,
                   groups, in, k, out);
    return 0;
}

/* `norm`: NULL, or the row of which x is to be the normalised form, for a single token; then x is not read. */
template <typename T, int TILES, typename Rows, typename Out>
static int launch_narrow(struct stream *s, int groups, int tokens, int k, const norm_rows<T> *norm, const T *x,
                         Rows rows, Out out) {
    typedef typename stream_of<T, Rows>::type stream;
    enum { COLUMNS = TILES * 8 };
    const size_t staged =
        staged_bytes<stream>(groups, narrow_grid<stream, TILES>(s, groups, tokens, COLUMNS, k).y, min(tokens, COLUMNS),
                             k, narrow_share(SHARED_BYTES) - narrow_has<stream, TILES>);
    if constexpr (TILES == 1)
        if (norm) {
            const narrow_tokens<T> in = {*norm, x, ORDER_OWN, tokens, COLUMNS, true};
            return launch_narrow_as<T, TILES, START_NORMS>(s, groups, k, in, norm_bytes(k), rows, out);
        }
    const narrow_tokens<T> in = {{}, x, ORDER_OWN, tokens, COLUMNS, staged > 0};
    return launch_narrow_as<T, TILES, START_STAGES>(s, groups, k, in, staged, rows, out);
}

/* The same of packed weights, x in an order of theirs, or in its own, in which a block has no more tokens than find room in shared memory. */
template <typename T, typename Rows, typename Out>
static int launch_narrow_packed(struct stream *s, int groups, int tokens, int k, const norm_rows<T> *norm, const T *x,
                                enum token_order order, Rows rows, Out out) {
    typedef typename stream_of<T, Rows>::type stream;
    enum { COLUMNS = 8 };
    constexpr size_t has = narrow_has<stream, 1>;
    const size_t each = (size_t)staged_stride<stream>(k) * 2;
    narrow_tokens<T> in = {{}, x, order, tokens, COLUMNS, true};
    size_t shared;
    if (norm) {
        in.norm = *norm, shared = norm_bytes(k) + stream::PIECE * sizeof(T);
    } else if (order == ORDER_OWN) {
        enum { MOST = 96 << 10 /* every GPU has it */ };
        const size_t shares =
            (size_t)(BLOCK_THREADS / 32) * stream::cut(groups, k, narrow_at_once<1>).pieces * stream::PIECE * sizeof(T);
        in.by_warps = tokens == 1 && shares <= MOST - has;
        in.columns = min((int)((MOST - has) / each), min(tokens, (int)COLUMNS));
        shared = in.by_warps ? shares : in.columns * each;
        if (in.columns == 0) return err_set(ERR_UNSUPPORTED, "a product of packed rows of %d columns", k);
    } else {
        const size_t most =
            narrow_share(stream::takes_more && cuda_takes_clusters(s->device) ? SHARED_BYTES_MORE : SHARED_BYTES);
        const int blocks = narrow_grid<stream, 1>(s, groups, tokens, COLUMNS, k).y;
        shared = tokens > COLUMNS ? 0 : staged_bytes<stream>(groups, blocks, tokens, k, most - has);
    }
    if (shared > 0) return launch_narrow_as<T, 1, START_PREPARES>(s, groups, k, in, shared, rows, out);
    if (tokens <= COLUMNS) return launch_narrow_as<T, 1, START_STAGES>(s, groups, k, in, 0, rows, out);
    in.columns = NARROW_TOKENS;
    return launch_narrow_as<T, 2, START_STAGES>(s, groups, k, in, 0, rows, out);
}

#endif
