/* The product of many tokens with quantised weights on Hopper: codes, scales and tokens by the copy engine, sums by wgmma. See
 * product_packed.cuh for the numbers and product_bulk.cuh for the walk.
 *
 * A stage of the ring has 256 columns of 128 weight rows, as codes, and of 64 tokens. Up to 32 tokens a block has 32, and two blocks share
 * a multiprocessor, so that one multiplies while the other waits; their stages have 256 columns where three find room, else 128. Of many
 * tokens a block has 128, with 128 columns a stage, so that codes become 16 bits half as often: of kinds whose grains are long, as
 * registers have room for the sums of one alone then.
 * A warp of those that multiply makes 16 bits of the codes of 16 rows in registers, from which wgmma takes them, and multiplies the sums
 * of a grain with its scale, of short grains while those of the next are made: the same additions as of the narrow product, in the same
 * order. Tokens lie in the order of product_order.cuh, and their sums over each grain, which minima need, are made before
 * (packed_norm_kernel, packed_tokens_kernel).
 * The order in which splits are added is that of product_bulk.cuh: one after the other for long outputs, else as add_splits says.
 * Bytes: the codes and scales a chunk of 32, 64 or 128 tokens; tokens from L2, 2 bytes of each a column for 128 weight rows. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_PACKED_BULK_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_PACKED_BULK_CUH

#include "model/kernels/cuda/product_bulk.cuh"
#include "model/kernels/cuda/product_packed.cuh"

enum { PACKED_HALF = 128 /* columns of weights */ };

/* The grains of a kind: columns whose sum a scale is for, and what there is of them in a stage of so many halves. */
template <typename Kind, int HALVES> struct packed_grains {
    static constexpr int piece = packed_piece_columns(Kind::code);
    static constexpr bool has_scales = Kind::grain != PACKED_GRAIN_ROW, has_ones = Kind::minima;
    static constexpr int columns = has_scales && Kind::grain ? Kind::grain : piece,
                         count = HALVES * PACKED_HALF / columns;
    /* FP8's scale is for 128 columns, of which a piece has half. */
    static constexpr int of_scale = columns > 64 || Kind::grain ? 1 : 128 / columns;
    static constexpr int scale_halves = Kind::minima ? 2 : 1,
                         scale_bytes = has_scales ? count / of_scale * scale_halves * 2 : 0,
                         copied_bytes = has_scales && scale_bytes < 4 ? 4 : scale_bytes /* words with them */;
    /* May a block have 128 tokens? Where grains are short registers hold sums of two. */
    static constexpr bool is_long = columns >= 64;
};

/* A block's shape: of 32 tokens, of which two share a multiprocessor, of 64 or of 128. */
template <typename Kind, int COLUMNS, int HALVES> struct packed_bulk_of {
    static constexpr int columns = COLUMNS, halves = HALVES, stage_columns = halves * PACKED_HALF;
    typedef packed_grains<Kind, halves> grains;
    static constexpr int blocks = columns > 32 ? 1 : 2 /* a multiprocessor */, threads = BLOCK_THREADS + 128,
                         registers = blocks == 2    ? 104
                                     : columns > 64 ? 224
                                                    : 216,
                         copy_registers = bulk_copy_registers(blocks, threads, registers);
    static_assert(copy_registers >= 24 && copy_registers % 8 == 0, "what setmaxnreg takes");
    static constexpr int wide = stage_columns / PRODUCT_PIECE /* pieces of a stage */;
    static constexpr int row_bytes = stage_columns / (packed_is_4(Kind::code) ? 2 : 1),
                         code_bytes = BULK_ROWS * row_bytes, token_bytes = columns * PRODUCT_PIECE * 2 /* of a piece */;
    static constexpr int ones_bytes = grains::has_ones ? grains::count * columns * 4 : 0,
                         engine_bytes = code_bytes + wide * token_bytes + ones_bytes /* before the scales */;
    static constexpr int stage_bytes = (engine_bytes + BULK_ROWS * grains::copied_bytes + 1023) / 1024 * 1024;
    /* Beside the ring: the sums of splits so far, where registers have no room for them; then sums on their way out, as in `bulk`. */
    static constexpr bool shares_total = grains::has_scales && columns > 64;
    static constexpr int stored = 16, stride = BULK_ROWS + 4, stored_bytes = stored * stride * 4,
                         numbers_bytes = columns * BULK_ROWS, total_bytes = shares_total ? columns * BULK_ROWS * 4 : 0,
                         out_bytes = stored_bytes > numbers_bytes ? stored_bytes : numbers_bytes,
                         sums_bytes = out_bytes > total_bytes ? out_bytes : total_bytes;
    static constexpr int room = 226 / blocks << 10, other_bytes = 128 /* barriers */ + BULK_ROWS * 4 /* factors */;
    static constexpr int most = (room - other_bytes - sums_bytes) / stage_bytes, stages = most < 8 ? most : 8,
                         ring_bytes = stages * stage_bytes, memory_bytes = ring_bytes + sums_bytes,
                         bytes = memory_bytes + other_bytes;
};
/* Of up to 64 tokens a stage has two halves, where there is room for three of them: the engine brings longer rows then. */
template <typename Kind, int COLUMNS>
struct packed_bulk
    : packed_bulk_of<Kind, COLUMNS, COLUMNS <= 64 && packed_bulk_of<Kind, COLUMNS, 2>::stages >= 3 ? 2 : 1> {
    static_assert(packed_bulk::stages >= 3 && COLUMNS * packed_bulk::stride * 4 <= packed_bulk::ring_bytes,
                  "a ring, which holds the sums of a cut product");
};

