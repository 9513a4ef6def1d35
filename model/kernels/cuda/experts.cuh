/* Products over the experts that the rows of a pass chose: only these experts' weights are read.
 *
 * An entry is a row and one of its choices, t * chosen + j. The device sorts entries by expert and cuts each expert's into tiles of
 * up to 8, 16 or 64 (experts_up.cu). The grid is fixed when a graph is captured, so blocks that fill the GPU share as many
 * tiles as there turn out to be, times groups of 16 weight rows. Tiles of one expert follow each other: its weights come from
 * memory for the first and from L2 for the others.
 * Numerics: an entry is a column of the instruction as a token is in product.cuh, its sums are cut and added as there: they depend
 * on its row and its expert alone. */
#ifndef DUET_MODEL_KERNELS_CUDA_EXPERTS_CUH
#define DUET_MODEL_KERNELS_CUDA_EXPERTS_CUH

#include "model/kernels/cuda/product.cuh"
#include "model/kernels/cuda/route.cuh"

enum { ENTRIES_MAX = 1 << 16, TILE_MAX = 64, HIDDEN_MAX = 28 << 10 };

/* Entries first, first + 1, ... of the sorted ones, all of one expert. Packed: 10 bits, 16 bits, 6 bits of count - 1. */
struct tile {
    int expert, first, count;
};
__device__ __forceinline__ int pack_tile(struct tile t) {
    static_assert(EXPERTS_MAX == 1 << 10 && ENTRIES_MAX == 1 << 16 && TILE_MAX == 1 << 6, "32 bits");
    return (int)((unsigned)t.expert << 22 | (unsigned)t.first << 6 | (unsigned)(t.count - 1));
}
__device__ __forceinline__ struct tile unpack_tile(int packed) {
    return {(int)((unsigned)packed >> 22), packed >> 6 & (ENTRIES_MAX - 1), (packed & (TILE_MAX - 1)) + 1};
}

/* [0] the number of tiles, [1, 1 + entries) tiles, then the entries by expert, ascending. */
struct expert_lists {
    int32_t *at;
    int entries;
    __device__ __forceinline__ int32_t *tiles() const { return at + 1; }
    __device__ __forceinline__ int32_t *sorted() const { return at + 1 + entries; }
    __device__ __forceinline__ int count() const { return at[0]; }
    __device__ __forceinline__ struct tile tile(int index) const { return unpack_tile(tiles()[index]); }
};

/* Rows of x [.., k] that entries stand for: `each` entries share a row. */
template <typename T> struct entry_rows {
    const T *x;
    struct expert_lists lists;
    int each, k;
    __device__ __forceinline__ expert_lists tiles() const { return lists; }
    __device__ __forceinline__ void put_tiles(const expert_lists &) const {}
    __device__ __forceinline__ int entry(int sorted) const { return lists.sorted()[sorted]; }
    __device__ __forceinline__ const T *row(int sorted) const { return x + (size_t)(entry(sorted) / each) * k; }
};

/* The choices of a single row, a tile each, which a warp holds together. */
struct row_tiles {
    struct choice mine;
    int chosen;
    __device__ __forceinline__ int count() const { return tile(0).expert >= 0 ? chosen : 0; }
    __device__ __forceinline__ struct tile tile(int index) const {
        return {__shfl_sync(0xffffffffu, mine.id, index), index, 1};
    }
};

/* The entries of a single row, one for each of its choices: nothing is sorted. All have the row that is to be normalised, or each its
 * own. */
template <typename T> struct row_entries {
    const T *x;         /* [chosen, k], or NULL */
    const int32_t *ids; /* [chosen] */
    int chosen, k;
    bool is_left;          /* ids are not there: */
    struct op_route route; /* chooses them */
    norm_rows<T> norm;     /* of the row, where x is NULL */
    __device__ __forceinline__ int entry(int sorted) const { return sorted; }
    __device__ __forceinline__ row_tiles tiles() const {
        if (is_left) return {choose<FEW_EXPERTS>(route, 0), chosen};
        const int lane = threadIdx.x % 32;
        return {{lane < chosen ? load_fixed(ids + lane) : -1}, chosen};
    }
    /* By a warp whose block has least to do: for the ops that follow. */
    __device__ __forceinline__ void put_tiles(const row_tiles &tiles) const {
        if (is_left && blockIdx.x == gridDim.x - 1 && threadIdx.x < 32)
            put_choice<T, FEW_EXPERTS>(route, 0, tiles.mine);
    }
};
/* Of an op of experts. */
template <typename T, typename Op>
static row_entries<T> row_entries_of(const Op &op, const T *x, int k, const norm_rows<T> &norm) {
    row_entries<T> in = {x, op.ids, op.chosen, k, is_route_left(&op.rows, &op.route), op.route, norm};
    in.route.rows = op.rows;
    return in;
}

