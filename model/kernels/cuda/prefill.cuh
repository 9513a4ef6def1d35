/* Prefill: the products of many rows by cuBLAS, each with a small kernel for what decoding fuses into its epilogue. Numbers depend on the
 * rows in the chunk and may differ from decoding's in the last bits.
 *
 * Of few rows the products are those of decoding, which read a weight once as well, and packed ones without their 16 bits on the way
 * through memory. */
#ifndef DUET_MODEL_KERNELS_CUDA_PREFILL_CUH
#define DUET_MODEL_KERNELS_CUDA_PREFILL_CUH

#include "model/kernels/cuda/common.cuh"

/* Up to so many rows of a chunk the kernels of decoding are faster than cuBLAS: docs/PERFORMANCE.md, "Short prompts". Without wgmma they
 * read weights again for every 16. */
static inline int prefill_few(const struct stream *s, const struct packed *packed) {
    if (!cuda_has_wgmma(s->device)) return 16;
    if (!packed) return 32;
    if (packed->group == 0) return 256; /* a scale a row */
    return packed->group <= (packed->has_minima ? 32 : 16) ? 64 : 128;
}

/* Does a product go to cuBLAS? Rows of no whole 16 bytes go through the product of decoding. */
static inline bool prefill_takes(const struct stream *s, const struct rows *rows, const struct weight *w) {
    return rows->prefill && rows_count(rows) > prefill_few(s, w->packed) && w->cols % 8 == 0 && cuda_blas(s);
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
