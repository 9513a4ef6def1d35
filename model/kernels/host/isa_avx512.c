/* The inner loops for AVX-512 (F, BW, DQ, VL): a vector is one register. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "model/kernels/host/isa.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

#define ISA_SYMBOL host_isa_avx512
#define ISA_NAME   "avx512"
#define ISA_VEC    "model/kernels/host/vec_avx512.h"
/* Accumulators of a tile, rows x tokens: 8x1, 8x2, 4x3 .. 4x6, and the loaded weights beside them. */
enum { TILE_TOKENS = 6, TILE_ROWS = 4, TILE_ROWS_FEW = 8, TILE_FEW = 2, TILE_STEPS = 6, VALUE_VECS = 4 };

#include "model/kernels/host/kernels.h"

static bool is_supported(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}

#if defined(__clang__)
#pragma clang attribute pop
#endif

#else
typedef int isa_avx512_is_empty; /* a translation unit needs a declaration */
#endif
