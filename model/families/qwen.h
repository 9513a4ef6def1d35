/* What the Qwen families share. */
#ifndef DUET_MODEL_FAMILIES_QWEN_H
#define DUET_MODEL_FAMILIES_QWEN_H

#include "base/json.h"
#include "model/binder.h"

/* `first`: max_window_layers where it is absent. */
int qwen_read_windows(struct model_config *, const cJSON *root, int32_t first);
/* The rope of Qwen 3 inside its multimodal wrappers, whose base must be there: transformers 4 and 5 have other ones. */
int qwen_read_wrapped_rope(struct model_config *, const cJSON *root);
/* Which layers have experts: every decoder_sparse_step-th that mlp_only_layers does not name. */
int qwen_read_sparse_layers(struct model_config *, const cJSON *root);
/* The MLP beside the experts of these layers, which a number gates: its width, `def` where nothing is said. */
int qwen_read_shared_expert(struct model_config *, const cJSON *root, int32_t def);
/* Norms, projections, biases and norms of heads of a layer, all but its MLP. */
void qwen_bind_attention(struct binder *, int layer);
/* The router and the experts of a layer, one by one or stacked. */
void qwen_bind_experts(struct binder *, int layer);
/* And the MLP beside them, with its gate. */
void qwen_bind_experts_and_mlp(struct binder *, int layer);

#endif
