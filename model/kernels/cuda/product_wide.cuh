/* The product for many tokens: weights and tokens through shared memory. See product.cuh.
 *
 * A cluster of 8 blocks owns 128 weight rows, a block one split of k. Pieces of the weights [128, 64] and of the tokens
 * [TILES * 8, 64] pass through a ring in shared memory; the first weights are on their way before the block waits for the tokens.
 * Warp (i, j) of 4 x 2 owns 32 rows and half of the tokens. At the end block r adds the splits of rows 16 r .. 16 r + 15 out of the
 * shared memory of all blocks. In the ring the 16-byte chunks of odd rows are swapped by halves, so that no two lanes meet in a
 * bank. Bytes: O K 2 of weights a chunk of TILES * 8 tokens; x from L2, TILES / 16 of that. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_WIDE_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_WIDE_CUH

#include <cooperative_groups.h>

#include "model/kernels/cuda/product_mma.cuh"

enum { WIDE_ROWS = 128, WIDE_CHUNKS = PRODUCT_PIECE / 8, WIDE_COPY_ROWS = PRODUCT_THREADS / WIDE_CHUNKS };

/* Bytes of one block: the ring, which later holds the sums [WIDE_ROWS][columns + 8], and the added sums [16][columns + 1]. */
template <int TILES> struct wide {
    static constexpr int columns = TILES * 8, stride = columns + 8, stages = TILES == 16 ? 3 : 4;
    static constexpr int stage_bytes = (WIDE_ROWS + columns) * PRODUCT_PIECE * 2;
    static constexpr int ring_bytes = stages * stage_bytes;
    static constexpr int shared_bytes = ring_bytes + PRODUCT_ROWS * (columns + 1) * 4;
    static_assert(WIDE_ROWS * stride * 4 <= ring_bytes, "the sums fit in the ring");
};

__device__ __forceinline__ void copy_async(void *shared, const void *from, bool wanted) {
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
        "l"(from), "r"(wanted ? 16 : 0)
        : "memory");
}
__device__ __forceinline__ void copies_end_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ uint4 *wide_chunk(unsigned char *matrix, int row, int chunk) {
    return reinterpret_cast<uint4 *>(matrix) + row * WIDE_CHUNKS + (chunk ^ (row % 2 * 4));
}

