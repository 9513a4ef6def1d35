/* What the sampler's .cu files share beside teams. */
#ifndef DUET_SAMPLER_CUDA_ROWS_CUH
#define DUET_SAMPLER_CUDA_ROWS_CUH

#include "graphs/cuda.cuh"
extern "C" {
#include "sampler/internal.h"
}

static __device__ inline int id_or_zero(int id, int vocab) {
    return id >= 0 && id < vocab ? id : 0;
}

static __device__ inline float *draft_row(const struct sampler_buffers &b, int slot, int index) {
    return b.p_draft + ((size_t)slot * b.k_max + index) * b.vocab_draft;
}

/* cuda_accept.cu: two launches, or three. */
int cuda_accept(struct stream *, const struct sampler_accept *);

#endif
