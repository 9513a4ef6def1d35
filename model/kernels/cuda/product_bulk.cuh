/* The product of many tokens on Hopper: weights and tokens by the copy engine, sums by wgmma. See product.cuh.
 *
 * A block owns a tile of up to 128 weight rows and COLUMNS tokens. One warp asks the copy engine for stages of one or two pieces of 64 of k, into a ring in
 * shared memory; two groups of 4 warps multiply, each 64 rows by all columns. Weights go from the ring to registers, 16 bytes a lane for
 * two instructions as in mma_half; tokens, which lie transposed (product_order.cuh), are read by the instruction itself. Of more than 64
 * tokens half of a stage is multiplied while the other half goes to registers, since tensor cores have most to do there.
 *   Long outputs: a block walks over tiles, and over all of k; the sums of a split of k are added to those before it when it ends,
 *   and narrow products of such outputs add in the same order.
 *   Others are cut: four blocks, or two, share the splits of a tile, each those that add_splits adds first, and exchange their sums
 *   through memory that was lent to the stream; one of two keeps what it has half-way there. They wait for each other: blocks start in
 *   their order, so those of the first tile that is not finished all run, or find room before any of a later one.
 * On Hopper wgmma and mma add 16 products by the same arithmetic, whatever their order: terms are cut off 25 bits below the
 * largest, then added (measured by P. Xie et al., MMA-Sim, arXiv 2511.10909). Bytes: O K 2 of weights a chunk of COLUMNS tokens;
 * x from L2, COLUMNS / 128 of that. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_BULK_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_BULK_CUH

#include "model/kernels/cuda/product_order.cuh"
#include "model/kernels/cuda/product_out.cuh"
#include "model/kernels/cuda/tensor_map.h"
#include "model/kernels/cuda/tiles.cuh"
#include "model/kernels/cuda/wgmma.cuh"

enum {
    BULK_ROWS = 128,
    BULK_GROUPS = BULK_ROWS / PRODUCT_ROWS,
    BULK_ATOM = PRODUCT_HALF, /* rows of one swizzle; half of a group */
    BULK_MATRICES = 3         /* at most */
};

/* Where the copy engine finds rows: in a matrix of bulk_maps, from a row on; one past the last for zeros. */
struct bulk_place {
    int matrix, row;
};
struct bulk_maps {
    CUtensorMap tokens, weights[BULK_MATRICES];
};

/* The tokens of a launch: from chunk `first` on, as far as token `end`. A chunk is what a tile has, a multiple of 8, and as many rows as a box of
 * them has. */
struct bulk_tokens {
    int first, end, chunk;
};
/* As many chunks as those of `most` would be, about as long each: rows of a box past the last token take the copy engine as long as others, or
 * longer. */
static inline int bulk_chunk(int tokens, int most) {
    return ceil_div(ceil_div(tokens, ceil_div(tokens, most)), 8) * 8;
}

/* How many groups a tile has, BULK_GROUPS at most, and how their halves follow each other in the ring: `fold` first halves, then their second
 * ones. So many rows that follow each other are copied at once: `box`; 0: groups do not lie so that boxes find them. */
struct bulk_order {
    int groups, fold, box;
    __device__ __forceinline__ int atom(int group, int half) const {
        return group / fold * 2 * fold + half * fold + group % fold;
    }
    __device__ __forceinline__ int group(int atom) const { return atom / (2 * fold) * fold + atom % fold; }
    __device__ __forceinline__ int half(int atom) const { return atom / fold % 2; }
    /* Where half `half` of a warp's group lies. A warp past the last one multiplies that once more, for nobody. */
    __device__ __forceinline__ int atom_of_warp(int half) const {
        return atom(min((int)threadIdx.x / 32, groups - 1), half);
    }
};
/* The largest part of `all` of which `whole` is a multiple, too. */
static inline int common_part(int all, int whole) {
    while (whole != 0) {
        const int rest = all % whole;
        all = whole, whole = rest;
    }
    return all;
}

enum { BULK_CUTS = 4, BULK_TILES_CUT = 256 /* at most */ };
enum { BULK_FOUND_BYTES = 16 /* at most, of what an Out finds of a token */ };

/* Where the blocks of a tile meet: how many have come (0 between kernels), and their sums, [tiles][CUTS][COLUMNS][rows of a tile]. */
struct bulk_exchange {
    unsigned *arrived;
    float *parts;
};
/* Of a token, in numbers: as many as any tiles have, the last of which may not be full. */
static inline size_t bulk_exchanged(int groups, int cuts) {
    return (size_t)cuts * PRODUCT_ROWS * (groups + BULK_GROUPS);
}
static inline bulk_exchange exchange_of(const struct stream *s) {
    unsigned *arrived = (unsigned *)cuda_exchange(s);
    return {arrived, (float *)(arrived + BULK_TILES_CUT)};
}

/* What setmaxnreg leaves to a thread of the warps that copy, where so many blocks of `threads` share a multiprocessor and those that multiply
 * take `registers` each. */
constexpr int bulk_copy_registers(int blocks, int threads, int registers) {
    const int at_launch = (1 << 16) / (threads * blocks) / 8 * 8;
    return (at_launch * threads - BLOCK_THREADS * registers) / (threads - BLOCK_THREADS);
}

