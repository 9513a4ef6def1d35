/* What nvcc knows without being told: the words of CUDA C++ for g++, as calls of the emulator. Included before every source. */
#ifndef DUET_EMULATED_H
#define DUET_EMULATED_H

#include <cuda_runtime_api.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <vector_functions.h>
#include <vector_types.h>

/* The toolkit's own headers, as a host compiler sees them. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <library_types.h>

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../block.h"
#include "../ptx.h"

/* --- words ---------------------------------------------------------------------------------------------- */

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __align__
#undef __cluster_dims__
#define __global__
#define __device__
#define __host__
#define __shared__ emulated_shared /* the script makes it static thread_local, or dynamic memory */
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

#define threadIdx (emulated::self->thread)
static constexpr int warpSize = 32;
extern __thread uint3 blockIdx, blockDim, gridDim; /* of the block that this OS thread runs */

/* --- launches ------------------------------------------------------------------------------------------- */

namespace emulated {

struct config {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    int cluster;
    config(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr, int cluster = 1)
        : grid(grid), block(block), shared(shared), stream(stream), cluster(cluster) {}
};

/* Now, or when what the stream captures is launched. */
void enqueue(cudaStream_t, std::function<void()>);
cudaError_t start(const char *name, const void *function, const config &, bool together, std::function<void()> call);

template <typename... P> struct starter {
    const char *name;
    void (*kernel)(P...);
    config how;
    cudaError_t operator()(P... arguments) const {
        auto kept = std::make_tuple(arguments...);
        return start(name, (const void *)kernel, how, false, [of = kernel, kept] { std::apply(of, kept); });
    }
};
template <typename... P> starter<P...> prepare_launch(const char *name, void (*kernel)(P...), config how) {
    return {name, kernel, how};
}

/* A kernel behind a plain pointer: how to call it with an array of pointers to its arguments. */
typedef std::function<std::function<void()>(void **)> binder;
void remember(const void *function, binder);
template <typename... P, size_t... I>
std::function<void()> bind_arguments(void (*kernel)(P...), void **arguments, std::index_sequence<I...>) {
    auto kept = std::make_tuple(*(P *)arguments[I]...);
    return [kernel, kept] { std::apply(kernel, kept); };
}
template <typename... P> const void *erase(void (*kernel)(P...)) {
    remember((const void *)kernel,
             [kernel](void **arguments) { return bind_arguments(kernel, arguments, std::index_sequence_for<P...>()); });
    return (const void *)kernel;
}
template <typename T> const void *erase(T *object) {
    return object;
}

} /* namespace emulated */

template <typename T> cudaError_t cudaMalloc(T **to, size_t bytes) {
    return cudaMalloc((void **)to, bytes);
}
template <typename T> cudaError_t cudaMallocHost(T **to, size_t bytes, unsigned = 0) {
    return cudaMallocHost((void **)to, bytes);
}
template <typename... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute which, int value) {
    return cudaFuncSetAttribute((const void *)kernel, which, value);
}
template <typename... P> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, void (*kernel)(P...)) {
    return cudaFuncGetAttributes(attributes, (const void *)kernel);
}
template <typename... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...), int threads,
                                                          size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (const void *)kernel, threads, shared);
}
template <typename... P>
cudaError_t emulated_launch_ex(const char *name, const cudaLaunchConfig_t *c, void (*kernel)(P...), P... arguments) {
    int cluster = 1;
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = (int)c->attrs[i].val.clusterDim.x;
    emulated::config how(c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream, cluster);
    return emulated::prepare_launch(name, kernel, how)(arguments...);
}
template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A... arguments) {
    return emulated_launch_ex<P...>(__PRETTY_FUNCTION__, config, kernel, P(arguments)...);
}

/* --- lanes ---------------------------------------------------------------------------------------------- */

