/* The runtime of the emulated device: everything happens at once, in the call that asks for it, but for what a stream captures. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "emulated.h"

#undef cudaGraphInstantiate

typedef std::vector<std::function<void()>> nodes;

struct CUgraph_st {
    nodes list;
    std::vector<cudaStream_t> streams; /* that are captured */
};
struct CUgraphExec_st {
    nodes list;
};
struct CUstream_st {
    cudaGraph_t capture; /* NULL: none */
};
struct CUevent_st {
    cudaGraph_t capture; /* recorded by a stream that is captured */
    double ms;
};

static thread_local cudaError_t last_error;

static cudaError_t give(cudaError_t status) {
    if (status != cudaSuccess) last_error = status;
    return status;
}
static cudaError_t perform(cudaStream_t s, std::function<void()> what) {
    if (s && s->capture)
        s->capture->list.push_back(std::move(what));
    else
        what();
    return cudaSuccess;
}

/* --- launches ------------------------------------------------------------------------------------------- */

enum { SHARED_DEFAULT = 48 << 10 };
static int capability() {
    return (int)emulated::option("EMULATED_CAPABILITY", EMULATED_ARCH / 10);
}
static size_t shared_most() {
    return (size_t)(capability() == 80                                                ? 163
                    : capability() == 86 || capability() == 89 || capability() == 120 ? 99
                                                                                      : 227)
           << 10;
}

static std::mutex known;
static std::map<const void *, emulated::binder> binders;
static std::map<const void *, size_t> granted; /* dynamic shared memory beyond SHARED_DEFAULT */

/* EMULATED_TRACE=1: every launch, and how many f32 NaN of arithmetic memory holds after it. */
static void trace(const struct emulated::launch &launch);

namespace emulated {

void remember(const void *function, binder b) {
    std::unique_lock<std::mutex> lock(known);
    binders[function] = std::move(b);
}

static bool is_launchable(const void *function, const config &c) {
    std::unique_lock<std::mutex> lock(known);
    auto found = granted.find(function);
    const size_t threads = (size_t)c.block.x * c.block.y * c.block.z, blocks = (size_t)c.grid.x * c.grid.y * c.grid.z;
    return threads > 0 && threads <= 1024 && blocks > 0 && c.grid.y <= 65535 && c.grid.z <= 65535 &&
           c.shared <= (found == granted.end() ? (size_t)SHARED_DEFAULT : found->second) &&
           c.grid.x % (unsigned)c.cluster == 0;
}

void enqueue(cudaStream_t s, std::function<void()> what) {
    (void)perform(s, std::move(what));
}

cudaError_t start(const char *name, const void *function, const config &c, bool together, std::function<void()> call) {
    if (!is_launchable(function, c)) return give(cudaErrorInvalidValue);
    struct launch launch = {name, c.grid, c.block, c.shared, c.cluster, together, std::move(call)};
    return perform(c.stream, [launch] {
        static const bool is_traced = option("EMULATED_TRACE", 0);
        run(launch);
        if (is_traced) trace(launch);
    });
}

} /* namespace emulated */

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                        cudaStream_t s) {
    std::function<void()> call;
    {
        std::unique_lock<std::mutex> lock(known);
        auto found = binders.find(function);
        if (found == binders.end()) return give(cudaErrorInvalidDeviceFunction);
        call = found->second(arguments);
    }
    return emulated::start("that was launched cooperatively", function, emulated::config(grid, block, shared, s), true,
                           call);
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute which, int value) {
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || (size_t)value > shared_most()) return give(cudaErrorInvalidValue);
    std::unique_lock<std::mutex> lock(known);
    granted[function] = std::max((size_t)value, (size_t)SHARED_DEFAULT);
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
    *attributes = {};
    std::unique_lock<std::mutex> lock(known);
    const auto found = granted.find(function);
    attributes->maxDynamicSharedSizeBytes = (int)(found == granted.end() ? SHARED_DEFAULT : found->second);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads, size_t) {
    *blocks = std::max(1, 1024 / threads);
    return cudaSuccess;
}

/* --- memory --------------------------------------------------------------------------------------------- */

enum { PAGE = 4096 };
static std::map<const void *, size_t> blocks; /* by address; how much of it is asked for */
static size_t taken;
static size_t total_memory() {
    return (size_t)emulated::option("EMULATED_MEMORY_MIB", 8192) << 20;
}

