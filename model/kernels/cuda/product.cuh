/* The weight-streaming product: out[t, o] = sum_k x[t, k] w[o, k], for any number of tokens.
 *
 * Shapes: w [O, K] 16 bit, read once for up to 64 tokens; x [T, K] 16 bit; sums in f32.
 * Mapping: a block of 8 warps owns 16 weight rows. The weights are the m operand of mma.m16n8k16 and the tokens the n
 *   operand, so a token is a column and never sees its neighbours; more tokens are more column tiles of 8. The warps take
 *   64-wide pieces of k in turn; their sums meet in shared memory and are added in warp order.
 *   Every lane loads 16 contiguous bytes of a row and gives them to two mma as their k fragments: k is permuted alike in both
 *   operands, which changes no product.
 * Bytes: O K 2 of weights; x comes from L2.
 * Numerics: the order of additions is fixed by K alone, so a token's result is the same bits beside any neighbours. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_CUH

#include "model/kernels/cuda/common.cuh"

enum { PRODUCT_WARPS = 8, PRODUCT_ROWS = 16, PRODUCT_PIECE = 64, PRODUCT_AHEAD = 4, PRODUCT_TOKENS_MAX = 64 };

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, half) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 32 of k: two mma from 16 bytes a lane of weight rows g and g + 8, and of token g. */
template <typename T>
__device__ __forceinline__ void mma_pair(float (&c)[4], const uint4 &low, const uint4 &high, const uint4 &x) {
    const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
    mma(c, first, x.x, x.y, T());
    mma(c, second, x.z, x.w, T());
}

__device__ __forceinline__ uint4 load_streamed(const void *address, bool wanted) {
    if (!wanted) return make_uint4(0, 0, 0, 0);
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
}

/* Adds the warps' sums: those of warps 4..7 go through shared memory to warps 0..3, theirs then to all threads, always in this
 * order. The result is sums[0]. */
template <int TILES>
__device__ __forceinline__ void add_warps(const float (&c)[TILES][4], float (*sums)[PRODUCT_ROWS][TILES * 8 + 1],
                                          int warp, int row, int part) {
    float(*mine)[TILES * 8 + 1] = sums[warp % (PRODUCT_WARPS / 2)];
    for (int turn = 1; turn >= 0; turn--) {
        if (warp / (PRODUCT_WARPS / 2) == turn) {
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float *cell = &mine[row + j / 2 * 8][tile * 8 + part * 2 + j % 2];
                    *cell = turn ? c[tile][j] : c[tile][j] + *cell;
                }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < PRODUCT_ROWS * TILES * 8; i += blockDim.x) {
        int r = i / (TILES * 8), column = i % (TILES * 8);
        sums[0][r][column] = (sums[0][r][column] + sums[1][r][column]) + (sums[2][r][column] + sums[3][r][column]);
    }
    __syncthreads();
}

/* `Rows` maps 16 rows of a group to weights: const T *row(int group, int i), NULL past the end. `Out` takes the sums of a group:
 * store(group, sums, first_token, tokens) with sums [16][TILES * 8 + 1] in shared memory, called by all threads. A block owns
 * GROUPS groups, which share its loads of x. */
template <typename T, int TILES, int GROUPS, typename Rows, typename Out>
__global__ void __launch_bounds__(PRODUCT_WARPS * 32, TILES *GROUPS <= 2 ? 2 : 1)
    product_kernel(Rows weights, const T *__restrict__ x, int tokens, int k, Out out) {
    constexpr int AHEAD = GROUPS > 1 ? PRODUCT_AHEAD / 2 : PRODUCT_AHEAD;
    __shared__ float sums[PRODUCT_WARPS / 2][PRODUCT_ROWS][TILES * 8 + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, part = lane % 4;
    const int first_token = blockIdx.y * TILES * 8;
    const T *low[GROUPS], *high[GROUPS];
    float c[GROUPS][TILES][4] = {};
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        low[g] = weights.row(blockIdx.x * GROUPS + g, row);
        high[g] = weights.row(blockIdx.x * GROUPS + g, row + 8);
    }
    for (int piece = warp * PRODUCT_PIECE; piece < k; piece += PRODUCT_WARPS * AHEAD * PRODUCT_PIECE) {
        uint4 a[AHEAD][2][GROUPS][2];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int g = 0; g < GROUPS; g++) {
                    int at = piece + i * PRODUCT_WARPS * PRODUCT_PIECE + h * 32 + part * 8;
                    a[i][h][g][0] = load_streamed(low[g] + at, low[g] && at < k);
                    a[i][h][g][1] = load_streamed(high[g] + at, high[g] && at < k);
                }
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int at = piece + i * PRODUCT_WARPS * PRODUCT_PIECE + h * 32 + part * 8;
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) {
                    int token = first_token + tile * 8 + row;
                    uint4 b = make_uint4(0, 0, 0, 0);
                    if (token < tokens && at < k) b = *reinterpret_cast<const uint4 *>(x + (size_t)token * k + at);
#pragma unroll
                    for (int g = 0; g < GROUPS; g++) mma_pair<T>(c[g][tile], a[i][h][g][0], a[i][h][g][1], b);
                }
            }
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        add_warps<TILES>(c[g], sums, warp, row, part);
        out.template store<TILES * 8 + 1>(blockIdx.x * GROUPS + g, sums[0], first_token,
                                          min(tokens - first_token, TILES * 8));
        if (g + 1 < GROUPS) __syncthreads();
    }
}