namespace emulated {

template <typename T> struct exchange {
    T x, result;
    int from; /* which lane's x is wanted */
};
template <typename T> void meet_to_exchange(struct meeting &m) {
    for (uint32_t left = m.mask; left; left &= left - 1) {
        exchange<T> *its = (exchange<T> *)m.of[__builtin_ctz(left)];
        if (!(m.mask >> its->from & 1)) fail("a shuffle from lane %d, which is not there", its->from);
        its->result = ((exchange<T> *)m.of[its->from])->x;
    }
}
template <typename T> T shuffle(uint32_t mask, T x, int from) {
    exchange<T> mine = {x, x, from};
    meet(mask, meet_to_exchange<T>, &mine);
    return mine.result;
}
inline int lane_id() {
    return self->index % WARP;
}

/* All lanes get JOIN over all of them. */
template <typename T> struct shared_value { T x, result; };
template <typename T, T JOIN(T, T)> void meet_to_join(struct meeting &m) {
    const int first = __builtin_ctz(m.mask);
    T all = ((shared_value<T> *)m.of[first])->x;
    for (uint32_t left = m.mask & (m.mask - 1); left; left &= left - 1)
        all = JOIN(all, ((shared_value<T> *)m.of[__builtin_ctz(left)])->x);
    for (uint32_t left = m.mask; left; left &= left - 1) ((shared_value<T> *)m.of[__builtin_ctz(left)])->result = all;
}
template <typename T, T JOIN(T, T)> T join_lanes(uint32_t mask, T x) {
    shared_value<T> mine = {x, x};
    meet(mask, meet_to_join<T, JOIN>, &mine);
    return mine.result;
}
template <typename T> T join_or(T a, T b) {
    return a | b;
}
template <typename T> T join_and(T a, T b) {
    return a & b;
}
template <typename T> T join_xor(T a, T b) {
    return a ^ b;
}
template <typename T> T join_sum(T a, T b) {
    return a + b;
}
template <typename T> T join_max(T a, T b) {
    return a > b ? a : b;
}
template <typename T> T join_min(T a, T b) {
    return a < b ? a : b;
}
template <typename T> void meet_to_match(struct meeting &m) {
    for (uint32_t left = m.mask; left; left &= left - 1) {
        auto *its = (exchange<T> *)m.of[__builtin_ctz(left)];
        its->from = 0;
        for (uint32_t other = m.mask; other; other &= other - 1) {
            const int lane = __builtin_ctz(other);
            if (!memcmp(&((exchange<T> *)m.of[lane])->x, &its->x, sizeof(T))) its->from |= (int)(1u << lane);
        }
    }
}
inline void meet_to_sync(struct meeting &) {}

} /* namespace emulated */

template <typename T> T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
    const int lane = emulated::lane_id();
    return emulated::shuffle(mask, x, (lane & ~(width - 1)) | (from & (width - 1)));
}
template <typename T> T __shfl_xor_sync(unsigned mask, T x, int with, int width = 32) {
    const int lane = emulated::lane_id(), from = lane ^ with;
    return emulated::shuffle(mask, x, (from & ~(width - 1)) > (lane | (width - 1)) ? lane : from);
}
template <typename T> T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32) {
    const int lane = emulated::lane_id(), from = lane - (int)by;
    return emulated::shuffle(mask, x, from < (lane & ~(width - 1)) ? lane : from);
}
template <typename T> T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32) {
    const int lane = emulated::lane_id(), from = lane + (int)by;
    return emulated::shuffle(mask, x, from > (lane | (width - 1)) ? lane : from);
}
inline unsigned __ballot_sync(unsigned mask, int is_true) {
    return emulated::join_lanes<unsigned, emulated::join_or<unsigned>>(mask, is_true ? 1u << emulated::lane_id() : 0);
}
inline int __any_sync(unsigned mask, int is_true) {
    return __ballot_sync(mask, is_true) != 0;
}
inline int __all_sync(unsigned mask, int is_true) {
    return __ballot_sync(mask, !is_true) == 0;
}
template <typename T> unsigned __match_any_sync(unsigned mask, T x) {
    emulated::exchange<T> mine = {x, x, 0};
    emulated::meet(mask, emulated::meet_to_match<T>, &mine);
    return (unsigned)mine.from;
}
#define EMULATED_REDUCE(name, join, T)                                     \
    inline T __reduce_##name##_sync(unsigned mask, T x) {                  \
        return emulated::join_lanes<T, emulated::join_##join<T>>(mask, x); \
    }
