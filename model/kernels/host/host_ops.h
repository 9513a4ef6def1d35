/* The host ops: each file checks what it is given, and submits. The rest is ops_host() in table.c. */
#ifndef DUET_KERNELS_HOST_OPS_H
#define DUET_KERNELS_HOST_OPS_H

#include "model/ops.h"

int host_embed(struct stream *, const struct op_embed *);
int host_qkv(struct stream *, const struct op_qkv *);
int host_attention(struct stream *, const struct op_attention *);
int host_project(struct stream *, const struct op_project *);
int host_add_norm(struct stream *, const struct op_add_norm *);
int host_gate_up(struct stream *, const struct op_gate_up *);
int host_logits(struct stream *, const struct op_logits *);
int host_route(struct stream *, const struct op_route *);
int host_experts_up(struct stream *, const struct op_experts_up *);
int host_experts_down(struct stream *, const struct op_experts_down *);
int host_products(struct stream *, const struct op_products *);
int host_gate(struct stream *, const struct op_gate *);
int host_group_norm(struct stream *, const struct op_group_norm *);
int host_steps(struct stream *, const struct op_steps *);
int host_linear_attention(struct stream *, const struct op_linear_attention *);
int host_short_conv(struct stream *, const struct op_short_conv *);
int host_keep(struct stream *, const struct op_keep *);
int host_join(struct stream *, const struct op_join *);
int host_tap(struct stream *, const struct op_tap *);

#endif
