/* What speculation brought to what was answered: by the rounds that it took and what rounds take as measured, so that the figure says
 * the same on a busy machine. */
#ifndef DUET_CLI_SPEED_H
#define DUET_CLI_SPEED_H

#include "engine/engine.h"

/* Slower than plain decoding is what ran below this share of its speed. */
#define SPEED_LOSS 0.97

/* Rows of a round of the run, as the mean; 1 before there was one. */
int speed_rows(const struct engine *);
/* Times plain decoding of as many rows: tokens in so many rounds by K, [K_MAX + 1]. NAN where rounds were not measured
 * (engine_measure). */
double speed_up_of_rounds(const struct engine *, int rows, int64_t tokens, const uint64_t *rounds_by_k);
/* The same of the whole run. Measures rounds, once. NAN where nothing was drafted, or measuring fails. */
double speed_up_of_run(struct engine *);

#endif
