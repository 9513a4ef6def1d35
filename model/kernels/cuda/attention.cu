/* Which attention runs: prefill's for a chunk, else by the device and the head size alone, never by the rows of a pass. */
#include "model/kernels/cuda/attention.cuh"
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/table.h"

/* To the loads of clusters a head is whole 16 bytes. */
static bool takes_clusters(const struct device *d, int head_dim) {
    return head_dim % 8 == 0 && cuda_takes_clusters(d);
}

bool cuda_attention_needs_partials(const struct device *d, int head_dim) {
    return !takes_clusters(d, head_dim);
}

int cuda_op_attention(struct stream *s, const struct op_attention *op) {
    if (op->head_dim > ATTENTION_DIMS_MAX || op->head_dim % 2 != 0)
        return err_set(ERR_UNSUPPORTED, "attention: heads of %d dimensions", op->head_dim);
    if (op->kv_heads < 1 || op->heads % op->kv_heads != 0)
        return err_set(ERR_INTERNAL, "attention: %d heads for %d key/value heads", op->heads, op->kv_heads);
    if (op->rows.prefill) return cuda_prefill_attention(s, op);
    return takes_clusters(s->device, op->head_dim) ? cuda_attention_cluster(s, op) : cuda_attention_plain(s, op);
}