/* In the memory for exchange: what blocks of a cut product exchange, and behind it sums of tokens, [chunks][grains][columns]. */
struct packed_bulk_memory {
    bulk_exchange exchange;
    float *ones;
    int columns, chunk; /* most tokens of a chunk; as many as they have, but the last */
};

/* --- tokens ------------------------------------------------------------------------------------------------ */

/* How many warps a row of tokens takes, of PACKED_HALF columns each: to the end of the last stage. */
__host__ __device__ __forceinline__ int packed_token_parts(int k) {
    return ceil_div(k, 2 * PACKED_HALF) * 2;
}

/* Brings tokens [tokens, k] into the order of spread_place and makes of them what is multiplied, As (multiplied_tokens), and their sums of
 * each GRAIN columns, 0: none, by the instruction that the narrow product has for it. A warp has 8 tokens. */
template <typename T, int GRAIN, typename As>
__global__ void __launch_bounds__(BLOCK_THREADS)
    packed_tokens_kernel(T *x, int tokens, int k, packed_bulk_memory memory) {
    constexpr int PART = PACKED_HALF, STEPS = PART / 16;
    const int parts = packed_token_parts(k), unit = blockIdx.x * (BLOCK_THREADS / 32) + threadIdx.x / 32,
              part = unit % parts, first_token = unit / parts * 8, lane = threadIdx.x % 32,
              token = first_token + lane / 4;
    next_may_start();
    inputs_are_ready();
    if (first_token >= ceil_div(tokens, memory.chunk) * memory.chunk) return;
    uint2 held[STEPS];
    T *row = x + (size_t)token * k + part * PART;
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        held[i] = token < tokens && part * PART + i * 16 < k ? As::token(*(const uint2 *)(row + i * 16 + lane % 4 * 4))
                                                             : make_uint2(0, 0);
    __syncwarp(); /* all of a token's four lanes have read */
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        if (token >= tokens || part * PART + i * 16 >= k) break;
        *(uint32_t *)(row + i * 16 + lane % 4 * 2) = held[i].x;
        *(uint32_t *)(row + i * 16 + lane % 4 * 2 + 8) = held[i].y;
    }
    if constexpr (GRAIN > 0) {
        constexpr int GRAINS = PART / GRAIN, OF_GRAIN = GRAIN / 16;
        const uint32_t of_ones[4] = {As::ones(0), As::ones(0), As::ones(1), As::ones(1)};
        const int columns = memory.columns, chunk = first_token / memory.chunk;
        float *to = memory.ones + ((size_t)chunk * parts + part) * GRAINS * columns + first_token -
                    chunk * memory.chunk + lane % 4 * 2;
#pragma unroll
        for (int g = 0; g < GRAINS; g++) {
            float c[4] = {};
#pragma unroll
            for (int i = 0; i < OF_GRAIN; i++) mma(c, of_ones, held[g * OF_GRAIN + i].x, held[g * OF_GRAIN + i].y, T());
            if (lane < 4) *(float2 *)(to + (size_t)g * columns) = make_float2(c[0], c[1]);
        }
    }
}

