/* The ops of the CUDA table, one a file. */
#ifndef DUET_MODEL_KERNELS_CUDA_TABLE_H
#define DUET_MODEL_KERNELS_CUDA_TABLE_H

#include "model/ops.h"

int cuda_op_embed(struct stream *, const struct op_embed *);
int cuda_op_qkv(struct stream *, const struct op_qkv *);
int cuda_op_attention(struct stream *, const struct op_attention *);
bool cuda_attention_needs_partials(const struct device *, int head_dim);
int cuda_op_project(struct stream *, const struct op_project *);
int cuda_op_add_norm(struct stream *, const struct op_add_norm *);
int cuda_op_gate_up(struct stream *, const struct op_gate_up *);
int cuda_op_logits(struct stream *, const struct op_logits *);
int cuda_op_route(struct stream *, const struct op_route *);
int cuda_op_experts_up(struct stream *, const struct op_experts_up *);
int cuda_op_experts_down(struct stream *, const struct op_experts_down *);
int cuda_op_products(struct stream *, const struct op_products *);
int cuda_op_gate(struct stream *, const struct op_gate *);
int cuda_op_group_norm(struct stream *, const struct op_group_norm *);
int cuda_op_steps(struct stream *, const struct op_steps *);
int cuda_op_linear_attention(struct stream *, const struct op_linear_attention *);
int cuda_op_short_conv(struct stream *, const struct op_short_conv *);
int cuda_op_keep(struct stream *, const struct op_keep *);
int cuda_op_join(struct stream *, const struct op_join *);
int cuda_op_tap(struct stream *, const struct op_tap *);

#endif
