// GPUs, and memory of one tensor: outside an arena, so that compute-sanitizer knows its end and whether it was ever written.
#include <cuda_runtime.h>

extern "C" {
#include "tests/cuda/gpu_lab.h"
#include "tests/support/support.h"
}

static void must(cudaError_t status, const char *call) {
    ck_assert_msg(status == cudaSuccess, "%s: %s", call, cudaGetErrorString(status));
}

int gpu_count(void) {
    int count;
    must(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    return count;
}

int gpu_selected(void) {
    int gpu;
    must(cudaGetDevice(&gpu), "cudaGetDevice");
    return gpu;
}

void *gpu_alloc(struct gpu *g, size_t bytes) {
    ck_assert_int_lt(g->block_count, LAB_BLOCKS_MAX);
    void *block;
    must(cudaMalloc(&block, bytes), "cudaMalloc");
    if (g->is_filled || !test_is_small()) /* initcheck should see reads of it */
        must(cudaMemset(block, 0xFF, bytes), "cudaMemset");
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return g->blocks[g->block_count++] = block;
}

void gpu_free_all(struct gpu *g) {
    for (int i = 0; i < g->block_count; i++) must(cudaFree(g->blocks[i]), "cudaFree");
    g->block_count = 0;
}