/* The same of norm(rows), for kinds that need sums: a block normalises a row and has 8 grains of it where the other has 8 tokens of one. */
template <typename T, int GRAIN, typename As>
__global__ void __launch_bounds__(BLOCK_THREADS)
    packed_norm_kernel(norm_rows<T> rows, T *y, int k, packed_bulk_memory memory_of_ones) {
    extern __shared__ __align__(16) unsigned char shared[];
    norm_memory<T> memory(shared, k);
    const int token = blockIdx.x, lane = threadIdx.x % 32, grains = packed_token_parts(k) * (PACKED_HALF / GRAIN);
    next_may_start();
    memory.fetch(rows, k);
    inputs_are_ready();
    norm_row(rows, token, k, memory, y + (size_t)token * k, [&](T *to, int at, const T(&four)[4]) {
        const uint2 x = As::token(*(const uint2 *)four);
        *(uint32_t *)(to + spread_place(at)) = x.x, *(uint32_t *)(to + spread_place(at + 2)) = x.y;
        *(uint2 *)(memory.held + at) = x; /* in place of the four that it was made of */
    });
    const uint32_t of_ones[4] = {As::ones(0), As::ones(0), As::ones(1), As::ones(1)};
    const int columns = memory_of_ones.columns, chunk = token / memory_of_ones.chunk;
    float *to = memory_of_ones.ones + (size_t)chunk * grains * columns + token - chunk * memory_of_ones.chunk;
    for (int first = threadIdx.x / 32 * 8; first < grains; first += BLOCK_THREADS / 32 * 8) {
        const int start = (first + lane / 4) * GRAIN;
        float c[4] = {};
#pragma unroll
        for (int i = 0; i < GRAIN; i += 16) {
            uint2 x = make_uint2(0, 0);
            if (start + i < k) x = *(const uint2 *)(memory.held + start + i + lane % 4 * 4);
            mma(c, of_ones, x.x, x.y, T());
        }
        if (lane < 4) {
            const int grain = first + lane * 2;
            if (grain < grains) to[(size_t)grain * columns] = c[0];
            if (grain + 1 < grains) to[(size_t)(grain + 1) * columns] = c[1];
        }
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* --- copies ------------------------------------------------------------------------------------------------ */

/* 1D, of 16-byte multiples. */
__device__ __forceinline__ void copy_line(void *to, const void *from, int bytes, uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* The warps that copy: scales, whose rows are too short for the engine, by lanes' own copies, of a row each; the rest by the engine. */
template <typename Shape, typename Rows>
__device__ __forceinline__ void packed_bulk_copies(unsigned char *ring, const bulk_barriers &barriers,
                                                   const bulk_maps &maps, const Rows &weights, const bulk_order &order,
                                                   const float *ones, const bulk_walk<Shape> &walk) {
    typedef bulk_cursor<bulk_walk<Shape>> cursor;
    typedef typename Shape::grains grains;
    constexpr int BYTES = grains::copied_bytes;
    const int thread = threadIdx.x - BLOCK_THREADS, lane = thread % 32, warp = thread / 32;
    const bool by_16 = BYTES >= 16 && weights.of[0].scale_bytes % 16 == 0;
    bulk_box<decltype(weights.map)> box(maps, weights.map, order);
    int tile = -1, left = 0;
    const uint8_t *scales = nullptr;
    bulk_ask(
        barriers, walk,
        [&](const cursor &at, int stage) {
            unsigned char *to = ring + stage * Shape::stage_bytes;
            const int number = at.piece / Shape::wide;
            if (warp == 0) {
                if (lane == 0)
                    barrier_expect(barriers.full + stage,
                                   Shape::code_bytes + Shape::ones_bytes + walk.its.chunk * (Shape::stage_columns * 2));
                __syncwarp();
                box.copy(to, Shape::row_bytes, at, number * (Shape::row_bytes / 2), barriers.full + stage);
            }
            if (!grains::has_scales) return;
            if (at.tile != tile) {
                tile = at.tile;
                const row_place place = weights.map.at(at.first_group + thread / PRODUCT_ROWS, thread % PRODUCT_ROWS);
                const packed_matrix m = of_matrix(weights.of, place.matrix);
                scales = m.scales + (int64_t)(place.matrix < 0 ? 0 : place.row) * m.scale_bytes, left = m.scale_bytes;
            }
            unsigned char *row = to + Shape::engine_bytes + thread * BYTES;
            const int start = number * grains::scale_bytes / 4 * 4;
            if (by_16)
#pragma unroll
                for (int j = 0; j < BYTES / 16; j++)
                    copy_async(row + 16 * j, scales + start + 16 * j, start + 16 * j < left);
            else
#pragma unroll
                for (int j = 0; j < BYTES / 4; j++) {
                    const bool wanted = start + 4 * j < left;
                    copy_async_4(row + 4 * j, scales + (wanted ? start + 4 * j : 0), wanted);
                }
        },
        [&](const cursor &at, int stage) {
            unsigned char *to = ring + stage * Shape::stage_bytes + Shape::code_bytes;
            if (Shape::ones_bytes && thread == 0) {
                const size_t all = packed_token_parts(walk.pieces * PRODUCT_PIECE) * (PACKED_HALF / grains::columns);
                copy_line(to + Shape::wide * Shape::token_bytes,
                          ones + (at.chunk * all + at.piece / Shape::wide * grains::count) * Shape::columns,
                          Shape::ones_bytes, barriers.full + stage);
            }
            if (thread < Shape::wide)
                copy_box(to + thread * Shape::token_bytes, &maps.tokens, (at.piece + thread) * PRODUCT_PIECE,
                         at.chunk * walk.its.chunk, barriers.full + stage);
            asm volatile(
                "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barriers.full + stage))
                : "memory");
        });
}

/* --- sums -------------------------------------------------------------------------------------------------- */

/* Half of a stage, or all of it. Halves run the same code, and there is one of each loop and store alone: where the kernels of a layer do
 * not fit in the caches of instructions together, each of them starts late. */
struct packed_half {
    const unsigned char *stage;
    int half, number; /* the stage's in k */
};

/* What a warp multiplies, step by step: a step is as many columns as one group of instructions takes, of one grain or a part of it. */
template <typename T, typename Kind, int COLUMNS> struct packed_bulk_steps {
    typedef packed_bulk<Kind, COLUMNS> shape;
    typedef typename shape::grains grains;
    typedef multiplied_as<T, Kind> as;
    static constexpr bool is_swizzled = shape::row_bytes == 128;
    static constexpr int TILES = COLUMNS / 8, HALF = PACKED_HALF, MOST = COLUMNS > 32 ? 64 : 32,
                         STEP = grains::columns < MOST ? grains::columns : MOST /* its codes take registers */,
                         STEPS = HALF / STEP, OF_GRAIN = grains::columns / STEP, CALLS = STEP / 16,
                         PIECE = grains::piece;
    static_assert(STEPS % 2 == 0 && STEPS % OF_GRAIN == 0, "halves begin alike");
    /* Sums of a grain that are added while those of the next are made, which pays where grains are short; else there are no registers, nor
     * where two blocks share a multiprocessor. */
    static constexpr int SETS = grains::has_scales && grains::columns <= 32 && COLUMNS > 32 ? 2 : 1;
    typedef uint32_t step_codes[CALLS][4];
    int codes[2]; /* where the first piece of a lane's two rows lies in a stage */
    packed_table table;
    uint4 pieces[HALF / PIECE][2];
    float sums[SETS][TILES][4];
    __device__ __forceinline__ packed_bulk_steps(const bulk_order &order, const packed_table &its) : table(its) {
        const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, part = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < 2; i++)
            codes[i] = (order.atom(warp, i) * BULK_ATOM + row) * shape::row_bytes +
                       ((part * 16) ^ (is_swizzled ? row * 16 : 0));
    }

    /* The codes of a step, in 16 bits. Rows of 128 bytes are swizzled; in those of 256 two lanes meet in a bank. */
    __device__ __forceinline__ void unpack(step_codes &to, const packed_half &at, int step) {
        if (step == 0)
#pragma unroll
            for (int piece = 0; piece < HALF / PIECE; piece++)
#pragma unroll
                for (int row = 0; row < 2; row++) {
                    const int place = (at.half * (HALF / PIECE) + piece) * PACKED_PIECE_BYTES;
                    pieces[piece][row] =
                        *(const uint4 *)(at.stage + (is_swizzled ? codes[row] ^ place : codes[row] + place));
                }
#pragma unroll
        for (int call = 0; call < CALLS; call++) {
            const int column = step * STEP + call * 16, in_piece = column % PIECE, half = in_piece / 16 % 2;
            const uint4(&piece)[2] = pieces[column / PIECE];
            const typename as::numbers first(piece[0], in_piece / PACKED_BLOCK, table),
                second(piece[1], in_piece / PACKED_BLOCK, table);
            to[call][0] = first.pairs[2 * half], to[call][1] = second.pairs[2 * half];
            to[call][2] = first.pairs[2 * half + 1], to[call][3] = second.pairs[2 * half + 1];
            /* Made here, as the compiler would move what takes one instruction behind the fence of wgmma, and then make a second one. */
            if (is_raw<T, Kind>)
                asm volatile("" : "+r"(to[call][0]), "+r"(to[call][1]), "+r"(to[call][2]), "+r"(to[call][3]));
        }
    }
    __device__ __forceinline__ void multiply(float (&c)[TILES][4], const step_codes &a, const packed_half &at,
                                             int step) {
        const uint64_t tokens =
            swizzled_rows(at.stage + shape::code_bytes + at.half * (HALF / PRODUCT_PIECE * shape::token_bytes));
        float(&sum)[TILES][4] = grains::has_scales ? sums[step / OF_GRAIN % SETS] : c;
        wgmma_begin();
#pragma unroll
        for (int call = 0; call < CALLS; call++) {
            const int column = step * STEP + call * 16;
            const uint64_t b =
                rows_behind(tokens, column / PRODUCT_PIECE * shape::token_bytes + column % PRODUCT_PIECE * 2);
            if (grains::has_scales && call == 0 && step % OF_GRAIN == 0)
                wgmma_first(sum, a[call], b, T());
            else
                wgmma(sum, a[call], b, T());
        }
        wgmma_commit();
    }
    static __device__ __forceinline__ bool ends_grain(int step) {
        return grains::has_scales && step % OF_GRAIN == OF_GRAIN - 1;
    }
    /* After a step that has been waited for, the last of a grain: c += scale * sum - minimum * ones, as of packed_stream. */
    __device__ __forceinline__ void add(float (&c)[TILES][4], const packed_half &at, int step) {
        if (!ends_grain(step)) return;
        float(&sum_of)[TILES][4] = sums[step / OF_GRAIN % SETS];
        show_tiles(sum_of);
        const int grain = step / OF_GRAIN, row = threadIdx.x / 32 * PRODUCT_ROWS + threadIdx.x % 32 / 4;
        const unsigned char *scales = at.stage + shape::engine_bytes +
                                      (grains::scale_bytes < 4 ? at.number % 2 * grains::scale_bytes
                                                               : at.half * (grains::scale_bytes / shape::halves));
        const float *ones = (const float *)(at.stage + shape::code_bytes + shape::wide * shape::token_bytes) +
                            (at.half * (grains::count / shape::halves) + grain) * COLUMNS + threadIdx.x % 4 * 2;
        float scale[2], minimum[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const __half *its = (const __half *)(scales + (row + 8 * i) * grains::copied_bytes) +
                                grain / grains::of_scale * grains::scale_halves;
            scale[i] = __half2float(its[0]);
            minimum[i] = Kind::minima ? as::taken_off(scale[i], __half2float(its[1])) : 0.0f;
        }
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            float2 one = make_float2(0, 0);
            if (grains::has_ones) one = *(const float2 *)(ones + tile * 8);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                c[tile][j] = fmaf(scale[j / 2], sum_of[tile][j], c[tile][j]);
                if (Kind::minima) c[tile][j] = fmaf(-minimum[j / 2], j % 2 ? one.y : one.x, c[tile][j]);
            }
        }
    }
};

