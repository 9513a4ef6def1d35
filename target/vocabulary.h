/* Ids of a checkpoint: those of its own map that its embedding has rows for, or without a map all rows. */
#ifndef DUET_TARGET_VOCABULARY_H
#define DUET_TARGET_VOCABULARY_H

#include "model/model.h"

/* The tokenizer of the checkpoint (NULL where it has none: ids in, ids out) and the number of ids of a model whose embedding has
 * `rows`. A map may go on behind them (a Gemma that reads no images has their token): such an id is never drawn, and a prompt that
 * has one is refused by engine_generate. Allocates. */
int vocabulary_open(struct tokenizer **tokenizer, int *size, int rows, const struct checkpoint *);

#endif