/* `Rows` and `Out` of all kernels below are those of product() (product.cuh) once of(expert) has chosen; tokens are sorted entries. */

/* What narrow_view is to tokens that lie side by side. */
template <typename T, int TILES> struct expert_view {
    static constexpr bool is_prepared = false, is_whole = false;
    static constexpr int apart = 1;
    const T *x[TILES]; /* the lane's token of each tile, or the last one */
    int k;
    __device__ __forceinline__ expert_view(const entry_rows<T> &in, const struct tile &now) : k(in.k) {
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
            x[tile] = in.row(now.first + min(tile * 8 + (int)threadIdx.x % 32 / 4, now.count - 1));
    }
    __device__ __forceinline__ const T *lane(int tile) const {
        return x[tile] + threadIdx.x % 4 * 4;
    }
    template <typename V> __device__ __forceinline__ V read(int tile, int at) const {
        return at < k ? *(const V *)(x[tile] + at) : V{};
    }
};

/* No warp is left without work, whatever the groups of one expert: there are those of all. */
template <typename Stream> __host__ __device__ __forceinline__ narrow_cut experts_cut(int k) {
    return Stream::cut(NARROW_FEW_GROUPS, k, PRODUCT_SPLITS);
}

/* Where the stream finds the tokens of a tile: in memory. */
template <typename T, int TILES> struct listed_tokens {
    static constexpr bool is_row = false;
    const entry_rows<T> &in;
    __device__ __forceinline__ void ask() const {}
    __device__ __forceinline__ void wait() const {}
    __device__ __forceinline__ void make() const {}
    __device__ __forceinline__ expert_view<T, TILES> view(const struct tile &tile) const { return {in, tile}; }
};
template <int TILES, typename Stream, typename T>
__device__ __forceinline__ listed_tokens<T, TILES> tokens_of(const entry_rows<T> &in, void *) {
    return {in};
}

/* Or in shared memory: the single row that is all entries', which every block normalises while its first weights are on their way. */
template <typename T, typename Stream> struct normed_token {
    static constexpr bool is_row = true;
    const row_entries<T> &in;
    norm_memory<T> memory;
    __device__ __forceinline__ normed_token(const row_entries<T> &in, void *shared) : in(in), memory(shared, in.k) {
        memory.fetch(in.norm, in.k);
        if constexpr (!Stream::is_plain)
            clear_past(memory.weight, 1, in.k, 0, ceil_div(in.k, Stream::PIECE) * Stream::PIECE);
    }
    /* Before weights are asked for, as a wait is for all copies. */
    __device__ __forceinline__ void ask() const { hold_row(in.norm.x, in.k, memory.held); }
    __device__ __forceinline__ void wait() const { copies_wait_all(); }
    __device__ __forceinline__ void make() const {
        if constexpr (Stream::is_plain)
            norm_held_row(in.norm, in.k, memory, memory.weight);
        else
            norm_held_row(in.norm, in.k, memory, memory.weight, [](T *to, int at, const T(&four)[4]) {
                *(uint2 *)(to + at) = Stream::prepared(*(const uint2 *)four);
            });
    }
    __device__ __forceinline__ narrow_view<T, 1, !Stream::is_plain> view(const struct tile &) const {
        return {memory.weight, 0, 1, in.k};
    }
};
template <int TILES, typename Stream, typename T>
__device__ __forceinline__ normed_token<T, Stream> tokens_of(const row_entries<T> &in, void *shared) {
    return {in, shared};
}
/* Its shared memory. */
template <typename T, typename Stream> static size_t normed_token_bytes(int k) {
    return norm_bytes(k) + (Stream::is_plain ? 0 : Stream::PIECE * sizeof(T));
}

/* A block's units: so many groups of a tile's expert at once, then the next ones, and those of the tile behind it. So what a tile needs, and where
 * its weights begin, is looked up once, and not for each unit. */
