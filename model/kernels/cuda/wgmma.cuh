/* wgmma, the instruction of Hopper's tensor cores for groups of 4 warps: 64 rows of a in registers, b in shared memory. */
#ifndef DUET_MODEL_KERNELS_CUDA_WGMMA_CUH
#define DUET_MODEL_KERNELS_CUDA_WGMMA_CUH

#include "model/kernels/cuda/tiles.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* Lets wgmma see what this thread wrote; opens, ends and waits for a group of its calls. */
__device__ __forceinline__ void show_to_wgmma() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* But for the last PENDING groups. */
template <int PENDING = 0> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Rows of 128 bytes, swizzled over 8 of them as the copy engine does, from a multiple of 32 bytes in the first. */
__device__ __forceinline__ uint64_t swizzled_rows(const void *rows) {
    return (uint64_t)((shared_address(rows) & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* The same so many bytes behind, a multiple of 16. */
__device__ __forceinline__ uint64_t rows_behind(uint64_t rows, int bytes) {
    return rows + (uint64_t)(bytes >> 4);
}

/* wgmma(c, a, b, type, adds): c [64 rows, TILES x 8 columns] += a, a lane's registers as of mma, times b [columns, 16] as a descriptor
 * tells, or, if `adds` is 0, = it; wgmma_first: c = it, where c need not have been set. */
#define SUMS_OF(tile)  "+f"(c[tile][0]), "+f"(c[tile][1]), "+f"(c[tile][2]), "+f"(c[tile][3])
#define FIRST_OF(tile) "=&f"(c[tile][0]), "=&f"(c[tile][1]), "=&f"(c[tile][2]), "=&f"(c[tile][3])
#define FOUR(OF, tile) OF(tile), OF(tile + 1), OF(tile + 2), OF(tile + 3)
#define WGMMA_OF(T, TYPE, TILES, SHAPE, SUMS, INPUTS, ADDS, ...)                                                     \
    __device__ __forceinline__ void wgmma(float(&c)[TILES][4], const uint32_t(&a)[4], uint64_t b, T, int adds = 1) { \
        asm volatile("{\n"                                                                                           \
                     ".reg .pred adds;\n"                                                                            \
                     "setp.ne.s32 adds, " ADDS ", 0;\n"                                                              \
                     "wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " {" SUMS "}, " INPUTS              \
                     ", adds, 1, 1, 0;\n"                                                                            \
                     "}"                                                                                             \
                     : __VA_ARGS__                                                                                   \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));                               \
    }
#define WGMMA_FIRST_OF(T, TYPE, TILES, SHAPE, SUMS, INPUTS, ...)                                             \
    __device__ __forceinline__ void wgmma_first(float(&c)[TILES][4], const uint32_t(&a)[4], uint64_t b, T) { \
        asm volatile("wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " {" SUMS "}, " INPUTS      \
                     ", 0, 1, 1, 0;"                                                                         \
                     : __VA_ARGS__                                                                           \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                  \
    }
#define WGMMA(...)       WGMMA_OF(bf16, "bf16", __VA_ARGS__) WGMMA_OF(half, "f16", __VA_ARGS__)
#define WGMMA_FIRST(...) WGMMA_FIRST_OF(bf16, "bf16", __VA_ARGS__) WGMMA_FIRST_OF(half, "f16", __VA_ARGS__)
#define SUMS_0                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS_16_23 "%16, %17, %18, %19, %20, %21, %22, %23"
#define SUMS_16                                \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_32                                \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47"
#define SUMS_48                                \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_64                                \
    "%64, %65, %66, %67, %68, %69, %70, %71, " \
    "%72, %73, %74, %75, %76, %77, %78, %79"
#define SUMS_80                                \
    "%80, %81, %82, %83, %84, %85, %86, %87, " \
    "%88, %89, %90, %91, %92, %93, %94, %95"
WGMMA(4, "m64n32k16", SUMS_0, "{%16, %17, %18, %19}, %20", "%21", FOUR(SUMS_OF, 0))
WGMMA(6, "m64n48k16", SUMS_0 ", " SUMS_16_23, "{%24, %25, %26, %27}, %28", "%29", FOUR(SUMS_OF, 0), SUMS_OF(4),
      SUMS_OF(5))
WGMMA(8, "m64n64k16", SUMS_0 ", " SUMS_16, "{%32, %33, %34, %35}, %36", "%37", FOUR(SUMS_OF, 0), FOUR(SUMS_OF, 4))
WGMMA(16, "m64n128k16", SUMS_0 ", " SUMS_16 ", " SUMS_32 ", " SUMS_48, "{%64, %65, %66, %67}, %68", "%69",
      FOUR(SUMS_OF, 0), FOUR(SUMS_OF, 4), FOUR(SUMS_OF, 8), FOUR(SUMS_OF, 12))
WGMMA(24, "m64n192k16", SUMS_0 ", " SUMS_16 ", " SUMS_32 ", " SUMS_48 ", " SUMS_64 ", " SUMS_80,
      "{%96, %97, %98, %99}, %100", "%101", FOUR(SUMS_OF, 0), FOUR(SUMS_OF, 4), FOUR(SUMS_OF, 8), FOUR(SUMS_OF, 12),
      FOUR(SUMS_OF, 16), FOUR(SUMS_OF, 20))
WGMMA_FIRST(4, "m64n32k16", SUMS_0, "{%16, %17, %18, %19}, %20", FOUR(FIRST_OF, 0))
WGMMA_FIRST(8, "m64n64k16", SUMS_0 ", " SUMS_16, "{%32, %33, %34, %35}, %36", FOUR(FIRST_OF, 0), FOUR(FIRST_OF, 4))
WGMMA_FIRST(16, "m64n128k16", SUMS_0 ", " SUMS_16 ", " SUMS_32 ", " SUMS_48, "{%64, %65, %66, %67}, %68",
            FOUR(FIRST_OF, 0), FOUR(FIRST_OF, 4), FOUR(FIRST_OF, 8), FOUR(FIRST_OF, 12))
#undef SUMS_80
#undef SUMS_64
#undef SUMS_48
#undef SUMS_32
#undef SUMS_16
#undef SUMS_16_23
#undef SUMS_0
#undef WGMMA
#undef WGMMA_FIRST
#undef WGMMA_FIRST_OF
#undef WGMMA_OF
#undef FOUR
#undef FIRST_OF
#undef SUMS_OF
#endif

#endif