static size_t mapped_bytes(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}
/* Memory ends at a page that cannot be touched, but for what is missing of 16 bytes; it holds NaN. */
cudaError_t cudaMalloc(void **to, size_t bytes) {
    std::unique_lock<std::mutex> lock(known);
    *to = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (bytes > total_memory() - taken) return give(cudaErrorMemoryAllocation);
    char *base = (char *)mmap(nullptr, mapped_bytes(bytes) + PAGE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return give(cudaErrorMemoryAllocation);
    mprotect(base + mapped_bytes(bytes), PAGE, PROT_NONE);
    char *memory = base + mapped_bytes(bytes) - (bytes + 15) / 16 * 16;
    if (bytes < 64 << 20) memset(memory, 0xFF, bytes); /* more is an arena, which is cleared */
    blocks[memory] = bytes, taken += bytes;
    *to = memory;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    if (!memory) return cudaSuccess;
    std::unique_lock<std::mutex> lock(known);
    auto found = blocks.find(memory);
    if (found == blocks.end()) return give(cudaErrorInvalidValue);
    char *end = (char *)memory + (found->second + 15) / 16 * 16 + PAGE;
    munmap(end - PAGE - mapped_bytes(found->second), mapped_bytes(found->second) + PAGE);
    taken -= found->second;
    blocks.erase(found);
    return cudaSuccess;
}

static void trace(const struct emulated::launch &launch) {
    size_t count = 0;
    const void *where = nullptr;
    std::unique_lock<std::mutex> lock(known);
    for (const auto &block : blocks)
        for (size_t i = 0; i < block.second / 4; i++) {
            const uint32_t x = ((const uint32_t *)block.first)[i];
            if ((x & 0x7FFFFFFF) != 0x7FC00000) continue;
            if (count++ == 0) where = (const uint32_t *)block.first + i;
        }
    fprintf(stderr, "(%u, %u, %u) x %u, %zu bytes, %zu NaN at %p: %.200s\n", launch.grid.x, launch.grid.y,
            launch.grid.z, launch.block.x, launch.shared, count, where, launch.name);
}

cudaError_t cudaMallocHost(void **to, size_t bytes) {
    return posix_memalign(to, 4096, bytes ? bytes : 1) == 0 ? cudaSuccess : give(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void *memory) {
    free(memory);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    std::unique_lock<std::mutex> lock(known);
    *total = total_memory(), *available = *total - taken;
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t s) {
    return perform(s, [=] { memmove(to, from, bytes); });
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t s) {
    return perform(s, [=] { memset(to, byte, bytes); });
}
cudaError_t cudaMemset(void *to, int byte, size_t bytes) {
    return cudaMemsetAsync(to, byte, bytes, nullptr);
}

/* --- the device ----------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : give(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    if (device != 0) return give(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    p->major = capability() / 10, p->minor = capability() % 10;
    snprintf(p->name, sizeof p->name, "emulated GPU (sm_%d)", capability());
    p->multiProcessorCount = (int)emulated::option("EMULATED_MULTIPROCESSORS", 4);
    p->sharedMemPerBlock = SHARED_DEFAULT, p->sharedMemPerBlockOptin = shared_most();
    p->sharedMemPerMultiprocessor = shared_most() + 1024;
    p->totalGlobalMem = total_memory(), p->warpSize = 32, p->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    return cudaSuccess;
}
cudaError_t cudaGetLastError() {
    return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
    return last_error;
}
const char *cudaGetErrorString(cudaError_t status) {
    switch (status) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorInvalidDeviceFunction:
        return "invalid device function";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    default:
        return "an error of the emulated device";
    }
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *found) {
    *function = nullptr;
    if (found) *found = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

/* --- streams and events --------------------------------------------------------------------------------- */

static double now_ms() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *to, unsigned) {
    *to = new CUstream_st();
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    return give(s && s->capture ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *to, unsigned) {
    *to = new CUevent_st();
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *to) {
    return cudaEventCreateWithFlags(to, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    e->capture = s ? s->capture : nullptr;
    e->ms = now_ms();
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    *ms = (float)(end->ms - start->ms);
    return cudaSuccess;
}
/* A stream that waits for what is captured is captured as well. */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    if (!e->capture || s->capture == e->capture) return cudaSuccess;
    s->capture = e->capture;
    e->capture->streams.push_back(s);
    return cudaSuccess;
}

/* --- graphs --------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    if (s->capture) return give(cudaErrorIllegalState);
    s->capture = new CUgraph_st();
    s->capture->streams.push_back(s);
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *to) {
    *to = s->capture;
    if (!s->capture) return give(cudaErrorIllegalState);
    for (cudaStream_t captured : (*to)->streams) captured->capture = nullptr;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count) {
    *count = graph->list.size();
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *to, cudaGraph_t graph, unsigned long long) {
    *to = new CUgraphExec_st{graph->list};
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
    for (const auto &node : exec->list) node();
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}
