/* What the Qwen families share. */
#ifndef DUET_MODEL_FAMILIES_QWEN_H
#define DUET_MODEL_FAMILIES_QWEN_H

#include "base/json.h"
#include "model/binder.h"

int qwen_read_windows(struct model_config *, const cJSON *root);
/* Norms, projections, biases and norms of heads of a layer, all but its MLP. */
void qwen_bind_attention(struct binder *, int layer);

#endif
