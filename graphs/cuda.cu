/* The CUDA device: one GPU, streams, events, graphs by stream capture. */
#include "graphs/cuda.cuh"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct cuda_device {
    struct device common;
    int gpu;
    int gpu_before; /* that the thread had selected */
    int multiprocessors;
    int shared_most; /* bytes of shared memory of a block */
    bool takes_clusters, has_wgmma;
};

struct cuda_event {
    struct event common;
    cudaEvent_t native;
};

struct cuda_recording {
    struct recording common;
    cudaGraphExec_t exec; /* NULL without nodes */
};

template <typename T> static T *create(const char *what) {
    T *object = static_cast<T *>(calloc(1, sizeof(T)));
    if (!object) err_set(ERR_MEMORY, "no memory for %s", what);
    return object;
}

/* Faults of a running kernel: whatever call comes next reports them. */
static bool is_fault(cudaError_t status) {
    switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
        return true;
    default:
        return false;
    }
}

/* A fault ends the context, and calls that tidy up report it again: the thread's first sentence stands. */
static int keep_first_fault(cudaError_t status, int code) {
    static thread_local char first[1024];
    if (!is_fault(status)) return code;
    if (first[0]) return err_set((enum err)code, "%s", first);
    snprintf(first, sizeof first, "%s", err_message());
    return code;
}

int cuda_check(cudaError_t status, const char *call) {
    if (status == cudaSuccess) return 0;
    (void)cudaGetLastError();
    int length = 0; /* of the call's name */
    while (call[length] && call[length] != '(') length++;
    enum err code = status == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE;
    err_set(code, "%.*s: %s%s", length, call, cudaGetErrorString(status),
            is_fault(status) ? " in a kernel launched before; hint: --graphs debug names it" : "");
    return keep_first_fault(status, code);
}

int cuda_launched(struct stream *s, const char *kernel, size_t argument_bytes) {
    cudaError_t status = cudaGetLastError();
    if (is_fault(status)) return cuda_check(status, kernel);
    if (s->capture) {
        reinterpret_cast<struct cuda_stream *>(s->capture)->captured_bytes += argument_bytes;
    } else {
        s->counts.kernel_launches++;
        if (status == cudaSuccess && s->device->checks_launches) status = cudaStreamSynchronize(cuda_native(s));
    }
    if (status == cudaSuccess) return 0;
    (void)cudaGetLastError();
    err_set(ERR_DEVICE, "kernel %s: %s", kernel, cudaGetErrorString(status));
    return keep_first_fault(status, ERR_DEVICE);
}

int cuda_launch_together(struct stream *s, const char *kernel, const void *function, int blocks, int threads,
                         void **arguments, size_t argument_bytes) {
    (void)cudaLaunchCooperativeKernel(function, dim3((unsigned)blocks), dim3((unsigned)threads), arguments, 0,
                                      cuda_native(s)); /* cuda_launched reports the error */
    return cuda_launched(s, kernel, argument_bytes);
}

int cuda_allow_shared(const struct device *d, const void *kernel) {
    struct cudaFuncAttributes attributes;
    CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel));
    const int most = reinterpret_cast<const struct cuda_device *>(d)->shared_most - (int)attributes.sharedSizeBytes;
    if (attributes.maxDynamicSharedSizeBytes < most)
        CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    return 0;
}

int cuda_gpu(const struct device *d) {
    return reinterpret_cast<const struct cuda_device *>(d)->gpu;
}

int cuda_multiprocessors(const struct device *d) {
    return reinterpret_cast<const struct cuda_device *>(d)->multiprocessors;
}

bool cuda_starts_early(const struct device *d) {
    return d->can_start_early && !d->starts_apart;
}

bool cuda_has_wgmma(const struct device *d) {
    return reinterpret_cast<const struct cuda_device *>(d)->has_wgmma;
}

bool cuda_takes_clusters(const struct device *d) {
    return reinterpret_cast<const struct cuda_device *>(d)->takes_clusters;
}

/* --- memory --------------------------------------------------------------------------------------------- */

static int cuda_resume(struct device *device) {
    struct cuda_device *d = reinterpret_cast<struct cuda_device *>(device);
    CUDA_TRY(cudaGetDevice(&d->gpu_before));
    CUDA_TRY(cudaSetDevice(d->gpu));
    return 0;
}

static void cuda_suspend(struct device *device) {
    (void)cudaSetDevice(reinterpret_cast<struct cuda_device *>(device)->gpu_before);
}

