/* Rows of a vocabulary on several blocks, for .cu files of sampler and verify alone.
 *
 * Mapping: a launch has `teams` teams of `blocks` blocks; team t takes rows t, t + teams, ..., and block m of it the ids
 *   [m * ids, (m + 1) * ids) of each. All blocks run at once (cuda_launch_together), so that a team may wait for all its
 *   blocks; each wait costs about a microsecond.
 * Numerics: what blocks tell each other is integers joined by maximum or sum, so no result depends on the shape. */
#ifndef DUET_SAMPLER_CUDA_TEAM_CUH
#define DUET_SAMPLER_CUDA_TEAM_CUH

#include "graphs/cuda.cuh"
extern "C" {
#include "sampler/internal.h"
}

/* CHUNK: ids that a block keeps in shared memory, so that two blocks fit where a multiprocessor has 100 KiB. */
enum { THREADS = 256, BLOCKS = 4, WARPS = THREADS / 32, CHUNK = 8064, LEAST_IDS = 1024 };

typedef unsigned long long u64;

/* What the threads of a block share. */
struct scratch {
    alignas(16) float ids[CHUNK];
    u64 histogram[TEAM_BINS];
    u64 warps[WARPS];
    u64 target, units;
    int digit;
};

struct shape {
    int32_t teams, blocks;
};

/* One block's place in its team; the same in all its threads. */
struct team {
    struct team_exchange *exchange;
    int index, count;   /* this team of all teams */
    int member, blocks; /* this block of the team's */
    int turn, histogram_turn;
};

/* --- launches --------------------------------------------------------------------------------------------- */

static inline int divide_up(int a, int b) {
    return (a + b - 1) / b;
}

/* Where a block keeps its part: enough blocks a row that it fits shared memory (if there are so many); as many more as are idle
 * otherwise, and rounds of equal size. */
static inline struct shape shape_for(int rows, int vocab, bool is_kept, int blocks_at_once) {
    const int most = blocks_at_once < TEAM_BLOCKS ? blocks_at_once : TEAM_BLOCKS;
    int least = is_kept ? divide_up(vocab, CHUNK) : 1, useful = divide_up(vocab, LEAST_IDS);
    if (least > most) least = most;
    if (useful > most) useful = most;
    int teams = blocks_at_once / least;
    if (vocab > CHUNK && teams > SAMPLER_TEAMS) teams = SAMPLER_TEAMS;
    teams = divide_up(rows, divide_up(rows, teams));
    int blocks = teams <= SAMPLER_TEAMS ? blocks_at_once / teams : 1;
    if (blocks > useful) blocks = useful;
    return (struct shape){teams, blocks};
}

/* Blocks of KERNEL that a multiprocessor has at once, or 0; asked by the warm-up, and again where a thread has another GPU. */
template <auto KERNEL> static int blocks_a_processor(const struct device *device) {
    static thread_local int gpu = -1, blocks = 0;
    if (gpu == cuda_gpu(device)) return blocks;
    gpu = cuda_gpu(device);
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, THREADS, 0) == cudaSuccess) return blocks;
    (void)cudaGetLastError();
    return blocks = 0;
}

/* Launches KERNEL(op, shape) for `rows` rows of `vocab` ids, of which blocks keep their parts or not. */
template <auto KERNEL, typename Op>
static int launch_rows(struct stream *stream, const char *name, const Op *op, int rows, int vocab, bool is_kept) {
    const struct device *device = stream_device(stream);
    const int at_once = blocks_a_processor<KERNEL>(device) * cuda_multiprocessors(device);
    if (at_once == 0) return err_set(ERR_DEVICE, "kernel %s does not fit this GPU", name);
    struct shape shape = shape_for(rows, vocab, is_kept, at_once);
    void *arguments[] = {const_cast<Op *>(op), &shape};
    return cuda_launch_together(stream, name, reinterpret_cast<const void *>(KERNEL), shape.teams * shape.blocks,
                                THREADS, arguments, sizeof *op + sizeof shape);
}

/* --- a block ---------------------------------------------------------------------------------------------- */

static __device__ inline u64 larger(u64 a, u64 b) {
    return a > b ? a : b;
}
static __device__ inline u64 plus(u64 a, u64 b) {
    return a + b;
}

/* All lanes get the result: of `larger`, or of `plus` for sums below 2^64, by halves and thirds that fit 32 bits. */
template <u64 (*JOIN)(u64, u64)> static __device__ inline u64 reduce_warp(u64 x);
template <> __device__ inline u64 reduce_warp<larger>(u64 x) {
    const uint32_t high = __reduce_max_sync(~0u, (uint32_t)(x >> 32));
    return (u64)high << 32 | __reduce_max_sync(~0u, (uint32_t)(x >> 32) == high ? (uint32_t)x : 0);
}
template <> __device__ inline u64 reduce_warp<plus>(u64 x) {
    const uint32_t third = (1u << 22) - 1;
    const u64 low = __reduce_add_sync(~0u, (uint32_t)x & third);
    const u64 middle = __reduce_add_sync(~0u, (uint32_t)(x >> 22) & third);
    return low + (middle << 22) + ((u64)__reduce_add_sync(~0u, (uint32_t)(x >> 44)) << 44);
}