template <int COLUMNS, int CUTS> struct bulk {
    static constexpr int columns = COLUMNS;
    static constexpr int blocks = COLUMNS <= 64 ? 2 : 1; /* a multiprocessor */
    /* The first BLOCK_THREADS multiply, the next warp copies. Registers are moved by groups of 4 warps. */
    static constexpr int threads = BLOCK_THREADS + 128, registers = blocks == 2 ? 104 : COLUMNS <= 128 ? 216 : 232;
    static constexpr int copy_registers = bulk_copy_registers(blocks, threads, registers);
    static_assert(copy_registers >= 24 && copy_registers % 8 == 0, "what setmaxnreg takes");
    /* Pieces of a stage: two where there is room. The engine has only so many rows of boxes on their way, and those of two pieces bring
     * 256 bytes each in place of 128. */
    static constexpr int wide = COLUMNS <= 128 ? 2 : 1;
    static constexpr int token_bytes = COLUMNS * PRODUCT_PIECE * 2 /* of a piece */,
                         weight_bytes = wide * BULK_ROWS * PRODUCT_PIECE * 2,
                         atom_bytes = wide * BULK_ATOM * PRODUCT_PIECE * 2,
                         stage_bytes = weight_bytes + wide * token_bytes;
    /* Sums on their way out, [tokens][stride]: of a cut product all, where the ring was; else of some tokens, or 16-bit numbers of all
     * (bulk_store_rows), beside the ring, into which the next tile is copied meanwhile. */
    static constexpr int stored = CUTS > 1 ? COLUMNS : 32, stride = BULK_ROWS + 4, stored_bytes = stored * stride * 4,
                         numbers_bytes = COLUMNS * BULK_ROWS,
                         sums_bytes = stored_bytes > numbers_bytes ? stored_bytes : numbers_bytes;
    static constexpr int room = (blocks == 2 ? 113 : 226) << 10,
                         barrier_bytes = 128 + (CUTS > 1 ? COLUMNS * BULK_FOUND_BYTES : 0) /* and what is found */;
    static constexpr int most = (room - barrier_bytes - (CUTS > 1 ? 0 : sums_bytes)) / stage_bytes,
                         stages = most < 8 ? most : 8, ring_bytes = stages * stage_bytes,
                         memory_bytes = CUTS > 1 ? ring_bytes : ring_bytes + sums_bytes,
                         bytes = barrier_bytes + memory_bytes;
    static_assert(stages * wide >= 3 && bytes <= room && sums_bytes <= memory_bytes, "a ring, and the sums");
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* --- barriers and copies ---------------------------------------------------------------------------------- */

__device__ __forceinline__ void barrier_init(uint64_t *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t *barrier) {
    barrier_arrive(shared_address(barrier));
}
/* This thread arrives, and so will `bytes` of copies. */
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, int parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, int parity) {
    barrier_wait(shared_address(barrier), parity);
}
/* Box (x, y) of a map, x along its rows. */
__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *map, int x, int y, uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];" ::"r"(shared_address(to)),
                 "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier))
                 : "memory");
}
/* The same, of what is read once (tiles.cuh). */
__device__ __forceinline__ void copy_box_once(void *to, const CUtensorMap *map, int x, int y, uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)), "l"(dropped_first())
                 : "memory");
}

/* --- a block's share --------------------------------------------------------------------------------------- */

/* Which tiles a block walks over, rows by a chunk of tokens, and which splits of k it adds, one after the other. */
template <typename Shape> struct bulk_walk {
    static constexpr int wide = Shape::wide;
    int turns, rank, first, step, tiles, chunks;
    bulk_tokens its;
    int tile_groups;
    int pieces, split_pieces; /* of 64 of k, of all; of a split */
    /* `cuts` blocks share a tile. */
    __device__ __forceinline__ bulk_walk(int cuts, int groups, int tile_groups, const bulk_tokens &tokens, int k,
                                         int split_pieces)
        : its(tokens), tile_groups(tile_groups), split_pieces(split_pieces) {
        turns = PRODUCT_SPLITS / cuts, rank = blockIdx.x % cuts, first = blockIdx.x / cuts, step = gridDim.x / cuts;
        chunks = ceil_div(tokens.end, tokens.chunk) - tokens.first, tiles = ceil_div(groups, tile_groups) * chunks;
        pieces = ceil_div(k, PRODUCT_PIECE);
    }
    __device__ __forceinline__ int group(int tile) const { return tile / chunks * tile_groups; }
    __device__ __forceinline__ int chunk(int tile) const { return its.first + tile % chunks; }
    __device__ __forceinline__ int token(int tile) const { return chunk(tile) * its.chunk; }
    __device__ __forceinline__ int count_of(int token) const { return min(its.end - token, its.chunk); }
    /* The first piece of a turn's split, and how many there are: none if it lies past k. */
    __device__ __forceinline__ int piece(int turn) const {
        const int split =
            turns == PRODUCT_SPLITS ? turn : rank * (turns / 2) + turn / 2 + turn % 2 * (PRODUCT_SPLITS / 2);
        return split * split_pieces;
    }
    __device__ __forceinline__ int count(int turn) const { return max(min(pieces - piece(turn), split_pieces), 0); }
};

/* Where a role is in its walk over the pieces of its block, a stage at a time; the last of a split may have fewer. What is of the tile, behind
 * divisions, is made once a tile: the copies of every stage would wait for it. */
template <typename Walk> struct bulk_cursor {
    int tile, turn, piece, left;
    int first_group, chunk; /* of the tile */
    __device__ explicit bulk_cursor(const Walk &walk)
        : tile(walk.first - walk.step), turn(walk.turns), piece(0), left(0), first_group(0), chunk(0) {}
    __device__ __forceinline__ int count() const { return min(left, Walk::wide); }
    /* To the next stage; false: there is none. */
    __device__ __forceinline__ bool next(const Walk &walk) {
        piece += Walk::wide, left -= Walk::wide;
        while (left <= 0) {
            if (++turn >= walk.turns) {
                turn = 0, tile += walk.step;
                if (tile >= walk.tiles) return false;
                first_group = walk.group(tile), chunk = walk.chunk(tile);
            }
            piece = walk.piece(turn), left = walk.count(turn);
        }
        return true;
    }
};

