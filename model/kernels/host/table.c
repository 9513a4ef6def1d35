#include "model/kernels/host/host_ops.h"

const struct ops *ops_host(void) {
    static const struct ops table = {
        .embed = host_embed,
        .qkv = host_qkv,
        .attention = host_attention,
        .project = host_project,
        .gate_up = host_gate_up,
        .logits = host_logits,
    };
    return &table;
}
