/* Norms of f32 rows into f32 rows: of a sublayer's output onto the residual stream, and of all heads at once. */
#ifndef DUET_MODEL_KERNELS_CUDA_ADD_NORM_CUH
#define DUET_MODEL_KERNELS_CUDA_ADD_NORM_CUH

#include "model/kernels/cuda/norm.cuh"

/* Row i of out is (out + scale * norm(x)) * last_scale of its row i * step + first, as of x's; or, with `stores`, without the
 * first. */
template <typename T> struct norm_sums {
    norm_rows<T> rows;
    float *out;
    const T *layer_scale; /* may be NULL: 1 */
    float scale, last_scale;
    bool stores;
};

template <typename T> __global__ void __launch_bounds__(BLOCK_THREADS) add_norm_kernel(norm_sums<T> sums, int width) {
    extern __shared__ __align__(16) unsigned char shared[];
    norm_memory<T> memory(shared, width);
    next_may_start();
    memory.fetch(sums.rows, width);
    const float last = (sums.layer_scale ? to_float(*sums.layer_scale) : 1.0f) * sums.last_scale;
    inputs_are_ready();
    const size_t at = ((size_t)blockIdx.x * sums.rows.step + sums.rows.first) * width;
    float *out = sums.out + at;
    hold_row(sums.rows.x + at, width, memory.held);
    copies_wait_all();
    const float factor = scale_of_held(sums.rows, width, memory.held);
    for (int i = threadIdx.x; i < width; i += BLOCK_THREADS) {
        const float y = memory.held[i] * factor * (to_float(memory.weight[i]) + sums.rows.offset) * sums.scale;
        out[i] = (sums.stores ? y : out[i] + y) * last;
    }
}

template <typename T> static int add_norm(struct stream *s, norm_sums<T> sums, int count, int width) {
    const size_t shared = norm_bytes(width);
    launch_dependent(s, add_norm_kernel<T>, dim3(count), BLOCK_THREADS, shared, 1, sums, width);
    return cuda_launched(s, "add_norm", sizeof sums + 4);
}

#endif
