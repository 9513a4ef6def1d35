/* What the Gemma families share. */
#ifndef DUET_MODEL_FAMILIES_GEMMA_H
#define DUET_MODEL_FAMILIES_GEMMA_H

#include "model/binder.h"
#include "model/families/family.h"

/* Activation, scales of the embedding and of the attention. */
int gemma_read_shared(struct model_config *, const cJSON *root);
int gemma_read_cap(const cJSON *root, const char *name, double def, float *out);
/* rope_parameters by kind of layer, or the members of before: rope 0 turns full layers, rope 1 those that slide. */
int gemma_read_ropes(struct model_config *, const cJSON *root, int32_t full_head_dim);
/* The four norms of a layer. */
void gemma_bind_norms(struct binder *, int layer, float offset);

/* Gemma 4, of its models and of the assistants that draft for them: all but experts, inputs of layers and keys that layers share; a layer
 * but for these tensors; and its ops. */
int gemma4_read_text(struct model_config *, const cJSON *root);
void gemma4_bind_layer(struct binder *, int layer);
void gemma4_build_layer(struct builder *, int layer);

#endif
