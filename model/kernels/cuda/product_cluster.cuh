/* What products by clusters of 8 blocks share, each block with one split of k: pieces in a ring, and the sums. See product.cuh. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_CLUSTER_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_CLUSTER_CUH

#include "model/kernels/cuda/cluster.cuh"
#include "model/kernels/cuda/product_out.cuh"
#include "model/kernels/cuda/tiles.cuh"

enum { RING_CHUNKS = PRODUCT_PIECE / 8 };

/* 16 bytes of a piece of rows: of odd rows in halves that are swapped, so that no two lanes of mma_half meet in a bank. */
__device__ __forceinline__ int ring_place(int row, int chunk) {
    return row * RING_CHUNKS + (chunk ^ (row % 2 * 4));
}
__device__ __forceinline__ uint4 *ring_chunk(unsigned char *matrix, int row, int chunk) {
    return reinterpret_cast<uint4 *>(matrix) + ring_place(row, chunk);
}

/* A thread's share of its block's split: of each piece 8 numbers, the first of them at `start` in k. After the first `inside` of the
 * split's pieces they lie past k: zeros, which are not read. */
struct split_share {
    int start, inside;
    __device__ __forceinline__ split_share(int split, int k) {
        const int pieces = piece_count(k);
        start = split_start(split, pieces) + threadIdx.x % RING_CHUNKS * 8;
        inside = min(pieces, (k - start + PRODUCT_PIECE - 1) / PRODUCT_PIECE);
    }
};

/* What a thread copies of pieces of the weights into the ring of a Shape: 16 bytes of every COPY_ROWS-th row. Of rows past the
 * last, whose sums nobody stores, the block's first is read in their place. */
template <typename T, typename Shape> struct weight_copies {
    static constexpr int COPY_ROWS = Shape::threads / RING_CHUNKS, COPIES = Shape::rows / COPY_ROWS;
    const T *from[COPIES];
    int inside;
    template <typename Rows>
    __device__ __forceinline__ weight_copies(const Rows &weights, int first_group, const split_share &share)
        : inside(share.inside) {
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int r = threadIdx.x / RING_CHUNKS + i * COPY_ROWS;
            const T *row = weights.row(first_group + r / PRODUCT_ROWS, r % PRODUCT_ROWS);
            from[i] = (row ? row : weights.row(first_group, 0)) + share.start;
        }
    }
    __device__ __forceinline__ void copy(unsigned char *ring, int piece) const {
        static_assert(COPY_ROWS % 2 == 0, "all of a thread's rows are odd, or none is");
        uint4 *to = ring_chunk(ring + piece % Shape::stages * Shape::stage_bytes, threadIdx.x / RING_CHUNKS,
                               threadIdx.x % RING_CHUNKS);
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            copy_async_once(to + i * COPY_ROWS * RING_CHUNKS, from[i] + piece * PRODUCT_PIECE, piece < inside);
    }
};

/* The tokens [first, end) of a product, or as many of them as a block takes, whose rows lie one after the other in x [.., k]. A
 * thread copies every STEP-th of them. */
template <typename T, int STEP> struct tokens_in_order {
    const T *x;
    int mine; /* where in x its share of the first lies; launch_clusters sees to it that x has so few numbers */
    int first, end, step;
    __device__ __forceinline__ tokens_in_order(const T *x, int first, int end, int k, const split_share &share)
        : x(x), mine((first + threadIdx.x / RING_CHUNKS) * k + share.start), first(first), end(end), step(STEP * k) {}
    __device__ __forceinline__ int count(int most) const { return min(end - first, most); }
    /* The i-th that the thread copies. */
    __device__ __forceinline__ const T *find(int i, int piece) const {
        return x + (mine + i * step + piece * PRODUCT_PIECE);
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
        float *from = parts + unit / cuts * PRODUCT_ROWS * stride + unit % cuts * unit_columns;
#pragma unroll 2
        for (int i = threadIdx.x * 4; i < PRODUCT_ROWS * unit_columns; i += blockDim.x * 4) {
            const int row = i / unit_columns, column = i % unit_columns;
            float4 of[PRODUCT_SPLITS];
#pragma unroll
            for (int split = 0; split < PRODUCT_SPLITS; split++)
                of[split] = *static_cast<float4 *>(__cluster_map_shared_rank(from + row * stride + column, split));
            *reinterpret_cast<float4 *>(&to[row][column]) = make_float4(
                add_splits([&](int split) { return of[split].x; }), add_splits([&](int split) { return of[split].y; }),
                add_splits([&](int split) { return of[split].z; }), add_splits([&](int split) { return of[split].w; }));
        }
    }
    /* After all threads of all blocks have put. Nobody's parts are read once it returns. */
    template <typename Out>
    __device__ __forceinline__ void store(int rank, int first_group, int first_token, int tokens, Out out) {
        meet_in_cluster();
        for (int u = 0; u < units; u++) add(rank + u * PRODUCT_SPLITS, added[u]);
        meet_in_cluster();
        if (threadIdx.x >= BLOCK_THREADS) return;
        for (int u = 0; u < units; u++) {
            const int unit = rank + u * PRODUCT_SPLITS, column = unit % cuts * unit_columns;
            store_groups<1, 4, 4>(out, first_group + unit / cuts, first_token + column,
                                  min(tokens - column, unit_columns),
                                  [&](int r, int token) { return added[u][r][token]; });
        }
    }
#endif
};

/* Launches a product of all of x by clusters whose blocks have the Shape's rows, columns, threads and ring. */
template <typename Shape, typename T, typename Rows, typename Out>
static int launch_clusters(struct stream *s, void (*kernel)(Rows, const T *, int, int, Out), int groups, int tokens,
                           int k, const T *x, Rows rows, Out out) {
    if ((int64_t)(tokens + 2 * Shape::columns) * k > INT32_MAX)
        return err_set(ERR_INTERNAL, "a product of %d tokens of %d numbers", tokens, k);
    const int per_cluster = Shape::rows / PRODUCT_ROWS;
    const dim3 grid((groups + per_cluster - 1) / per_cluster * PRODUCT_SPLITS,
                    (tokens + Shape::columns - 1) / Shape::columns);
    /* Blocks that would find room one a multiprocessor come to lie three on some where three fit, so two may at most. With one, clusters
     * would not all find room. */
    constexpr int of_two = 100 << 10, most = Shape::ring_bytes > of_two ? Shape::ring_bytes : of_two;
    const bool are_few = (int)(grid.x * grid.y) <= cuda_multiprocessors(s->device);
    const int shared = are_few ? most : Shape::ring_bytes;
    launch_dependent(s, kernel, grid, Shape::threads, shared, PRODUCT_SPLITS, rows, x, tokens, k, out);
    return 0;
}

#endif
