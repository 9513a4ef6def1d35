/* Recurrent layers by Mamba 2's rule (Dao & Gu 2024), for families that have some. */
#ifndef DUET_MODEL_FAMILIES_MAMBA_H
#define DUET_MODEL_FAMILIES_MAMBA_H

#include "base/json.h"
#include "model/config.h"

struct binder;

/* What a family's configuration calls these, and what they are where it says nothing. */
struct mamba_members {
    struct mamba_member {
        const char *name;
        int32_t otherwise;
    } heads, groups, state, taps, head_dim;
    const char *conv_bias;
    const char *expand; /* heads are together so many times as wide as the model; NULL: as their number and size say */
};
int mamba_read(struct model_config *, const cJSON *root, const struct mamba_members *);
/* A layer's tensors, under "layers.L.mamba.". */
void mamba_bind(struct binder *, int layer);

#endif
