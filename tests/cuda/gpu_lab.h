/* The layer of tests/support/ops_lab.h on a GPU: the same weights and cache values there, and copies to and fro. */
#ifndef DUET_TESTS_CUDA_GPU_LAB_H
#define DUET_TESTS_CUDA_GPU_LAB_H

#include "tests/support/mini.h"

struct gpu {
    struct lab lab; /* device and stream, for mini_forward */
    void *blocks[LAB_BLOCKS_MAX];
    int block_count;
    bool is_filled;
};

int gpu_count(void);
int gpu_selected(void); /* by the calling thread */

void gpu_open(struct gpu *);
void gpu_close(struct gpu *);
/* Device memory to the byte, 256-byte aligned: every byte 0xFF, but never written in small cases. `is_filled` fills it in those
 * too: initcheck does not see all that cuBLAS writes. */
void *gpu_alloc(struct gpu *, size_t bytes);
void gpu_free_all(struct gpu *);
void gpu_lend_workspace(struct gpu *); /* without it prefill takes the products of decoding */
void gpu_put(struct gpu *, void *device, const void *host, size_t bytes);
void gpu_get(struct gpu *, void *host, const void *device, size_t bytes);

/* Random keys and values of 16 bits in `raw` [2 * kv_floats], and widened in the host layer's caches. */
struct weight mini_random_caches(struct lab *, struct mini *);
/* The 16-bit type of a layer whose matrices become packed ones of a form: `type`, or bf16 where kernels take that alone. */
enum dtype gpu_type_of_packed(int form, enum dtype type);
/* Allocates a twin on the GPU: weights, page table, RoPE table and caches copied, buffers of its own. Where the shape says so, matrices
 * become packed ones there, and here what these stand for. */
void gpu_twin(struct gpu *, struct mini *host, const struct weight *raw_caches, struct mini *twin);
void gpu_restore_caches(struct gpu *, const struct mini *twin, const struct weight *raw_caches);
/* tokens, positions and row_slot of a pass. */
void gpu_put_rows(struct gpu *, const struct mini *host, const struct mini *twin, int batch, int q_len);

#endif
