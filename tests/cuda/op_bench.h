/* A layer on the host and its twin on the GPU, given the same numbers, for the suites that compare their ops.
 * Tolerance: |got - expected| <= 8 eps + eps |expected|, eps = 2^-8 for bf16 and 2^-11 for f16: inputs of products and 16-bit
 * outputs are rounded once each, sums are of order 1; twice that for a gate, which multiplies two sums. Where nothing is rounded,
 * eps = 2^-18. */
#ifndef DUET_TESTS_CUDA_OP_BENCH_H
#define DUET_TESTS_CUDA_OP_BENCH_H

#include "tests/cuda/gpu_lab.h"

enum { PAGES_PER_SLOT = 3, ROWS_MAX = 640, COLS_MAX = 25000, BATCH_MAX = 64 };

struct bench {
    struct lab lab;
    struct gpu gpu;
    struct mini host, twin;
    struct weight raw; /* the caches of both before a pass: of 16 bits, and widened */
    float *keys, *values;
    uint16_t *got; /* [2 * kv_floats] */
    double eps;
    int batch, q_len, count; /* of the pass */
    bool prefill, is_exact;  /* is_exact: nothing is rounded */
    bool is_gate;            /* what is compared multiplies two sums */
    const char *what;
};

/* Shapes that were chosen, then those of families; bench_shape: all in bf16, then all in f16. */
int bench_shape_count(void);
struct mini_shape bench_shape(int index);
struct mini_shape bench_random_shape(struct lab *, int index);

/* After lab_open. `prefill` is set before. A shape that says no pages_per_slot gets PAGES_PER_SLOT. */
void bench_open(struct bench *, struct mini_shape, bool scaled_rope);
void bench_close(struct bench *);
void bench_restore_caches(struct bench *);
/* Positions, slots and tokens by chance. */
void bench_set_pass(struct bench *, int batch, int q_len);
struct rows bench_host_rows(const struct bench *);
struct rows bench_gpu_rows(const struct bench *);

void bench_must_be_close(const struct bench *, double got, double expected, int row, int column);
/* [rows, cols] of `type` on the GPU against f32 on the host; rows without a position are skipped if `placed`. */
void bench_compare(struct bench *, const char *what, const void *device, enum dtype type, const float *expected,
                   int rows, int cols, bool placed);
/* The cells of the pass are as the host's, all others but the dummy page as before it. */
void bench_compare_caches(struct bench *);
/* Makes the q, keys and values that the pass is to give, in b->host: the host's; or, where heads have norms, the host's norm and rotation of
 * the GPU's products, which are compared by themselves: a norm would enlarge what rounding costs a small head. */
void bench_expect_qkv(struct bench *);
/* Random values in both: f32, or of 16 bits and the same widened. */
void bench_share_floats(struct bench *, float *host, void *device, int rows, int cols);
void bench_share_halves(struct bench *, float *host, void *device, int rows, int cols);

#endif