/* The sums of the splits of a tile so far: in registers, or in `memory`, where a thread's lie. */
template <int TILES, bool SHARED> struct packed_total {
    float of[SHARED ? 1 : TILES][4] = {};
    float4 *memory;
    bool is_there = false;
    __device__ __forceinline__ packed_total(float *sums) : memory((float4 *)sums + threadIdx.x) {}
    /* c is added and cleared. The first time others may still store the sums of the tile before. */
    __device__ __forceinline__ void add(float (&c)[TILES][4]) {
        if constexpr (SHARED) {
            if (!is_there) bulk_sync();
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                float4 &its = memory[tile * BLOCK_THREADS];
                float4 sum = is_there ? its : make_float4(0, 0, 0, 0);
                sum.x += c[tile][0], sum.y += c[tile][1], sum.z += c[tile][2], sum.w += c[tile][3];
                its = sum;
            }
            is_there = true;
        } else {
            add_tiles(of, c);
        }
        clear_tiles(c);
    }
    /* c becomes the sum of all. */
    __device__ __forceinline__ void end(float (&c)[TILES][4]) const {
        if constexpr (SHARED) {
            if (!is_there) return;
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                const float4 its = memory[tile * BLOCK_THREADS];
                c[tile][0] = its.x + c[tile][0], c[tile][1] = its.y + c[tile][1];
                c[tile][2] = its.z + c[tile][2], c[tile][3] = its.w + c[tile][3];
            }
        } else {
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int j = 0; j < 4; j++) c[tile][j] = of[tile][j] + c[tile][j];
        }
    }
};

