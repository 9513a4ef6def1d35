/* The inner loops, written once over `vec` and included by each isa_*.c with its vec_*.h. */
#include "base/fmath.h"

#include ISA_VEC

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__OPTIMIZE__)
#define UNROLL _Pragma("GCC unroll 32")
#else /* gcc then warns that it ignores it */
#define UNROLL
#endif

enum { LANES = 16 };

/* The registers of a vector, one after the other; where there is one, it is the vector. */
#ifndef VEC_PARTS
#define VEC_PARTS 1
typedef vec vec_part;
VEC vec_part part_load(const float *p, int part) {
    (void)part;
    return vec_load(p);
}
VEC vec_part part_widen(const void *p, const enum dtype type, int part) {
    (void)part;
    return vec_widen(p, type);
}
VEC void part_fma(vec *c, int part, vec_part a, vec_part b) { /* c += a b */
    (void)part;
    *c = vec_fma(a, b, *c);
}
#endif

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
