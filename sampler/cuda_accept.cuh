/* The launches of acceptance (cuda_accept.cu), for the table in cuda.cu: two, or three for block verification. */
#ifndef DUET_SAMPLER_CUDA_ACCEPT_CUH
#define DUET_SAMPLER_CUDA_ACCEPT_CUH

#include "graphs/cuda.cuh"
extern "C" {
#include "sampler/sampler.h"
}

int cuda_accept(struct stream *, const struct sampler_accept *);

#endif
