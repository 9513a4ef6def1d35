/* Packed weights as numbers: rows of an embedding, and rows that a product of prefill is to read in 16 bits. */
#ifndef DUET_MODEL_KERNELS_CUDA_UNPACK_H
#define DUET_MODEL_KERNELS_CUDA_UNPACK_H

#include "model/ops.h"

/* Rows [first, first + count) of w into `to` [count, w.cols], of 16 bits. */
int cuda_unpack(struct stream *, const struct weight *w, int first, int count, struct buffer to);

/* out[t, :] = scale * row tokens[t] of a packed table. */
int cuda_embed_packed(struct stream *, const struct op_embed *);

#endif