/* All threads get the result; 0 changes none. */
template <u64 (*JOIN)(u64, u64)> static __device__ inline u64 reduce_block(struct scratch &s, u64 x) {
    x = reduce_warp<JOIN>(x);
    if (threadIdx.x % 32 == 0) s.warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = reduce_warp<JOIN>(threadIdx.x % 32 < WARPS ? s.warps[threadIdx.x % 32] : 0);
    __syncthreads();
    return x;
}

/* --- a team ----------------------------------------------------------------------------------------------- */

/* Of a release and of an acquire. */
static __device__ inline void fence(void) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/* Waits for all blocks: what any of them has written to global memory can then be read, past L1. The first block adds
 * what the others leave of 2^31, so bit 31 flips with the last one and the rest is 0 again. */
static __device__ inline void team_wait(const struct team &t) {
    __syncthreads();
    if (t.blocks == 1) return;
    if (threadIdx.x == 0) {
        const uint32_t flip = 1u << 31;
        volatile uint32_t *arrived = &t.exchange->arrived;
        fence();
        const uint32_t before = atomicAdd(&t.exchange->arrived, t.member == 0 ? flip - (uint32_t)(t.blocks - 1) : 1);
        while (((*arrived ^ before) & flip) == 0) continue;
        fence();
    }
    __syncthreads();
}

/* This block's place. The histogram of the first turn is cleared, to be used after a wait. */
static __device__ inline struct team team_join(struct team_exchange *exchange, const struct shape &shape) {
    struct team t;
    t.index = blockIdx.x / shape.blocks, t.count = shape.teams;
    t.member = blockIdx.x % shape.blocks, t.blocks = shape.blocks;
    t.turn = 0, t.histogram_turn = 0;
    t.exchange = exchange + (shape.blocks > 1 ? t.index : 0);
    if (t.blocks > 1)
        for (int i = t.member * THREADS + threadIdx.x; i < TEAM_BINS; i += t.blocks * THREADS)
            t.exchange->histogram[0][i] = 0;
    return t;
}

/* Shows every block the others' x. A block writes a turn's values after all have read those of two turns before. */
static __device__ inline const u64 *team_share(struct team &t, u64 x) {
    u64 *partial = t.exchange->partial[t.turn++ % 2];
    if (threadIdx.x == 0) __stcg(&partial[t.member], x);
    team_wait(t);
    return partial;
}

/* All threads of all blocks get the result; 0 changes none. */
template <u64 (*JOIN)(u64, u64)> static __device__ inline u64 reduce_team(struct team &t, struct scratch &s, u64 x) {
    x = reduce_block<JOIN>(s, x);
    if (t.blocks == 1) return x;
    const u64 *partial = team_share(t, x);
    const int low = threadIdx.x % 32, high = low + 32;
    const u64 a = low < t.blocks ? __ldcg(&partial[low]) : 0, b = high < t.blocks ? __ldcg(&partial[high]) : 0;
    return reduce_warp<JOIN>(JOIN(a, b));
}

/* The sum over the team's blocks before this one, of an x that is the same in all threads of a block. */
static __device__ inline u64 sum_before(struct team &t, u64 x) {
    if (t.blocks == 1) return 0;
    const u64 *partial = team_share(t, x);
    x = 0;
    for (int i = threadIdx.x % 32; i < t.member; i += 32) x += __ldcg(&partial[i]);
    return reduce_warp<plus>(x);
}

/* Adds up the blocks' histograms: s.histogram is then the team's. A turn's sums are cleared in the turn before, when all
 * blocks have read those of two turns before. */
static __device__ inline void add_histograms(struct team &t, struct scratch &s) {
    __syncthreads();
    if (t.blocks == 1) return;
    u64 *sum = t.exchange->histogram[t.histogram_turn % 3], *next = t.exchange->histogram[(t.histogram_turn + 1) % 3];
    t.histogram_turn++;
    for (int i = threadIdx.x; i < TEAM_BINS; i += THREADS)
        if (s.histogram[i] > 0) atomicAdd(&sum[i], s.histogram[i]);
    for (int i = t.member * THREADS + threadIdx.x; i < TEAM_BINS; i += t.blocks * THREADS) next[i] = 0;
    team_wait(t);
    for (int i = threadIdx.x; i < TEAM_BINS; i += THREADS) s.histogram[i] = __ldcg(&sum[i]);
    __syncthreads();
}

#endif
