/* The inner loops in plain C: any CPU, and the yardstick for the others. */
#include <math.h>
#include <string.h>

#include "model/kernels/host/isa.h"

#define ISA_SYMBOL host_isa_portable
#define ISA_NAME   "portable"
#define ISA_VEC    "model/kernels/host/vec_portable.h"
enum { TILE_TOKENS = 2, TILE_ROWS = 2, TILE_ROWS_FEW = 4, TILE_FEW = 1, TILE_STEPS = 0, VALUE_VECS = 2 };

#include "model/kernels/host/kernels.h"

static bool is_supported(void) {
    return true;
}
