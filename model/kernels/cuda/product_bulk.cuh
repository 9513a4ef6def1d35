/* The product of many tokens for long outputs on Hopper: weights and tokens by the copy engine, sums by wgmma. See product.cuh.
 *
 * A block owns 128 weight rows and COLUMNS tokens at a time and walks over tiles. One warp asks the copy engine for pieces of 64
 * of k, into a ring in shared memory; two groups of 4 warps multiply, each 64 rows by all columns. Weights go from the ring to
 * registers, 16 bytes a lane for two instructions as in mma_half; tokens, which lie transposed (product_order.cuh), are read by
 * the instruction itself. The sums of a split of k are added to those before it when it ends, so blocks exchange nothing; narrow
 * products of such outputs add in the same order. Two blocks of a cluster, with rows of their own, share the tokens' copies. On
 * Hopper wgmma and mma add 16 products by the same arithmetic, whatever their order: terms are cut off 25 bits below the
 * largest, then added (measured by P. Xie et al., MMA-Sim, arXiv 2511.10909). Bytes: O K 2 of weights a chunk of COLUMNS tokens;
 * x from L2, COLUMNS / 256 of that. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_BULK_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_BULK_CUH

#include <cooperative_groups.h>

#include "model/kernels/cuda/product_mma.cuh"
#include "model/kernels/cuda/product_order.cuh"
#include "model/kernels/cuda/tensor_map.h"
#include "model/kernels/cuda/tiles.cuh"
#include "model/kernels/cuda/wgmma.cuh"

enum {
    BULK_ROWS = 128,
    BULK_GROUPS = BULK_ROWS / PRODUCT_ROWS,
    BULK_ATOM = PRODUCT_HALF, /* rows of one swizzle; half of a group */
    BULK_ATOM_BYTES = BULK_ATOM * PRODUCT_PIECE * 2,
    BULK_SHARERS = 2 /* blocks of a cluster that share copies of tokens */
};

/* Where the copy engine finds rows: in a matrix of bulk_maps, from a row on; one past the last for zeros. */
struct bulk_place {
    int matrix, row;
};
struct bulk_maps {
    CUtensorMap tokens, weights[2];
};

/* How the halves of the groups of a tile follow each other in the ring: `fold` first halves, then their second ones. So many rows that
 * follow each other are copied at once: `box`. */
struct bulk_order {
    int fold, box;
    __device__ __forceinline__ int atom(int group, int half) const {
        return group / fold * 2 * fold + half * fold + group % fold;
    }
    __device__ __forceinline__ int group(int atom) const { return atom / (2 * fold) * fold + atom % fold; }
    __device__ __forceinline__ int half(int atom) const { return atom / fold % 2; }
};

template <int COLUMNS> struct bulk {
    static constexpr int blocks = COLUMNS <= 64 ? 2 : 1; /* a multiprocessor */
    /* The first BLOCK_THREADS multiply, the next warp copies. Registers are moved by groups of 4 warps. */
    static constexpr bool moves_registers = blocks == 1;
    static constexpr int threads = BLOCK_THREADS + (moves_registers ? 128 : 32);
    static constexpr int token_bytes = COLUMNS * PRODUCT_PIECE * 2, weight_bytes = BULK_ROWS * PRODUCT_PIECE * 2,
                         stage_bytes = weight_bytes + token_bytes;
    /* Sums on their way out: some columns of all rows, beside the ring. */
    static constexpr int stored = COLUMNS <= 64 ? 32 : 64, stride = stored + 8, sums_bytes = BULK_ROWS * stride * 4;
    static constexpr int room = blocks == 2 ? 113 << 10 : 226 << 10, barrier_bytes = 256, align = 1024;
    static constexpr int most = (room - align - barrier_bytes - sums_bytes) / stage_bytes, stages = most < 8 ? most : 8,
                         ring_bytes = stages * stage_bytes, bytes = align + barrier_bytes + ring_bytes + sums_bytes;
    static_assert(stages >= 3 && bytes <= room, "a ring, and the sums");
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* --- barriers and copies ---------------------------------------------------------------------------------- */

__device__ __forceinline__ void barrier_init(uint64_t *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/* This thread arrives, and so will `bytes` of copies. */
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
/* At the barrier of a block of the cluster. */
__device__ __forceinline__ void barrier_arrive_at(uint64_t *barrier, int rank) {
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(shared_address(barrier)),
                 "r"(rank)
                 : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, int parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}
/* Box (x, y) of a map, x along its rows; in all blocks of the cluster to the same place, and told to the barrier of each. */
__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *map, int x, int y, uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];" ::"r"(shared_address(to)),
                 "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier))
                 : "memory");
}
__device__ __forceinline__ void copy_box_to_all(void *to, const CUtensorMap *map, int x, int y, uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)), "h"((uint16_t)((1 << BULK_SHARERS) - 1))
                 : "memory");
}