template <typename Tiles> struct unit_walk {
    const Tiles &tiles;
    int steps, number, end; /* steps of a tile; the unit that it is at, of a block's */
    int index, step;
    struct tile tile;
    __device__ __forceinline__ unit_walk(const Tiles &tiles, int steps) : tiles(tiles), steps(steps), number(0) {
        const int units = tiles.count() * steps, each = units / (int)gridDim.x, more = units % (int)gridDim.x,
                  block = blockIdx.x, first = block * each + min(block, more);
        end = each + (block < more), index = first / steps, step = first - index * steps;
        if (end > 0) tile = tiles.tile(index);
    }
    __device__ __forceinline__ bool is_there() const { return number < end; }
    __device__ __forceinline__ bool begins_tile() const { return number == 0 || step == 0; }
    __device__ __forceinline__ void go_on() {
        if (++number >= end) return;
        if (++step == steps) step = 0, tile = tiles.tile(++index);
    }
};

template <typename T, int TILES, typename In, typename Rows, typename Out>
__global__ void __launch_bounds__(BLOCK_THREADS, NARROW_BLOCKS)
    narrow_experts_kernel(Rows weights, int groups, In in, int k, Out out) {
    typedef typename stream_of<T, Rows>::type stream;
    constexpr int NUMBERS = Out::each * TILES * 8, FINISHED = BLOCK_THREADS / NUMBERS; /* groups at once */
    __shared__ narrow_sums<TILES> sums;
    extern __shared__ __align__(16) unsigned char shared[];
    const narrow_cut cut = experts_cut<stream>(k);
    const int at_once = PRODUCT_SPLITS / cut.ways, mine = threadIdx.x / 32 / cut.ways;
    const auto tokens = tokens_of<TILES, stream>(in, shared);
    if (!tokens.is_row) next_may_start();
    inputs_are_ready();
    tokens.ask();
    if (tokens.is_row) next_may_start(); /* row_experts_down_kernel looks for the choice before its inputs are ready */
    const auto tiles = in.tiles();
    unit_walk<decltype(in.tiles())> ahead(tiles, ceil_div(groups, at_once)); /* whose weights are asked for */
    in.put_tiles(tiles);
    tokens.wait();
    if (!ahead.is_there()) return;
    __shared__ typename stream::memory memory_of_stream;
    stream rows(cut, k, memory_of_stream);
    auto group_of = [&](int step) { return step * at_once + mine; };
    auto go_to = [&](int number) {
        rows.go_to(weights.of(ahead.tile.expert), group_of(ahead.step), number,
                   ahead.is_there() && group_of(ahead.step) < groups);
    };
    auto go_on = [&](int number) {
        ahead.go_on();
        if constexpr (!stream::is_plain)
            if (!ahead.begins_tile())
                return rows.go_on(weights.of(ahead.tile.expert), at_once, number,
                                  ahead.is_there() && group_of(ahead.step) < groups);
        go_to(number);
    };
    rows.start(go_to);
    tokens.make();
    /* What a thread finishes: of the groups at once, a token and a number of a group. */
    const int its_group = threadIdx.x / NUMBERS, its_token = threadIdx.x % NUMBERS / Out::each,
              i = threadIdx.x % Out::each;
    auto view = tokens.view(ahead.tile);
    int entry = 0;
    while (ahead.is_there()) {
        const int number = ahead.number, turn = number & 1, first_group = ahead.step * at_once;
        const struct tile now = ahead.tile;
        if (ahead.begins_tile()) {
            if (number > 0) view = tokens.view(now);
            if (its_token < now.count) entry = in.entry(now.first + its_token);
        }
        float c[TILES][4] = {};
        rows.multiply_group(c, number, view, go_on);
        sums.put(turn, c);
        __syncthreads();
        if (its_token >= now.count) continue;
        const auto its = weights.of(now.expert);
        const auto to = out.of(now.expert);
        for (int of = its_group; of < at_once && first_group + of < groups; of += FINISHED) {
            const auto place = to.at(first_group + of, i);
            if (!to.has(place)) continue;
            number_sums<Out> its_sums;
            its_sums.take(i, [&](int r) {
                const float sum = sums.sum(turn, of * cut.ways, cut.ways, r, its_token, its.adds_in_order());
                return rows.finish(sum, number, of, r);
            });
            to.finish_entry(place, entry, its_sums.of);
        }
    }
}

