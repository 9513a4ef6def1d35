/* The inner loops for AVX2 with FMA and F16C: a vector is two registers. */
#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "model/kernels/host/isa.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#define ISA_SYMBOL host_isa_avx2
#define ISA_NAME   "avx2"
#define ISA_VEC    "model/kernels/host/vec_avx2.h"
/* 16 registers: tiles of 4x1, 2x2 and 2x3. */
enum { TILE_TOKENS = 3, TILE_ROWS = 2, TILE_ROWS_FEW = 4, TILE_FEW = 1, TILE_STEPS = 2, VALUE_VECS = 2 };

#include "model/kernels/host/kernels.h"

static bool is_supported(void) {
    unsigned eax, ebx, ecx = 0, edx;
    bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
    return has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#if defined(__clang__)
#pragma clang attribute pop
#endif

#else
typedef int isa_avx2_is_empty; /* a translation unit needs a declaration */
#endif
