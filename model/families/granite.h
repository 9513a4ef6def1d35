/* What the Granite families share. */
#ifndef DUET_MODEL_FAMILIES_GRANITE_H
#define DUET_MODEL_FAMILIES_GRANITE_H

#include "base/json.h"
#include "model/families/family.h"

/* Dimensions and multipliers. */
int granite_read(struct model_config *, const cJSON *root);

#endif
