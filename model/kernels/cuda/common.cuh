/* What the kernels share: 16-bit types, warp sums, the rows of a pass, launches, and the check of what they are given. */
#ifndef DUET_MODEL_KERNELS_CUDA_COMMON_CUH
#define DUET_MODEL_KERNELS_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <initializer_list>

#include "graphs/cuda.cuh"
extern "C" {
#include "model/ops.h"
}

typedef __nv_bfloat16 bf16;

/* Threads of a block, but for kernels that say otherwise. */
enum { BLOCK_THREADS = 256 };

template <typename T> __device__ __forceinline__ float to_float(T x);
template <> __device__ __forceinline__ float to_float<bf16>(bf16 x) {
    return __bfloat162float(x);
}
template <> __device__ __forceinline__ float to_float<half>(half x) {
    return __half2float(x);
}
template <> __device__ __forceinline__ float to_float<float>(float x) {
    return x;
}

template <typename T> __host__ __device__ __forceinline__ T from_float(float x);
template <> __host__ __device__ __forceinline__ bf16 from_float<bf16>(float x) {
    return __float2bfloat16_rn(x);
}
template <> __host__ __device__ __forceinline__ half from_float<half>(float x) {
    return __float2half_rn(x);
}

/* Two numbers side by side, as one word in memory holds them. */
template <typename T> struct pair_of;
template <> struct pair_of<bf16> { typedef __nv_bfloat162 type; };
template <> struct pair_of<half> { typedef __half2 type; };
__device__ __forceinline__ float2 to_floats(__nv_bfloat162 x) {
    return __bfloat1622float2(x);
}
__device__ __forceinline__ float2 to_floats(__half2 x) {
    return __half22float2(x);
}

/* A number of a weight that keeps the type of the file. */
__device__ __forceinline__ float number_of(const struct weight &w, int i) {
    if (w.format == DTYPE_F32) return __ldg((const float *)w.data + i);
    return w.format == DTYPE_F16 ? to_float(((const half *)w.data)[i]) : to_float(((const bf16 *)w.data)[i]);
}

/* The sum over a warp in a fixed tree; every lane gets it. */
__device__ __forceinline__ float warp_sum(float x) {
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
    for (int step = 16; step > 0; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* 1 / sqrt(sum * share + eps) within 3 ulp, share = 1 / count: every thread of a norm makes it, so in few instructions. */
__device__ __forceinline__ float inverse_rms(float sum, float share, float eps) {
    return rsqrtf(fmaf(sum, share, eps));
}

/* g / (1 + exp(-z)), within 2 ulp. */
__device__ __forceinline__ float times_sigmoid(float g, float z) {
    return __fdividef(g, 1.0f + expf(-z));
}
/* enum activation, by the formulas of the host (kernels/host/kernel_product.h). */
__device__ __forceinline__ float activate(enum activation activation, float gate, float up) {
    float z = gate;
    if (activation == ACTIVATION_RELU2) {
        z = gate > 0.0f ? 1e4f : -1e4f; /* gate / 1, or / infinity; NaN stays */
        up *= gate;
    }
    if (activation == ACTIVATION_GELU) z = 1.5957691216f * fmaf(gate * gate * gate, 0.044715f, gate);
    if (activation == ACTIVATION_CLAMPED) {
        gate = gate > 7.0f ? 7.0f : gate; /* NaN stays */
        up = (up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up) + 1.0f;
        z = 1.702f * gate;
    }
    return times_sigmoid(gate, z) * up;
}

/* cap * tanh(x / cap), tanh(z) = 1 - 2 / (1 + exp(2 z)), by quotients within 2 ulp: their code is in every kernel that may cap. */
__device__ __forceinline__ float soft_cap(float x, float cap) {
    return cap * (1.0f - __fdividef(2.0f, 1.0f + expf(__fdividef(x, 0.5f * cap))));
}

/* a / b for 0 <= a < 2^20 and b > 0, in few instructions: the division of floats is off by less than half of 1 / b. */
__device__ __forceinline__ int quotient(int a, int b) {
    return (int)__fdividef((float)a + 0.5f, (float)b);
}

/* What is fixed while a pass runs. Before inputs_are_ready it is asked for here, in the order of the source, and not behind branches that
 * follow: its latency is hidden by them. LATE: anywhere. */
template <bool LATE = false> __device__ __forceinline__ int load_fixed(const int *from) {
    if (LATE) return __ldcg(from);
    int x;
    asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(x) : "l"(__cvta_generic_to_global(from)) : "memory");
    return x;
}

/* The page of a row's position; page 0 for a row without one. Without a branch, which would wait for the position: a thread asks for
 * those of several rows at once. */
template <bool LATE = false> __device__ __forceinline__ int page_of(const struct rows &rows, int row, int position) {
    const int slot = load_fixed<LATE>(rows.row_slot + quotient(row, rows.q_len)),
              page =
                  load_fixed<LATE>(rows.page_table + (size_t)slot * rows.pages_per_slot + max(position, 0) / KV_PAGE);
    return position < 0 ? 0 : page;
}

/* Programmatic dependent launch, sm_90 and later: a kernel launched by launch_dependent may start while the kernel before it
 * still runs. So it fetches what no kernel of the pass writes, and then waits: weights and, past the caches of its multiprocessor
 * (load_fixed), positions, slots, pages, and keys and values older than the pass, as the first kernel of a pass waits before it
 * lets the next one start. Before inputs_are_ready() it reads nothing else and writes nothing, and every thread calls it, else the
 * kernels after it could start too early. A kernel that lets the next one start behind its own inputs_are_ready() lets that read, by
 * load_fixed too, what its own inputs were: all kernels before it are done. */
__device__ __forceinline__ void inputs_are_ready() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* Lets the next kernel start as soon as blocks of this one leave room for it. */
__device__ __forceinline__ void next_may_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* The part of a multiprocessor's memory, in bytes and in percent of 228 KiB, that kernels around a narrow product ask for as
 * shared memory. It changes only while a multiprocessor is idle, so blocks of the next kernel would wait if it needed more; and
 * loads in flight need the rest. */
enum {
    SHARED_BYTES = 132 << 10,
    SHARED_PERCENT = 57,
    SHARED_BYTES_MORE = 164 << 10,
    SHARED_PERCENT_MORE = 72 /* where tokens find room in that alone */,
    SHARED_PERCENT_ANY = cudaSharedmemCarveoutDefault
};

/* Launches `kernel` so that it may start early; clusters of `cluster` blocks along x. */
template <typename... Params, typename... Args>
static void launch_sharing(struct stream *stream, void (*kernel)(Params...), dim3 grid, int threads, size_t shared,
                           int cluster, int percent, Args... args) {
    cudaLaunchAttribute attributes[3] = {};
    unsigned count = 0;
    if (cuda_starts_early(stream->device)) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (percent != SHARED_PERCENT_ANY) {
        attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
        attributes[count++].val.sharedMemCarveout = (unsigned)percent;
    }
    if (cluster > 1) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count].val.clusterDim.x = (unsigned)cluster;
        attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
        count++;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = dim3((unsigned)threads), config.dynamicSmemBytes = shared;
    config.stream = cuda_native(stream), config.attrs = attributes, config.numAttrs = count;
    if (shared > 0) (void)cuda_allow_shared(stream->device, (const void *)kernel);
    (void)cudaLaunchKernelEx(&config, kernel, args...); /* cuda_launched reports the error */
}
template <typename... Params, typename... Args>
static void launch_dependent(struct stream *stream, void (*kernel)(Params...), dim3 grid, int threads, size_t shared,
                             int cluster, Args... args) {
    launch_sharing(stream, kernel, grid, threads, shared, cluster, SHARED_PERCENT_ANY, args...);
}

