/* Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): cuRAND's on a GPU, and on the host its
 * twin with cuRAND's use of the counter. The words are those of curand_init(key, subsequence, offset).
 *
 * duet's streams: key = the request's seed; subsequence and purpose say what a number is for: by default the absolute
 * position of the token drawn and one of enum philox_purpose, else as rule_stream (sampler/rules.h) has it;
 * offset = purpose * 2^20 + index. Word `offset` of subsequence s is word (offset & 3) of the block with
 * counter {offset/4 low, offset/4 high, s low, s high}. */
#ifndef DUET_BASE_PHILOX_H
#define DUET_BASE_PHILOX_H

#include <stdint.h>

#include "base/inline.h"

#ifdef __CUDACC__
extern "C++" {
#include <curand_philox4x32_x.h> /* what curand_kernel.h has of Philox; the rest of it brings tables of other generators */
}
#endif

struct philox_block {
    uint32_t w[4];
};

/* Any word by its counter, without a state to keep: cuRAND's block function is called as its curand() does. */
DUET_INLINE struct philox_block philox_block(uint64_t key, uint64_t subsequence, uint64_t block) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)subsequence, c3 = (uint32_t)(subsequence >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#ifdef __CUDA_ARCH__
    uint4 w = curand_Philox4x32_10(make_uint4(c0, c1, c2, c3), make_uint2(k0, k1));
    struct philox_block out = {{w.x, w.y, w.z, w.w}};
#else
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = (uint32_t)p1, c2 = n2, c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    struct philox_block out = {{c0, c1, c2, c3}};
#endif
    return out;
}

/* What a number is for: the high part of the offset. */
enum philox_purpose {
    PHILOX_DRAFT_DRAW = 0, /* index: token id */
    PHILOX_ACCEPT = 1,     /* index: 0 */
    PHILOX_RESIDUAL = 2,   /* index: token id; the bonus draw too */
    PHILOX_PLAIN = 3,      /* index: token id; decoding without a draft */
    PHILOX_PURPOSES
};

DUET_INLINE uint32_t philox_word(uint64_t key, uint64_t position, int purpose, uint32_t index) {
    uint64_t offset = ((uint64_t)purpose << 20) + index;
    return philox_block(key, position, offset >> 2).w[offset & 3];
}

#endif
