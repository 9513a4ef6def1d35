/* GGUF's blocks: 32 or 256 numbers of a row with the scales that they share, as ggml lays them out. For model/format.c. */
#ifndef DUET_MODEL_FORMAT_BLOCKS_H
#define DUET_MODEL_FORMAT_BLOCKS_H

#include "model/dtype.h"

/* Reads the stored numbers of one block (dtype_block), without signs: 0 is block_zero, or they are places in a list. NULL for types
 * whose scales lie elsewhere. */
typedef void (*block_function)(uint8_t *codes, const uint8_t *block);
block_function block_reader(enum dtype);
int block_zero(enum dtype);
/* The numbers in f32. */
void block_dequantise(enum dtype, float *out, const uint8_t *block);

/* Numbers of a block that share a scale, and what number q of such a part stands for: scale * q - minimum (of listed ones values[q]). */
int block_part(enum dtype);
void block_scales(enum dtype, const uint8_t *block, int part, float *scale, float *minimum);
extern const float block_iq4_values[16];

/* The first of `count` blocks whose own scale or minimum is not finite; -1: none is. Those of its parts are integers. */
int64_t blocks_find_bad(enum dtype, const uint8_t *blocks, int64_t count);

#endif
