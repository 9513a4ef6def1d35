/* Quantised weights as a device with kernels of its own streams them (CUDA): repacked once at loading, read in their width, made
 * into 16 bits in registers.
 *
 * Number (r, c) is factor[r] * (scale[r, c / group] * value(code[r, c]) - minimum[r, c / group]). Scales and minima are f16 and the
 * factor of a row is a power of two that keeps the largest of them near 1, so that they are the stored ones rounded to 11 bits at
 * most; a scale for all of a row is its factor, in f32. value() is exact in f16 and bf16 but for NF4.
 *
 * Of a row, codes are pieces of 64 bytes, the last filled up with what is worth 0: four parts of 16 bytes, each of which one lane
 * of a warp reads. Of every block of 32 columns in a piece, part p has the columns 4 p .. 4 p + 3 and 16 + 4 p .. 16 + 4 p + 3, in
 * this order: what it brings to two mma over 16 columns each. Bits lie where few instructions make 16-bit numbers of them, a pair of
 * numbers in the halves of a word:
 *   eight bits: four numbers a word, the pair (0, 1) in its bytes 0 and 2, the pair (2, 3) in 1 and 3;
 *   FP8: likewise, but the pair (2, 3) has bits 4 to 10 and 15, the sign, of either half, and (0, 1) 0 to 3, 12 to 14 and 11;
 *   four bits: a word has a block's eight, the pair (2 t, 2 t + 1) at its nibbles t and t + 4;
 *   FP4: likewise, but the first pair has bits 6 to 8 and 15, the sign, of either half; a shift of 3 or 6 brings there those of the
 *   second and third; the last has bits 10, 11, 13 and 14.
 * Then all scales, [rows, scales], each followed by its minimum where there are minima, then all factors. Columns whose groups do not
 * lie side by side are brought there: column c above is the weight's order[c], which follows the factors, and a product's tokens are
 * brought into that order. */
#ifndef DUET_MODEL_PACKED_H
#define DUET_MODEL_PACKED_H

#include <stddef.h>
#include <string.h>

#include "model/operands.h"

enum { PACKED_PIECE_BYTES = 64, PACKED_BLOCK = 32 };

/* CUDA's kernels take these for constants. */
#ifdef __cplusplus
#define PACKED_CONSTANT static constexpr
#else
#define PACKED_CONSTANT static inline
#endif
PACKED_CONSTANT bool packed_is_4(enum packed_code code) { /* bits */
    return code <= PACKED_TABLE;
}
PACKED_CONSTANT int packed_piece_columns(enum packed_code code) {
    return packed_is_4(code) ? 2 * PACKED_PIECE_BYTES : PACKED_PIECE_BYTES;
}

static inline int64_t packed_row_bytes(const struct packed *p, int cols) {
    const int piece = packed_piece_columns(p->code);
    return (int64_t)((cols + piece - 1) / piece) * PACKED_PIECE_BYTES;
}
/* Scales of a row, those of columns past the last one too; whole words. */
static inline int packed_row_scales(const struct packed *p, int cols) {
    const int piece = packed_piece_columns(p->code), padded = (cols + piece - 1) / piece * piece;
    return p->group ? ((padded + p->group - 1) / p->group + 1) / 2 * 2 : 0;
}

/* Are there kernels that multiply it by rows of f16? Not of kinds that GGUF files alone have: their norms are f32, and so such models bf16
 * (model_device_type), while each kind more is compiled for a dozen products. */
PACKED_CONSTANT bool packed_takes_f16(enum packed_code code, int group) {
    return code != PACKED_INT8 && !(code == PACKED_INT4 && group == 16);
}

/* How a quantised weight would be packed. False: it is not; it has groups that are neither 16, 32 or 64 columns nor a multiple of 128
 * (of FP8 that alone), groups of other sizes than they should have, or rows of no whole blocks of 32. There are as few kinds as
 * kernels pay for: groups are of 16, 32 or, of INT4 and FP8, 128 columns, others are cut; and INT4 of 16 or 128 has minima. The
 * weight's numbers need not be there yet, but NF4's list and the groups of columns; has_zeros: INT4 with zeros of its groups. */
bool packed_plan(struct packed *, const struct weight *, bool has_zeros);

/* Can one product take rows of both? */
static inline bool packed_is_alike(const struct packed *a, const struct packed *b) {
    return a->code == b->code && a->group == b->group && a->has_minima == b->has_minima && a->order == b->order &&
           memcmp(a->values, b->values, sizeof a->values) == 0;
}

size_t packed_bytes(const struct packed *, int64_t rows, int cols);

/* The parts of what packed_bytes counts. */
struct packed_parts {
    uint8_t *codes;   /* [rows, packed_row_bytes] */
    uint16_t *scales; /* [rows, packed_row_scales, 1 or 2] */
    float *factors;   /* [rows] */
    int32_t *order;   /* [cols]; NULL: their own */
};
struct packed_parts packed_parts(const struct packed *, void *memory, int64_t rows, int cols);

/* Fills memory of packed_bytes by what packed_plan planned for w: `rows` rows of it, those of `ids` or, NULL, the first. */
void packed_fill(const struct packed *, const struct weight *w, const int32_t *ids, int rows, void *memory,
                 int threads);

/* Columns [first, first + count) of a row of a packed weight in host memory, each rounded once: what the kernels take it for. */
void packed_read(float *out, const struct weight *, int row, int first, int count);

#endif
