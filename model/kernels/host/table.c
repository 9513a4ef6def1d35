#include "model/kernels/host/host_ops.h"

const struct ops *ops_host(void) {
    static const struct ops table = {
        .embed = host_embed,
        .qkv = host_qkv,
        .attention = host_attention,
        .project = host_project,
        .add_norm = host_add_norm,
        .gate_up = host_gate_up,
        .logits = host_logits,
        .route = host_route,
        .experts_up = host_experts_up,
        .experts_down = host_experts_down,
        .products = host_products,
        .gate = host_gate,
        .group_norm = host_group_norm,
        .steps = host_steps,
        .linear_attention = host_linear_attention,
        .short_conv = host_short_conv,
        .keep = host_keep,
        .join = host_join,
        .tap = host_tap,
    };
    return &table;
}
