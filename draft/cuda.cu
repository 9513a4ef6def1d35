/* N-gram lookup, and histories, on CUDA: the same as host.c. Of the lookup a block a row.
 *
 * Mapping: a thread looks at every THREADS-th end of an occurrence. Bytes: 4 n of history read, a few words written; the suffix
 *   itself comes from L1.
 * Numerics: integers, joined by maximum. */
#include "graphs/cuda.cuh"
extern "C" {
#include "draft/ngram_internal.h"
}

enum { THREADS = 1024, WARPS = THREADS / 32, EACH = 4 };

typedef unsigned long long u64;

__device__ static u64 largest_of_warp(u64 x) {
    for (int step = 16; step > 0; step /= 2) {
        const u64 other = __shfl_xor_sync(~0u, x, step);
        x = other > x ? other : x;
    }
    return x;
}

/* The best rank of the row, in all threads. */
__device__ static u64 find_best(const int32_t *t, int n) {
    __shared__ u64 warps[WARPS];
    const int last = t[n - 1];
    u64 best = 0;
    for (int base = threadIdx.x; base < n - 1; base += EACH * THREADS) {
        int token[EACH]; /* loads first, so that they overlap */
#pragma unroll
        for (int i = 0; i < EACH; i++) token[i] = base + i * THREADS < n - 1 ? t[base + i * THREADS] : ~last;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u64 rank = token[i] == last ? ngram_rank(t, n, base + i * THREADS) : 0;
            best = rank > best ? rank : best;
        }
    }
    best = largest_of_warp(best);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    return largest_of_warp(warps[threadIdx.x % 32]);
}

__global__ void __launch_bounds__(THREADS) search_kernel(const struct ngram_search op) {
    const struct round_state &b = op.b;
    const int s = b.row_slot[blockIdx.x], n = b.slot[s].length, j = threadIdx.x;
    if (b.slot[s].status != SLOT_LIVE) return;
    const int32_t *t = op.history.tokens + (size_t)s * op.history.capacity;
    const u64 best = find_best(t, n);
    const int count = ngram_count(best, n, op.k);
    if (j < op.k) ngram_store(&b, s, j, j < count ? t[ngram_next(best) + j] : -1);
    if (j == 0) b.offered[s] = count;
}

__global__ void append_kernel(const struct history_rows op) {
    const struct round_record &r = op.b.records[blockIdx.x];
    int32_t *t = op.history.tokens + (size_t)r.slot * op.history.capacity;
    const int i = threadIdx.x;
    if (i < r.emitted) t[r.length - r.emitted + i] = r.tokens[i];
}

int ngram_search_cuda(struct stream *stream, const struct ngram_search *op) {
    static_assert(WARPS == 32 && THREADS > (int)K_MAX, "a warp joins the warps; a thread a drafted token");
    search_kernel<<<op->batch, THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "ngram_search", sizeof *op);
}

int history_append_cuda(struct stream *stream, const struct history_rows *op) {
    append_kernel<<<op->batch, K_MAX + 1, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "history_append", sizeof *op);
}

/* A thread a row of the pass. */
__global__ void load_kernel(const struct history_rows op) {
    const struct round_state &b = op.b;
    const int at = blockIdx.x * blockDim.x + threadIdx.x, each = op.first;
    if (at >= op.batch * each) return;
    const int s = b.row_slot[at / each], place = b.slot[s].length - each + at % each,
              position = history_position(&b, &b.slot[s], place);
    const int32_t *t = op.history.tokens + (size_t)s * op.history.capacity;
    b.draft_tokens[at] = position < 0 ? 0 : id_or_zero(t[place], b.vocab_input);
    b.draft_positions_in[at] = position;
}

int history_load_cuda(struct stream *stream, const struct history_rows *op) {
    enum { LOADING = 128 };
    const int blocks = (op->batch * op->first + LOADING - 1) / LOADING;
    load_kernel<<<blocks, LOADING, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "history_load", sizeof *op);
}
