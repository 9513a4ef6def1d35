/* Recurrent layers by Mamba 2's rule (Dao & Gu 2024), for families that have some. */
#ifndef DUET_MODEL_FAMILIES_MAMBA_H
#define DUET_MODEL_FAMILIES_MAMBA_H

#include "base/json.h"
#include "model/config.h"

struct binder;

/* The heads, groups and taps of members mamba_*, as Granite 4 has them. */
int mamba_read(struct model_config *, const cJSON *root);
/* A layer's tensors, under "layers.L.mamba.". */
void mamba_bind(struct binder *, int layer);

#endif
