/* The memory that is lent to a stream of the CUDA device: cuBLAS on it, one handle a stream, and where blocks exchange sums. */
#include "graphs/cuda.cuh"

#include <cublas_v2.h>

int cuda_blas_check(int status, const char *call) {
    if (status == CUBLAS_STATUS_SUCCESS) return 0;
    return err_set(ERR_DEVICE, "%s: %s", call, cublasGetStatusString((cublasStatus_t)status));
}

void cuda_blas_close(cublasHandle_t blas) {
    if (blas) (void)cublasDestroy(blas);
}

/* The stream first: setting it takes the handle's workspace away. */
static int configure(cublasHandle_t blas, cudaStream_t native, void *workspace, size_t bytes) {
    TRY(cuda_blas_check(cublasSetStream(blas, native), "cublasSetStream"));
    TRY(cuda_blas_check(cublasSetWorkspace(blas, workspace, bytes), "cublasSetWorkspace"));
    cublasMath_t f32_sums = (cublasMath_t)(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    TRY(cuda_blas_check(cublasSetMathMode(blas, f32_sums), "cublasSetMathMode"));
    return cuda_blas_check(cublasSetAtomicsMode(blas, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
}

int cuda_set_workspace(struct stream *stream, void *workspace, size_t bytes) {
    struct cuda_stream *s = reinterpret_cast<struct cuda_stream *>(stream);
    cublasHandle_t blas;
    if (s->blas) return err_set(ERR_INTERNAL, "the stream has a workspace already");
    const size_t exchange = bytes > CUDA_EXCHANGE_BYTES ? CUDA_EXCHANGE_BYTES : 0;
    if (exchange) CUDA_TRY(cudaMemsetAsync(workspace, 0, exchange, s->native));
    TRY(cuda_blas_check(cublasCreate(&blas), "cublasCreate"));
    int rc = configure(blas, s->native, (char *)workspace + exchange, bytes - exchange);
    if (rc != 0)
        cuda_blas_close(blas);
    else
        s->blas = blas, s->exchange = exchange ? workspace : NULL;
    return rc;
}