/* How the small blocks of a kernel lie on multiprocessors that the next one's are to fill: `each` on one, by the shared memory that they ask
 * for, 0: as many as find room. The first multiprocessor that is free would take them all, and those of the next kernel that have it wait for
 * all. */
struct spread {
    int percent; /* as launch_sharing has it */
    int each;
};
/* What such a block asks for that needs so much: more than would let another one in, of what a percentage is rounded up to. */
static inline size_t spread_bytes(struct spread spread, size_t needed) {
    enum { PERCENT_BYTES = (228 << 10) / 100 };
    const size_t least = spread.each > 0 ? (size_t)((spread.percent + 1) * PERCENT_BYTES / (spread.each + 1)) : 0;
    return needed > least ? needed : least;
}
/* How many of so many blocks to put on one: if half of the multiprocessors have none even so, one, else two. */
static inline int spread_each(const struct stream *s, int blocks) {
    return 2 * blocks <= cuda_multiprocessors(s->device) ? 1 : 2;
}

/* What an op names: its address, NULL where it is absent, its type, and whether kernels can read it, which take rows that lie
 * side by side and experts at one distance, of whole 16 bytes. Weights lie so (model/upload.c). */
struct operand {
    const void *data;
    enum dtype type;
    bool is_readable;
    operand(const struct weight &w) /* packed ones have no type */
        : data(w.packed ? nullptr : w.data), type(w.format), is_readable(weight_stride(&w) == w.cols && !w.scales) {}
    operand(const struct norm &n) : operand(n.weight.data ? n.weight : n.bias) {
        if (n.weight.data && n.bias.data && n.bias.format != n.weight.format) is_readable = false;
    }
    operand(const struct buffer &b) : data(b.data), type(b.type), is_readable(true) {}
    operand(const struct kv_layer &kv) : data(kv.k), type(kv.type), is_readable(true) {}
    operand(const struct experts &e, int count) : operand(e.each ? e.each[0] : weight()) {
        if (!data) return; /* packed ones, too */
        const char *last = (const char *)data + (int64_t)(count - 1) * e.apart * 2;
        is_readable = is_readable && (!e.each || (e.each[count - 1].data == last && e.apart % 8 == 0));
    }
};

/* Calls `run` with the 16-bit type of the operands: everything that products read has one in a CUDA model (model_upload rounds
 * f32 to bf16). */
template <typename Run> static int with_type(const char *op, std::initializer_list<struct operand> operands, Run run) {
    const struct operand *first = nullptr;
    for (const struct operand &o : operands) {
        if (!o.data) continue;
        if (!first) first = &o;
        if (o.type != first->type) return err_set(ERR_INTERNAL, "%s: operands of two types on the CUDA device", op);
        if (!o.is_readable)
            return err_set(ERR_INTERNAL, "%s: a weight that does not lie as the CUDA device reads it", op);
    }
    if (!first || first->type == DTYPE_BF16) return run(bf16());
    if (first->type == DTYPE_F16) return run(half());
    return err_set(ERR_INTERNAL, "%s: f32 operands on the CUDA device", op);
}

__host__ __device__ constexpr int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

#endif