/* A place in the ring, and whose turn it is. */
template <int STAGES> struct bulk_place_in_ring {
    int stage = 0, round = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, round++;
    }
};
/* Of every stage: copies are there; all is read. */
struct bulk_barriers {
    uint64_t *full, *empty;
};
/* By one thread, before the others use them: `copies` arrivals fill a stage. */
__device__ __forceinline__ void bulk_barriers_init(const bulk_barriers &barriers, int stages, int copies) {
    for (int i = 0; i < stages; i++)
        barrier_init(barriers.full + i, copies), barrier_init(barriers.empty + i, BLOCK_THREADS / 32);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* A warp that copies: weights(cursor, stage) asks for what no kernel of the pass writes, before the block may read what
 * tokens(cursor, stage) asks for. */
template <typename Shape, typename Weights, typename Tokens>
__device__ __forceinline__ void bulk_ask(const bulk_barriers &barriers, const bulk_walk<Shape> &walk, Weights weights,
                                         Tokens tokens) {
    bulk_cursor<bulk_walk<Shape>> early(walk), at(walk);
    int asked = 0;
#pragma unroll 1
    while (asked < Shape::stages && early.next(walk)) weights(early, asked++);
    inputs_are_ready();
    asm volatile("fence.proxy.async;" ::: "memory"); /* ordinary stores made the tokens */
#pragma unroll 1
    for (int stage = 0; stage < asked; stage++) {
        at.next(walk);
        tokens(at, stage);
    }
    bulk_place_in_ring<Shape::stages> place = {0, 1};
    for (; at.next(walk); place.next()) {
        barrier_wait(barriers.empty + place.stage, (place.round & 1) ^ 1);
        weights(at, place.stage);
        tokens(at, place.stage);
    }
}

/* Where the copy engine finds half of a group: its rows follow each other. */
template <typename Map> __device__ __forceinline__ bulk_place bulk_place_of(const Map &map, int group, int half) {
    const row_place first = map.at(group, half * PRODUCT_HALF);
    return {max(first.matrix, 0), first.matrix < 0 ? map.rows_of(0) : first.row};
}

/* A lane's box of the weights of a stage: 8 rows or more. Where they are is looked up once a tile. */
template <typename Map> struct bulk_box {
    const bulk_maps &maps;
    const Map &map;
    const bulk_order &order;
    int tile;
    bulk_place place;
    __device__ __forceinline__ bulk_box(const bulk_maps &maps, const Map &map, const bulk_order &order)
        : maps(maps), map(map), order(order), tile(-1), place{} {}
    /* Of rows of `row_bytes`, from their number `x` on. */
    template <typename Cursor>
    __device__ __forceinline__ void copy(unsigned char *to, int row_bytes, const Cursor &at, int x, uint64_t *full) {
        const int atom = threadIdx.x % 32 * (order.box / BULK_ATOM);
        if (atom >= 2 * order.groups) return;
        if (at.tile != tile)
            tile = at.tile, place = bulk_place_of(map, at.first_group + order.group(atom), order.half(atom));
        copy_box_once(to + atom * BULK_ATOM * row_bytes, &maps.weights[place.matrix], x, place.row, full);
    }
};

template <int COLUMNS, int CUTS, typename Map>
__device__ __forceinline__ void bulk_copies(unsigned char *ring, const bulk_barriers &barriers, const bulk_maps &maps,
                                            const Map &map, const bulk_order &order,
                                            const bulk_walk<bulk<COLUMNS, CUTS>> &walk) {
    typedef bulk<COLUMNS, CUTS> shape;
    typedef bulk_cursor<bulk_walk<shape>> cursor;
    const int lane = threadIdx.x % 32;
    bulk_box<Map> box(maps, map, order);
    bulk_ask(
        barriers, walk,
        [&](const cursor &at, int stage) {
            if (lane == 0)
                barrier_expect(barriers.full + stage, 2 * order.groups * shape::atom_bytes +
                                                          at.count() * walk.its.chunk * (PRODUCT_PIECE * 2));
            __syncwarp();
            box.copy(ring + stage * shape::stage_bytes, shape::wide * PRODUCT_PIECE * 2, at, at.piece * PRODUCT_PIECE,
                     barriers.full + stage);
        },
        [&](const cursor &at, int stage) {
            if (lane < at.count())
                copy_box(ring + stage * shape::stage_bytes + shape::weight_bytes + lane * shape::token_bytes,
                         &maps.tokens, (at.piece + lane) * PRODUCT_PIECE, at.chunk * walk.its.chunk,
                         barriers.full + stage);
        });
}

template <int TILES> __device__ __forceinline__ void add_tiles(float (&to)[TILES][4], const float (&c)[TILES][4]) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int j = 0; j < 4; j++) to[tile][j] += c[tile][j];
}
template <int TILES> __device__ __forceinline__ void clear_tiles(float (&c)[TILES][4]) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int j = 0; j < 4; j++) c[tile][j] = 0;
}
/* Says that registers of sums may change here: those of instructions that have been waited for. */
template <int TILES> __device__ __forceinline__ void show_tiles(float (&c)[TILES][4]) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int j = 0; j < 4; j++) asm volatile("" : "+f"(c[tile][j])::"memory");
}

/* Which of 8 weight rows a lane has. Of rows of 128 bytes, which are swizzled, neighbours have rows that are 4 apart, so that no two lanes
 * meet in a bank. */
template <int WIDE> __device__ __forceinline__ int bulk_row() {
    const int row = threadIdx.x % 32 / 4;
    return WIDE == 1 ? row / 2 + row % 2 * 4 : row;
}

/* A lane's rows of the halves of its group, as the registers of two instructions that take 16 bytes of each. */
struct bulk_rows {
    uint32_t of[2][4];
    __device__ __forceinline__ void take(const uint4 &low, const uint4 &high) {
        of[0][0] = low.x, of[0][1] = high.x, of[0][2] = low.y, of[0][3] = high.y;
        of[1][0] = low.z, of[1][1] = high.z, of[1][2] = low.w, of[1][3] = high.w;
    }
};

