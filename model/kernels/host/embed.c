/* out[t, :] = scale * table[tokens[t], :], in f32. One part is a range of tokens. */
#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/isa.h"

struct args {
    struct op_embed op;
    int threads;
};

static void embed_part(const void *args, int part, int parts) {
    const struct op_embed *op = args;
    const struct host_isa *isa = host_isa();
    const size_t width = (size_t)op->table.cols;
    struct range mine = parallel_range(rows_count(&op->rows), part, parts);
    for (int t = mine.first; t < mine.end; t++) {
        int32_t id = op->rows.tokens[t];
        if (id < 0 || id >= op->table.rows) id = 0;
        float *out = op->out + (size_t)t * width;
        isa->unpack(out, &op->table, id, 0, op->table.cols);
        for (size_t i = 0; i < width && op->scale != 1; i++) out[i] *= op->scale;
    }
}

static int run(const void *args) {
    const struct args *a = args;
    parallel_run(a->threads, (int64_t)rows_count(&a->op.rows) * a->op.table.cols, embed_part, &a->op);
    return 0;
}

int host_embed(struct stream *stream, const struct op_embed *op) {
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
