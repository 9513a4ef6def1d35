/* The memory that is lent to a stream of the CUDA device: cuBLAS on it, one handle a stream, and where blocks exchange sums. */
#include "graphs/cuda_blas.cuh"

#include <dlfcn.h>
#include <stdio.h>

#define TEXT_OF(x)       #x
#define LIBRARY(version) "libcublas.so." TEXT_OF(version)

struct library {
    struct cuda_blas_calls calls;
    char error[256]; /* "": loaded */
};

static struct library load(void) {
    struct library library = {};
    void *handle = dlopen(LIBRARY(CUBLAS_VER_MAJOR), RTLD_LAZY | RTLD_LOCAL);
    bool complete = handle;
#define CALL(name)                                                                      \
    if (complete) {                                                                     \
        library.calls.name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
        complete = library.calls.name;                                                  \
    }
    CUDA_BLAS_CALLS(CALL)
#undef CALL
    if (!complete) snprintf(library.error, sizeof library.error, "%s", dlerror());
    return library;
}

/* Loaded once in a process, and never unloaded. */
static const struct library *loaded(void) {
    static const struct library library = load();
    return &library;
}

const struct cuda_blas_calls *cuda_blas_calls(void) {
    return &loaded()->calls;
}

int cuda_blas_check(cublasStatus_t status, const char *call) {
    if (status == CUBLAS_STATUS_SUCCESS) return 0;
    return err_set(ERR_DEVICE, "%s: %s", call, cuda_blas_calls()->cublasGetStatusString(status));
}

void cuda_blas_close(cublasHandle_t blas) {
    if (!blas) return;
    cuda_keep_captures_off();
    (void)cuda_blas_calls()->cublasDestroy_v2(blas);
    cuda_let_captures_on();
}

/* The stream first: setting it takes the handle's workspace away. */
static int configure(cublasHandle_t blas, cudaStream_t native, void *workspace, size_t bytes) {
    const struct cuda_blas_calls *calls = cuda_blas_calls();
    TRY(cuda_blas_check(calls->cublasSetStream_v2(blas, native), "cublasSetStream"));
    TRY(cuda_blas_check(calls->cublasSetWorkspace_v2(blas, workspace, bytes), "cublasSetWorkspace"));
    cublasMath_t f32_sums = (cublasMath_t)(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    TRY(cuda_blas_check(calls->cublasSetMathMode(blas, f32_sums), "cublasSetMathMode"));
    return cuda_blas_check(calls->cublasSetAtomicsMode(blas, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
}

static int open_blas(cublasHandle_t *blas) {
    cuda_keep_captures_off();
    cublasStatus_t status = cuda_blas_calls()->cublasCreate_v2(blas);
    cuda_let_captures_on();
    return cuda_blas_check(status, "cublasCreate");
}

int cuda_set_workspace(struct stream *stream, void *workspace, size_t bytes) {
    struct cuda_stream *s = reinterpret_cast<struct cuda_stream *>(stream);
    cublasHandle_t blas;
    if (s->blas) return err_set(ERR_INTERNAL, "the stream has a workspace already");
    if (*loaded()->error) return err_set(ERR_DEVICE, "cuBLAS cannot be loaded: %s", loaded()->error);
    const size_t exchange = bytes > CUDA_EXCHANGE_BYTES ? CUDA_EXCHANGE_BYTES : 0;
    if (exchange) CUDA_TRY(cudaMemsetAsync(workspace, 0, exchange, s->native));
    TRY(open_blas(&blas));
    int rc = configure(blas, s->native, (char *)workspace + exchange, bytes - exchange);
    if (rc != 0)
        cuda_blas_close(blas);
    else
        s->blas = blas, s->exchange = exchange ? workspace : NULL;
    return rc;
}
