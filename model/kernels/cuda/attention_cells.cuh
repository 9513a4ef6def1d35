/* Cells of a cache as attention takes them: in 16 bits as they lie, or in FP8 (model/fp8.h), which becomes 16 bits on the way to
 * shared memory or to the registers of mma. A number times its scale is exact in bf16, and in f16 but for the smallest. So what
 * comes after does not know of FP8, and a result has the bits of one over a cache that holds these numbers in 16 bits. */
#ifndef DUET_MODEL_KERNELS_CUDA_ATTENTION_CELLS_CUH
#define DUET_MODEL_KERNELS_CUDA_ATTENTION_CELLS_CUH

#include <type_traits>

#include "model/fp8.h"
#include "model/kernels/cuda/attention.cuh"
#include "model/kernels/cuda/tiles.cuh"

/* Calls `run` with the 16-bit type of outputs, and with whether cells are FP8; else they have this type too. */
template <typename Run> static int with_cells(const struct op_attention *op, Run run) {
    if (op->kv.type == DTYPE_FP8)
        return with_type("attention", {op->out, op->sinks}, [&](auto type) { return run(type, std::true_type()); });
    return with_type("attention", {op->kv, op->sinks, op->out},
                     [&](auto type) { return run(type, std::false_type()); });
}

/* A key/value head's codes in a page, [PAGE, DH], and their scales, [PAGE]. */
struct coded {
    const uint8_t *codes, *scales;
};
__device__ __forceinline__ struct coded find_coded(const struct op_attention &op, const void *cache, int page,
                                                   int head) {
    const uint8_t *part = (const uint8_t *)cache + kv_part_start(DTYPE_FP8, page, op.kv_heads, head, op.head_dim);
    return {part, part + KV_PAGE * op.head_dim};
}

/* In place of what is not read: zeros of the scale 1. */
enum { SCALE_ONE = 127 };

/* Two E4M3 in the high bytes of two halves, whose bits are moved to where f16 has them. */
template <typename T> __device__ __forceinline__ uint32_t widen_pair(uint32_t high_bytes, float factor) {
    const uint32_t bits = (high_bytes & 0x7F007F00u) >> 1 | (high_bytes & 0x80008000u);
    const float2 x = to_floats(*reinterpret_cast<const __half2 *>(&bits));
    return pack(x.x * factor, x.y * factor, T());
}
/* Two codes in the low half of a word; four; eight. */
template <typename T> __device__ __forceinline__ uint32_t widen_two(uint32_t codes, float factor) {
    return widen_pair<T>(__byte_perm(codes, 0, 0x1404), factor);
}
template <typename T> __device__ __forceinline__ uint2 widen_four(uint32_t codes, float factor) {
    return make_uint2(widen_two<T>(codes, factor), widen_pair<T>(__byte_perm(codes, 0, 0x3424), factor));
}
template <typename T> __device__ __forceinline__ uint4 widen_eight(uint2 codes, float factor) {
    const uint2 low = widen_four<T>(codes.x, factor), high = widen_four<T>(codes.y, factor);
    return make_uint4(low.x, low.y, high.x, high.y);
}

#endif
