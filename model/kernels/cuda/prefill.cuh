/* Prefill: the products of many rows by cuBLAS, each with a small kernel for what decoding fuses into its epilogue.
 *
 * The rows of a product are rounded up to PREFILL_PAD: cuBLAS chooses its kernels by shape, so that a chunk of any length runs
 * kernels that are loaded before the pool is sealed. A row of a product never sees the others; what rows past T hold is never
 * read. Numbers depend on the rows in the chunk and may differ from decoding's in the last bits. */
#ifndef DUET_MODEL_KERNELS_CUDA_PREFILL_CUH
#define DUET_MODEL_KERNELS_CUDA_PREFILL_CUH

#include "model/kernels/cuda/common.cuh"

/* Does a product over k go to cuBLAS? Rows of no whole 16 bytes go through the product of decoding. */
static inline bool prefill_takes(const struct stream *s, const struct rows *rows, int k) {
    return rows->prefill && k % 8 == 0 && cuda_blas(s);
}

static inline int prefill_padded(const struct rows *rows) {
    return (rows_count(rows) + PREFILL_PAD - 1) / PREFILL_PAD * PREFILL_PAD;
}

/* out[t, o] = scale * sum_k x[t, k] w[o, k], or, with `adds`, onto what lies there. */
struct prefill_product {
    const struct rows *rows;
    const struct weight *w, *second; /* second: NULL, or of w's shape: its product goes `apart` floats behind */
    struct buffer x;                 /* [T, K] 16 bits */
    float scale;
    bool adds;
    float *out; /* rows `stride` floats apart */
    int stride;
    size_t apart;
};
int prefill_product(struct stream *, const struct prefill_product *);

int cuda_prefill_qkv(struct stream *, const struct op_qkv *);
int cuda_prefill_attention(struct stream *, const struct op_attention *);
int cuda_prefill_project(struct stream *, const struct op_project *);
int cuda_prefill_gate_up(struct stream *, const struct op_gate_up *);

#endif