/* Groups of 16 rows of one matrix [rows, k]. */
template <typename T> struct matrix_rows {
    const T *weights;
    int rows, k;
    __device__ const T *row(int tile, int i) const {
        int o = tile * PRODUCT_ROWS + i;
        return o < rows ? weights + (size_t)o * k : nullptr;
    }
};

/* Widths that 16-byte loads cannot read: one warp a weight row and token, the same promise. */
template <typename T, typename Rows, typename Out>
__global__ void __launch_bounds__(512) product_plain_kernel(Rows weights, const T *__restrict__ x, int k, Out out) {
    __shared__ float sums[PRODUCT_ROWS][1 + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, token = blockIdx.y;
    const T *row = weights.row(blockIdx.x, warp);
    float sum = 0;
    for (int i = lane; row && i < k; i += 32) sum = fmaf(to_float(row[i]), to_float(x[(size_t)token * k + i]), sum);
    sum = warp_sum(sum);
    if (lane == 0) sums[warp][0] = sum;
    __syncthreads();
    out.template store<2>(blockIdx.x, sums, token, 1);
}

template <typename T, int TILES, int GROUPS, typename Rows, typename Out>
static void launch_groups(cudaStream_t s, int groups, int tokens, int k, const T *x, Rows rows, Out out) {
    dim3 grid((groups + GROUPS - 1) / GROUPS, (tokens + TILES * 8 - 1) / (TILES * 8));
    product_kernel<T, TILES, GROUPS><<<grid, PRODUCT_WARPS * 32, 0, s>>>(rows, x, tokens, k, out);
}

/* Many tokens: groups share a block while enough blocks are left to fill the GPU. */
template <typename T, int TILES, typename Rows, typename Out>
static void launch_tiles(cudaStream_t s, int groups, int tokens, int k, const T *x, Rows rows, Out out) {
    if (TILES >= 4 && groups >= 1024)
        launch_groups<T, TILES, TILES >= 4 ? 4 : 1>(s, groups, tokens, k, x, rows, out);
    else if (TILES >= 4 && groups >= 256)
        launch_groups<T, TILES, TILES >= 4 ? 2 : 1>(s, groups, tokens, k, x, rows, out);
    else
        launch_groups<T, TILES, 1>(s, groups, tokens, k, x, rows, out);
}

/* Launches over `blocks` groups of 16 rows. */
template <typename T, typename Rows, typename Out>
static int product(struct stream *stream, const char *name, int blocks, int tokens, int k, const T *x, Rows rows,
                   Out out) {
    cudaStream_t s = cuda_native(stream);
    if (k % 8 != 0)
        product_plain_kernel<T><<<dim3(blocks, tokens), 512, 0, s>>>(rows, x, k, out);
    else if (tokens <= 8)
        launch_tiles<T, 1>(s, blocks, tokens, k, x, rows, out);
    else if (tokens <= 16)
        launch_tiles<T, 2>(s, blocks, tokens, k, x, rows, out);
    else if (tokens <= 32)
        launch_tiles<T, 4>(s, blocks, tokens, k, x, rows, out);
    else
        launch_tiles<T, 8>(s, blocks, tokens, k, x, rows, out);
    return cuda_launched(stream, name, sizeof rows + sizeof out + 24);
}

#endif