/* What tokens_in_order is to all rows of x: those of a tile that a thread copies, of COPIES. */
template <typename T, int STEP, int COPIES> struct tokens_of_tile {
    const T *rows[COPIES];
    int first, number;
    __device__ __forceinline__ tokens_of_tile(const entry_rows<T> &in, const struct tile &tile,
                                              const split_share &share)
        : first(tile.first), number(tile.count) {
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int column = threadIdx.x / RING_CHUNKS + i * STEP;
            rows[i] = (column < number ? in.row(first + column) : in.x) + share.start;
        }
    }
    __device__ __forceinline__ int count(int) const {
        return number;
    }
    __device__ __forceinline__ const T *find(int i, int piece) const {
        return rows[i] + piece * PRODUCT_PIECE;
    }
};

/* Many rows: clusters of 8 blocks walk over tiles and as many weight rows as a cluster of the Shape owns. multiply(weights,
 * first_group, split, share, tokens, out) is the product of one. */
template <typename Shape, typename T, typename Rows, typename Out, typename Multiply>
__device__ __forceinline__ void walk_tiles(const Rows &weights, int groups, const entry_rows<T> &in, const Out &out,
                                           Multiply multiply) {
    constexpr int STEP = Shape::threads / RING_CHUNKS, GROUPS = Shape::rows / PRODUCT_ROWS;
    const int parts = ceil_div(groups, GROUPS), units = in.lists.count() * parts, split = blockIdx.x % PRODUCT_SPLITS;
    const split_share share(split, in.k);
    for (int unit = blockIdx.x / PRODUCT_SPLITS; unit < units; unit += gridDim.x / PRODUCT_SPLITS) {
        const struct tile tile = in.lists.tile(unit / parts);
        const tokens_of_tile<T, STEP, ceil_div(Shape::columns, STEP)> tokens(in, tile, share);
        multiply(weights.of(tile.expert), unit % parts * GROUPS, split, share, tokens, out.of(tile.expert));
        __syncthreads(); /* the sums, which lie in the ring, are stored */
    }
}

enum { CLUSTER_TILES = TILE_MAX / 8, CLUSTER_BLOCKS = 2 /* a multiprocessor */ };

template <typename T, typename Rows, typename Out>
__global__ void __launch_bounds__(hopper<TILE_MAX>::threads, CLUSTER_BLOCKS)
    hopper_experts_kernel(Rows weights, int groups, entry_rows<T> in, int k, Out out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(128) unsigned char ring[];
    next_may_start();
    inputs_are_ready();
    walk_tiles<hopper<TILE_MAX>>(weights, groups, in, out,
                                 [&](auto rows, int group, int split, const split_share &share, auto tokens, auto to) {
                                     hopper_product<T, TILE_MAX>(
                                         ring, rows, group, split, share, tokens, k, [] {}, to);
                                 });
#endif
}

template <typename T, typename Rows, typename Out>
__global__ void __launch_bounds__(BLOCK_THREADS, CLUSTER_BLOCKS)
    wide_experts_kernel(Rows weights, int groups, entry_rows<T> in, int k, Out out) {
#if __CUDA_ARCH__ >= 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) unsigned char ring[];
    next_may_start();
    inputs_are_ready();
    walk_tiles<wide<CLUSTER_TILES>>(
        weights, groups, in, out, [&](auto rows, int group, int split, const split_share &share, auto tokens, auto to) {
            wide_product<T, CLUSTER_TILES>(
                ring, rows, group, split, share, tokens, k, [] {}, to);
        });
#endif
}

/* Widths that 16-byte loads cannot read, as product_plain_kernel. grid (groups, tiles at most) */
template <typename T, typename Rows, typename Out>
__global__ void __launch_bounds__(512) plain_experts_kernel(Rows weights, int, entry_rows<T> in, int k, Out out) {
    __shared__ float parts[PRODUCT_ROWS];
    const int warp = threadIdx.x / 32;
    next_may_start();
    inputs_are_ready();
    if ((int)blockIdx.y >= in.lists.count()) return;
    const struct tile tile = in.lists.tile(blockIdx.y);
    const T *row = weights.of(tile.expert).row(blockIdx.x, warp);
    for (int token = 0; token < tile.count; token++) {
        const float sum = row ? plain_sum(row, in.row(tile.first + token), k) : 0.0f;
        if (threadIdx.x % 32 == 0) parts[warp] = sum;
        __syncthreads();
        store_groups<1, 1, 1>(out.of(tile.expert), blockIdx.x, tile.first + token, 1,
                              [=](int r, int) { return parts[r]; });
        __syncthreads();
    }
}

