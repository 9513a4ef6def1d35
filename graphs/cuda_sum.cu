/* Sums of 64-bit words: the yardstick of read bandwidth.
 *
 * Shape: [n] pairs of words -> one word, added to what lies there.
 * Mapping: a persistent grid; a warp reads 512 contiguous bytes a load, a thread has AHEAD loads of 16 bytes in flight. Loads
 *   are marked as read once, so that L2 keeps nothing of one pass for the next.
 * Bytes: 16 n read, 8 a block written by an atomic add (integers: no order matters). */
#include "graphs/cuda.cuh"

enum { THREADS = 512, BLOCKS_AN_SM = 4, AHEAD = 4 };

typedef unsigned long long u64;

static __global__ void __launch_bounds__(THREADS) sum_kernel(const ulonglong2 *__restrict__ words, size_t n, u64 *sum) {
    __shared__ u64 sums[THREADS / 32];
    const size_t threads = (size_t)gridDim.x * THREADS;
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    u64 s = 0;
    for (; i + (AHEAD - 1) * threads < n; i += AHEAD * threads) {
        ulonglong2 pair[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) pair[j] = __ldcs(words + i + j * threads);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) s += pair[j].x + pair[j].y;
    }
    for (; i < n; i += threads) s += words[i].x + words[i].y;
    for (int step = 16; step > 0; step /= 2) s += __shfl_xor_sync(~0u, s, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < THREADS / 32; warp++) s += sums[warp];
    atomicAdd(sum, s);
}

int cuda_sum_words(struct stream *s, const void *words, size_t bytes, uint64_t *sum) {
    int blocks = cuda_multiprocessors(s->device) * BLOCKS_AN_SM;
    sum_kernel<<<blocks, THREADS, 0, cuda_native(s)>>>(static_cast<const ulonglong2 *>(words), bytes / 16,
                                                       reinterpret_cast<u64 *>(sum));
    return cuda_launched(s, "sum", 24);
}
