/* The products of prefill: 16 bit x 16 bit -> f32 by cuBLAS. To cuBLAS, which counts by columns, w is [K, O], to be transposed, x
 * is [K, T] and out is [O, T]. */
#include "graphs/cuda_blas.cuh"
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/unpack.h"

static int blas_product(struct stream *s, const struct prefill_product *p, const void *w, int rows, const void *second,
                        float *out) {
    const cudaDataType type = p->x.type == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
    const float beta = p->adds;
    const long long to_second = second ? (const uint16_t *)second - (const uint16_t *)w : 0;
    const int k = p->w->cols;
    const cublasStatus_t status = cuda_blas_calls()->cublasGemmStridedBatchedEx_64(
        cuda_blas(s), CUBLAS_OP_T, CUBLAS_OP_N, rows, rows_count(p->rows), k, &p->scale, w, type, k, to_second,
        p->x.data, type, k, 0, &beta, out, CUDA_R_32F, p->stride, (long long)p->apart, second ? 2 : 1,
        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    TRY(cuda_blas_check(status, "cublasGemmStridedBatchedEx"));
    return cuda_launched(s, "prefill product", 0);
}

/* As many rows at a time as there is room for, but whole lines of `out`: cuBLAS is slower where that is not 16 bytes aligned. */
static int packed_product(struct stream *s, const struct prefill_product *p) {
    enum { LINE = 32 };
    const struct packed *packed = p->w->packed;
    int most = (int)(packed->room_numbers / p->w->cols);
    if (most < 1) return err_set(ERR_INTERNAL, "prefill: no room to unpack weights");
    if (most > LINE && most < p->w->rows) most -= most % LINE;
    for (int first = 0; first < p->w->rows; first += most) {
        const int rows = min(most, p->w->rows - first);
        TRY(cuda_unpack(s, p->w, first, rows, {packed->room, p->x.type}));
        TRY(blas_product(s, p, packed->room, rows, nullptr, p->out + first));
    }
    return 0;
}

int prefill_product(struct stream *s, const struct prefill_product *p) {
    const struct weight *w = p->w, *second = p->second;
    if (second && (second->data < w->data || w->packed || second->packed)) { /* a batch counts upwards */
        struct prefill_product alone = *p;
        alone.second = nullptr;
        TRY(prefill_product(s, &alone));
        alone.w = second, alone.out += p->apart;
        return prefill_product(s, &alone);
    }
    if (w->packed) return packed_product(s, p);
    return blas_product(s, p, w->data, w->rows, second ? second->data : nullptr, p->out);
}

/* x[t, :] += scale bias, a block a row */
template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS) add_bias_kernel(float *x, const T *bias, float scale, int width) {
    next_may_start();
    inputs_are_ready();
    for (int i = threadIdx.x; i < width; i += BLOCK_THREADS)
        x[(size_t)blockIdx.x * width + i] += scale * to_float(bias[i]);
}

/* x[t, :] += scale (W h[t, :] + bias), or = */
int cuda_prefill_project(struct stream *s, const struct op_project *op) {
    return with_type("project", {op->w, op->bias, op->h}, [&](auto type) {
        typedef decltype(type) T;
        struct prefill_product product = {};
        product.rows = &op->rows, product.w = &op->w, product.x = op->h;
        product.scale = op->scale, product.adds = !op->stores;
        product.out = op->x, product.stride = op->w.rows;
        TRY(prefill_product(s, &product));
        if (!op->bias.data) return 0;
        launch_dependent(s, add_bias_kernel<T>, dim3(rows_count(&op->rows)), BLOCK_THREADS, 0, 1, op->x,
                         (const T *)op->bias.data, op->scale, op->w.rows);
        return cuda_launched(s, "prefill bias", 24);
    });
}
