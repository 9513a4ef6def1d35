/* Weights of a model without files: uniform bf16 in about +-0.03, as large as weights are. */
#ifndef DUET_MODEL_RANDOM_WEIGHTS_H
#define DUET_MODEL_RANDOM_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

enum { RANDOM_CHUNK = 4 << 20 }; /* elements */

/* The table [RANDOM_CHUNK] that all of them are taken from; free() it. */
int random_weights_create(uint16_t **table);

/* to [n], at most a chunk, for the elements from `done` on of a model: chunks are the same numbers from another place on, so that no
 * two rows of a weight are alike. */
void random_weights_fill(const uint16_t *table, int64_t done, uint16_t *to, size_t n, int threads);

#endif