__device__ __forceinline__ uint4 load_shared(uint32_t at) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at));
    return x;
}

/* Of a lane's 16 bytes of four rows of 256, which are not swizzled: of odd rows the second half is read first, so that no two lanes meet in a
 * bank. Two lots of rows, of the first 32 of k and the next. */
__device__ __forceinline__ void take_wide(bulk_rows (&to)[2], uint32_t low, uint32_t high, int row) {
    const int odd = row & 1;
    uint4 first[2], second[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t at = i ? high : low;
        const uint4 x = load_shared(at + odd * 64), y = load_shared(at + (odd ^ 1) * 64);
        first[i] = odd ? y : x, second[i] = odd ? x : y;
    }
    to[0].take(first[0], first[1]), to[1].take(second[0], second[1]);
}

/* The sums of split after split of k, weights by all tokens, in a block's order of stages. There is always a group of instructions under way
 * but at the end of a split. A stage has two units: halves of its piece, or its pieces, of which the last of a split may have one alone. */
template <typename T, int COLUMNS, int CUTS> struct bulk_ahead {
    typedef bulk<COLUMNS, CUTS> shape;
    typedef float tiles[COLUMNS / 8][4];
    typedef bulk_rows unit[shape::wide];
    static constexpr int UNIT_BYTES = shape::wide == 1 ? 64 : shape::token_bytes /* of tokens */;
    uint32_t ring, full; /* in shared memory */
    uint64_t tokens_of_ring;
    int low, high; /* where the lane's rows lie in a stage */
    bulk_place_in_ring<shape::stages> place;
    int left;         /* stages from `place` on */
    unit early, late; /* the first unit of the stage at `place`; the second of the one before */

    template <typename Walk>
    __device__ __forceinline__ bulk_ahead(const unsigned char *memory, const bulk_barriers &barriers,
                                          const bulk_order &order, const Walk &walk)
        : ring(shared_address(memory)), full(shared_address(barriers.full)),
          tokens_of_ring(swizzled_rows(memory + shape::weight_bytes)), left(0) {
        const int row = bulk_row<shape::wide>() * shape::wide * PRODUCT_PIECE * 2;
        low = order.atom_of_warp(0) * shape::atom_bytes + row, high = order.atom_of_warp(1) * shape::atom_bytes + row;
        asm volatile("" : "+r"(ring), "+r"(full)); /* which would be made anew for each stage */
        for (int turn = 0; turn < walk.turns; turn++) left += ceil_div(walk.count(turn), shape::wide);
        left *= ceil_div(walk.tiles - walk.first, walk.step);
        if (left > 0) come();
    }
    __device__ __forceinline__ void load(unit &rows, int number) const {
        const uint32_t at = ring + place.stage * shape::stage_bytes;
        const int row = bulk_row<shape::wide>(), part = threadIdx.x % 4;
        if constexpr (shape::wide == 1) {
            const int chunk = ((part + number * 4) ^ row) * 16;
            rows[0].take(load_shared(at + low + chunk), load_shared(at + high + chunk));
        } else {
            const int chunk = (part + number * 8) * 16;
            take_wide(rows, at + low + chunk, at + high + chunk, row);
        }
    }
    __device__ __forceinline__ void come() {
        barrier_wait(full + place.stage * 8, place.round & 1);
        load(early, 0);
    }
    __device__ __forceinline__ void leave(int stage) const {
        if (threadIdx.x % 32 == 0) barrier_arrive(full + (shape::stages + stage) * 8);
    }
    /* Waits for the unit before this one. */
    static __device__ __forceinline__ void multiply(tiles &c, const unit &rows, uint64_t tokens, int adds) {
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < shape::wide; i++) {
            wgmma(c, rows[i].of[0], rows_behind(tokens, i * 64), T(), i > 0 || adds);
            wgmma(c, rows[i].of[1], rows_behind(tokens, i * 64 + 32), T());
        }
        wgmma_commit();
        wgmma_wait<1>();
    }
    /* c = the sums of the next split, of `count` pieces, at least one. */
    __device__ __forceinline__ void sum(tiles &c, int count) {
        int before = 0;
#pragma unroll 1
        for (int i = 0; i < count; i += shape::wide) {
            const uint64_t tokens = rows_behind(tokens_of_ring, place.stage * shape::stage_bytes);
            multiply(c, early, tokens, i);
            if (i > 0) leave(before);
            if (shape::wide == 1 || i + 1 < count) {
                load(late, 1);
                multiply(c, late, rows_behind(tokens, UNIT_BYTES), 1);
            } else {
                wgmma_wait(); /* for those whose registers come() fills */
            }
            before = place.stage, place.next();
            if (--left > 0) come();
        }
        wgmma_wait();
        leave(before);
    }
};

/* The same, each piece waited for, where registers have no room for the next. */
template <typename T, int COLUMNS, int CUTS> struct bulk_pieces {
    typedef bulk<COLUMNS, CUTS> shape;
    typedef float tiles[COLUMNS / 8][4];
    const unsigned char *ring;
    bulk_barriers barriers;
    int low, high;
    bulk_place_in_ring<shape::stages> place;

    template <typename Walk>
    __device__ __forceinline__ bulk_pieces(const unsigned char *ring, const bulk_barriers &barriers,
                                           const bulk_order &order, const Walk &)
        : ring(ring), barriers(barriers) {
        low = order.atom_of_warp(0) * shape::atom_bytes, high = order.atom_of_warp(1) * shape::atom_bytes;
    }
    static __device__ __forceinline__ void add(tiles &c, const unsigned char *stage, int low, int high, int piece) {
        const int row = bulk_row<shape::wide>(),
                  at = row * PRODUCT_PIECE * 2 * shape::wide + (threadIdx.x % 4 + piece * 8) * 16;
        const unsigned char *tokens = stage + shape::weight_bytes + piece * shape::token_bytes;
        bulk_rows halves[2];
        take_wide(halves, shared_address(stage + low + at), shared_address(stage + high + at), row);
        wgmma_begin();
#pragma unroll
        for (int call = 0; call < 4; call++)
            wgmma(c, halves[call / 2].of[call % 2], swizzled_rows(tokens + call * 32), T());
        wgmma_commit();
        wgmma_wait();
    }
    __device__ __forceinline__ void sum(tiles &c, int count) {
        clear_tiles(c);
        for (int i = count; i > 0; i -= shape::wide, place.next()) {
            const unsigned char *stage = ring + place.stage * shape::stage_bytes;
            barrier_wait(barriers.full + place.stage, place.round & 1);
#pragma unroll
            for (int piece = 0; piece < shape::wide; piece++)
                if (piece < i) add(c, stage, low, high, piece);
            if (threadIdx.x % 32 == 0) barrier_arrive(barriers.empty + place.stage);
        }
    }
};

