/* Attention through the page table. A unit of work is a block of rows of one graph row, and the heads of one
 * key/value head or, where there are few of these, a single head. Units go round the parts, since later rows see
 * more keys. */
#include "base/err.h"
#include "base/parallel.h"
#include "model/config.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/isa.h"

struct args {
    struct op_attention op;
    int threads;
};

static int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

static void attention_part(const void *args, int part, int parts) {
    const struct op_attention *op = args;
    const struct host_isa *isa = host_isa();
    const int q_len = op->rows.q_len, group = op->heads / op->kv_heads;
    const int blocks = ceil_div(q_len, QUERY_ROWS_MAX), all = op->rows.batch * blocks;
    const int together = all * op->kv_heads < 2 * parts ? 1 : group < QUERY_HEADS_MAX ? group : QUERY_HEADS_MAX;
    const int chunks = ceil_div(group, together), units = op->kv_heads * chunks;
    for (int64_t u = part; u < (int64_t)all * units; u += parts) {
        const int block = (int)(u / units), b = block / blocks, unit = (int)(u % units);
        const int row = block % blocks * QUERY_ROWS_MAX, head = unit % chunks * together;
        struct queries queries = {.row = b * q_len + row, .head = unit / chunks * group + head};
        queries.rows = q_len - row < QUERY_ROWS_MAX ? q_len - row : QUERY_ROWS_MAX;
        queries.heads = group - head < together ? group - head : together;
        isa->attention(op, queries);
    }
}

static int run(const void *args) {
    const struct args *a = args;
    const struct op_attention *op = &a->op;
    int64_t keys = 0;
    for (int t = 0; t < rows_count(&op->rows); t++) {
        int32_t position = rows_sight(&op->rows)[t];
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
    if (op->kv.type == DTYPE_FP8 && op->head_dim > HEAD_DIM_MAX)
        return err_set(ERR_UNSUPPORTED, "attention: heads of %d dimensions in FP8", op->head_dim);
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