/* The warps that multiply: codes of a step become numbers while the instructions of the one before work. */
template <typename Steps, typename Walk, typename Store>
__device__ __forceinline__ void packed_bulk_sums(Steps &steps, const unsigned char *ring, float *sums,
                                                 const bulk_barriers &barriers, const Walk &walk, Store store) {
    typedef typename Steps::shape shape;
    constexpr bool WAITS_EARLY = Steps::SETS > 1; /* for the next stage: where grains are short that is faster */
    typename Steps::step_codes a[2];
    bulk_place_in_ring<shape::stages> place;
    bulk_cursor<Walk> at(walk);
    auto come = [&] { /* to the stage at `place` */
                      barrier_wait(barriers.full + place.stage, place.round & 1);
                      return packed_half{ring + place.stage * shape::stage_bytes, 0, at.piece / shape::wide};
    };
    bool is_there = at.next(walk);
    for (int tile = walk.first; tile < walk.tiles; tile += walk.step) {
        float c[Steps::TILES][4] = {};
        packed_total<Steps::TILES, shape::shares_total> total(sums);
        packed_half now = {};
        bool goes_on = is_there && at.tile == tile;
        if (goes_on) steps.unpack(a[0], now = come(), 0);
        while (goes_on) {
            const int turn = at.turn;
            uint64_t *left = nullptr; /* by all instructions but the last ones */
            auto leave = [&] {
                if (left && threadIdx.x % 32 == 0) barrier_arrive(left);
                left = nullptr;
            };
            bool ends_turn = false;
#pragma unroll 1
            while (!ends_turn) {
                const bool ends_stage = now.half == shape::halves - 1;
                uint64_t *const empty = barriers.empty + place.stage;
                packed_half after = {now.stage, 1, now.number};
                if (ends_stage) is_there = at.next(walk), place.next();
                goes_on = is_there && at.tile == tile, ends_turn = !goes_on || at.turn != turn;
                if (WAITS_EARLY && ends_stage && goes_on) after = come();
#pragma unroll
                for (int step = 0; step < Steps::STEPS; step++) {
                    steps.multiply(c, a[step % 2], now, step);
                    wgmma_wait<1>(); /* for the one before, whose codes had the registers of the next */
                    if (Steps::SETS > 1 && step > 0) steps.add(c, now, step - 1);
                    if (step == 0) leave();
                    if (step + 1 < Steps::STEPS) {
                        steps.unpack(a[(step + 1) % 2], now, step + 1);
                    } else if (goes_on) {
                        if (!WAITS_EARLY && ends_stage) after = come();
                        steps.unpack(a[0], after, 0);
                    }
                    if (Steps::SETS == 1 && steps.ends_grain(step)) {
                        wgmma_wait();
                        steps.add(c, now, step);
                    }
                }
                if (Steps::SETS > 1) {
                    wgmma_wait();
                    steps.add(c, now, Steps::STEPS - 1);
                }
                if (ends_stage) {
                    left = empty;
                    if (shape::grains::has_scales) { /* the last instructions too */
                        __syncwarp();
                        leave();
                    }
                }
                now = after;
            }
            wgmma_wait();
            show_tiles(c);
            leave();
            if (goes_on) total.add(c);
        }
        total.end(c);
        store(c, tile);
    }
}
#endif