/* --- sums -------------------------------------------------------------------------------------------------- */

/* Named barrier of the warps that multiply. */
__device__ __forceinline__ void bulk_sync() {
    asm volatile("bar.sync 1, 256;" ::: "memory");
}

/* A lane's sums of TILES x 8 tokens: rows `row` and `row + 8` of its warp's group. */
template <typename Shape, int TILES> __device__ __forceinline__ void bulk_put(float *sums, const float (*c)[4]) {
    const int warp = threadIdx.x / 32, row = bulk_row<Shape::wide>(), part = threadIdx.x % 4;
    float *to = sums + part * 2 * Shape::stride + warp * PRODUCT_ROWS + row;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int j = 0; j < 4; j++) to[(tile * 8 + j % 2) * Shape::stride + j / 2 * 8] = c[tile][j];
}

/* finish(sum, r): what becomes of a sum of row r of the tile before `out` has it. */
struct bulk_as_it_is {
    __device__ __forceinline__ float operator()(float sum, int) const { return sum; }
};
template <typename Shape, typename Out, typename Finish = bulk_as_it_is, typename Found = found_nothing>
__device__ __forceinline__ void bulk_finish(const float *sums, const own_number<BULK_GROUPS, Out> &own, int first_token,
                                            int tokens, const Out &out, Finish finish = {}, Found found = {}) {
    constexpr bool IS_SHORT = Out::each == PRODUCT_ROWS; /* what becomes of two rows takes more instructions */
    constexpr int TOGETHER = IS_SHORT ? 8 : Shape::blocks == 2 ? 2 : 4, FLIGHT = Shape::blocks == 2 ? 4 : 8;
    store_numbers<IS_SHORT ? 2 * FLIGHT : FLIGHT, TOGETHER>(
        out, own, first_token, tokens, [&](int r, int token) { return finish(sums[token * Shape::stride + r], r); },
        found);
}

/* The sums of Shape::stored tokens from `now` on; others have read what lay there. */
template <typename Shape>
__device__ __forceinline__ void bulk_put_some(float *sums, const float (&c)[Shape::columns / 8][4], int now) {
    bulk_sync();
#pragma unroll
    for (int first = 0; first < Shape::columns; first += Shape::stored)
        if (first == now) bulk_put<Shape, Shape::stored / 8>(sums, c + first / 8);
    bulk_sync();
}

/* For outs that makes_rows. A lane makes numbers of its sums, of 32 tokens at a time; then they lie in shared memory as in memory, 128
 * bytes a token, swizzled by 16, number n where n % ROW would: a tile may begin within what an order transposes, where two tiles share 16 bytes.
 * Sums move to the front meanwhile: a copy of the code for each would be more than the caches of instructions have room for. */
template <typename Shape, typename Out>
__device__ __forceinline__ void bulk_store_rows(void *numbers, float (&c)[Shape::columns / 8][4], int first_group,
                                                int groups, int first_token, int count, const Out &out) {
    typedef typename Out::number number;
    constexpr int ROW = BULK_GROUPS * PRODUCT_HALF, CHUNK = 8, CHUNKS = ROW / CHUNK, TILES = Shape::columns / 8,
                  AT_ONCE = 4;
    const int start = first_group * PRODUCT_HALF, end = min(start + groups * PRODUCT_HALF, out.width),
              at = place_in(out.order, (start + (int)threadIdx.x / 32 * PRODUCT_HALF + bulk_row<Shape::wide>()) % ROW),
              part = threadIdx.x % 4;
    /* Where those from chunk * CHUNK on of a token lie. */
    auto place_of = [=](int token, int chunk) {
        return (number *)numbers + token * ROW + (chunk ^ (token / 2 % 2 * 4 + token / 4 % 4)) * CHUNK;
    };
    bulk_sync(); /* others have read what lay there */
#pragma unroll 1
    for (int now = 0; now < count; now += AT_ONCE * 8) {
        float first[AT_ONCE * 2], second[AT_ONCE * 2];
        number made[AT_ONCE * 2];
#pragma unroll
        for (int i = 0; i < AT_ONCE * 2; i++) first[i] = c[i / 2][i % 2], second[i] = c[i / 2][i % 2 + 2];
        out.numbers_of(first, second, made);
#pragma unroll
        for (int i = 0; i < AT_ONCE * 2; i++)
            place_of(now + i / 2 * 8 + part * 2 + i % 2, at / CHUNK)[at % CHUNK] = made[i];
#pragma unroll
        for (int tile = 0; tile + AT_ONCE < TILES; tile++)
#pragma unroll
            for (int j = 0; j < 4; j++) c[tile][j] = c[tile + AT_ONCE][j];
    }
    bulk_sync();
    /* A thread has the same eight of every token; those that no other tile has a part of leave at once. */
    const int chunk = threadIdx.x % CHUNKS;
    auto number_of = [=](int word) {
        return start + ((number_at(out.order, chunk * CHUNK + word * 2) - start) & (ROW - 1));
    };
    const int first = number_of(0), last = number_of(3), place = place_in(out.order, first);
    const bool is_whole = max(first, last) < end && place_in(out.order, last) == place + 6;
#pragma unroll 2
    for (int token = threadIdx.x / CHUNKS; token < count; token += BLOCK_THREADS / CHUNKS) {
        const number *from = place_of(token, chunk);
        if (is_whole)
            *(uint4 *)out.eight(first_token + token, place) = *(const uint4 *)from;
        else
            for (int word = 0; word < 4; word++)
                if (number_of(word) < end)
                    *(uint32_t *)out.eight(first_token + token, place_in(out.order, number_of(word))) =
                        *(const uint32_t *)(from + word * 2);
    }
}

