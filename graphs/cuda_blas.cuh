/* cuBLAS, for the .cu files that call it. It is loaded when a stream of the process first gets a workspace: merely to map it takes
 * a tenth of a second, which `duet --version` and the host device do not pay. */
#ifndef DUET_GRAPHS_CUDA_BLAS_CUH
#define DUET_GRAPHS_CUDA_BLAS_CUH

#include <cublas_v2.h>

#include "graphs/cuda.cuh"

/* Its functions that are called here, each under the name that the library exports. */
#define CUDA_BLAS_CALLS(CALL)   \
    CALL(cublasCreate_v2)       \
    CALL(cublasDestroy_v2)      \
    CALL(cublasSetStream_v2)    \
    CALL(cublasSetWorkspace_v2) \
    CALL(cublasSetMathMode)     \
    CALL(cublasSetAtomicsMode)  \
    CALL(cublasGetStatusString) \
    CALL(cublasGemmStridedBatchedEx_64)

struct cuda_blas_calls {
#define CALL(name) decltype(&::name) name;
    CUDA_BLAS_CALLS(CALL)
#undef CALL
};

/* Loads the library if nobody has. To be called of a stream with a workspace: without the library none gets one. */
const struct cuda_blas_calls *cuda_blas_calls(void);
/* ERR_DEVICE "CALL: reason" for a failed call, 0 for success. */
int cuda_blas_check(cublasStatus_t status, const char *call);

#endif
