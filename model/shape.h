/* Shapes of well-known models, for benchmarks without files: the configuration is real, the weights are random. */
#ifndef DUET_MODEL_SHAPE_H
#define DUET_MODEL_SHAPE_H

#include "model/config.h"

/* `name` is one of model_shape_names, or a FILE.json in config.json's form. ERR_USAGE for an unknown name. */
int model_shape_load(struct model_config *out, const char *name);
const char *model_shape_names(void); /* "llama-3.1-8b, ..." */

#endif