/* Of a block that has walked over all of k. */
template <typename Shape, typename Out>
__device__ __forceinline__ void bulk_store(float *sums, float (&c)[Shape::columns / 8][4], int first_group, int groups,
                                           int first_token, int count, const Out &out) {
    if constexpr (Out::makes_rows) {
        bulk_store_rows<Shape>(sums, c, first_group, groups, first_token, count, out);
    } else {
        const own_number<BULK_GROUPS, Out> own(out, first_group, groups);
#pragma unroll 1
        for (int now = 0; now < count; now += Shape::stored) {
            bulk_put_some<Shape>(sums, c, now);
            bulk_finish<Shape>(sums, own, first_token + now, min(count - now, Shape::stored), out);
        }
    }
}

/* The sums of a thread in the block's part of the memory for exchange, where all of them come in the end: of two blocks that share a tile each
 * keeps those of its first two splits there until it has the other two. */
template <typename Shape> struct bulk_kept {
    float4 *memory;
    __device__ __forceinline__ bulk_kept(const bulk_exchange &exchange)
        : memory((float4 *)exchange.parts + (size_t)blockIdx.x * Shape::columns * (BULK_ROWS / 4) + threadIdx.x) {}
    __device__ __forceinline__ void keep(float (&sums)[Shape::columns / 8][4]) const {
#pragma unroll
        for (int i = 0; i < Shape::columns / 8; i++)
            __stcg(memory + i * BLOCK_THREADS, make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]));
        clear_tiles(sums);
    }
    __device__ __forceinline__ void add_to(float (&sums)[Shape::columns / 8][4]) const {
#pragma unroll
        for (int i = 0; i < Shape::columns / 8; i++) {
            const float4 its = __ldcg(memory + i * BLOCK_THREADS);
            sums[i][0] = its.x + sums[i][0], sums[i][1] = its.y + sums[i][1];
            sums[i][2] = its.z + sums[i][2], sums[i][3] = its.w + sums[i][3];
        }
    }
};

/* Adds the sums of the blocks of a tile, `count` tokens: into `sums`, those of a block's share of the tokens. */
struct bulk_share {
    int first, count;
};
template <typename Shape, int CUTS>
__device__ __forceinline__ bulk_share bulk_exchange_sums(float *sums, const float (&c)[Shape::columns / 8][4],
                                                         const bulk_exchange &exchange, int tile, int groups,
                                                         int count) {
    constexpr int COLUMNS = Shape::columns, QUADS = BULK_ROWS / 4;
    const int quads = groups * (PRODUCT_ROWS / 4), rank = blockIdx.x % CUTS, each = ceil_div(count, CUTS),
              first = rank * each, mine = max(min(count - first, each), 0);
    unsigned *arrived = exchange.arrived + tile;
    float4 *parts = (float4 *)exchange.parts + (size_t)tile * CUTS * COLUMNS * quads;
    auto here = [&](int token, int quad) { return (float4 *)(sums + token * Shape::stride) + quad; };
    auto there = [&](int cut, int token, int quad) { return parts + (cut * COLUMNS + token) * quads + quad; };
    bulk_sync(); /* what lay in the ring is multiplied */
    bulk_put<Shape, COLUMNS / 8>(sums, c);
    bulk_sync();
#pragma unroll 4
    for (int i = threadIdx.x; i < (count - mine) * QUADS; i += BLOCK_THREADS) {
        const int other = i / QUADS, quad = i % QUADS, token = other < first ? other : other + mine;
        if (quad < quads) __stcg(there(rank, token, quad), *here(token, quad));
    }
    __threadfence();
    bulk_sync();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile unsigned *)arrived < CUTS) {
        }
        __threadfence();
    }
    bulk_sync();
#pragma unroll 2
    for (int i = threadIdx.x; i < mine * QUADS; i += BLOCK_THREADS) {
        const int token = first + i / QUADS, quad = i % QUADS;
        if (quad >= quads) continue;
        float4 of[CUTS];
#pragma unroll
        for (int cut = 0; cut < CUTS; cut++)
            of[cut] = cut == rank ? *here(token, quad) : __ldcg(there(cut, token, quad));
#pragma unroll
        for (int apart = 1; apart < CUTS; apart *= 2)
#pragma unroll
            for (int cut = 0; cut < CUTS; cut += 2 * apart) {
                of[cut].x += of[cut + apart].x, of[cut].y += of[cut + apart].y;
                of[cut].z += of[cut + apart].z, of[cut].w += of[cut + apart].w;
            }
        *here(token, quad) = of[0];
    }
    bulk_sync();
    /* Whoever leaves last sets the tile's count back: all have read. */
    if (threadIdx.x == 0 && atomicAdd(arrived, 1) == 2 * CUTS - 1) atomicExch(arrived, 0);
    return {first, mine};
}

