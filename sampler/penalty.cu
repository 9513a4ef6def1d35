// The penalty on CUDA: the same bits as penalty.c. A block takes a row, a thread words of `seen` and drafted tokens; no two
// touch one logit. Bytes: V / 8 a row, and 8 for each id that was seen.
#include "graphs/cuda.cuh"
extern "C" {
#include "sampler/internal.h"
#include "sampler/penalty_rules.h"
}

enum { THREADS = 256 };

__global__ void __launch_bounds__(THREADS) penalise_kernel(const struct penalise op) {
    const struct penalised_row r = penalised_row_at(&op, blockIdx.x);
    if (r.slot < 0) return;
    for (int word = threadIdx.x; word < op.b.seen_words; word += THREADS) penalise_word(&op.b, &r, word);
    for (int j = threadIdx.x; j < r.index; j += THREADS) penalise_drafted(&op.b, &r, j);
}

/* Thread i of a row's warps takes token i. */
__global__ void mark_seen_kernel(const struct mark_seen op) {
    const struct round_record *record = &op.b.records[blockIdx.x];
    if ((int)threadIdx.x >= record->emitted) return;
    const int id = record->tokens[threadIdx.x];
    atomicOr(&op.b.seen[(size_t)record->slot * op.b.seen_words + id / 32], 1u << id % 32);
}

extern "C" int sampler_penalise_cuda(struct stream *stream, const struct penalise *op, int rows) {
    penalise_kernel<<<rows, THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "penalise", sizeof *op);
}

extern "C" int sampler_mark_seen_cuda(struct stream *stream, const struct mark_seen *op) {
    mark_seen_kernel<<<op->batch, K_MAX + 1, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "mark_seen", sizeof *op);
}