static void cuda_close(struct device *d) {
    cuda_suspend(d);
    free(d);
}

static int cuda_memory(const struct device *, uint64_t *free_bytes, uint64_t *total_bytes) {
    size_t available, total;
    CUDA_TRY(cudaMemGetInfo(&available, &total));
    *free_bytes = available;
    *total_bytes = total;
    return 0;
}

/* By a stream of its own: what waits for a whole device ends the capture of another thread, and no stream of duet waits for the default one. */
static cudaError_t clear(void *memory, size_t bytes) {
    cudaStream_t stream;
    cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (status != cudaSuccess) return status;
    status = cudaMemsetAsync(memory, 0, bytes, stream);
    if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
    return status;
}

static int cuda_alloc_arena(struct device *, size_t bytes, void **out) {
    if (cudaMalloc(out, bytes) != cudaSuccess) {
        size_t available = 0, total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&available, &total);
        return err_set(ERR_MEMORY, "cannot have %.2f GiB of GPU memory: %.2f GiB of %.2f GiB are free",
                       (double)bytes / (1 << 30), (double)available / (1 << 30), (double)total / (1 << 30));
    }
    const cudaError_t status = clear(*out, bytes);
    if (status == cudaSuccess) return 0;
    (void)cudaFree(*out);
    return cuda_check(status, "cudaMemset");
}

static void cuda_free_arena(struct device *, void *arena, size_t) {
    (void)cudaFree(arena);
}

static int cuda_alloc_pinned(struct device *, size_t bytes, void **out) {
    CUDA_TRY(cudaMallocHost(out, bytes));
    return 0;
}

static void cuda_free_pinned(struct device *, void *memory) {
    (void)cudaFreeHost(memory);
}

/* --- streams ---------------------------------------------------------------------------------------------- */

static void cuda_stream_destroy(struct stream *stream) {
    struct cuda_stream *s = reinterpret_cast<struct cuda_stream *>(stream);
    cuda_blas_close(s->blas);
    if (s->order) (void)cudaEventDestroy(s->order);
    if (s->native) (void)cudaStreamDestroy(s->native);
    free(s);
}

