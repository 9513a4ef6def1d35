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

/* How a lane reads the two weight rows of a group that are its own, and multiplies a piece of them by all tokens: here 16-bit numbers,
 * as they lie. Another is packed_stream (product_packed.cuh). PIECE: of k; AHEAD: pieces in flight; k is cut by multiples of both. */
template <typename T> struct plain_stream {
    static constexpr int PIECE = PRODUCT_PIECE, AHEAD = PRODUCT_UNIT;
    struct piece {
        uint4 at[2][2]; /* halves, rows */
    };
    const T *low, *high; /* NULL: zeros */
    template <typename Rows> __device__ __forceinline__ void go_to(const Rows &weights, int group, bool is_there) {
        const int row = threadIdx.x % 32 / 4;
        low = is_there ? weights.row(group, row) : nullptr;
        high = is_there ? weights.row(group, row + 8) : nullptr;
    }
    __device__ __forceinline__ void begin() {}
    __device__ __forceinline__ void fetch(piece &to, int at, int k) const {
        at += threadIdx.x % 4 * 8;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            to.at[h][0] = load_streamed(low + at + h * 32, low && at + h * 32 < k);
            to.at[h][1] = load_streamed(high + at + h * 32, high && at + h * 32 < k);
        }
    }
    template <int TILES, typename Tokens>
    __device__ __forceinline__ void multiply(float (&c)[TILES][4], const piece &a, int at, const Tokens &tokens) const {
        at += threadIdx.x % 4 * 8;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                const uint4 x = tokens.template read<uint4>(tile, at + h * 32);
                mma_half<T>(c[tile], a.at[h][0], a.at[h][1], x, 0);
                mma_half<T>(c[tile], a.at[h][0], a.at[h][1], x, 1);
            }
    }
    /* After the last piece of a group; the next is the one that go_to named. */
    template <int TILES> __device__ __forceinline__ void finish(float (&)[TILES][4]) {}
};

/* Row i of a group: which row of which of the matrices of a product; matrix < 0: none. */
struct row_place {
    int matrix, row;
};

/* Which stream reads what a `Rows` names. */
template <typename T, typename Rows> struct stream_of { typedef plain_stream<T> type; };

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

/* Tokens of a block, from memory or shared memory: numbers at, at + 1, ... of the one that a lane has of a tile; zeros past the last
 * token and past k. */
template <typename T> struct narrow_view {
    const T *x;
    int stride, tokens, k;
    template <typename V> __device__ __forceinline__ V read(int tile, int at) const {
        const int token = tile * 8 + threadIdx.x % 32 / 4;
        return token < tokens && at < k ? *(const V *)(x + (size_t)token * stride + at) : V{};
    }
};

template <typename T, int TILES, typename Rows, typename Out>
__global__ void __launch_bounds__(BLOCK_THREADS, NARROW_BLOCKS)
    narrow_product_kernel(Rows weights, int groups, narrow_tokens<T> in, int k, Out out) {
    typedef typename stream_of<T, Rows>::type stream;
    constexpr int AHEAD = stream::AHEAD, COLUMNS = TILES * 8;
    __shared__ narrow_sums<TILES> sums;
    extern __shared__ __align__(16) unsigned char shared[];
    const int first_token = blockIdx.y * COLUMNS, tokens = min(in.tokens - first_token, COLUMNS),
              pieces = piece_count<stream::PIECE, AHEAD>(k), start = threadIdx.x / 32 * pieces * stream::PIECE;
    stream rows;
    typename stream::piece a[AHEAD];
    next_may_start();
    rows.go_to(weights, blockIdx.x, true);
    rows.begin();
#pragma unroll
    for (int i = 0; i < AHEAD; i++) rows.fetch(a[i], start + i * stream::PIECE, k);
    T *staged = (T *)shared;
    norm_memory<T> memory(staged + in.tokens * staged_stride(k), k);
    if (in.norm.x) memory.fetch(in.norm, k);
    inputs_are_ready();
    narrow_view<T> view = {in.x + (size_t)first_token * k, k, tokens, k};
    if (in.staged) {
        view.stride = staged_stride(k);
        for (int token = 0; in.norm.x && token < tokens; token++)
            norm_row(in.norm, first_token + token, k, memory, staged + token * view.stride);
        if (!in.norm.x) stage_tokens(staged, view.x, tokens, k);
        view.x = staged;
    }
    const bool in_order = weights.adds_in_order();
    int turn = 0;
    for (int group = blockIdx.x; group < groups; group += gridDim.x, turn ^= 1) {
        float c[TILES][4] = {};
        for (int first = 0; first < pieces; first += AHEAD) {
            const bool last = first + AHEAD >= pieces;
            if (last) rows.go_to(weights, group + gridDim.x, group + gridDim.x < groups);
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                rows.multiply(c, a[i], start + (first + i) * stream::PIECE, view);
                rows.fetch(a[i], start + (last ? i : first + AHEAD + i) * stream::PIECE, k);
            }
        }
        rows.finish(c);
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