template <typename T, typename Kind, int COLUMNS, typename Map, typename Out>
__global__ void __launch_bounds__(packed_bulk<Kind, COLUMNS>::threads, packed_bulk<Kind, COLUMNS>::blocks)
    packed_bulk_kernel(const __grid_constant__ bulk_maps maps, packed_rows<T, Kind, Map> weights, int groups,
                       bulk_tokens tokens, int k, narrow_cut cut, int cuts, bulk_order order, packed_bulk_memory memory,
                       Out out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef packed_bulk<Kind, COLUMNS> shape;
    typedef multiplied_as<T, Kind> as;
    extern __shared__ __align__(1024) unsigned char bulk_memory[];
    unsigned char *ring = bulk_memory;
    uint64_t *full = (uint64_t *)(ring + shape::memory_bytes);
    float *factors = (float *)(full + 16);
    const bulk_barriers barriers = {full, full + shape::stages};
    next_may_start();
    if (threadIdx.x == 0) bulk_barriers_init(barriers, shape::stages, 1 + 128);
    __syncthreads();
    const bulk_walk<shape> walk(cuts, groups, BULK_GROUPS, tokens, k,
                                cut.pieces * (shape::grains::piece / PRODUCT_PIECE));
    if (threadIdx.x >= BLOCK_THREADS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(shape::copy_registers));
        packed_bulk_copies<shape>(ring, barriers, maps, weights, order, memory.ones, walk);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(shape::registers));
    auto factor_of = [&](int tile, int r) {
        const row_place place = weights.map.at(walk.group(tile) + r / PRODUCT_ROWS, r % PRODUCT_ROWS);
        return place.matrix < 0 ? 0.0f : of_matrix(weights.of, place.matrix).factors[place.row];
    };
    if (cuts > 1 && threadIdx.x < BULK_ROWS) factors[threadIdx.x] = factor_of(walk.first, threadIdx.x);
    inputs_are_ready();
    packed_bulk_steps<T, Kind, COLUMNS> steps(order, weights.table);
    float *beside = (float *)(ring + shape::ring_bytes);
    packed_bulk_sums(steps, ring, beside, barriers, walk, [&](float(&total)[COLUMNS / 8][4], int tile) {
        const int first_group = walk.group(tile), token = walk.token(tile), count = walk.count_of(token);
        float *sums = cuts > 1 ? (float *)ring : beside;
        /* Of a cut tile the block's share of tokens at once, else all of them, some at a time. */
        bulk_share share = {0, count};
        if (cuts > 1) {
            share = bulk_exchange_sums<shape, BULK_CUTS>(sums, total, memory.exchange, tile, BULK_GROUPS, count);
        } else {
            const int r = threadIdx.x / 32 * PRODUCT_ROWS + threadIdx.x % 32 / 4;
            const float factor[2] = {factor_of(tile, r), factor_of(tile, r + 8)};
#pragma unroll
            for (int i = 0; i < COLUMNS / 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) total[i][j] = times_factor<as>(total[i][j], factor[j / 2]);
        }
        if constexpr (Out::makes_rows)
            if (cuts == 1) return bulk_store_rows<shape>(sums, total, first_group, BULK_GROUPS, token, count, out);
        const own_number<BULK_GROUPS, Out> own(out, first_group);
        const int most = cuts > 1 ? COLUMNS : shape::stored;
#pragma unroll 1
        for (int done = 0; done < share.count; done += most) {
            if (!Out::makes_rows && cuts == 1) bulk_put_some<shape>(sums, total, done);
            bulk_finish<shape>(sums + share.first * shape::stride, own, token + share.first + done,
                               min(share.count - done, most), out,
                               [&](float sum, int r) { return cuts > 1 ? times_factor<as>(sum, factors[r]) : sum; });
        }
    });
