/* The products of prefill: 16 bit x 16 bit -> f32 by cuBLAS. To cuBLAS, which counts by columns, w is [K, O], to be transposed, x
 * is [K, T] and out is [O, T]. */
#include <cublas_v2.h>

#include "model/kernels/cuda/prefill.cuh"

int prefill_product(struct stream *s, const struct rows *rows, const struct weight *w, const struct weight *second,
                    const void *x, float beta, float *out, int stride, size_t apart) {
    if (second && second->data < w->data) { /* a batch counts upwards */
        TRY(prefill_product(s, rows, w, nullptr, x, beta, out, stride, 0));
        return prefill_product(s, rows, second, nullptr, x, beta, out + apart, stride, 0);
    }
    const cudaDataType type = w->type == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
    const float one = 1;
    const long long to_second = second ? (const uint16_t *)second->data - (const uint16_t *)w->data : 0;
    int status =
        cublasGemmStridedBatchedEx(cuda_blas(s), CUBLAS_OP_T, CUBLAS_OP_N, w->rows, prefill_padded(rows), w->cols, &one,
                                   w->data, type, w->cols, to_second, x, type, w->cols, 0, &beta, out, CUDA_R_32F,
                                   stride, (long long)apart, second ? 2 : 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    TRY(cuda_blas_check(status, "cublasGemmStridedBatchedEx"));
    return cuda_launched(s, "prefill product", 0);
}

/* x[t, :] += W h[t, :] */
int cuda_prefill_project(struct stream *s, const struct op_project *op) {
    return prefill_product(s, &op->rows, &op->w, nullptr, op->h, 1, op->x, op->w.rows, 0);
}
