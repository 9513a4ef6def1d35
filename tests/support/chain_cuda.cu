// The launches of chain_ops.h on CUDA: a thread for each logit that is looked up; the rest is small enough for one thread.
#include "graphs/cuda.cuh"
extern "C" {
#include "tests/support/chain_ops.h"
}

__global__ void deal_kernel(const struct chain_deal op) {
    chain_deal_run(&op);
}

__global__ void gather_kernel(const struct chain_gather op) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < op.count * op.vocab) chain_gather_run(&op, at);
}

__global__ void spoil_kernel(const struct chain_spoil op) {
    chain_spoil_run(&op);
}

static int deal(struct stream *stream, const struct chain_deal *op) {
    deal_kernel<<<1, 1, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "chain_deal", sizeof *op);
}

static int gather(struct stream *stream, const struct chain_gather *op) {
    enum { THREADS = 128 };
    gather_kernel<<<(op->count * op->vocab + THREADS - 1) / THREADS, THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "chain_gather", sizeof *op);
}

static int spoil(struct stream *stream, const struct chain_spoil *op) {
    spoil_kernel<<<1, 1, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "chain_spoil", sizeof *op);
}

extern "C" const struct chain_ops *chain_cuda(void) {
    static const struct chain_ops ops = {deal, gather, spoil};
    return &ops;
}