/* --- a block's share --------------------------------------------------------------------------------------- */

/* Which tiles a block walks over: units of the rows of all sharers by a chunk of tokens. */
struct bulk_walk {
    int rank, first, step, units, chunks;
    int pieces, split_pieces; /* of 64 of k, of all; of a split */
    __device__ bulk_walk(int groups, int tokens, int columns, int k) {
        rank = blockIdx.x % BULK_SHARERS, first = blockIdx.x / BULK_SHARERS, step = gridDim.x / BULK_SHARERS;
        chunks = ceil_div(tokens, columns);
        units = ceil_div(ceil_div(groups, BULK_GROUPS), BULK_SHARERS) * chunks;
        pieces = ceil_div(k, PRODUCT_PIECE), split_pieces = piece_count(k);
    }
    __device__ __forceinline__ int group(int unit) const { return (unit / chunks * BULK_SHARERS + rank) * BULK_GROUPS; }
    __device__ __forceinline__ int token(int unit, int columns) const { return unit % chunks * columns; }
    __device__ __forceinline__ int mine() const { return first < units ? (units - first + step - 1) / step : 0; }
};

/* The warp that copies. Weights are asked for before the block may read tokens. */
template <int COLUMNS, typename Rows>
__device__ __forceinline__ void bulk_copies(unsigned char *ring, uint64_t *full, uint64_t *empty, const bulk_maps &maps,
                                            const Rows &weights, const bulk_order &order, const bulk_walk &walk) {
    typedef bulk<COLUMNS> shape;
    constexpr int EACH = COLUMNS / BULK_SHARERS;
    const int lane = threadIdx.x % 32, atoms = order.box / BULK_ATOM;
    auto copy_weights = [&](int unit, int piece, int stage) {
        if (lane == 0) barrier_expect(full + stage, shape::stage_bytes);
        __syncwarp();
        if (lane >= BULK_ROWS / order.box) return;
        const int atom = lane * atoms;
        const bulk_place at = weights.place(walk.group(unit) + order.group(atom), order.half(atom));
        copy_box(ring + stage * shape::stage_bytes + atom * BULK_ATOM_BYTES, &maps.weights[at.matrix],
                 piece * PRODUCT_PIECE, at.row, full + stage);
    };
    auto copy_tokens = [&](int unit, int piece, int stage) {
        unsigned char *to = ring + stage * shape::stage_bytes + shape::weight_bytes;
        if (lane == 0)
            copy_box_to_all(to + walk.rank * EACH * PRODUCT_PIECE * 2, &maps.tokens, piece * PRODUCT_PIECE,
                            walk.token(unit, COLUMNS) + walk.rank * EACH, full + stage);
    };
    const int early = min(walk.mine() * walk.pieces, shape::stages);
    auto unit_of = [&](int g) { return walk.first + g / walk.pieces * walk.step; };
    for (int g = 0; g < early; g++) copy_weights(unit_of(g), g % walk.pieces, g);
    inputs_are_ready();
    asm volatile("fence.proxy.async;" ::: "memory"); /* ordinary stores made the tokens */
    for (int g = 0; g < early; g++) copy_tokens(unit_of(g), g % walk.pieces, g);
    int stage = 0, turn = 0, g = 0;
    for (int unit = walk.first; unit < walk.units; unit += walk.step)
        for (int piece = 0; piece < walk.pieces; piece++, g++) {
            if (g >= early) {
                barrier_wait(empty + stage, (turn & 1) ^ 1);
                copy_weights(unit, piece, stage);
                copy_tokens(unit, piece, stage);
            }
            if (++stage == shape::stages) stage = 0, turn++;
        }
}

