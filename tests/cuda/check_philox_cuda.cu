// The words of philox.h, on the GPU by cuRAND's block function and on the host by its twin, are those of a curand_init with the same
// (key, subsequence, offset).
#include <curand_kernel.h>

#include <check.h>

extern "C" {
#include "base/philox.h"
#include "tests/support/support.h"
}

enum { CASES = 4096 };

struct sample {
    unsigned long long key, subsequence;
    int purpose;
    unsigned index, words[2];
};

__global__ void draw_kernel(struct sample *samples) {
    struct sample &s = samples[blockIdx.x * blockDim.x + threadIdx.x];
    curandStatePhilox4_32_10_t state;
    curand_init(s.key, s.subsequence, ((unsigned long long)s.purpose << 20) + s.index, &state);
    s.words[0] = curand(&state);
    s.words[1] = philox_word(s.key, s.subsequence, s.purpose, s.index);
}

START_TEST(words_are_those_of_curand)
{
    static struct sample samples[CASES];
    struct sample *device;
    for (int i = 0; i < CASES; i++) {
        struct philox_block b = philox_block(7, (uint64_t)i, 0);
        samples[i].key = (uint64_t)b.w[0] << 32 | b.w[1];
        samples[i].subsequence = i % 2 ? b.w[2] % 8192 : (uint64_t)b.w[2] << 20;
        samples[i].purpose = (int)(b.w[3] % 4);
        samples[i].index = b.w[3] % (1u << 20);
    }
    ck_assert_int_eq(cudaMalloc(&device, sizeof samples), cudaSuccess);
    ck_assert_int_eq(cudaMemcpy(device, samples, sizeof samples, cudaMemcpyHostToDevice), cudaSuccess);
    draw_kernel<<<CASES / 128, 128>>>(device);
    ck_assert_int_eq(cudaMemcpy(samples, device, sizeof samples, cudaMemcpyDeviceToHost), cudaSuccess);
    ck_assert_int_eq(cudaFree(device), cudaSuccess);
    for (int i = 0; i < CASES; i++) {
        ck_assert_uint_eq(samples[i].words[0], samples[i].words[1]);
        ck_assert_uint_eq(samples[i].words[0],
                          philox_word(samples[i].key, samples[i].subsequence, samples[i].purpose, samples[i].index));
    }
}
END_TEST

extern "C" Suite *check_philox_cuda(void) {
    Suite *suite = suite_create("philox_cuda");
    TCase *tc = tcase_create("philox_cuda");
    tcase_add_test(tc, words_are_those_of_curand);
    suite_add_tcase(suite, tc);
    return suite;
}
