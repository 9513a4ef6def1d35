#include "graphs/cuda.cuh"
extern "C" {
#include "tests/support/digit_ops.h"
}

enum { WAIT_CYCLES = 50000 };

__global__ void digit_kernel(const struct digit_op op) {
    const long long start = clock64();
    while (clock64() - start < WAIT_CYCLES) {
    }
    *op.out = *(const volatile int32_t *)op.in * 10 + op.digit;
}

extern "C" int digit_run_cuda(struct stream *stream, const struct digit_op *op) {
    digit_kernel<<<1, 1, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "digit", sizeof *op);
}