EMULATED_REDUCE(add, sum, unsigned)
EMULATED_REDUCE(add, sum, int)
EMULATED_REDUCE(min, min, unsigned)
EMULATED_REDUCE(min, min, int)
EMULATED_REDUCE(max, max, unsigned)
EMULATED_REDUCE(max, max, int)
EMULATED_REDUCE(and, and, unsigned)
EMULATED_REDUCE(or, or, unsigned)
EMULATED_REDUCE(xor, xor, unsigned)
#undef EMULATED_REDUCE
inline void __syncwarp(unsigned mask = ~0u) {
    emulated::meet(mask, emulated::meet_to_sync, nullptr);
}
inline void __syncthreads() {
    (void)emulated::wait_at(0, 0, 0);
}
inline int __syncthreads_count(int is_true) {
    return emulated::wait_at(0, 0, is_true != 0);
}
inline int __syncthreads_or(int is_true) {
    return emulated::wait_at(0, 0, is_true != 0) > 0;
}
inline int __syncthreads_and(int is_true) {
    return emulated::wait_at(0, 0, is_true == 0) == 0;
}
inline void __threadfence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block() {}
inline void __threadfence_system() {
    __threadfence();
}

/* --- memory --------------------------------------------------------------------------------------------- */

template <typename T> T __ldg(const T *at) {
    return *at;
}
template <typename T> T __ldcg(const T *at) {
    return *at;
}
template <typename T> T __ldca(const T *at) {
    return *at;
}
template <typename T> T __ldcs(const T *at) {
    return *at;
}
template <typename T> T __ldlu(const T *at) {
    return *at;
}
template <typename T> T __ldcv(const T *at) {
    return *(const volatile T *)at;
}
template <typename T> void __stcg(T *at, T x) {
    *at = x;
}
template <typename T> void __stcs(T *at, T x) {
    *at = x;
}
template <typename T> void __stwt(T *at, T x) {
    *at = x;
}
template <typename T> void __stwb(T *at, T x) {
    *at = x;
}
inline size_t __cvta_generic_to_shared(const void *at) {
    return emulated::shared_address(at);
}
inline void *__cvta_shared_to_generic(size_t at) {
    return emulated::shared_at((uint32_t)at, 1);
}
inline void __cluster_barrier_arrive() {
    emulated::cluster_arrive();
}
inline void __cluster_barrier_wait() {
    emulated::cluster_wait();
}
inline void *__cluster_map_shared_rank(const void *at, unsigned rank) {
    return emulated::shared_at(emulated::address_of_rank(emulated::shared_address(at), rank), 1);
}
inline size_t __cvta_generic_to_global(const void *at) {
    return (size_t)at;
}

