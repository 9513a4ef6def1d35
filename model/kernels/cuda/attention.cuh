/* The two attentions of decoding, and what prefill's shares with them. Which of the two runs depends on the device and the head
 * size alone, never on the rows of a pass. */
#ifndef DUET_MODEL_KERNELS_CUDA_ATTENTION_CUH
#define DUET_MODEL_KERNELS_CUDA_ATTENTION_CUH

#include "model/kernels/cuda/common.cuh"

/* Does a cluster attend? To its loads a head is whole 16 bytes. */
static inline bool attention_takes_clusters(const struct device *d, int head_dim) {
    return head_dim % 8 == 0 && cuda_takes_clusters(d);
}

/* Does a row at `position` see the key at position `key`? A window of 0: no bound. */
__device__ __forceinline__ bool is_visible(int key, int position, int window) {
    return key <= position && (window == 0 || key > position - window);
}

int cuda_attention_cluster(struct stream *, const struct op_attention *);

#endif