/* 16-bit matrices of an expert: each `apart` numbers behind that of the one before. */
template <typename T, typename Map> struct plain_expert_rows {
    plain_rows<T, Map> first;
    int64_t apart[2];
    __device__ __forceinline__ plain_rows<T, Map> of(int expert) const {
        plain_rows<T, Map> its = first;
#pragma unroll
        for (int i = 0; i < Map::matrices; i++) its.weights[i] += expert * apart[i];
        return its;
    }
};

/* Packed matrices of an expert: each `apart` bytes behind that of the one before. */
template <typename T, typename Kind, typename Map> struct packed_expert_rows {
    packed_rows<T, Kind, Map> first;
    int64_t apart[2];
    /* What packed_rows are to a stream. */
    struct one {
        static constexpr int step = Map::step;
        const packed_expert_rows &all;
        const Map &map;
        const packed_table &table;
        int expert;
        __device__ __forceinline__ bool adds_in_order() const { return all.first.in_order; }
        __device__ __forceinline__ packed_matrix matrix(int i) const {
            packed_matrix m = i ? all.first.of[1] : all.first.of[0];
            const int64_t by = expert * (i ? all.apart[1] : all.apart[0]);
            m.codes += by, m.scales += by, m.factors += by / (int64_t)sizeof(float);
            return m;
        }
    };
    __device__ __forceinline__ one of(int expert) const { return {*this, first.map, first.table, expert}; }
};
template <typename T, typename Kind, typename Map> struct stream_of<T, packed_expert_rows<T, Kind, Map>> {
    typedef packed_stream<T, Kind, true> type;
};
static inline bool are_packed(const struct experts &e) {
    return e.each && e.each[0].packed;
}

/* How wide tiles are: what the kernels below take. By the rows of a pass and the model, so that passes of one kernel class
 * (table.cu) agree. */
static inline int tile_columns(const struct stream *s, const struct rows *rows, int experts, int chosen,
                               bool is_packed) {
    enum { FEW = 8, MANY = 128, ROWS_OF_MANY = 8 /* of an expert, in a pass of more than MANY rows, on average */ };
    const int count = rows_count(rows);
    if (count <= FEW) return 8;
    return !is_packed && count > MANY && cuda_takes_clusters(s->device) && MANY * chosen >= ROWS_OF_MANY * experts
               ? TILE_MAX
               : 16;
}

static inline int tiles_at_most(int entries, int experts, int columns) {
    return entries / columns + min(entries, experts);
}

/* `tiles` is how many there may be. */
template <typename Shape, typename T, typename Rows, typename Out>
static int launch_expert_clusters(struct stream *s, void (*kernel)(Rows, int, entry_rows<T>, int, Out), int groups,
                                  int tiles, int k, entry_rows<T> in, Rows rows, Out out) {
    enum { ROUNDS = 4 }; /* clusters for each that runs at once, so that the last ones end together */
    const int room = CLUSTER_BLOCKS * cuda_multiprocessors(s->device) / PRODUCT_SPLITS,
              units = tiles * ceil_div(groups, Shape::rows / PRODUCT_ROWS);
    launch_dependent(s, kernel, dim3(min(units, ROUNDS * room) * PRODUCT_SPLITS), Shape::threads, Shape::ring_bytes,
                     PRODUCT_SPLITS, rows, groups, in, k, out);
    return 0;
}

/* Blocks for so many tiles, or fewer. */
template <typename T, typename Rows> static dim3 narrow_experts_blocks(struct stream *s, int groups, int tiles, int k) {
    const narrow_cut cut = experts_cut<typename stream_of<T, Rows>::type>(k);
    return dim3(
        min(ceil_div(groups, PRODUCT_SPLITS / cut.ways) * tiles, NARROW_BLOCKS * cuda_multiprocessors(s->device)));
}

template <int TILES, typename T, typename Rows, typename Out>
static void launch_narrow_experts(struct stream *s, int groups, int tiles, int k, entry_rows<T> in, Rows rows,
                                  Out out) {
    launch_sharing(s, narrow_experts_kernel<T, TILES, entry_rows<T>, Rows, Out>,
                   narrow_experts_blocks<T, Rows>(s, groups, tiles, k), BLOCK_THREADS, 0, 1, SHARED_PERCENT, rows,
                   groups, in, k, out);
}