static int cuda_stream_create(struct device *, struct stream **out) {
    struct cuda_stream *s = create<struct cuda_stream>("a stream");
    if (!s) return ERR_MEMORY;
    int rc = cuda_check(cudaStreamCreateWithFlags(&s->native, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    if (rc == 0)
        rc = cuda_check(cudaEventCreateWithFlags(&s->order, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    if (rc != 0) {
        cuda_stream_destroy(&s->common);
        return rc;
    }
    *out = &s->common;
    return 0;
}

static int cuda_stream_sync(struct stream *s) {
    CUDA_TRY(cudaStreamSynchronize(cuda_native(s)));
    return 0;
}

static int checked(struct stream *s, const char *call) {
    if (s->capture || !s->device->checks_launches) return 0;
    return cuda_check(cudaStreamSynchronize(cuda_native(s)), call);
}

static int cuda_copy(struct stream *s, void *dst, const void *src, size_t bytes) {
    CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, cuda_native(s)));
    return checked(s, "cudaMemcpyAsync");
}

static int cuda_fill(struct stream *s, void *dst, unsigned char byte, size_t bytes) {
    CUDA_TRY(cudaMemsetAsync(dst, byte, bytes, cuda_native(s)));
    return checked(s, "cudaMemsetAsync");
}

/* --- events ----------------------------------------------------------------------------------------------- */

static cudaEvent_t native_event(const struct event *e) {
    return reinterpret_cast<const struct cuda_event *>(e)->native;
}

static int cuda_event_create(struct device *, struct event **out) {
    struct cuda_event *e = create<struct cuda_event>("an event");
    if (!e) return ERR_MEMORY;
    int rc = cuda_check(cudaEventCreate(&e->native), "cudaEventCreate");
    if (rc != 0) {
        free(e);
        return rc;
    }
    *out = &e->common;
    return 0;
}

static void cuda_event_destroy(struct event *e) {
    (void)cudaEventDestroy(native_event(e));
    free(e);
}

static int cuda_event_record(struct event *e, struct stream *s) {
    CUDA_TRY(cudaEventRecord(native_event(e), cuda_native(s)));
    return 0;
}

static int cuda_event_wait(struct event *e) {
    CUDA_TRY(cudaEventSynchronize(native_event(e)));
    return 0;
}

static bool cuda_event_is_done(const struct event *e) {
    if (cudaEventQuery(native_event(e)) != cudaErrorNotReady) return true;
    (void)cudaGetLastError(); /* else the next launch would report it */
    return false;
}

static int cuda_stream_wait_event(struct stream *s, struct event *e) {
    CUDA_TRY(cudaStreamWaitEvent(cuda_native(s), native_event(e), 0));
    return 0;
}

static int cuda_event_elapsed_ms(const struct event *start, const struct event *end, float *ms) {
    CUDA_TRY(cudaEventElapsedTime(ms, native_event(start), native_event(end)));
    return 0;
}

/* --- capture ---------------------------------------------------------------------------------------------- */

/* Captures of any thread read; what waits for whole devices, and so ends captures, writes. */
static pthread_rwlock_t captures = PTHREAD_RWLOCK_INITIALIZER;

void cuda_keep_captures_off(void) {
    pthread_rwlock_wrlock(&captures);
}

void cuda_let_captures_on(void) {
    pthread_rwlock_unlock(&captures);
}

static int cuda_begin_capture(struct stream *stream) {
    reinterpret_cast<struct cuda_stream *>(stream)->captured_bytes = 0;
    pthread_rwlock_rdlock(&captures);
    int rc = cuda_check(cudaStreamBeginCapture(cuda_native(stream), cudaStreamCaptureModeThreadLocal),
                        "cudaStreamBeginCapture");
    if (rc != 0) pthread_rwlock_unlock(&captures);
    return rc;
}

static cudaError_t end_native_capture(struct stream *stream, cudaGraph_t *graph) {
    *graph = nullptr;
    cudaError_t status = cudaStreamEndCapture(cuda_native(stream), graph);
    pthread_rwlock_unlock(&captures);
    return status;
}

static int instantiate(struct cuda_recording *r, cudaGraph_t graph, cudaStream_t native) {
    size_t nodes = 0;
    CUDA_TRY(cudaGraphGetNodes(graph, nullptr, &nodes));
    r->common.nodes = (int)nodes;
    if (nodes == 0) return 0;
    CUDA_TRY(cudaGraphInstantiate(&r->exec, graph, 0));
    CUDA_TRY(cudaGraphUpload(r->exec, native));
    return 0;
}

static void cuda_recording_destroy(struct recording *recording) {
    struct cuda_recording *r = reinterpret_cast<struct cuda_recording *>(recording);
    if (r->exec) (void)cudaGraphExecDestroy(r->exec);
    free(r);
}

static int cuda_end_capture(struct stream *stream, struct recording **out) {
    cudaGraph_t graph;
    int rc = cuda_check(end_native_capture(stream, &graph), "cudaStreamEndCapture");
    struct cuda_recording *r = rc == 0 ? create<struct cuda_recording>("a graph") : nullptr;
    if (rc == 0) rc = r ? instantiate(r, graph, cuda_native(stream)) : ERR_MEMORY;
    if (graph) (void)cudaGraphDestroy(graph);
    if (rc != 0) {
        if (r) cuda_recording_destroy(&r->common);
        return rc;
    }
    r->common.bytes = sizeof *r + reinterpret_cast<struct cuda_stream *>(stream)->captured_bytes;
    *out = &r->common;
    return 0;
}

static void cuda_abort_capture(struct stream *stream) {
    cudaGraph_t graph;
    (void)end_native_capture(stream, &graph);
    if (graph) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
}

/* The later work of `after` waits for the work of `before` so far. */
static int order(struct stream *before, struct stream *after) {
    cudaEvent_t event = reinterpret_cast<struct cuda_stream *>(before)->order;
    CUDA_TRY(cudaEventRecord(event, cuda_native(before)));
    CUDA_TRY(cudaStreamWaitEvent(cuda_native(after), event, 0));
    return 0;
}

static int cuda_fork(struct stream *origin, struct stream *side) {
    return order(origin, side);
}

static int cuda_join(struct stream *origin, struct stream *side) {
    return order(side, origin);
}

static int cuda_launch(struct recording *r, struct stream *s) {
    cudaGraphExec_t exec = reinterpret_cast<struct cuda_recording *>(r)->exec;
    if (exec) CUDA_TRY(cudaGraphLaunch(exec, cuda_native(s)));
    return 0;
}

/* --- the device ------------------------------------------------------------------------------------------- */

static struct backend make_backend(void) {
    struct backend b = {};
    b.close = cuda_close;
    b.resume = cuda_resume;
    b.suspend = cuda_suspend;
    b.memory = cuda_memory;
    b.alloc_arena = cuda_alloc_arena;
    b.free_arena = cuda_free_arena;
    b.alloc_pinned = cuda_alloc_pinned;
    b.free_pinned = cuda_free_pinned;
    b.stream_create = cuda_stream_create;
    b.stream_destroy = cuda_stream_destroy;
    b.stream_sync = cuda_stream_sync;
    b.set_workspace = cuda_set_workspace;
    b.copy = cuda_copy;
    b.fill = cuda_fill;
    b.sum_words = cuda_sum_words;
    b.event_create = cuda_event_create;
    b.event_destroy = cuda_event_destroy;
    b.event_record = cuda_event_record;
    b.event_wait = cuda_event_wait;
    b.event_is_done = cuda_event_is_done;
    b.stream_wait_event = cuda_stream_wait_event;
    b.event_elapsed_ms = cuda_event_elapsed_ms;
    b.begin_capture = cuda_begin_capture;
    b.end_capture = cuda_end_capture;
    b.abort_capture = cuda_abort_capture;
    b.fork = cuda_fork;
    b.join = cuda_join;
    b.recording_destroy = cuda_recording_destroy;
    b.launch = cuda_launch;
    return b;
}

extern "C" bool device_cuda_is_built(void) {
    return true;
}

static __global__ void nothing() {}

/* All kernels are built for the same architectures. */
static int check_build(const struct cudaDeviceProp *properties) {
    struct cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, nothing);
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction)
        return cuda_check(error, "cudaFuncGetAttributes");
    (void)cudaGetLastError();
    return err_set(ERR_DEVICE, "%s: this program was built for other GPUs; make CUDA_ARCH=sm_%d%d", properties->name,
                   properties->major, properties->minor);
}

