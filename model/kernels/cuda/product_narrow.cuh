/* The product for few tokens: weights from memory to registers. See product.cuh.
 *
 * A block of 8 warps owns 16 weight rows, a warp one split of k. A warp keeps AHEAD pieces of 2 KB in flight, and has
 * asked for the first ones before it waits for the tokens. Bytes: O K 2 of weights; x comes from L2. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_NARROW_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_NARROW_CUH

#include "model/kernels/cuda/product_mma.cuh"

__device__ __forceinline__ uint4 load_streamed(const void *address, bool wanted) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (wanted)
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(address));
    return v;
}

template <typename T, int TILES, typename Rows, typename Out>
__global__ void __launch_bounds__(PRODUCT_THREADS, 2)
    narrow_product_kernel(Rows weights, const T *x, int tokens, int k, Out out) {
    constexpr int AHEAD = 4, STRIDE = TILES * 8 + 1;
    __shared__ float parts[PRODUCT_SPLITS][PRODUCT_ROWS][STRIDE];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, part = lane % 4;
    const int first_token = blockIdx.y * TILES * 8;
    const T *low = weights.row(blockIdx.x, row), *high = weights.row(blockIdx.x, row + 8);
    const int pieces = piece_count(k);
    uint4 a[AHEAD][2][2]; /* pieces, halves of 32 of k, rows */
    auto fetch = [&](uint4(&to)[2][2], int piece) {
        int at = piece_start(warp, piece) + part * 8;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            to[h][0] = load_streamed(low + at + h * 32, low && at + h * 32 < k);
            to[h][1] = load_streamed(high + at + h * 32, high && at + h * 32 < k);
        }
    };
    next_may_start();
#pragma unroll
    for (int i = 0; i < AHEAD; i++) fetch(a[i], i);
    inputs_are_ready();
    float c[TILES][4] = {};
    for (int first = 0; first < pieces; first += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int at = piece_start(warp, first + i) + part * 8;
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) {
                    int token = first_token + tile * 8 + row, from = at + h * 32;
                    uint4 b = make_uint4(0, 0, 0, 0);
                    if (token < tokens && from < k) b = __ldcg((const uint4 *)(x + (size_t)token * k + from));
                    mma_half<T>(c[tile], a[i][h][0], a[i][h][1], b, 0);
                    mma_half<T>(c[tile], a[i][h][0], a[i][h][1], b, 1);
                }
            fetch(a[i], first + i + AHEAD);
        }
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int j = 0; j < 4; j++) parts[warp][row + j / 2 * 8][tile * 8 + part * 2 + j % 2] = c[tile][j];
    __syncthreads();
    for (int i = threadIdx.x; i < PRODUCT_ROWS * TILES * 8; i += PRODUCT_THREADS) {
        int r = i / (TILES * 8), column = i % (TILES * 8);
        parts[0][r][column] = add_splits([&](int split) { return parts[split][r][column]; });
    }
    __syncthreads();
    out.template store<STRIDE>(blockIdx.x, parts[0], first_token, min(tokens - first_token, TILES * 8));
}

template <typename T, int TILES, typename Rows, typename Out>
static void launch_narrow(struct stream *s, int groups, int tokens, int k, const T *x, Rows rows, Out out) {
    dim3 grid(groups, (tokens + TILES * 8 - 1) / (TILES * 8));
    launch_dependent(s, narrow_product_kernel<T, TILES, Rows, Out>, grid, PRODUCT_THREADS, 0, 1, rows, x, tokens, k,
                     out);
}

#endif