/* Of a single row's entries. */
template <typename T, typename Rows, typename Out>
static int row_experts_product(struct stream *s, const char *name, int groups, const row_entries<T> &in, Rows rows,
                               Out out) {
    auto kernel = narrow_experts_kernel<T, 1, row_entries<T>, Rows, Out>;
    const size_t shared = normed_token_bytes<T, typename stream_of<T, Rows>::type>(in.k);
    launch_sharing(s, kernel, narrow_experts_blocks<T, Rows>(s, groups, in.chosen, in.k), BLOCK_THREADS, shared, 1,
                   SHARED_PERCENT, rows, groups, in, in.k, out);
    return cuda_launched(s, name, sizeof rows + sizeof in + sizeof out + 8);
}

/* Does a pass have a single row, whose ops need no lists? Its tokens find room in shared memory: a row, or an expert's hidden numbers, up to
 * HIDDEN_MAX. */
static inline bool is_single_row(const struct rows *rows, int width, int hidden) {
    return rows_count(rows) == 1 && !rows->prefill && width % 8 == 0 && hidden % 8 == 0 &&
           narrow_norms_itself(1, width) && hidden <= HIDDEN_MAX;
}

template <typename T, typename Rows, typename Out>
static int experts_product(struct stream *s, const char *name, int groups, int tiles, int columns, int k,
                           entry_rows<T> in, Rows rows, Out out) {
    if (k % 8 != 0)
        launch_dependent(s, plain_experts_kernel<T, Rows, Out>, dim3(groups, tiles), 512, 0, 1, rows, groups, in, k,
                         out);
    else if (columns == 8)
        launch_narrow_experts<1>(s, groups, tiles, k, in, rows, out);
    else if (columns == 16)
        launch_narrow_experts<2>(s, groups, tiles, k, in, rows, out);
    else if (cuda_has_wgmma(s->device))
        TRY((launch_expert_clusters<hopper<TILE_MAX>>(s, hopper_experts_kernel<T, Rows, Out>, groups, tiles, k, in,
                                                      rows, out)));
    else
        TRY((launch_expert_clusters<wide<CLUSTER_TILES>>(s, wide_experts_kernel<T, Rows, Out>, groups, tiles, k, in,
                                                         rows, out)));
    return cuda_launched(s, name, sizeof rows + sizeof in + sizeof out + 8);
}

/* Calls `run` with packed matrices, of which `second` may be absent. */
template <typename T, typename Map, typename Run>
static int with_packed_experts(const char *name, const struct experts &matrices, const struct experts *second, Map map,
                               Run run) {
    const struct weight *w = &matrices.each[0], *other = second ? &second->each[0] : nullptr;
    if (other && !are_read_alike({w, other}))
        return err_set(ERR_INTERNAL, "%s: experts that are not packed alike", name);
    return with_kind_of<T>(w->packed, [&](auto kind) {
        packed_expert_rows<T, decltype(kind), Map> rows = {{map, {}, packed_table_of<T>(w->packed), true},
                                                           {matrices.apart, 0}};
        rows.first.of[0] = packed_matrix_of(w);
        if (other) rows.first.of[1] = packed_matrix_of(other), rows.apart[1] = second->apart;
        return run(rows);
    });
}
template <typename T, typename Map, typename Out>
static int packed_experts_product(struct stream *s, const char *name, int groups, int tiles, int columns, int k,
                                  entry_rows<T> in, const struct experts &matrices, const struct experts *second,
                                  Map map, Out out) {
    return with_packed_experts<T>(name, matrices, second, map, [&](auto rows) {
        if (columns == 8)
            launch_narrow_experts<1>(s, groups, tiles, k, in, rows, out);
        else
            launch_narrow_experts<2>(s, groups, tiles, k, in, rows, out);
        return cuda_launched(s, name, sizeof rows + sizeof in + sizeof out + 8);
    });
}

/* A pointer to what expert 0 has, NULL if absent, moved to what another has. */
template <typename T> __device__ __forceinline__ const T *of_expert(const T *first, int64_t apart, int expert) {
    return first ? first + expert * apart : nullptr;
}
template <typename T> static const T *first_expert(const struct experts &e) {
    return e.each ? (const T *)e.each[0].data : nullptr;
}

static inline int check_experts(const char *op, int entries, int experts, int chosen) {
    if (chosen >= 1 && chosen <= experts && chosen <= CHOSEN_MAX && experts <= EXPERTS_MAX && entries <= ENTRIES_MAX)
        return 0;
    return err_set(ERR_INTERNAL, "%s: %d of %d experts for each of %d rows", op, chosen, experts,
                   chosen > 0 ? entries / chosen : 0);
}

#endif
