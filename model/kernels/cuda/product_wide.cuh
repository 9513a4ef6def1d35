/* The product for many tokens: weights and tokens through shared memory. See product.cuh.
 *
 * A cluster of 8 blocks owns 128 weight rows, a block one split of k. Pieces of the weights [128, 64] and of the tokens
 * [TILES * 8, 64] pass through a ring in shared memory; the first weights are on their way before the block waits for the
 * tokens. Warp (i, j) of 4 x 2 owns 32 rows and half of the tokens. In the ring the 16-byte chunks of odd rows are swapped by
 * halves, so that no two lanes meet in a bank. Bytes: O K 2 of weights a chunk of TILES * 8 tokens; x from L2, TILES / 16 of
 * that. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_WIDE_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_WIDE_CUH

#include "model/kernels/cuda/product_cluster.cuh"

/* The ring of one block, which later holds its sums. */
template <int TILES> struct wide {
    static constexpr int rows = 128, columns = TILES * 8, threads = BLOCK_THREADS;
    static constexpr int blocks = TILES <= 4 ? 3 : TILES <= 16 ? 2 : 1; /* a multiprocessor */
    static constexpr int stages = TILES == 4 || TILES == 16 ? 3 : 4;
    static constexpr int stage_bytes = (rows + columns) * PRODUCT_PIECE * 2, ring_bytes = stages * stage_bytes;
    static_assert(cluster_sums<columns, rows>::bytes <= ring_bytes, "the sums fit in the ring");
};

/* One piece of k: 32 weight rows from `row` by half of the tokens from `column`. */
template <typename T, int TILES>
__device__ __forceinline__ void wide_multiply(float (&c)[2][TILES / 2][4], unsigned char *weights,
                                              unsigned char *tokens, int row, int column, int part) {
    constexpr int HALF = TILES / 2, BATCH = HALF < 4 ? HALF : 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint4 low[2], high[2];
#pragma unroll
        for (int g = 0; g < 2; g++) {
            low[g] = *ring_chunk(weights, row + g * 16, h * 4 + part);
            high[g] = *ring_chunk(weights, row + g * 16 + 8, h * 4 + part);
        }
#pragma unroll
        for (int first = 0; first < HALF; first += BATCH) {
            uint4 b[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++) b[i] = *ring_chunk(tokens, column + (first + i) * 8, h * 4 + part);
#pragma unroll
            for (int second = 0; second < 2; second++)
#pragma unroll
                for (int i = 0; i < BATCH; i++)
#pragma unroll
                    for (int g = 0; g < 2; g++) mma_half<T>(c[g][first + i], low[g], high[g], b[i], second);
        }
    }
}

#if __CUDA_ARCH__ >= 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
/* The product of a block: `tokens` (tokens_in_order); before(), called when the first weights are on their way, waits for what
 * they are. */
template <typename T, int TILES, typename Rows, typename Tokens, typename Before, typename Out>
__device__ __forceinline__ void wide_product(unsigned char *ring, const Rows &weights, int first_group, int split,
                                             const split_share &share, const Tokens &tokens, int k, Before before,
                                             const Out &out) {
    typedef wide<TILES> shape;
    constexpr int STAGES = shape::stages, HALF = TILES / 2, COPY_ROWS = shape::threads / RING_CHUNKS;
    const int pieces = piece_count(k);
    const int chunk = threadIdx.x % RING_CHUNKS, copy_row = threadIdx.x / RING_CHUNKS;
    const weight_copies<T, shape> copies(weights, first_group, share);
    auto copy_tokens = [&](int piece) {
        unsigned char *to = ring + piece % STAGES * shape::stage_bytes + shape::rows * PRODUCT_PIECE * 2;
#pragma unroll
        for (int i = 0; i < shape::columns / COPY_ROWS; i++) {
            const int column = copy_row + i * COPY_ROWS;
            const bool wanted = column < tokens.count(shape::columns) && piece < share.inside;
            copy_async_ahead(ring_chunk(to, column, chunk), tokens.find(i, piece), wanted);
        }
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) copies.copy(ring, i);
    before();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        copy_tokens(i);
        copies_commit_group();
    }

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, part = lane % 4;
    const int my_row = warp % 4 * 32 + row, my_column = warp / 4 * HALF * 8 + row;
    float c[2][HALF][4] = {};
    for (int piece = 0; piece < pieces; piece++) {
        copies_wait_group<STAGES - 2>();
        __syncthreads();
        copies.copy(ring, piece + STAGES - 1);
        copy_tokens(piece + STAGES - 1);
        copies_commit_group();
        unsigned char *stage = ring + piece % STAGES * shape::stage_bytes;
        wide_multiply<T, TILES>(c, stage, stage + shape::rows * PRODUCT_PIECE * 2, my_row, my_column, part);
    }

    copies_wait_group<0>();
    __syncthreads();
    cluster_sums<shape::columns, shape::rows> sums(ring);
#pragma unroll
    for (int g = 0; g < 2; g++)
#pragma unroll
        for (int tile = 0; tile < HALF; tile++)
            sums.put(my_row + g * 16, (warp / 4 * HALF + tile) * 8 + part * 2, c[g][tile]);
    sums.store(split, first_group, tokens.first, tokens.count(shape::columns), out);
}
#endif

template <typename T, int TILES, typename Rows, typename Out>
__global__ void __launch_bounds__(BLOCK_THREADS, wide<TILES>::blocks)
    wide_product_kernel(Rows weights, const T *x, int tokens, int k, Out out) {
#if __CUDA_ARCH__ >= 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    typedef wide<TILES> shape;
    extern __shared__ __align__(128) unsigned char ring[];
    const int split = blockIdx.x % PRODUCT_SPLITS,
              first_group = blockIdx.x / PRODUCT_SPLITS * (shape::rows / PRODUCT_ROWS);
    const split_share share(split, k);
    const tokens_in_order<T, shape::threads / RING_CHUNKS> mine(x, (int)blockIdx.y * shape::columns, tokens, k, share);
    next_may_start();
    wide_product<T, TILES>(
        ring, weights, first_group, split, share, mine, k, [] { inputs_are_ready(); }, out);
#endif
}

template <typename T, int TILES, typename Rows, typename Out>
static int launch_wide(struct stream *s, int groups, int tokens, int k, const T *x, Rows rows, Out out) {
    return launch_clusters<wide<TILES>>(s, wide_product_kernel<T, TILES, Rows, Out>, groups, tokens, k, x, rows, out);
}

#endif