/* One piece of k: 64 weight rows by all tokens. `low`, `high`: where the rows of the warp's halves of groups lie. Of odd rows
 * the second half of the piece is read first, so that no two lanes meet in a bank. */
template <typename T, int COLUMNS>
__device__ __forceinline__ void bulk_multiply(float (&c)[COLUMNS / 8][4], const unsigned char *stage, int low,
                                              int high) {
    const int row = threadIdx.x % 32 / 4, part = threadIdx.x % 4, odd = row & 1;
    const uint4 *rows[2] = {(const uint4 *)(stage + low) + row * 8, (const uint4 *)(stage + high) + row * 8};
    uint4 a[2][2]; /* halves of the piece, of groups */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 x = rows[i][(part + odd * 4) ^ row], y = rows[i][(part + (odd ^ 1) * 4) ^ row];
        a[0][i] = odd ? y : x, a[1][i] = odd ? x : y;
    }
    wgmma_begin();
#pragma unroll
    for (int call = 0; call < 4; call++) {
        const uint4 &first = a[call / 2][0], &second = a[call / 2][1];
        const uint32_t halves[2][4] = {{first.x, second.x, first.y, second.y}, {first.z, second.z, first.w, second.w}};
        wgmma(c, halves[call % 2], swizzled_rows(stage + bulk<COLUMNS>::weight_bytes + call * 32), T());
    }
    wgmma_commit();
    wgmma_wait();
}

/* Named barrier of the warps that multiply. */
__device__ __forceinline__ void bulk_sync() {
    asm volatile("bar.sync 1, 256;" ::: "memory");
}

/* A lane's sums of some columns: rows `row` and `row + 8` of its warp's group. */
template <int TILES> __device__ __forceinline__ void bulk_put(float *sums, int stride, const float (*c)[4]) {
    const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, part = threadIdx.x % 4;
    float *to = sums + (warp * PRODUCT_ROWS + row) * stride + part * 2;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int j = 0; j < 4; j += 2)
            *(float2 *)(to + j * 4 * stride + tile * 8) = make_float2(c[tile][j], c[tile][j + 1]);
}