#endif
}

/* --- launches ----------------------------------------------------------------------------------------------- */

/* Does it take a product that the narrow one may leave to it? If so, *memory is what it exchanges by. */
template <typename T, typename Kind, typename Map>
static bool is_packed_bulk(const struct stream *s, int groups, int tokens, int k, const packed_rows<T, Kind, Map> &rows,
                           packed_bulk_memory *memory) {
    typedef packed_grains<Kind, 2> grains;
    /* From 9 tokens on outputs that are some turns of blocks, such as heads, where grains are long: the others lose by it. */
    const bool is_few = is_narrow(s, groups, tokens),
               takes_few = tokens > 8 && grains::is_long && grains::has_scales && rows.in_order &&
                           ceil_div(groups, BULK_GROUPS) >= 3 * cuda_multiprocessors(s->device);
    if (!Map::takes_many_packed || !cuda_has_wgmma(s->device) || !cuda_exchange(s) || (is_few && !takes_few) ||
        rows.map.order(BULK_GROUPS).box == 0)
        return false;
    const size_t of_a_token = grains::has_ones ? (size_t)packed_token_parts(k) * (PACKED_HALF / grains::columns) : 0;
    memory->exchange = exchange_of(s);
    for (int columns : {128, 64, 32}) {
        const size_t parts = rows.in_order ? 0 : columns * bulk_exchanged(groups, BULK_CUTS),
                     ones = (size_t)ceil_div(tokens, columns) * columns * of_a_token;
        if (columns > 64 && !grains::is_long) continue;
        /* Long outputs whose sums wait in shared memory: as many chunks of 128 as two of 64 each would be. */
        if (columns > 64 && grains::has_scales && rows.in_order && ceil_div(tokens, 64) % 2 != 0) continue;
        if (columns > 32 && tokens <= columns / 2) continue;
        memory->ones = memory->exchange.parts + parts, memory->columns = columns;
        memory->chunk = bulk_chunk(tokens, columns);
        if ((rows.in_order || ceil_div(groups, BULK_GROUPS) <= BULK_TILES_CUT) &&
            (parts + ones) * sizeof(float) + BULK_TILES_CUT * sizeof(unsigned) <= CUDA_EXCHANGE_BYTES)
            return true;
    }
    return false;
}

/* Are its tokens in ORDER_SPREAD, if they are made for it, and else by packed_tokens_kernel, which makes more of some? */
template <typename Kind> static bool spreads(const struct weight *w) {
    return !packed_order_of(w) && !Kind::minima;
}

