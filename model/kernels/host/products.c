/* Projections of one norm side by side, and gates and norms of what ops made. */
#include "base/fmath.h"
#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/isa.h"
#include "model/kernels/host/product.h"

struct products_args {
    struct op_products op;
    int threads;
};

static int run_products(const void *args) {
    const struct products_args *a = args;
    const struct op_products *op = &a->op;
    const int tokens = rows_count(&op->rows);
    struct norm_rows norm = {
        .x = op->x, .norm = op->norm, .width = op->width, .count = tokens, .step = 1, .normed = op->normed.data};
    struct product all[PRODUCTS_MAX];
    int count = 0, before = 0;
    for (; count < PRODUCTS_MAX && op->w[count].data; count++) {
        all[count] = (struct product){.w = op->w[count],
                                      .x = op->normed.data,
                                      .out = op->out + before,
                                      .out_stride = op->stride,
                                      .tokens = tokens,
                                      .end = PRODUCT_STORE,
                                      .scale = 1};
        before += op->w[count].rows;
    }
    norm_rows_run(&norm, a->threads);
    products_run(&(struct products){all, count}, a->threads);
    return 0;
}

int host_products(struct stream *stream, const struct op_products *op) {
    struct products_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_products, &args, sizeof args);
}

static void gate_part(const void *args, int part, int parts) {
    const struct op_gate *op = args;
    const struct range mine = parallel_range(rows_count(&op->rows), part, parts);
    for (int t = mine.first; t < mine.end; t++) {
        const float *gate = op->gate + (size_t)t * (size_t)op->stride;
        float *h = (float *)op->h.data + (size_t)t * (size_t)op->width;
        for (int i = 0; i < op->width; i++)
            h[i] *= 1 / (1 + fmath_exp(-gate[i / op->group * op->apart + i % op->group]));
    }
}

struct gate_args {
    struct op_gate op;
    int threads;
};

static int run_gate(const void *args) {
    const struct gate_args *a = args;
    parallel_run(a->threads, (int64_t)rows_count(&a->op.rows) * a->op.width * 16, gate_part, &a->op);
    return 0;
}

int host_gate(struct stream *stream, const struct op_gate *op) {
    struct gate_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_gate, &args, sizeof args);
}

static void group_norm_part(const void *args, int part, int parts) {
    const struct op_group_norm *op = args;
    const int groups = op->width / op->group;
    const struct range mine = parallel_range(rows_count(&op->rows) * groups, part, parts);
    for (int i = mine.first; i < mine.end; i++) {
        struct norm norm = op->norm;
        norm.weight.data =
            (const char *)norm.weight.data + dtype_span_bytes(norm.weight.format, i % groups * op->group);
        float *h = (float *)op->h.data + (size_t)i * (size_t)op->group;
        host_isa()->norm(h, h, &norm, op->group);
    }
}

struct group_norm_args {
    struct op_group_norm op;
    int threads;
};

static int run_group_norm(const void *args) {
    const struct group_norm_args *a = args;
    parallel_run(a->threads, (int64_t)rows_count(&a->op.rows) * a->op.width * 2, group_norm_part, &a->op);
    return 0;
}

int host_group_norm(struct stream *stream, const struct op_group_norm *op) {
    struct group_norm_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_group_norm, &args, sizeof args);
}
