/* The product for few tokens: weights from memory to registers. See product.cuh.
 *
 * Blocks that fill the GPU once walk over the groups of 16 weight rows. A warp owns one split of k, keeps PRODUCT_UNIT pieces
 * (8 KB) in flight across the ends of groups, and asks for the first ones before it waits for the tokens. Tokens are read from L2,
 * or from shared memory where enough groups use them or the block normalises them itself. Bytes: O K 2 of weights. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_NARROW_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_NARROW_CUH

#include "model/kernels/cuda/norm.cuh"
#include "model/kernels/cuda/product_mma.cuh"

/* Blocks a multiprocessor; tokens that a block may normalise: each block does it again, so few; the shared memory that they may
 * take, which every GPU has; and the most tokens of a block. */
enum { NARROW_BLOCKS = 2, NARROW_NORMED = 2, NARROW_SHARED = 88 << 10, NARROW_TOKENS = 16 };

/* Asks L2 for the whole line of 128 bytes, of which another load reads the rest next; 64 and 256 are slower on an H200. */
__device__ __forceinline__ uint4 load_streamed(const void *address, bool wanted) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (wanted)
        asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(address));
    return v;
}

/* A piece of a lane's two weight rows, of 64 of k: halves, rows. NULL: zeros. */
template <typename T>
__device__ __forceinline__ void fetch_piece(uint4 (&to)[2][2], const T *low, const T *high, int at, int k) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        to[h][0] = load_streamed(low + at + h * 32, low && at + h * 32 < k);
        to[h][1] = load_streamed(high + at + h * 32, high && at + h * 32 < k);
    }
}

/* A piece by all tokens, of which b(tile, at) gives a lane's 16 bytes. */
template <typename T, int TILES, typename Tokens>
__device__ __forceinline__ void multiply_piece(float (&c)[TILES][4], const uint4 (&a)[2][2], int at, Tokens b) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const uint4 x = b(tile, at + h * 32);
            mma_half<T>(c[tile], a[h][0], a[h][1], x, 0);
            mma_half<T>(c[tile], a[h][0], a[h][1], x, 1);
        }
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
    __device__ __forceinline__ float sum(int turn, int row, int token, bool in_order = false) const {
        auto part = [&](int split) { return parts[turn][split][row][token]; };
        return in_order ? add_in_order(part) : add_splits(part);
    }
};

/* Elements between tokens in shared memory: 64 bytes more, so that neighbours lie in other banks. */
__host__ __device__ constexpr int staged_stride(int k) {
    return (k + PRODUCT_PIECE - 1) / PRODUCT_PIECE * PRODUCT_PIECE + 32;
}

template <typename T> __device__ void stage_tokens(T *to, const T *x, int tokens, int k) {
    for (int token = 0; token < tokens; token++)
        for (int i = threadIdx.x; i < k / 8; i += BLOCK_THREADS)
            *((uint4 *)(to + (size_t)token * staged_stride(k)) + i) = *((const uint4 *)(x + (size_t)token * k) + i);
    __syncthreads();
}

/* How the tokens come: rows to be normalised, or 16-bit x [tokens, k]; staged: through shared memory, which they always do when
 * they are normalised. */
template <typename T> struct narrow_tokens {
    norm_rows<T> norm;
    const T *x;
    int tokens;
    bool staged;
};

template <typename T, int TILES, typename Rows, typename Out>
__global__ void __launch_bounds__(BLOCK_THREADS, NARROW_BLOCKS)
    narrow_product_kernel(Rows weights, int groups, narrow_tokens<T> in, int k, Out out) {
    constexpr int AHEAD = PRODUCT_UNIT, COLUMNS = TILES * 8;
    __shared__ narrow_sums<TILES> sums;
    extern __shared__ __align__(16) unsigned char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, part = lane % 4;
    const int first_token = blockIdx.y * COLUMNS, tokens = min(in.tokens - first_token, COLUMNS),
              pieces = piece_count(k), start = split_start(warp, pieces) + part * 8;
    const T *low, *high;
    auto at_group = [&](int group) {
        low = group < groups ? weights.row(group, row) : nullptr;
        high = group < groups ? weights.row(group, row + 8) : nullptr;
    };
    uint4 a[AHEAD][2][2];
    next_may_start();
    at_group(blockIdx.x);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) fetch_piece(a[i], low, high, start + i * PRODUCT_PIECE, k);
    T *staged = (T *)shared;
    norm_memory<T> memory(staged + in.tokens * staged_stride(k), k);
    if (in.norm.x) memory.fetch(in.norm, k);
    inputs_are_ready();
    const T *x = in.x + (size_t)first_token * k;
    int stride = k;
    if (in.staged) {
        stride = staged_stride(k);
        for (int token = 0; in.norm.x && token < tokens; token++)
            norm_row(in.norm, first_token + token, k, memory, staged + token * stride);
        if (!in.norm.x) stage_tokens(staged, x, tokens, k);
        x = staged;
    }
    auto token_of = [&](int tile, int at) {
        const int token = tile * 8 + row;
        return token < tokens && at < k ? *(const uint4 *)(x + (size_t)token * stride + at) : make_uint4(0, 0, 0, 0);
    };
    const bool in_order = weights.adds_in_order();
    int turn = 0;
    for (int group = blockIdx.x; group < groups; group += gridDim.x, turn ^= 1) {
        float c[TILES][4] = {};
        for (int first = 0; first < pieces; first += AHEAD) {
            const bool last = first + AHEAD >= pieces;
            if (last) at_group(group + gridDim.x);
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                multiply_piece<T, TILES>(c, a[i], start + (first + i) * PRODUCT_PIECE, token_of);
                fetch_piece(a[i], low, high, start + (last ? i : first + AHEAD + i) * PRODUCT_PIECE, k);
            }
        }
        sums.put(turn, c);
        __syncthreads();
        out.store(group, first_token, tokens, [&](int r, int token) { return sums.sum(turn, r, token, in_order); });
    }
}

/* Shared memory for tokens and to normalise them. */
static inline size_t staged_normed_bytes(int tokens, int k) {
    return (size_t)tokens * staged_stride(k) * 2 + norm_bytes(k);
}

/* Shared memory for tokens that are not normalised, where it pays: groups enough for a block, and room for them. */
static inline size_t staged_bytes(int groups, int blocks, int tokens, int k) {
    enum { MOST = 55 << 10, GROUPS = 3 };
    size_t bytes = (size_t)tokens * staged_stride(k) * 2;
    return groups >= GROUPS * blocks && bytes <= MOST && tokens > 1 ? bytes : 0;
}

/* `norm`: NULL, or the rows of which x is to be the normalised form; then x is not read. */
template <typename T, int TILES, typename Rows, typename Out>
static int launch_narrow(struct stream *s, int groups, int tokens, int k, const norm_rows<T> *norm, const T *x,
                         Rows rows, Out out) {
    auto kernel = narrow_product_kernel<T, TILES, Rows, Out>;
    const int columns = TILES * 8, blocks = min(groups, NARROW_BLOCKS * cuda_multiprocessors(s->device));
    const size_t shared = norm ? staged_normed_bytes(tokens, k) : staged_bytes(groups, blocks, min(tokens, columns), k);
    narrow_tokens<T> in = {norm ? *norm : norm_rows<T>{}, x, tokens, shared > 0};
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    launch_sharing(s, kernel, dim3(blocks, (tokens + columns - 1) / columns), BLOCK_THREADS, shared, 1, SHARED_PERCENT,
                   rows, groups, in, k, out);
    return 0;
}

#endif