template <int COLUMNS, typename T, typename Kind, typename Map, typename Out>
static int launch_packed_columns(struct stream *s, const char *name, int groups, int tokens, int k, const T *x,
                                 std::initializer_list<const struct weight *> weights,
                                 const packed_rows<T, Kind, Map> &rows, const packed_bulk_memory &memory,
                                 const Out &out) {
    typedef packed_bulk<Kind, COLUMNS> shape;
    const bool is_bf16 = std::is_same<T, bf16>::value;
    const bulk_order order = rows.map.order(BULK_GROUPS);
    struct bulk_maps maps;
    TRY(cuda_tensor_map(&maps.tokens, x, is_bf16, tokens, k, PRODUCT_PIECE, memory.chunk));
    int i = 0;
    for (const struct weight *w : weights) {
        const packed_matrix &m = rows.of[i];
        if (m.codes)
            TRY(cuda_tensor_map(&maps.weights[i], m.codes, is_bf16, w->rows, m.row_bytes / 2, shape::row_bytes / 2,
                                order.box));
        i++;
    }
    auto kernel = packed_bulk_kernel<T, Kind, COLUMNS, Map, Out>;
    const narrow_cut cut = packed_stream<T, Kind>::cut(groups, k, 0);
    const int cuts = rows.in_order ? 1 : BULK_CUTS, tiles = ceil_div(groups, BULK_GROUPS),
              step = cuts > 1 ? memory.chunk : tokens,
              blocks = cuts > 1 ? tiles * cuts
                                : min(tiles * ceil_div(tokens, memory.chunk),
                                      shape::blocks * cuda_multiprocessors(s->device));
    for (int first = 0; first < tokens; first += step) {
        launch_sharing(s, kernel, dim3(blocks), shape::threads, shape::bytes, 1, bulk_percent(s, blocks, shape::bytes),
                       maps, rows, groups, bulk_tokens{first / memory.chunk, min(tokens, first + step), memory.chunk},
                       k, cut, cuts, order, memory, out);
        TRY(cuda_launched(s, name, sizeof maps + sizeof rows + sizeof out + sizeof memory + 44));
    }
    return 0;
}

/* How blocks that make its tokens lie: one a multiprocessor, but norms so that half of these are left to its own. */
static constexpr struct spread PACKED_SPREAD = {14 /* 32 KB */, 1};
static struct spread packed_norm_spread(const struct stream *s, int tokens) {
    const int each = spread_each(s, tokens);
    return {PACKED_SPREAD.percent * each, each};
}

/* Of a kind with minima the norm of tokens, made as such a product takes them. */
template <typename T, typename Kind>
static int packed_norm(struct stream *s, const norm_rows<T> &rows, T *y, int tokens, int k,
                       const packed_bulk_memory &memory) {
    auto kernel = packed_norm_kernel<T, packed_grains<Kind, 2>::columns, typename multiplied_as<T, Kind>::tokens>;
    const struct spread spread = packed_norm_spread(s, tokens);
    const size_t shared = spread_bytes(spread, norm_bytes(k));
    launch_sharing(s, kernel, dim3(tokens), BLOCK_THREADS, shared, 1, spread.percent, rows, y, k, memory);
    return cuda_launched(s, "packed norm", sizeof rows + sizeof memory + 12);
}

/* A product that is_packed_bulk; is_spread: x is in the order that it is left in. */
template <typename T, typename Kind, typename Map, typename Out>
static int launch_packed_bulk(struct stream *s, const char *name, int groups, int tokens, int k, T *x, bool is_spread,
                              std::initializer_list<const struct weight *> weights,
                              const packed_rows<T, Kind, Map> &rows, const packed_bulk_memory &memory, const Out &out) {
    if (!is_spread) {
        constexpr int GRAIN = Kind::minima ? packed_grains<Kind, 2>::columns : 0;
        const int warps = ceil_div(tokens, memory.chunk) * (memory.chunk / 8) * packed_token_parts(k);
        launch_sharing(s, packed_tokens_kernel<T, GRAIN, typename multiplied_as<T, Kind>::tokens>,
                       dim3(ceil_div(warps, BLOCK_THREADS / 32)), BLOCK_THREADS, spread_bytes(PACKED_SPREAD, 0), 1,
                       PACKED_SPREAD.percent, x, tokens, k, memory);
        TRY(cuda_launched(s, "packed tokens", sizeof memory + 16));
    }
    if constexpr (packed_grains<Kind, 2>::is_long)
        if (memory.columns > 64)
            return launch_packed_columns<128>(s, name, groups, tokens, k, x, weights, rows, memory, out);
    if (memory.columns <= 32)
        return launch_packed_columns<32>(s, name, groups, tokens, k, x, weights, rows, memory, out);
    return launch_packed_columns<64>(s, name, groups, tokens, k, x, weights, rows, memory, out);
}

#endif
