/* Of cuBLAS: products of 16-bit matrices with f32 sums, by plain loops. */
#include <cublas_v2.h>

#include <vector>

#include "emulated.h"

struct cublasContext {
    cudaStream_t stream;
};

cublasStatus_t cublasCreate_v2(cublasHandle_t *to) {
    *to = new cublasContext();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t blas) {
    delete blas;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t blas, cudaStream_t stream) {
    blas->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) {
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasGetStatusString(cublasStatus_t) {
    return "an error of the emulated cuBLAS";
}

typedef std::vector<float> floats;

static float number_at(const void *of, cudaDataType type, long long i) {
    if (type == CUDA_R_16F) return __half2float(((const __half *)of)[i]);
    if (type == CUDA_R_16BF) return __bfloat162float(((const __nv_bfloat16 *)of)[i]);
    return ((const float *)of)[i];
}

/* op(x) as [count][k], each vector contiguous: `along` elements from one of k to the next, `across` between vectors. */
static floats unpack(const void *x, cudaDataType type, long long offset, int64_t count, int64_t k, long long across,
                     long long along) {
    floats y((size_t)count * (size_t)k);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < k; j++)
            y[(size_t)i * (size_t)k + (size_t)j] = number_at(x, type, offset + i * across + j * along);
    return y;
}

static float dot(const float *a, const float *b, int64_t k) {
    float part[16] = {}, sum = 0;
    int i = 0;
    for (; i + 16 <= k; i += 16)
        for (int j = 0; j < 16; j++) part[j] += a[i + j] * b[i + j];
    for (; i < k; i++) sum += a[i] * b[i];
    for (int j = 0; j < 16; j++) sum += part[j];
    return sum;
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t blas, cublasOperation_t of_a, cublasOperation_t of_b,
                                             int64_t m, int64_t n, int64_t k, const void *alpha, const void *a,
                                             cudaDataType a_type, int64_t lda, long long a_apart, const void *b,
                                             cudaDataType b_type, int64_t ldb, long long b_apart, const void *beta,
                                             void *c, cudaDataType c_type, int64_t ldc, long long c_apart,
                                             int64_t count, cublasComputeType_t compute, cublasGemmAlgo_t) {
    const float scale = *(const float *)alpha, keep = *(const float *)beta;
    if (compute != CUBLAS_COMPUTE_32F || c_type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    auto multiply = [=] {
        for (int batch = 0; batch < count; batch++) {
            const floats rows = of_a == CUBLAS_OP_T ? unpack(a, a_type, batch * a_apart, m, k, lda, 1)
                                                    : unpack(a, a_type, batch * a_apart, m, k, 1, lda);
            const floats columns = of_b == CUBLAS_OP_N ? unpack(b, b_type, batch * b_apart, n, k, ldb, 1)
                                                       : unpack(b, b_type, batch * b_apart, n, k, 1, ldb);
            for (int j = 0; j < n; j++)
                for (int i = 0; i < m; i++) {
                    float *to = (float *)c + batch * c_apart + (long long)j * ldc + i;
                    const float sum = scale * dot(&rows[(size_t)i * (size_t)k], &columns[(size_t)j * (size_t)k], k);
                    *to = keep == 0 ? sum : sum + keep * *to;
                }
        }
    };
    emulated::enqueue(blas->stream, multiply);
    return CUBLAS_STATUS_SUCCESS;
}
