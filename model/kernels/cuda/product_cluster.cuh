/* What products by clusters of 8 blocks share, each block with one split of k: pieces in a ring, and the sums. See product.cuh. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_CLUSTER_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_CLUSTER_CUH

#include <cooperative_groups.h>

#include "model/kernels/cuda/product_mma.cuh"

enum { RING_CHUNKS = PRODUCT_PIECE / 8 };

/* 16 bytes of a piece of rows: of odd rows in halves that are swapped, so that no two lanes of mma_half meet in a bank. */
__device__ __forceinline__ uint4 *ring_chunk(unsigned char *matrix, int row, int chunk) {
    return reinterpret_cast<uint4 *>(matrix) + row * RING_CHUNKS + (chunk ^ (row % 2 * 4));
}

/* Block r adds the groups r, r + 8, ... of 16 weight rows of ROWS, out of the shared memory of all. */
template <int COLUMNS, int ROWS> struct cluster_sums {
    static constexpr int stride = COLUMNS + 8, groups = ROWS / PRODUCT_ROWS;
    static constexpr int part_bytes = ROWS * stride * 4, bytes = part_bytes + PRODUCT_ROWS * (COLUMNS + 1) * 4;
    static_assert(groups >= PRODUCT_SPLITS, "every block has a group");
    float *parts;                /* [ROWS][stride] of this block's split */
    float (*added)[COLUMNS + 1]; /* [PRODUCT_ROWS] */

#if __CUDA_ARCH__ >= 900
    __device__ explicit cluster_sums(unsigned char *memory)
        : parts(reinterpret_cast<float *>(memory)),
          added(reinterpret_cast<float (*)[COLUMNS + 1]>(memory + part_bytes)) {}
    /* A lane's four sums of one tile: rows `row` and `row + 8`, two columns. */
    __device__ __forceinline__ void put(int row, int column, const float (&c)[4]) {
#pragma unroll
        for (int j = 0; j < 4; j += 2)
            *reinterpret_cast<float2 *>(parts + (row + j * 4) * stride + column) = make_float2(c[j], c[j + 1]);
    }
    /* After all threads of all blocks have put. Nobody's parts are read once it returns. */
    template <typename Out>
    __device__ __forceinline__ void store(int rank, int first_group, int first_token, int tokens, Out out) {
        cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
        cluster.sync();
        for (int group = rank; group < groups; group += PRODUCT_SPLITS) {
            if (group != rank) __syncthreads();
#pragma unroll 4
            for (int i = threadIdx.x; i < PRODUCT_ROWS * COLUMNS; i += blockDim.x) {
                float *cell = parts + (group * PRODUCT_ROWS + i / COLUMNS) * stride + i % COLUMNS;
                added[i / COLUMNS][i % COLUMNS] =
                    add_splits([&](int other) { return *cluster.map_shared_rank(cell, other); });
            }
            if (group + PRODUCT_SPLITS < groups)
                __syncthreads();
            else
                cluster.sync();
            out.store(first_group + group, first_token, tokens, [&](int r, int token) { return added[r][token]; });
        }
    }
#endif
};

/* Launches a product by clusters whose blocks have the Shape's rows, columns, threads and ring. */
template <typename Shape, typename T, typename Rows, typename Out>
static int launch_clusters(struct stream *s, void (*kernel)(Rows, const T *, int, int, Out), int groups, int tokens,
                           int k, const T *x, Rows rows, Out out) {
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::ring_bytes));
    const int per_cluster = Shape::rows / PRODUCT_ROWS;
    dim3 grid((groups + per_cluster - 1) / per_cluster * PRODUCT_SPLITS,
              (tokens + Shape::columns - 1) / Shape::columns);
    launch_dependent(s, kernel, grid, Shape::threads, Shape::ring_bytes, PRODUCT_SPLITS, rows, x, tokens, k, out);
    return 0;
}

#endif
