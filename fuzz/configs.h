/* What must hold of a configuration that was read. */
#ifndef DUET_FUZZ_CONFIGS_H
#define DUET_FUZZ_CONFIGS_H

#include "fuzz/fuzz.h"
#include "model/config.h"

/* Sizes and ids in range; the tables of positions lie on circles. */
void claim_config(const struct model_config *);

#endif
