/* GGUF's blocks: 32 or 256 numbers of a row with the scales that they share, as ggml lays them out. For model/format.c. */
#ifndef DUET_MODEL_FORMAT_BLOCKS_H
#define DUET_MODEL_FORMAT_BLOCKS_H

#include "model/dtype.h"

/* The numbers of one block (dtype_block) in f32. NULL for types whose scales lie elsewhere. */
typedef void (*block_function)(float *out, const uint8_t *block);
block_function block_unpacker(enum dtype);

/* Numbers of a block that share a scale, and what number q of such a part stands for: scale * q - minimum (of listed ones values[q]). */
int block_part(enum dtype);
void block_scales(enum dtype, const uint8_t *block, int part, float *scale, float *minimum);
extern const float block_iq4_values[16];
/* The stored numbers of one block as model/packed.h has codes, Q8_0's plus 128. False: they are of other bits than four or eight. */
bool block_codes(enum dtype, uint8_t *codes, const uint8_t *block);

/* The first of `count` blocks whose own scale or minimum is not finite; -1: none is. Those of its parts are integers. */
int64_t blocks_find_bad(enum dtype, const uint8_t *blocks, int64_t count);

#endif