namespace emulated {
template <typename T, typename Run> T change(T *at, Run run) {
    T old, now;
    __atomic_load(at, &old, __ATOMIC_SEQ_CST);
    do now = run(old);
    while (!__atomic_compare_exchange(at, &old, &now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
template <typename T> struct same { typedef T type; };
} /* namespace emulated */
#define EMULATED_ATOMIC(name, expression)                                     \
    template <typename T> T name(T *at, typename emulated::same<T>::type x) { \
        return emulated::change(at, [x](T old) -> T { return expression; });  \
    }
EMULATED_ATOMIC(atomicAdd, old + x)
EMULATED_ATOMIC(atomicSub, old - x)
EMULATED_ATOMIC(atomicMax, old > x ? old : x)
EMULATED_ATOMIC(atomicMin, old < x ? old : x)
EMULATED_ATOMIC(atomicOr, old | x)
EMULATED_ATOMIC(atomicAnd, old &x)
EMULATED_ATOMIC(atomicXor, old ^ x)
EMULATED_ATOMIC(atomicExch, x)
EMULATED_ATOMIC(atomicInc, old >= x ? 0 : old + 1)
EMULATED_ATOMIC(atomicDec, old == 0 || old > x ? x : old - 1)
#undef EMULATED_ATOMIC
template <typename T>
T atomicCAS(T *at, typename emulated::same<T>::type expected, typename emulated::same<T>::type x) {
    return emulated::change(at, [=](T old) -> T { return old == expected ? x : old; });
}

/* --- bits and numbers ----------------------------------------------------------------------------------- */

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x) {
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned choices) {
    const uint64_t bytes = a | (uint64_t)b << 32;
    unsigned x = 0;
    for (int i = 0; i < 4; i++) x |= (unsigned)(bytes >> (choices >> 4 * i & 7) * 8 & 255) << 8 * i;
    return x;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((uint64_t)high << 32 | low) << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
inline int __mulhi(int a, int b) {
    return (int)((int64_t)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; i++) c += (uint8_t)(a >> 8 * i) * (uint8_t)(b >> 8 * i);
    return c;
}
template <typename To, typename From> inline To emulated_bits(From x) {
    To y;
    static_assert(sizeof x == sizeof y, "as many bits");
    memcpy(&y, &x, sizeof y);
    return y;
}
inline float __int_as_float(int x) {
    return emulated_bits<float>(x);
}
inline float __uint_as_float(unsigned x) {
    return emulated_bits<float>(x);
}
inline int __float_as_int(float x) {
    return emulated_bits<int>(x);
}
inline unsigned __float_as_uint(float x) {
    return emulated_bits<unsigned>(x);
}
inline double __longlong_as_double(long long x) {
    return emulated_bits<double>(x);
}
inline long long __double_as_longlong(double x) {
    return emulated_bits<long long>(x);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __frcp_rn(float a) {
    return 1.0f / a;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __fsqrt_rn(float a) {
    return sqrtf(a);
}
inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
inline double __dmul_rn(double a, double b) {
    return a * b;
}
inline double __dadd_rn(double a, double b) {
    return a + b;
}
inline float __saturatef(float x) {
    return x > 1 ? 1.0f : x > 0 ? x : 0.0f;
}
inline float emulated_expf(float x) {
    return expf(x);
}
#define __expf    emulated_expf
#define __logf(x) logf(x)
inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
inline int __float2int_rn(float x) {
    return (int)nearbyintf(x);
}
inline int __float2int_rz(float x) {
    return (int)x;
}
inline unsigned __float2uint_rn(float x) {
    return (unsigned)nearbyintf(x);
}
inline float __int2float_rn(int x) {
    return (float)x;
}
inline float __uint2float_rn(unsigned x) {
    return (float)x;
}
inline long long clock64() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}
inline void __nanosleep(unsigned) {
    emulated::pause();
}
[[noreturn]] inline void __trap() {
    emulated::fail("trap");
}
#define __builtin_assume(x) ((void)0)

#define EMULATED_LEAST_AND_MOST(A, B, T)  \
    inline constexpr T min(A a, B b) {    \
        return (T)a < (T)b ? (T)a : (T)b; \
    }                                     \
    inline constexpr T max(A a, B b) {    \
        return (T)a > (T)b ? (T)a : (T)b; \
    }
EMULATED_LEAST_AND_MOST(int, int, int)
EMULATED_LEAST_AND_MOST(unsigned, unsigned, unsigned)
EMULATED_LEAST_AND_MOST(int, unsigned, unsigned)
EMULATED_LEAST_AND_MOST(unsigned, int, unsigned)
EMULATED_LEAST_AND_MOST(long, long, long)
EMULATED_LEAST_AND_MOST(unsigned long, unsigned long, unsigned long)
EMULATED_LEAST_AND_MOST(long long, long long, long long)
EMULATED_LEAST_AND_MOST(unsigned long long, unsigned long long, unsigned long long)
EMULATED_LEAST_AND_MOST(float, float, float)
EMULATED_LEAST_AND_MOST(double, double, double)
#undef EMULATED_LEAST_AND_MOST

/* From here on sources believe that nvcc reads them. */
#define __CUDACC__           1
#define __NVCC__             1
#define __CUDACC_VER_MAJOR__ CUDART_VERSION / 1000
#define __CUDA_ARCH__        EMULATED_ARCH
#define __CUDA_ARCH_LIST__   EMULATED_ARCH

#endif
