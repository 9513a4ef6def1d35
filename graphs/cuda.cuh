/* Inside of the CUDA device, for .cu files alone: the native stream, and what every launch and call goes through. */
#ifndef DUET_GRAPHS_CUDA_CUH
#define DUET_GRAPHS_CUDA_CUH

#include <cuda_runtime.h>

extern "C" {
#include "base/err.h"
#include "graphs/backend.h"
#include "graphs/host_limits.h"
}

struct cuda_stream {
    struct stream common;
    cudaStream_t native;
    cudaEvent_t order;          /* of forks and joins */
    size_t captured_bytes;      /* arguments of the launches of the running capture */
    struct cublasContext *blas; /* cuda_blas.cuh; NULL before stream_set_workspace */
    void *exchange;             /* likewise */
};

/* Of a workspace, where blocks of a kernel that wait for each other exchange what they have. Its first KiB holds counts, which are 0 between
 * kernels. */
enum { CUDA_EXCHANGE_BYTES = 26 << 20 };

static inline cudaStream_t cuda_native(struct stream *s) {
    return reinterpret_cast<struct cuda_stream *>(s)->native;
}

/* cuda_blas.cu: takes memory that is lent to a stream: for the exchange, if there is enough, and else for cuBLAS, which is opened; closes
 * cuBLAS (NULL is fine). */
int cuda_set_workspace(struct stream *, void *workspace, size_t bytes);
void cuda_blas_close(struct cublasContext *);
/* The stream's cublasHandle_t, or NULL if it was lent no workspace. */
static inline struct cublasContext *cuda_blas(const struct stream *s) {
    return reinterpret_cast<const struct cuda_stream *>(s)->blas;
}
/* CUDA_EXCHANGE_BYTES, or NULL. */
static inline void *cuda_exchange(const struct stream *s) {
    return reinterpret_cast<const struct cuda_stream *>(s)->exchange;
}

/* ERR_DEVICE "CALL: reason" for a failed call, with a hint where a kernel before it is at fault; clears a sticky error where
 * that is possible. 0 for cudaSuccess. */
int cuda_check(cudaError_t status, const char *call);
#define CUDA_TRY(call) TRY(cuda_check((call), #call))

/* After every kernel launch: its error, and the counts that reports and tests read. With device_options.check_launches it
 * waits for the kernel, so that a fault names it. */
int cuda_launched(struct stream *, const char *kernel, size_t argument_bytes);

/* Launches a kernel whose blocks wait for each other: all of them run at once, or the launch fails. Counted as
 * cuda_launched does. `arguments` as for cudaLaunchKernel. */
int cuda_launch_together(struct stream *, const char *kernel, const void *function, int blocks, int threads,
                         void **arguments, size_t argument_bytes);

/* Calls that wait for a whole device, which ends captures of other threads, lie between these two: no stream captures meanwhile. */
void cuda_keep_captures_off(void);
void cuda_let_captures_on(void);

/* Lets a kernel have all shared memory that a block can have. Nobody asks for less: it holds for the kernel in all threads, and for what
 * they have captured. */
int cuda_allow_shared(const struct device *, const void *kernel);

/* cuda_sum.cu: the backend's sum_words. */
int cuda_sum_words(struct stream *, const void *words, size_t bytes, uint64_t *sum);

/* Facts that launchers choose grids by. */
int cuda_gpu(const struct device *); /* its number, from 0 */
int cuda_multiprocessors(const struct device *);
/* Programmatic dependent launch: kernels built for compute capability 9.0 or later, on such a GPU, and nobody wants them apart. */
bool cuda_starts_early(const struct device *);
/* Such kernels and GPU, and room for clusters of blocks with 200 KiB of shared memory each: 9.0 and 10.0. */
bool cuda_takes_clusters(const struct device *);
/* Tensor cores that work for groups of 4 warps (wgmma): 9.0 alone, and kernels built for it. */
bool cuda_has_wgmma(const struct device *);

#endif
