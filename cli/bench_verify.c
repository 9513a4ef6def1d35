/* duet bench verify: what it takes the target to verify M rows of each of B sequences, for every B and M, and whether there are cliffs.
 *
 * Each cell is one replay of VERIFY [B, M], of DECODE [B, 1] at M = 1, timed alone with rows in mid-answer. Its limit is the larger of
 * two: the bytes that it must read (weights once, of experts those of one row, keys and values of every sequence) over the read
 * bandwidth, and its operations (model/model.h, model_row_flops) over the rate of one large matrix product, both measured in the same run. Only
 * the target is loaded; n-gram lookup stands in for a draft, since it costs no memory, and what it proposes is of no account. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench_tables.h"

enum { CUDA_BATCH = 64, HOST_BATCH = 8 }; /* without --batch */
static const double most_of_limit = 1.3, most_of_larger = 1.15;

struct rates {
    double bandwidth, product;
};

/* --- what follows from the times ----------------------------------------------------------------------------- */

double bench_verify_limit(double bytes, double bandwidth, double flops, double rate) {
    return fmax(bytes / bandwidth, flops / rate) * 1e3;
}

double bench_verify_growth(const struct verify_bench *r, int which_batch, int m) {
    return m > 1 ? r->ms[which_batch][m] / r->ms[which_batch][m - 1] : NAN;
}

double bench_verify_over_larger(const struct verify_bench *r, int which_batch, int m) {
    const double ms = r->ms[which_batch][m];
    const double row = m < r->rows_most ? ms / r->ms[which_batch][m + 1] : NAN,
                 batch = which_batch + 1 < r->batches ? ms / r->ms[which_batch + 1][m] : NAN;
    return fmax(row, batch); /* the number, where one is not */
}

int bench_verify_beyond(const struct verify_bench *r, int which_batch, int m) {
    const bool limit = r->ms[which_batch][m] > most_of_limit * r->limit_ms[which_batch][m],
               neighbour = bench_verify_over_larger(r, which_batch, m) > most_of_larger;
    return (limit ? BEYOND_LIMIT : 0) | (neighbour ? BEYOND_NEIGHBOUR : 0);
}

static int count_beyond(const struct verify_bench *r, int what) {
    int count = 0;
    for (int i = 0; i < r->batches; i++)
        for (int m = 1; m <= r->rows_most; m++) count += (bench_verify_beyond(r, i, m) & what) != 0;
    return count;
}

/* --- measuring ------------------------------------------------------------------------------------------------ */

static int default_batch(const struct options *o, const struct device_options *options, int *batch) {
    struct device *device;
    *batch = o->batch;
    if (option_given(o, "batch")) return 0;
    TRY(device_open(&device, o->device, options));
    *batch = device_kind(device) == DEVICE_HOST ? HOST_BATCH : CUDA_BATCH;
    device_close(device);
    return 0;
}

/* Both take memory that the engine needs. */
static int measure_rates(const struct options *o, const struct device_options *device, struct rates *rates) {
    cli_note("measuring the read bandwidth");
    TRY(bench_bandwidth(o->device, device, &rates->bandwidth));
    cli_note("measuring a matrix product");
    return bench_product_rate(o->device, device, &rates->product);
}

static int open_target(struct bench *b, const struct options *o) {
    if (o->k > 0) b->models.proposer = "ngram";
    TRY(engine_start(&b->engine, &b->models, o));
    return bench_prompts_load(&b->prompts, o, b->engine, b->models.target);
}

/* Row j of a sequence attends to what is before it and to itself. */
static double limit_of(const struct engine *e, const struct rates *rates, int batch, int m, int context) {
    uint64_t flops = 0;
    for (int j = 0; j < m; j++) flops += probe_row_flops(e, PROBE_TARGET, context + j);
    return bench_verify_limit((double)probe_step_bytes(e, PROBE_TARGET, batch, context), rates->bandwidth,
                              (double)flops * batch, rates->product);
}

static int measure_batch(struct bench *b, const struct options *o, const struct rates *rates, int batch,
                         struct verify_bench *r, int *context) {
    struct options group = *o;
    struct bench_steps steps;
    const int which = r->batches;
    group.batch = batch;
    cli_note("measuring verification at batch %d", batch);
    TRY(bench_scores(b->engine, &b->prompts, &group, &steps));
    *context = steps.context;
    r->batch[which] = batch;
    for (int m = 1; m <= r->rows_most; m++) {
        r->ms[which][m] = m == 1 ? steps.decode_ms : steps.verify_ms[m];
        r->limit_ms[which][m] = limit_of(b->engine, rates, batch, m, steps.context);
    }
    r->batches++;
    return 0;
}

static int measure(struct bench *b, const struct options *o, const struct rates *rates, struct verify_bench *r,
                   int *context) {
    r->rows_most = o->k + 1;
    for (int batch = 1; batch < o->batch; batch *= 2) TRY(measure_batch(b, o, rates, batch, r, context));
    return measure_batch(b, o, rates, o->batch, r, context);
}

/* --- the table ------------------------------------------------------------------------------------------------ */

