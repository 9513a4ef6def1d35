/* Shapes of well-known models, for benchmarks without files: the configuration is real, the weights are random. */
#ifndef DUET_MODEL_FILES_SHAPE_H
#define DUET_MODEL_FILES_SHAPE_H

#include "base/buf.h"
#include "model/config.h"

/* `name` is one of those below, or a FILE.json in config.json's form. ERR_USAGE for an unknown name. */
int model_shape_load(struct model_config *out, const char *name);
/* What it would parse, as text. */
int model_shape_text(struct buf *out, const char *name);
const char *model_shape_at(int index); /* NULL past the last one */

#endif
