/* Attention through the page table. A unit of work is one row and the heads of one key/value head, or, where there
 * are few of these, one row and one head; units go round the threads, since later rows see more keys. */
#include <string.h>

#include "base/err.h"
#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/isa.h"

struct args {
    struct op_attention op;
    int threads;
};

static void attention_part(const void *args, int part, int parts) {
    const struct op_attention *op = args;
    const struct host_isa *isa = host_isa();
    const int rows = rows_count(&op->rows), group = op->heads / op->kv_heads;
    const int together = (int64_t)rows * op->kv_heads >= 4 * parts ? group : 1, units = op->heads / together;
    for (int64_t u = part; u < (int64_t)rows * units; u += parts) {
        int t = (int)(u / units), head = (int)(u % units) * together;
        if (op->rows.positions[t] >= 0)
            isa->attention(op, t, head, together);
        else
            memset(op->out + ((size_t)t * (size_t)op->heads + (size_t)head) * (size_t)op->head_dim, 0,
                   (size_t)together * (size_t)op->head_dim * sizeof(float));
    }
}

static int run(const void *args) {
    const struct args *a = args;
    const struct op_attention *op = &a->op;
    int64_t keys = 0;
    for (int t = 0; t < rows_count(&op->rows); t++) {
        int32_t position = op->rows.positions[t];
        if (position / KV_PAGE >= op->rows.pages_per_slot)
            return err_set(ERR_INTERNAL, "attention: row %d is at position %d, expected in %d pages", t, position,
                           op->rows.pages_per_slot);
        keys += op->window > 0 && position >= op->window ? op->window : position + 1;
    }
    parallel_run(a->threads, keys * op->heads * op->head_dim * 2, attention_part, op);
    return 0;
}

int host_attention(struct stream *stream, const struct op_attention *op) {
    if (op->kv_heads < 1 || op->heads % op->kv_heads)
        return err_set(ERR_INTERNAL, "attention: %d heads for %d key/value heads", op->heads, op->kv_heads);
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