/* Of the blocks of a tile, each of which stores some of the tokens. found: what `out` finds of each, if it does. */
template <typename Shape, int CUTS, typename Out>
__device__ __forceinline__ void bulk_store_cut(float *sums, const float (&c)[Shape::columns / 8][4],
                                               const bulk_exchange &exchange, int tile, int first_group, int groups,
                                               int first_token, int count, const Out &out, const void *found) {
    const bulk_share share = bulk_exchange_sums<Shape, CUTS>(sums, c, exchange, tile, groups, count);
    const own_number<BULK_GROUPS, Out> own(out, first_group, groups);
    const int first = first_token + share.first;
    const float *its = sums + share.first * Shape::stride;
    if constexpr (Out::finds_tokens)
        bulk_finish<Shape>(its, own, first, share.count, out, bulk_as_it_is(),
                           found_tokens<Out>{(const typename Out::of_token *)found + share.first});
    else
        bulk_finish<Shape>(its, own, first, share.count, out);
}

#endif

template <typename T, int COLUMNS, int CUTS, typename Rows, typename Out>
__global__ void __launch_bounds__(bulk<COLUMNS, CUTS>::threads, bulk<COLUMNS, CUTS>::blocks)
    bulk_product_kernel(const __grid_constant__ bulk_maps maps, Rows weights, int groups, bulk_tokens tokens, int k,
                        bulk_order order, bulk_exchange exchange, Out out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef bulk<COLUMNS, CUTS> shape;
    typedef typename std::conditional<(COLUMNS > 64), bulk_ahead<T, COLUMNS, CUTS>, bulk_pieces<T, COLUMNS, CUTS>>::type
        sums_of;
    extern __shared__ __align__(1024) unsigned char bulk_memory[]; /* as the swizzle wants it */
    unsigned char *ring = bulk_memory;
    float *sums = (float *)(ring + (CUTS > 1 ? 0 : shape::ring_bytes));
    uint64_t *full = (uint64_t *)(ring + shape::memory_bytes);
    const bulk_barriers barriers = {full, full + shape::stages};
    next_may_start();
    if (threadIdx.x == 0) bulk_barriers_init(barriers, shape::stages, 1);
    __syncthreads();
    const bulk_walk<shape> walk(CUTS, groups, order.groups, tokens, k, piece_count(k));
    if (threadIdx.x >= BLOCK_THREADS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(shape::copy_registers));
        if (threadIdx.x < BLOCK_THREADS + 32)
            bulk_copies<COLUMNS, CUTS>(ring, barriers, maps, weights.map, order, walk);
        else
            inputs_are_ready();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(shape::registers));
        void *found = full + 16;
        if constexpr (Out::finds_tokens) { /* of cut outputs alone, whose blocks have one tile */
            static_assert(CUTS > 1 && sizeof(typename Out::of_token) <= BULK_FOUND_BYTES, "room for them");
            const int token = walk.token(walk.first) + threadIdx.x;
            if (threadIdx.x < COLUMNS && token < tokens.end)
                ((typename Out::of_token *)found)[threadIdx.x] = out.template find<false>(token);
        }
        inputs_are_ready();
        sums_of products(ring, barriers, order, walk);
#pragma unroll 1
        for (int tile = walk.first; tile < walk.tiles; tile += walk.step) {
            const int first_group = walk.group(tile), token = walk.token(tile), count = walk.count_of(token);
            float c[COLUMNS / 8][4], total[COLUMNS / 8][4] = {};
            clear_tiles(c); /* so that none of it lives while a tile is stored */
#pragma unroll 1
            for (int turn = 0; turn < walk.turns; turn++) {
                if constexpr (CUTS == 2)
                    if (turn == 2) bulk_kept<shape>(exchange).keep(total);
                if (walk.count(turn) == 0) continue;
                products.sum(c, walk.count(turn));
                show_tiles(c);
                add_tiles(total, c);
            }
            if constexpr (CUTS == 2) bulk_kept<shape>(exchange).add_to(total);
            if constexpr (CUTS > 1)
                bulk_store_cut<shape, CUTS>(sums, total, exchange, tile, first_group, order.groups, token, count, out,
                                            found);
            else
                bulk_store<shape>(sums, total, first_group, order.groups, token, count, out);
        }
    }
#endif
}

/* How blocks of `bytes` of shared memory are launched (launch_sharing): one a multiprocessor, where that is room for all; else two may come
 * to share one while others have none. */
static inline int bulk_percent(const struct stream *s, int blocks, int bytes) {
    return blocks <= cuda_multiprocessors(s->device) && bytes < SHARED_BYTES ? SHARED_PERCENT : SHARED_PERCENT_ANY;
}

/* How a product is laid out in tiles: with fewer groups each, where that leaves no multiprocessor much more to copy than others, weights and
 * tokens, by no more boxes. Beyond 64 tokens the tensor cores limit, which take as long for a smaller tile; of short rows what a block does
 * besides. */
template <typename Shape, typename Map>
static bulk_order bulk_order_of(const struct stream *s, const Map &map, int groups, int cuts, int k) {
    enum { SHORT_ROWS = 4096 };
    const int at_once = cuda_multiprocessors(s->device), boxes = BULK_ROWS / map.order(BULK_GROUPS).box;
    bulk_order best = map.order(BULK_GROUPS);
    int least = 0;
    for (int its = BULK_GROUPS; its > BULK_GROUPS / 2; its--) {
        const bulk_order order = map.order(its);
        const int tiles = ceil_div(groups, its), blocks = tiles * cuts;
        if (order.box * boxes < its * PRODUCT_ROWS || (cuts > 1 && tiles > BULK_TILES_CUT)) continue;
        const int rounds = blocks <= Shape::blocks * at_once
                               ? ceil_div(blocks, at_once)
                               : Shape::blocks * ceil_div(blocks, Shape::blocks * at_once),
                  load = rounds * (its * PRODUCT_ROWS + 2 * Shape::columns);
        if (least == 0 || load < least) least = load, best = order;
        if (Shape::columns > 64 || (cuts > 1 && k < SHORT_ROWS)) break;
    }
    return best;
}

