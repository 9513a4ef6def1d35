/* The inner loops of the host ops, compiled once per instruction set and chosen at run time.
 *
 * Every instruction set computes the same bits. One sum of products is always one accumulator of 16 f32
 * lanes: lane i takes the columns i, i + 16, i + 32, ... in ascending order by fma (columns past the end
 * count as 0 * 0), and the lanes are added at the end as l[i] += l[i + 8], then + 4, + 2, + 1. Neither the
 * number of rows, of tokens nor of threads takes part in that order. Latency is hidden by several such
 * accumulators side by side. A lane is part of one AVX-512 register, of two of AVX, of four of NEON, or an
 * array element. */
#ifndef DUET_KERNELS_HOST_ISA_H
#define DUET_KERNELS_HOST_ISA_H

#include <stdbool.h>

#include "model/ops.h"

/* What happens to the sum s of output row o and token t, to which bias[o] is added first where there is one. */
enum product_end {
    PRODUCT_STORE, /* out[t, o] = scale s, or cap * tanh(scale s / cap) */
    PRODUCT_ADD,   /* out[t, o] += scale s */
    PRODUCT_GATE,  /* out[t, o] = activation(s, u), u the sum of `up`; where that is absent times[t, o], or else 1 */
};

/* out[t, o] from sum_k w[o, k] * x[t, k] */
struct product {
    struct weight w, up;            /* [O, K]; up for PRODUCT_GATE alone, of w's shape */
    struct weight bias, up_bias;    /* [1, O] or absent */
    const float *x;                 /* [.., K] */
    float *out;                     /* [.., out_stride] */
    const int32_t *x_row, *out_row; /* [tokens] the rows of x and out that a token has; NULL: in order */
    int64_t out_stride;
    int tokens;
    enum product_end end;
    float scale, cap; /* cap 0: none */
    enum activation activation;
    const float *times; /* [tokens, times_stride] */
    int64_t times_stride;
};

/* `heads` heads from `head` on of `rows` rows from `row` on. Rows whose position is < 0 get zeros. */
enum { QUERY_ROWS_MAX = 8, QUERY_HEADS_MAX = 8 };
struct queries {
    int row, rows, head, heads;
};

struct host_isa {
    const char *name; /* "avx512", "avx2", "neon", "portable" */
    bool (*is_supported)(void);
    void (*widen)(float *out, const void *values, enum dtype type, int count); /* not of quantised types */
    /* Numbers [first, first + count) of a weight's row, of any format; `first` begins a block. */
    void (*unpack)(float *out, const struct weight *, int row, int first, int count);
    /* y = norm(x) over `count` values; y may be x. */
    void (*norm)(float *y, const float *x, const struct norm *norm, int count);
    /* RoPE of one head in place; cos_sin [head_dim / 2, 2]. */
    void (*rope)(float *head, const struct rope *rope, const float *cos_sin, int head_dim);
    /* Output rows [first, end) of all tokens. */
    void (*product)(const struct product *, int first, int end);
    /* A block of queries, of one graph row and one key/value head. */
    void (*attention)(const struct op_attention *, struct queries);
};

/* The best one that this CPU runs, or the forced one. */
const struct host_isa *host_isa(void);

/* A number of a weight that is not quantised. */
static inline float host_number(const struct weight *w, int index) {
    float number;
    host_isa()->widen(&number, (const char *)w->data + index * dtype_bytes(w->format), w->format, 1);
    return number;
}

/* For tests: all that were built, best first (NULL past the end), and a forced choice (NULL: automatic). */
const struct host_isa *host_isa_at(int index);
void host_isa_force(const struct host_isa *);

extern const struct host_isa host_isa_avx512, host_isa_avx2, host_isa_neon, host_isa_portable;

#endif