static void describe(struct sheet *s, const struct bench *b, const struct verify_bench *r, const struct rates *rates,
                     int context) {
    const struct engine_info info = engine_info(b->engine);
    const char *shape = b->o->shape;
    if (shape) sheet_say(s, "random weights of the shape %.*s", (int)strcspn(shape, ","), shape);
    sheet_say(s, "%s; %d tokens of context, %.1f GB/s read, %.4g TFLOP/s by a large matrix product", info.device,
              context, rates->bandwidth * 1e-9, rates->product * 1e-12);
    sheet_put_word(s, "device", info.device);
    sheet_put_word(s, "shape", shape);
    sheet_put_figure(s, "context", context);
    sheet_put_figure(s, "read_bandwidth", rates->bandwidth);
    sheet_put_figure(s, "product_flops_per_second", rates->product);
    sheet_put_figure(s, "beyond_limit", count_beyond(r, BEYOND_LIMIT));
    sheet_put_figure(s, "beyond_neighbour", count_beyond(r, BEYOND_NEIGHBOUR));
}

static void add_cell(struct table *t, const struct verify_bench *r, int which, int m) {
    static const char *const beyond[] = {"", "limit", "neighbour", "limit, neighbour"};
    table_add(t, "%d", r->batch[which]);
    table_add(t, "%d", m);
    table_add(t, "%d", r->batch[which] * m);
    sheet_add_figure(t, r->ms[which][m], 4);
    sheet_add_figure(t, r->limit_ms[which][m], 4);
    sheet_add_figure(t, r->ms[which][m] / r->limit_ms[which][m], 3);
    sheet_add_figure(t, bench_verify_growth(r, which, m), 3);
    sheet_add_figure(t, bench_verify_over_larger(r, which, m), 3);
    table_add(t, "%s", beyond[bench_verify_beyond(r, which, m)]);
}

static void note_cliffs(struct sheet *s, const struct verify_bench *r) {
    const int limit = count_beyond(r, BEYOND_LIMIT), neighbour = count_beyond(r, BEYOND_NEIGHBOUR);
    if (count_beyond(r, BEYOND_LIMIT | BEYOND_NEIGHBOUR) == 0)
        sheet_note(s, "There is no cliff: no cell is above %g of its limit, or above %g of a larger neighbour.",
                   most_of_limit, most_of_larger);
    else
        sheet_note(s, "Of %d cells %d are above %g of their limit, and %d above %g of a larger neighbour.",
                   r->batches * r->rows_most, limit, most_of_limit, neighbour, most_of_larger);
}

static void show(const struct bench *b, const struct verify_bench *r, const struct rates *rates, int context) {
    static const struct sheet_column columns[] = {{"batch", "batch"},
                                                  {"M", "m"},
                                                  {"rows", "rows"},
                                                  {"ms", "ms"},
                                                  {"limit ms", "limit_ms"},
                                                  {"of limit", "times_limit"},
                                                  {"of M - 1", "times_m_less_1"},
                                                  {"of larger", "times_larger_neighbour"},
                                                  {"beyond", "beyond"}};
    struct sheet s = {0};
    describe(&s, b, r, rates, context);
    struct table *t = sheet_add_table(&s, "cells", columns, "rrrrrrrrl", "2");
    for (int which = 0; which < r->batches; which++)
        for (int m = 1; m <= r->rows_most; m++) add_cell(t, r, which, m);
    sheet_note(&s, "limit: the larger of bytes over the read bandwidth and operations over the product's rate. of "
                   "larger: against M + "
                   "1 rows or the next batch, whichever is worse.");
    note_cliffs(&s, r);
    sheet_show(&s, b->o);
}

/* --- the picture ---------------------------------------------------------------------------------------------- */

enum { CURVES = 6 }; /* that a panel holds, each with its limit: PLOT_COLORS at most */

/* Batches [first, first + count), no more than CURVES. */
struct curves {
    struct plot_series series[2 * CURVES];
    char names[CURVES][16];
};

static struct plot_panel draw_batches(struct curves *c, const struct verify_bench *r, int first, int count) {
    static double rows[K_MAX + 1];
    for (int m = 1; m <= r->rows_most; m++) rows[m - 1] = m;
    for (int i = 0; i < count; i++) {
        snprintf(c->names[i], sizeof c->names[i], "batch %d", r->batch[first + i]);
        c->series[i] = (struct plot_series){c->names[i], PLOT_LINE, i, rows, r->ms[first + i] + 1, NULL, r->rows_most};
        c->series[count + i] = (struct plot_series){i == 0 ? "limit" : NULL,    PLOT_DASHES, i,           rows,
                                                    r->limit_ms[first + i] + 1, NULL,        r->rows_most};
    }
    return (struct plot_panel){"verification over its rows", "M, rows of a sequence", "ms", c->series, 2 * count, NAN};
}

static int draw(struct bench *b, const struct verify_bench *r) {
    static struct curves curves[2];
    const int panels = r->batches > CURVES ? 2 : 1, half = (r->batches + panels - 1) / panels;
    struct plot_panel drawn[2];
    for (int i = 0; i < panels; i++)
        drawn[i] = draw_batches(&curves[i], r, i * half, i == 0 ? half : r->batches - half);
    return bench_draw(b, "what the rows of a verification cost", drawn, panels);
}

int bench_verify(struct bench *b) {
    static struct verify_bench r;
    const struct device_options device = {.threads = b->o->threads, .gpu = b->o->gpu};
    struct options o = *b->o;
    struct rates rates;
    int context = 0;
    r = (struct verify_bench){0};
    TRY(default_batch(&o, &device, &o.batch));
    TRY(measure_rates(&o, &device, &rates));
    TRY(open_target(b, &o));
    TRY(measure(b, &o, &rates, &r, &context));
    show(b, &r, &rates, context);
    return draw(b, &r);
}
