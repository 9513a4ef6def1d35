/* A layer on the host and its twin on the GPU, given the same numbers, for the suites that compare their ops.
 * Tolerance: |got - expected| <= 8 eps + eps |expected|, eps = 2^-8 for bf16 and 2^-11 for f16: inputs of products and 16-bit
 * outputs are rounded once each, sums are of order 1; twice that for a gate, which multiplies two sums. A head that is smaller than
 * usual before its norm is enlarged by as much more, and so is what rounding cost: its 8 eps are. Where nothing is
 * rounded, eps = 2^-18. */
#ifndef DUET_TESTS_CUDA_OP_BENCH_H
#define DUET_TESTS_CUDA_OP_BENCH_H

#include "tests/cuda/gpu_lab.h"

enum { PAGES_PER_SLOT = 3, ROWS_MAX = 640, COLS_MAX = 25000, BATCH_MAX = 64, HEADS_MAX = 64 };
enum bench_heads { QUERY_HEADS, KEY_HEADS, VALUE_HEADS };

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
    bool is_queries;
    float usual[3][HEADS_MAX]; /* mean squares of the heads of q, k, v before their norms */
    double enlarged;           /* by its norm, more than usual: the head that is compared */
    const char *what;
};

/* Shapes that were chosen, then those of families; bench_shape: all in bf16, then all in f16. */
int bench_shape_count(void);
struct mini_shape bench_shape(int index);
struct mini_shape bench_random_shape(struct lab *, int index);

/* After lab_open. `prefill` is set before. */
void bench_open(struct bench *, struct mini_shape, bool scaled_rope);
void bench_close(struct bench *);
void bench_restore_caches(struct bench *);
/* Positions, slots and tokens by chance. */
void bench_set_pass(struct bench *, int batch, int q_len);
struct rows bench_host_rows(const struct bench *);
struct rows bench_gpu_rows(const struct bench *);

/* Of the pass and b->host.x: what the norms of heads enlarge, by the host's products; before the op itself. Then of a head that is
 * compared next; bench_compare does so for queries. */
void bench_weigh_heads(struct bench *);
void bench_compare_head(struct bench *, enum bench_heads, int row, int head);
void bench_must_be_close(const struct bench *, double got, double expected, int row, int column);
/* [rows, cols] of `type` on the GPU against f32 on the host; rows without a position are skipped if `placed`. */
void bench_compare(struct bench *, const char *what, const void *device, enum dtype type, const float *expected,
                   int rows, int cols, bool placed);
/* Random values in both: f32, or of 16 bits and the same widened. */
void bench_share_floats(struct bench *, float *host, void *device, int rows, int cols);
void bench_share_halves(struct bench *, float *host, void *device, int rows, int cols);

#endif