/* How much memory there is to exchange sums, in numbers. */
static constexpr size_t BULK_NUMBERS = (CUDA_EXCHANGE_BYTES - BULK_TILES_CUT * sizeof(unsigned)) / sizeof(float);

/* `chunks` of so many tokens a launch. */
template <int COLUMNS, int CUTS, typename T, typename Rows, typename Out>
static int launch_bulk_columns(struct stream *s, const char *name, int groups, int tokens, int chunk, int chunks, int k,
                               const T *x, const Rows &rows, const Out &out) {
    typedef bulk<COLUMNS, CUTS> shape;
    const bool is_bf16 = std::is_same<T, bf16>::value;
    const bulk_order order = bulk_order_of<shape>(s, rows.map, groups, CUTS, k);
    auto kernel = bulk_product_kernel<T, COLUMNS, CUTS, Rows, Out>;
    struct bulk_maps maps;
    TRY(cuda_tensor_map(&maps.tokens, x, is_bf16, tokens, k, PRODUCT_PIECE, chunk));
    for (int i = 0; i < Rows::matrices; i++) {
        if (!rows.weights[i]) continue;
        TRY(cuda_tensor_map(&maps.weights[i], rows.weights[i], is_bf16, rows.map.rows_of(i), k,
                            shape::wide * PRODUCT_PIECE, order.box));
    }
    const int at_once = shape::blocks * cuda_multiprocessors(s->device);
    for (int first = 0; first < tokens; first += chunks * chunk) {
        const bulk_tokens its = {first / chunk, min(tokens, first + chunks * chunk), chunk};
        const int tiles = ceil_div(groups, order.groups) * ceil_div(its.end - first, chunk),
                  blocks = CUTS > 1 ? tiles * CUTS : min(tiles, at_once);
        launch_sharing(s, kernel, dim3(blocks), shape::threads, shape::bytes, 1, bulk_percent(s, blocks, shape::bytes),
                       maps, rows, groups, its, k, order, exchange_of(s), out);
        TRY(cuda_launched(s, name, sizeof maps + sizeof rows + sizeof out + sizeof order + sizeof its + 24));
    }
    return 0;
}

/* How an output is cut: by so many blocks a tile, and so many chunks of tokens a launch, all of which run at once if they are several. */
struct bulk_cut {
    int cuts, chunks;
};
/* What takes the least time, if each turn of blocks takes its share of k and what it does besides. Blocks of up to 64 tokens wait for memory,
 * which more of them ask for more. */
template <int COLUMNS> static bulk_cut bulk_cut_of(const struct stream *s, int groups, int chunks, int k) {
    enum { BESIDES = 900 /* columns of k */, LEAST_CUTS = COLUMNS > 64 ? 2 : BULK_CUTS };
    const int tiles = ceil_div(groups, BULK_GROUPS),
              at_once = bulk<COLUMNS, BULK_CUTS>::blocks * cuda_multiprocessors(s->device);
    bulk_cut best = {};
    int least = 0;
    for (int cuts = BULK_CUTS; cuts >= LEAST_CUTS; cuts /= 2) {
        const int room = min(BULK_TILES_CUT / tiles, (int)(BULK_NUMBERS / (bulk_exchanged(groups, cuts) * COLUMNS))),
                  most = max(min(min(at_once / (cuts * tiles), room), chunks), 1),
                  turns = ceil_div(chunks, most) * ceil_div(cuts * tiles * most, at_once),
                  load = turns * (k / cuts + BESIDES);
        if (least == 0 || load < least) least = load, best = {cuts, most};
    }
    return best;
}

template <int COLUMNS, typename T, typename Rows, typename Out>
static int launch_bulk_of(struct stream *s, const char *name, int groups, int tokens, int chunk, int k, const T *x,
                          const Rows &rows, const Out &out) {
    const int chunks = ceil_div(tokens, chunk);
    if constexpr (Rows::may_be_long)
        if (rows.adds_in_order())
            return launch_bulk_columns<COLUMNS, 1>(s, name, groups, tokens, chunk, chunks, k, x, rows, out);
    const bulk_cut cut = bulk_cut_of<COLUMNS>(s, groups, chunks, k);
    if constexpr (COLUMNS > 64)
        if (cut.cuts == 2)
            return launch_bulk_columns<COLUMNS, 2>(s, name, groups, tokens, chunk, cut.chunks, k, x, rows, out);
    return launch_bulk_columns<COLUMNS, BULK_CUTS>(s, name, groups, tokens, chunk, cut.chunks, k, x, rows, out);
}

/* Is an output short enough to be cut, and is there memory to exchange sums? */
static inline bool is_cut(const struct stream *s, int groups) {
    return ceil_div(groups, BULK_GROUPS) <= BULK_TILES_CUT && cuda_exchange(s);
}

/* `x` is transposed. */
template <typename T, typename Rows, typename Out>
static int launch_bulk(struct stream *s, const char *name, int groups, int tokens, int k, const T *x, const Rows &rows,
                       const Out &out) {
    /* As many tokens a block as there are, or memory to exchange the sums of; all blocks about as many. */
    int columns = 32;
    for (int next : {64, 128, 192})
        if (columns < ceil_div(tokens, ceil_div(tokens, 192)) &&
            (rows.adds_in_order() || bulk_exchanged(groups, BULK_CUTS) * next <= BULK_NUMBERS))
            columns = next;
    const int chunk = bulk_chunk(tokens, columns);
    switch (columns) {
    case 32:
        return launch_bulk_of<32>(s, name, groups, tokens, chunk, k, x, rows, out);
    case 64:
        return launch_bulk_of<64>(s, name, groups, tokens, chunk, k, x, rows, out);
    case 128:
        return launch_bulk_of<128>(s, name, groups, tokens, chunk, k, x, rows, out);
    default:
        return launch_bulk_of<192>(s, name, groups, tokens, chunk, k, x, rows, out);
    }
}

#endif