template <typename T, int TILES, typename Rows, typename Out>
__global__ void __launch_bounds__(PRODUCT_THREADS, TILES <= 16 ? 2 : 1)
    wide_product_kernel(Rows weights, const T *x, int tokens, int k, Out out) {
#if __CUDA_ARCH__ >= 900
    typedef wide<TILES> shape;
    constexpr int STAGES = shape::stages, HALF = TILES / 2, BATCH = HALF < 4 ? HALF : 4;
    extern __shared__ __align__(128) unsigned char ring[];
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    const int split = blockIdx.x % PRODUCT_SPLITS,
              first_group = blockIdx.x / PRODUCT_SPLITS * (WIDE_ROWS / PRODUCT_ROWS);
    const int first_token = blockIdx.y * shape::columns;
    const int pieces = piece_count(k);
    const int chunk = threadIdx.x % WIDE_CHUNKS, copy_row = threadIdx.x / WIDE_CHUNKS;

    const T *from[WIDE_ROWS / WIDE_COPY_ROWS];
#pragma unroll
    for (int i = 0; i < WIDE_ROWS / WIDE_COPY_ROWS; i++) {
        int r = copy_row + i * WIDE_COPY_ROWS;
        from[i] = weights.row(first_group + r / PRODUCT_ROWS, r % PRODUCT_ROWS);
    }
    auto copy_weights = [&](int piece) {
        int at = piece_start(split, piece) + chunk * 8;
        unsigned char *to = ring + piece % STAGES * shape::stage_bytes;
#pragma unroll
        for (int i = 0; i < WIDE_ROWS / WIDE_COPY_ROWS; i++) {
            bool wanted = from[i] && at < k;
            copy_async(wide_chunk(to, copy_row + i * WIDE_COPY_ROWS, chunk), wanted ? from[i] + at : x, wanted);
        }
    };
    auto copy_tokens = [&](int piece) {
        int at = piece_start(split, piece) + chunk * 8;
        unsigned char *to = ring + piece % STAGES * shape::stage_bytes + WIDE_ROWS * PRODUCT_PIECE * 2;
#pragma unroll
        for (int i = 0; i < shape::columns / WIDE_COPY_ROWS; i++) {
            int column = copy_row + i * WIDE_COPY_ROWS, token = first_token + column;
            bool wanted = token < tokens && at < k;
            copy_async(wide_chunk(to, column, chunk), wanted ? x + (size_t)token * k + at : x, wanted);
        }
    };
    next_may_start();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) copy_weights(i);
    inputs_are_ready();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        copy_tokens(i);
        copies_end_group();
    }

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, part = lane % 4;
    const int my_row = warp % 4 * 32 + row, my_column = warp / 4 * HALF * 8 + row;
    float c[2][HALF][4] = {};
    for (int piece = 0; piece < pieces; piece++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        copy_weights(piece + STAGES - 1);
        copy_tokens(piece + STAGES - 1);
        copies_end_group();
        unsigned char *w = ring + piece % STAGES * shape::stage_bytes, *t = w + WIDE_ROWS * PRODUCT_PIECE * 2;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint4 low[2], high[2];
#pragma unroll
            for (int g = 0; g < 2; g++) {
                low[g] = *wide_chunk(w, my_row + g * 16, h * 4 + part);
                high[g] = *wide_chunk(w, my_row + g * 16 + 8, h * 4 + part);
            }
#pragma unroll
            for (int first = 0; first < HALF; first += BATCH) {
                uint4 b[BATCH];
#pragma unroll
                for (int i = 0; i < BATCH; i++) b[i] = *wide_chunk(t, my_column + (first + i) * 8, h * 4 + part);
#pragma unroll
                for (int second = 0; second < 2; second++)
#pragma unroll
                    for (int i = 0; i < BATCH; i++)
#pragma unroll
                        for (int g = 0; g < 2; g++) mma_half<T>(c[g][first + i], low[g], high[g], b[i], second);
            }
        }
    }

    copies_wait<0>();
    __syncthreads();
    float *sums = reinterpret_cast<float *>(ring);
#pragma unroll
    for (int g = 0; g < 2; g++)
#pragma unroll
        for (int tile = 0; tile < HALF; tile++)
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                float *to = sums + (my_row + g * 16 + j * 4) * shape::stride + (warp / 4 * HALF + tile) * 8 + part * 2;
                *reinterpret_cast<float2 *>(to) = make_float2(c[g][tile][j], c[g][tile][j + 1]);
            }
    cluster.sync();
    auto *added = reinterpret_cast<float(*)[shape::columns + 1]>(ring + shape::ring_bytes);
    for (int i = threadIdx.x; i < PRODUCT_ROWS * shape::columns; i += PRODUCT_THREADS) {
        int r = i / shape::columns, column = i % shape::columns;
        float *cell = sums + (split * PRODUCT_ROWS + r) * shape::stride + column;
        added[r][column] = add_splits([&](int other) { return *cluster.map_shared_rank(cell, other); });
    }
    cluster.sync(); /* nobody leaves while others read its sums */
    out.template store<shape::columns + 1>(first_group + split, added, first_token,
                                           min(tokens - first_token, shape::columns));
#endif
}

template <typename T, int TILES, typename Rows, typename Out>
static int launch_wide(struct stream *s, int groups, int tokens, int k, const T *x, Rows rows, Out out) {
    typedef wide<TILES> shape;
    auto kernel = wide_product_kernel<T, TILES, Rows, Out>;
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape::shared_bytes));
    const int per_cluster = WIDE_ROWS / PRODUCT_ROWS;
    dim3 grid((groups + per_cluster - 1) / per_cluster * PRODUCT_SPLITS,
              (tokens + shape::columns - 1) / shape::columns);
    launch_dependent(s, kernel, grid, PRODUCT_THREADS, shape::shared_bytes, PRODUCT_SPLITS, rows, x, tokens, k, out);
    return 0;
}

#endif
