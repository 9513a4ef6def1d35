/* The product for many tokens on Hopper: wgmma. See product.cuh.
 *
 * A cluster of 8 blocks owns 128 weight rows, a block one split of k. Pieces of the weights [128, 64] and of the tokens
 * [COLUMNS, 64] pass through a ring in shared memory. A group of 4 warps owns 64 rows and all columns: weights go to registers,
 * 16 bytes a lane for two instructions as in mma_half; tokens are read by the instruction itself, so that they lie in the
 * ring in its order: a plane [COLUMNS, 8] for either half of the 16 of k of each of the 4 calls a piece. On Hopper wgmma and mma
 * add 16 products by the same arithmetic, whatever their order: terms are cut off 25 bits below the largest, then added (measured
 * by P. Xie et al., MMA-Sim, arXiv 2511.10909). Bytes: O K 2 of weights a chunk of COLUMNS tokens; x from L2, COLUMNS / 128
 * of that. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_WGMMA_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_WGMMA_CUH

#include "model/kernels/cuda/product_cluster.cuh"
#include "model/kernels/cuda/wgmma.cuh"

/* The ring of a block, which later holds its sums. */
template <int COLUMNS> struct hopper {
    static_assert(COLUMNS <= 64, "an instruction takes all columns");
    static constexpr int columns = COLUMNS, rows = 128, threads = 256;
    static constexpr int blocks = 3 /* a multiprocessor */, stages = 3;
    static constexpr int plane_bytes = COLUMNS * 16 + 16; /* so that the words of a token's piece lie in all banks */
    static constexpr int weight_bytes = rows * PRODUCT_PIECE * 2, stage_bytes = weight_bytes + 8 * plane_bytes;
    static constexpr int ring_bytes = stages * stage_bytes;
    static_assert(cluster_sums<COLUMNS, rows>::bytes <= ring_bytes, "the sums fit in the ring");
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* Two planes of 8 x 16 bytes in rows of 16, one after the other of 8 columns. */
__device__ __forceinline__ uint64_t plane_pair(const void *planes, int plane_bytes) {
    return (uint64_t)((shared_address(planes) & 0x3FFFF) >> 4) | (uint64_t)(plane_bytes >> 4) << 16 |
           (uint64_t)(128 >> 4) << 32;
}

/* One piece of k: 64 weight rows by all tokens. A lane's two rows lie 8 apart; its 16 bytes of the first 32 of k lie at `mine`
 * (ring_place), those of the next 32 in the other half of the row. */
template <typename T, int COLUMNS>
__device__ __forceinline__ void wgmma_piece(float (&c)[COLUMNS / 8][4], unsigned char *weights, int mine) {
    typedef hopper<COLUMNS> shape;
    const unsigned char *tokens = weights + shape::weight_bytes;
    uint32_t a[4][4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint4 *place = reinterpret_cast<const uint4 *>(weights) + (mine ^ h * 4);
        const uint4 low = place[0], high = place[8 * RING_CHUNKS];
        a[2 * h][0] = low.x, a[2 * h][1] = high.x, a[2 * h][2] = low.y, a[2 * h][3] = high.y;
        a[2 * h + 1][0] = low.z, a[2 * h + 1][1] = high.z, a[2 * h + 1][2] = low.w, a[2 * h + 1][3] = high.w;
    }
    wgmma_begin();
#pragma unroll
    for (int call = 0; call < 4; call++)
        wgmma(c, a[call], plane_pair(tokens + 2 * call * shape::plane_bytes, shape::plane_bytes), T());
    wgmma_commit();
}

/* The product of a block: `tokens` (tokens_in_order); before(), called when the first weights are on their way, waits for what
 * they are. */
template <typename T, int COLUMNS, typename Rows, typename Tokens, typename Before, typename Out>
__device__ __forceinline__ void hopper_product(unsigned char *ring, const Rows &weights, int first_group, int split,
                                               const split_share &share, const Tokens &tokens, int k, Before before,
                                               const Out &out) {
    typedef hopper<COLUMNS> shape;
    constexpr int STAGES = shape::stages, COPY_ROWS = shape::threads / RING_CHUNKS,
                  HELD = (COLUMNS + COPY_ROWS - 1) / COPY_ROWS;
    const int pieces = piece_count(k);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, part = lane % 4;
    const int chunk = threadIdx.x % RING_CHUNKS, copy_row = threadIdx.x / RING_CHUNKS;
    const weight_copies<T, shape> copies(weights, first_group, share);
    /* Tokens go by registers, a piece ahead: of 8 numbers of a token each pair goes to a plane of its own. */
    uint4 held[HELD];
    const int count = tokens.count(COLUMNS) - copy_row,
              place = chunk / 4 * 4 * shape::plane_bytes + chunk % 4 * 4 + copy_row * 16;
    auto load_tokens = [&](int piece) {
        const int left = piece < share.inside ? count : 0;
#pragma unroll
        for (int i = 0; i < HELD; i++)
            held[i] = i * COPY_ROWS < left ? __ldcg((const uint4 *)tokens.find(i, piece)) : make_uint4(0, 0, 0, 0);
    };
    auto store_tokens = [&](int piece) {
        unsigned char *to = ring + piece % STAGES * shape::stage_bytes + shape::weight_bytes + place;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            if ((i + 1) * COPY_ROWS > COLUMNS && copy_row + i * COPY_ROWS >= COLUMNS) break;
            const uint32_t pair[4] = {held[i].x, held[i].y, held[i].z, held[i].w};
#pragma unroll
            for (int j = 0; j < 4; j++)
                *reinterpret_cast<uint32_t *>(to + j * shape::plane_bytes + i * COPY_ROWS * 16) = pair[j];
        }
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        copies.copy(ring, i);
        copies_commit_group();
    }
    before();
    load_tokens(0);
    store_tokens(0);
    load_tokens(1);

    const int my_row = warp * 16 + row, mine = ring_place(my_row, part);
    float c[COLUMNS / 8][4] = {};
    for (int piece = 0; piece < pieces; piece++) {
        copies_wait_group<STAGES - 2>();
        wgmma_wait(); /* for the piece before, whose place is filled next */
        show_to_wgmma();
        __syncthreads();
        wgmma_piece<T, COLUMNS>(c, ring + piece % STAGES * shape::stage_bytes, mine);
        copies.copy(ring, piece + STAGES - 1);
        copies_commit_group();
        store_tokens(piece + 1);
        load_tokens(piece + 2);
    }

    wgmma_wait();
    copies_wait_group<0>();
    __syncthreads();
    cluster_sums<COLUMNS, shape::rows> sums(ring);
#pragma unroll
    for (int tile = 0; tile < COLUMNS / 8; tile++) sums.put(my_row, tile * 8 + part * 2, c[tile]);
    sums.store(split, first_group, tokens.first, tokens.count(COLUMNS), out);
}
#endif

template <typename T, int COLUMNS, typename Rows, typename Out>
__global__ void __launch_bounds__(hopper<COLUMNS>::threads, hopper<COLUMNS>::blocks)
    hopper_product_kernel(Rows weights, const T *x, int tokens, int k, Out out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef hopper<COLUMNS> shape;
    extern __shared__ __align__(128) unsigned char ring[];
    const int split = blockIdx.x % PRODUCT_SPLITS,
              first_group = blockIdx.x / PRODUCT_SPLITS * (shape::rows / PRODUCT_ROWS);
    const split_share share(split, k);
    const tokens_in_order<T, shape::threads / RING_CHUNKS> mine(x, (int)blockIdx.y * COLUMNS, tokens, k, share);
    next_may_start();
    hopper_product<T, COLUMNS>(
        ring, weights, first_group, split, share, mine, k, [] { inputs_are_ready(); }, out);
#endif
}

template <typename T, int COLUMNS, typename Rows, typename Out>
static int launch_hopper(struct stream *s, int groups, int tokens, int k, const T *x, Rows rows, Out out) {
    return launch_clusters<hopper<COLUMNS>>(s, hopper_product_kernel<T, COLUMNS, Rows, Out>, groups, tokens, k, x, rows,
                                            out);
}

#endif