/* The architecture of the kernels that run: the newest that was built and that is not newer than the GPU. */
static int architecture_built_for(const struct cudaDeviceProp *properties) {
    static const int built[] = {__CUDA_ARCH_LIST__}; /* 900: sm_90 */
    const int gpu = properties->major * 100 + properties->minor * 10;
    int newest = 0;
    for (int architecture : built)
        if (architecture <= gpu && architecture > newest) newest = architecture;
    return newest;
}

/* Whether kernels of this build run on the GPU that is selected; ERR_DEVICE says why not. */
static int check_gpu(const struct cudaDeviceProp *properties) {
    if (properties->major < 8)
        return err_set(ERR_DEVICE, "%s: compute capability %d.%d, at least 8.0 is needed", properties->name,
                       properties->major, properties->minor);
    return check_build(properties);
}

static int describe(struct cuda_device *d, bool is_one_of_several) {
    struct cudaDeviceProp properties;
    CUDA_TRY(cudaGetDeviceProperties(&properties, d->gpu));
    TRY(check_gpu(&properties));
    d->multiprocessors = properties.multiProcessorCount;
    d->shared_most = (int)properties.sharedMemPerBlockOptin;
    d->common.can_start_early = architecture_built_for(&properties) >= 900;
    d->has_wgmma = architecture_built_for(&properties) == 900 && properties.major == 9 && properties.minor == 0;
    d->takes_clusters = d->common.can_start_early && properties.sharedMemPerBlockOptin >= (size_t)200 << 10;
    snprintf(d->common.name, sizeof d->common.name, is_one_of_several ? "%.80s (GPU %d)" : "%.80s", properties.name,
             d->gpu);
    return 0;
}

extern "C" int device_open_cuda(struct device **out, const struct device_options *options) {
    static const struct backend backend = make_backend();
    int count = 0;
    *out = nullptr;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        (void)cudaGetLastError();
        return err_set(ERR_DEVICE, "no CUDA device: no GPU, or no driver for it");
    }
    if (options->gpu < 0 || options->gpu >= count)
        return err_set(ERR_DEVICE, "GPU %d: this machine has %d (numbered from 0)", options->gpu, count);
    struct cuda_device *d = create<struct cuda_device>("a device");
    if (!d) return ERR_MEMORY;
    d->common.backend = &backend;
    d->common.kind = DEVICE_CUDA;
    d->common.is_async = true;
    d->common.threads = options->threads > 0 ? options->threads : host_limits_threads("");
    d->gpu = options->gpu;
    int rc = cuda_resume(&d->common);
    if (rc == 0) {
        rc = describe(d, count > 1);
        if (rc != 0) cuda_suspend(&d->common);
    }
    if (rc == 0)
        *out = &d->common;
    else
        free(d);
    return rc;
}