template <int COLUMNS, typename Out>
__device__ __forceinline__ void bulk_store(float *sums, const float (&c)[COLUMNS / 8][4], int first_group,
                                           int first_token, int tokens, const Out &out) {
    typedef bulk<COLUMNS> shape;
#pragma unroll
    for (int first = 0; first < COLUMNS; first += shape::stored) {
        const int count = min(tokens - first_token - first, shape::stored);
        if (count <= 0) return;
        bulk_sync();
        bulk_put<shape::stored / 8>(sums, shape::stride, c + first / 8);
        bulk_sync();
        for (int group = 0; group < BULK_GROUPS; group++) {
            const float *of = sums + group * PRODUCT_ROWS * shape::stride;
            out.store(first_group + group, first_token + first, count,
                      [&](int r, int token) { return of[r * shape::stride + token]; });
        }
    }
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
#endif

template <typename T, int COLUMNS, typename Rows, typename Out>
__global__ void __launch_bounds__(bulk<COLUMNS>::threads, bulk<COLUMNS>::blocks)
    bulk_product_kernel(const __grid_constant__ bulk_maps maps, Rows weights, int groups, int tokens, int k,
                        bulk_order order, Out out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef bulk<COLUMNS> shape;
    extern __shared__ unsigned char bulk_memory[];
    unsigned char *ring =
        (unsigned char *)(((uintptr_t)bulk_memory + shape::align - 1) & ~(uintptr_t)(shape::align - 1));
    float *sums = (float *)(ring + shape::ring_bytes);
    uint64_t *full = (uint64_t *)(ring + shape::ring_bytes + shape::sums_bytes), *empty = full + shape::stages;
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    next_may_start();
    if (threadIdx.x == 0) {
        for (int i = 0; i < shape::stages; i++)
            barrier_init(full + i, 1), barrier_init(empty + i, BLOCK_THREADS / 32 * BULK_SHARERS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster.sync();
    const bulk_walk walk(groups, tokens, COLUMNS, k);
    if (threadIdx.x >= BLOCK_THREADS) {
        if (shape::moves_registers) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x < BLOCK_THREADS + 32)
            bulk_copies<COLUMNS>(ring, full, empty, maps, weights, order, walk);
        else
            inputs_are_ready();
    } else {
        if (shape::moves_registers) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        inputs_are_ready();
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, low = order.atom(warp, 0) * BULK_ATOM_BYTES,
                  high = order.atom(warp, 1) * BULK_ATOM_BYTES;
        int stage = 0, turn = 0;
        for (int unit = walk.first; unit < walk.units; unit += walk.step) {
            float c[COLUMNS / 8][4], total[COLUMNS / 8][4] = {};
            for (int first = 0; first < walk.pieces; first += walk.split_pieces) {
                clear_tiles(c);
                for (int i = min(walk.split_pieces, walk.pieces - first); i > 0; i--) {
                    barrier_wait(full + stage, turn & 1);
                    bulk_multiply<T, COLUMNS>(c, ring + stage * shape::stage_bytes, low, high);
                    if (lane < BULK_SHARERS) barrier_arrive_at(empty + stage, lane);
                    if (++stage == shape::stages) stage = 0, turn++;
                }
                add_tiles(total, c);
            }
            bulk_store<COLUMNS>(sums, total, walk.group(unit), walk.token(unit, COLUMNS), tokens, out);
        }
    }
    cluster.sync(); /* nobody ends before copies to it, and arrivals */
#endif
}

/* `x` is transposed (product_order.cuh). */
template <typename T, int COLUMNS, typename Rows, typename Out>
static int launch_bulk_columns(struct stream *s, int groups, int tokens, int k, const T *x, Rows rows, Out out) {
    typedef bulk<COLUMNS> shape;
    const bool is_bf16 = std::is_same<T, bf16>::value;
    const bulk_order order = rows.order();
    auto kernel = bulk_product_kernel<T, COLUMNS, Rows, Out>;
    struct bulk_maps maps;
    TRY(cuda_tensor_map(&maps.tokens, x, is_bf16, tokens, k, COLUMNS / BULK_SHARERS));
    for (int i = 0; i < 2; i++)
        if (rows.matrix(i)) TRY(cuda_tensor_map(&maps.weights[i], rows.matrix(i), is_bf16, rows.rows, k, order.box));
    const int units = ceil_div(ceil_div(groups, BULK_GROUPS), BULK_SHARERS) * ceil_div(tokens, COLUMNS),
              room = cuda_multiprocessors(s->device) * shape::blocks / BULK_SHARERS;
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape::bytes));
    launch_dependent(s, kernel, dim3(min(units, room) * BULK_SHARERS), shape::threads, shape::bytes, BULK_SHARERS, maps,
                     rows, groups, tokens, k, order, out);
    return 0;
}

template <typename T, typename Rows, typename Out>
static int launch_bulk(struct stream *s, int groups, int tokens, int k, const T *x, Rows rows, Out out) {
    const int columns = ceil_div(tokens, ceil_div(tokens, 192));
    if (columns <= 32) return launch_bulk_columns<T, 32>(s, groups, tokens, k, x, rows, out);
    if (columns <= 64) return launch_bulk_columns<T, 64>(s, groups, tokens, k, x, rows, out);
    if (columns <= 128) return launch_bulk_columns<T, 128>(s, groups, tokens, k, x, rows, out);
    return launch_bulk_columns<T, 192>(s, groups, tokens, k, x, rows, out);
}

#endif
