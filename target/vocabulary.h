/* Ids of a checkpoint: its own map, or without one the rows of its embedding. */
#ifndef DUET_TARGET_VOCABULARY_H
#define DUET_TARGET_VOCABULARY_H

#include "model/model.h"

/* The tokenizer of the checkpoint (NULL where it has none: ids in, ids out) and the number of ids of a model whose embedding has
 * `rows`. ERR_FORMAT if the map has ids that the embedding lacks; *tokenizer is then for the caller to free, too. Allocates. */
int vocabulary_open(struct tokenizer **tokenizer, int *size, int rows, const struct checkpoint *);

#endif
