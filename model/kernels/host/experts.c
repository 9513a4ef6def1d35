/* Products over the experts that rows chose. The rows of one expert are one product, so that its weights are read once; a row's sums
 * are the same whoever else chose it.
 *
 * `lists`: [0] unused, then the start of each expert's entries [E + 1], then the entries t * chosen + j by expert, ascending. */
#include <string.h>

#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/product.h"

struct up_args {
    struct op_experts_up op;
    int threads;
};
struct down_args {
    struct op_experts_down op;
    int threads;
};

static struct weight expert(const struct experts *e, int index) {
    return e->each ? e->each[index] : (struct weight){0};
}

/* --- up --------------------------------------------------------------------------------------------------- */

static void sort_entries(const struct op_experts_up *op, int entries) {
    int32_t *start = op->lists + 1, *entry = start + op->experts + 1, *next = entry + entries;
    memset(start, 0, ((size_t)op->experts + 1) * sizeof *start);
    for (int i = 0; i < entries; i++)
        if (op->ids[i] >= 0) start[op->ids[i] + 1]++;
    for (int e = 0; e < op->experts; e++) start[e + 1] += start[e];
    memcpy(next, start, (size_t)op->experts * sizeof *next);
    for (int i = 0; i < entries; i++)
        if (op->ids[i] >= 0) entry[next[op->ids[i]]++] = i;
}

/* The rows of x that entries belong to, behind the cursors of sort_entries, which are used up. */
static const int32_t *rows_of_entries(const struct op_experts_up *op, int entries) {
    const int32_t *entry = op->lists + 1 + op->experts + 1;
    int32_t *row = op->lists + 1 + op->experts + 1 + entries;
    for (int i = 0; i < op->lists[1 + op->experts]; i++) row[i] = entry[i] / op->chosen;
    return row;
}

static int run_up(const void *args) {
    const struct up_args *a = args;
    const struct op_experts_up *op = &a->op;
    const int tokens = rows_count(&op->rows), entries = tokens * op->chosen;
    const int32_t *start = op->lists + 1, *entry = start + op->experts + 1;
    struct norm_rows norm = {
        .x = op->x, .norm = op->norm, .width = op->width, .count = tokens, .step = 1, .normed = op->normed.data};
    norm_rows_run(&norm, a->threads);
    sort_entries(op, entries);
    const int32_t *row = rows_of_entries(op, entries);
    for (int e = 0; e < op->experts; e++) {
        if (start[e] == start[e + 1]) continue;
        struct product product = {
            .w = expert(&op->gate, e),
            .up = expert(&op->up, e),
            .bias = expert(&op->gate_bias, e),
            .up_bias = expert(&op->up_bias, e),
            .x = op->normed.data,
            .x_row = row + start[e],
            .out = op->h.data,
            .out_row = entry + start[e],
            .out_stride = op->hidden,
            .tokens = start[e + 1] - start[e],
            .end = PRODUCT_GATE,
            .activation = op->activation,
        };
        products_run(&(struct products){&product, 1}, a->threads);
    }
    return 0;
}

int host_experts_up(struct stream *stream, const struct op_experts_up *op) {
    struct up_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_up, &args, sizeof args);
}

/* --- down ------------------------------------------------------------------------------------------------- */

static void add_experts(const struct op_experts_down *op, int row) {
    const size_t width = (size_t)op->width, chosen = (size_t)op->chosen;
    const float *sums = op->sums + (size_t)row * chosen * width, *weights = op->weights + (size_t)row * chosen;
    float *x = op->x + (size_t)row * width;
    const bool has_experts = op->ids[(size_t)row * chosen] >= 0;
    for (size_t i = 0; i < width; i++) {
        float sum = 0;
        for (size_t j = 0; has_experts && j < chosen; j++) sum += weights[j] * sums[j * width + i];
        x[i] = op->stores ? sum : x[i] + sum;
    }
}

static void rows_part(const void *args, int part, int parts) {
    const struct op_experts_down *op = args;
    struct range mine = parallel_range(rows_count(&op->rows), part, parts);
    for (int row = mine.first; row < mine.end; row++) add_experts(op, row);
}

static int run_down(const void *args) {
    const struct down_args *a = args;
    const struct op_experts_down *op = &a->op;
    const int32_t *start = op->lists + 1, *entry = start + op->experts + 1;
    for (int e = 0; e < op->experts; e++) {
        if (start[e] == start[e + 1]) continue;
        struct product product = {
            .w = expert(&op->down, e),
            .bias = expert(&op->bias, e),
            .x = op->h.data,
            .x_row = entry + start[e],
            .out = op->sums,
            .out_row = entry + start[e],
            .out_stride = op->width,
            .tokens = start[e + 1] - start[e],
            .end = PRODUCT_STORE,
            .scale = 1,
        };
        products_run(&(struct products){&product, 1}, a->threads);
    }
    parallel_run(a->threads, (int64_t)rows_count(&op->rows) * op->chosen * op->width, rows_part, op);
    return 0;
}

int host_experts_down(struct stream *stream, const struct op_experts_down *op) {
    struct down_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_down, &args, sizeof args);
}
