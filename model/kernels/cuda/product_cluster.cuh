/* What products by clusters of 8 blocks share, each block with one split of k: pieces in a ring, and the sums. See product.cuh. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_CLUSTER_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_CLUSTER_CUH

#include <cooperative_groups.h>

#include "model/kernels/cuda/product_mma.cuh"
#include "model/kernels/cuda/tiles.cuh"

enum { RING_CHUNKS = PRODUCT_PIECE / 8 };

/* 16 bytes of a piece of rows: of odd rows in halves that are swapped, so that no two lanes of mma_half meet in a bank. */
__device__ __forceinline__ uint4 *ring_chunk(unsigned char *matrix, int row, int chunk) {
    return reinterpret_cast<uint4 *>(matrix) + row * RING_CHUNKS + (chunk ^ (row % 2 * 4));
}

/* What a thread copies of pieces of the weights into the ring of a Shape: 16 bytes of every COPY_ROWS-th row. */
template <typename T, typename Shape> struct weight_copies {
    static constexpr int COPY_ROWS = Shape::threads / RING_CHUNKS, COPIES = Shape::rows / COPY_ROWS;
    const T *from[COPIES]; /* NULL: zeros */
    template <typename Rows> __device__ __forceinline__ weight_copies(const Rows &weights, int first_group) {
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int r = threadIdx.x / RING_CHUNKS + i * COPY_ROWS;
            from[i] = weights.row(first_group + r / PRODUCT_ROWS, r % PRODUCT_ROWS);
        }
    }
    /* The numbers of a piece from `at` in k on; `any` is an address that may be read. */
    __device__ __forceinline__ void copy(unsigned char *ring, int piece, int at, int k, const T *any) const {
        unsigned char *to = ring + piece % Shape::stages * Shape::stage_bytes;
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const bool wanted = from[i] && at < k;
            copy_async_ahead(ring_chunk(to, threadIdx.x / RING_CHUNKS + i * COPY_ROWS, threadIdx.x % RING_CHUNKS),
                             wanted ? from[i] + at : any, wanted);
        }
    }
};

/* The tokens [first, first + count) of a product, of which x [.., k] has the rows one after the other: those that a thread
 * copies, `column` and each STEP-th after it. */
template <typename T, int STEP> struct tokens_in_order {
    const T *x;
    int first, end, column, k;
    __device__ __forceinline__ int count(int most) const { return min(end - first, most); }
    /* The i-th at `at` of k. */
    __device__ __forceinline__ const T *find(int i, int at) const {
        const T *its = x + (size_t)(first + column) * k + at;
        return its + (size_t)i * STEP * k;
    }
};

/* Sums of the splits of ROWS weight rows, added out of the shared memory of all blocks of a cluster. The work is cut into units
 * of a group of 16 rows and all or half of the columns, dealt in turn, as many to each block. */
template <int COLUMNS, int ROWS> struct cluster_sums {
    static constexpr int stride = COLUMNS + 8, groups = ROWS / PRODUCT_ROWS,
                         cuts = groups % PRODUCT_SPLITS == 0 ? 1 : 2;
    static constexpr int unit_columns = COLUMNS / cuts, units = groups * cuts / PRODUCT_SPLITS;
    static constexpr int part_bytes = ROWS * stride * 4, added_stride = unit_columns + 4;
    static constexpr int bytes = part_bytes + units * PRODUCT_ROWS * added_stride * 4;
    static_assert(units * PRODUCT_SPLITS == groups * cuts && unit_columns % 4 == 0, "every block has as much");
    float *parts;                               /* [ROWS][stride] of this block's split */
    float (*added)[PRODUCT_ROWS][added_stride]; /* [units] */

#if __CUDA_ARCH__ >= 900
    __device__ explicit cluster_sums(unsigned char *memory)
        : parts(reinterpret_cast<float *>(memory)),
          added(reinterpret_cast<float (*)[PRODUCT_ROWS][added_stride]>(memory + part_bytes)) {}
    /* A lane's four sums of one tile: rows `row` and `row + 8`, two columns. */
    __device__ __forceinline__ void put(int row, int column, const float (&c)[4]) {
#pragma unroll
        for (int j = 0; j < 4; j += 2)
            *reinterpret_cast<float2 *>(parts + (row + j * 4) * stride + column) = make_float2(c[j], c[j + 1]);
    }
    __device__ __forceinline__ void add(int unit, float (*to)[added_stride]) {
        cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
        float *from = parts + unit / cuts * PRODUCT_ROWS * stride + unit % cuts * unit_columns;
#pragma unroll 2
        for (int i = threadIdx.x * 4; i < PRODUCT_ROWS * unit_columns; i += blockDim.x * 4) {
            const int row = i / unit_columns, column = i % unit_columns;
            float4 of[PRODUCT_SPLITS];
#pragma unroll
            for (int split = 0; split < PRODUCT_SPLITS; split++)
                of[split] = *reinterpret_cast<float4 *>(cluster.map_shared_rank(from + row * stride + column, split));
            *reinterpret_cast<float4 *>(&to[row][column]) = make_float4(
                add_splits([&](int split) { return of[split].x; }), add_splits([&](int split) { return of[split].y; }),
                add_splits([&](int split) { return of[split].z; }), add_splits([&](int split) { return of[split].w; }));
        }
    }
    /* After all threads of all blocks have put. Nobody's parts are read once it returns. */
    template <typename Out>
    __device__ __forceinline__ void store(int rank, int first_group, int first_token, int tokens, Out out) {
        cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
        cluster.sync();
        for (int u = 0; u < units; u++) add(rank + u * PRODUCT_SPLITS, added[u]);
        cluster.sync();
        if (threadIdx.x >= BLOCK_THREADS) return;
        for (int u = 0; u < units; u++) {
            const int unit = rank + u * PRODUCT_SPLITS, column = unit % cuts * unit_columns;
            out.store(first_group + unit / cuts, first_token + column, min(tokens - column, unit_columns),
                      [&](int r, int token) { return added[u][r][token]; });
        }
    }
#endif
};

/* Launches a product of all of x by clusters whose blocks have the Shape's rows, columns, threads and ring. */
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
