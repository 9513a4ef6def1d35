/* The inner loops for AArch64: a vector is four registers. */
#if defined(__aarch64__)

#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "model/kernels/host/isa.h"

#define ISA_SYMBOL host_isa_neon
#define ISA_NAME   "neon"
#define ISA_VEC    "model/kernels/host/vec_neon.h"
/* 32 registers: tiles of 4x1, 2x2 and 2x3. */
enum { TILE_TOKENS = 3, TILE_ROWS = 2, TILE_ROWS_FEW = 4, TILE_FEW = 1, TILE_STEPS = 1, VALUE_VECS = 2 };

#include "model/kernels/host/kernels.h"

static bool is_supported(void) {
    return true;
}

#else
typedef int isa_neon_is_empty; /* a translation unit needs a declaration */
#endif
