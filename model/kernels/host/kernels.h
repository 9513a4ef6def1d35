/* The inner loops, written once over `vec` and included by each isa_*.c with its vec_*.h. */
#include "base/fmath.h"

#include ISA_VEC

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { LANES = 16 };

#include "model/kernels/host/kernel_rows.h"

#include "model/kernels/host/kernel_blocks.h"

#include "model/kernels/host/kernel_unpack.h"

#include "model/kernels/host/kernel_product.h"

#include "model/kernels/host/kernel_attention.h"

static bool is_supported(void);

const struct host_isa ISA_SYMBOL = {
    .name = ISA_NAME,
    .is_supported = is_supported,
    .widen = widen,
    .unpack = unpack,
    .norm = norm,
    .rope = rope,
    .product = product,
    .attention = attention,
};
