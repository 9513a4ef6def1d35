/* duet bench alpha: what speculation brings at each alpha and K, and by batch from which alpha on it pays.
 *
 * The times are measured: draft step, verification of every K, sampler, each launch alone, with rows in mid-answer. The tokens of a
 * round are computed from alpha, as if every drafted token were accepted with that chance. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench_tables.h"

const double bench_alphas[BENCH_ALPHAS] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95};

double bench_alpha_speed_up(const struct alpha_bench *r, int which_batch, double alpha, int k) {
    const double *ms = r->costs[which_batch].round_ms;
    return acceptance_predicted_length(alpha, k) * ms[0] / ms[k];
}

int bench_alpha_best(const struct alpha_bench *r, int which_batch, double alpha) {
    int best = 0;
    for (int i = 0; i < r->k_count; i++)
        if (bench_alpha_speed_up(r, which_batch, alpha, r->ks[i]) > bench_alpha_speed_up(r, which_batch, alpha, best))
            best = r->ks[i];
    return best;
}

double bench_alpha_break_even(const struct alpha_bench *r, int which_batch, int *k) {
    double low = 0, high = 1;
    *k = bench_alpha_best(r, which_batch, high);
    if (*k == 0) return NAN;
    for (int i = 0; i < 50; i++) {
        double alpha = (low + high) / 2;
        int best = bench_alpha_best(r, which_batch, alpha);
        if (best > 0)
            high = alpha, *k = best;
        else
            low = alpha;
    }
    return high;
}

/* --- measuring ---------------------------------------------------------------------------------------------- */

static int measure_batch(const struct bench *b, struct alpha_bench *r, int batch, int *context) {
    struct options o = *b->o;
    struct bench_steps steps;
    o.batch = batch;
    cli_note("measuring single steps at batch %d", batch);
    TRY(bench_steps(b->engine, &b->prompts, &o, &steps));
    *context = steps.context;
    r->costs[r->batches].batch = batch;
    for (int k = 0; k <= engine_info(b->engine).k_max; k++)
        r->costs[r->batches].round_ms[k] = bench_round_ms(&steps, k);
    r->batches++;
    return 0;
}

static int measure(const struct bench *b, struct alpha_bench *r, int *context) {
    for (int i = 0; i < b->o->k_count; i++)
        if (b->o->ks[i] > 0) r->ks[r->k_count++] = b->o->ks[i];
    for (int batch = 1; batch < b->o->batch; batch *= 2) TRY(measure_batch(b, r, batch, context));
    return measure_batch(b, r, b->o->batch, context);
}

/* --- the tables --------------------------------------------------------------------------------------------- */

enum { COLUMNS_BEFORE = 3 };

/* A column a K, of which the largest go first where there is no room. */
static void add_speed_ups(struct sheet *s, const struct alpha_bench *r) {
    struct sheet_column columns[TABLE_COLUMNS_MAX] = {
        {"alpha", "alpha"}, {"best K", "best_k"}, {"speed-up", "best_speed_up"}};
    static char shown[OPTION_INTS_MAX][8], names[OPTION_INTS_MAX][8], align[TABLE_COLUMNS_MAX + 1],
        drop[TABLE_COLUMNS_MAX + 1];
    const int last = r->batches - 1, count = COLUMNS_BEFORE + r->k_count;
    memset(align, 'r', (size_t)count);
    for (int i = 0; i < r->k_count; i++) {
        snprintf(shown[i], sizeof shown[i], "K = %d", r->ks[i]);
        snprintf(names[i], sizeof names[i], "k%d", r->ks[i]);
        columns[COLUMNS_BEFORE + i] = (struct sheet_column){shown[i], names[i]};
        drop[i] = (char)('0' + count - 1 - i);
    }
    struct table *t = sheet_add_table(s, "speed_ups", columns, align, drop);
    for (int a = 0; a < BENCH_ALPHAS; a++) {
        const double alpha = bench_alphas[a];
        const int best = bench_alpha_best(r, last, alpha);
        table_add(t, "%g", alpha);
        table_add(t, "%d", best);
        sheet_add_figure(t, bench_alpha_speed_up(r, last, alpha, best), 3);
        for (int i = 0; i < r->k_count; i++) sheet_add_figure(t, bench_alpha_speed_up(r, last, alpha, r->ks[i]), 3);
    }
}

static void add_batches(struct sheet *s, const struct alpha_bench *r) {
    static const struct sheet_column columns[] = {
        {"batch", "batch"}, {"K = 0 ms", "plain_round_ms"},           {"pays from alpha", "pays_from_alpha"},
        {"at K", "at_k"},   {"best K at 0.8", "best_k_at_alpha_0_8"}, {"speed-up", "speed_up_at_alpha_0_8"}};
    struct table *t = sheet_add_table(s, "batches", columns, "rrrrrr", "154");
    for (int i = 0; i < r->batches; i++) {
        int k, best = bench_alpha_best(r, i, 0.8);
        double alpha = bench_alpha_break_even(r, i, &k);
        table_add(t, "%d", r->costs[i].batch);
        sheet_add_figure(t, r->costs[i].round_ms[0], 4);
        if (k > 0)
            sheet_add_figure(t, alpha, 3), table_add(t, "%d", k);
        else
            table_add(t, "%s", "never"), table_add(t, "%s", "");
        table_add(t, "%d", best);
        sheet_add_figure(t, bench_alpha_speed_up(r, i, 0.8, best), 3);
    }
}

static void show(const struct bench *b, const struct alpha_bench *r, int context) {
    struct sheet s = {0};
    bench_describe(&s, b, context);
    add_speed_ups(&s, r);
    add_batches(&s, r);
    sheet_note(&s,
               "The first table is of batch %d: (1 - alpha^(K+1)) / (1 - alpha) tokens in a round, by the times of its "
               "launches.",
               b->o->batch);
    sheet_show(&s, b->o);
}

/* --- the picture -------------------------------------------------------------------------------------------- */

enum { CURVES = PLOT_COLORS };

static int draw(struct bench *b, const struct alpha_bench *r) {
    static double gains[CURVES][BENCH_ALPHAS], batches[BENCH_BATCHES], from[BENCH_BATCHES];
    static char names[CURVES][16];
    struct plot_series curves[CURVES];
    const int count = r->k_count < CURVES ? r->k_count : CURVES;
    char title[64];
    for (int c = 0; c < count; c++) {
        const int k =
            r->ks[count > 1 ? c * (r->k_count - 1) / (count - 1) : 0]; /* the least and the largest among them */
        for (int a = 0; a < BENCH_ALPHAS; a++)
            gains[c][a] = bench_alpha_speed_up(r, r->batches - 1, bench_alphas[a], k);
        snprintf(names[c], sizeof names[c], "K = %d", k);
        curves[c] = (struct plot_series){names[c], PLOT_LINE, c, bench_alphas, gains[c], NULL, BENCH_ALPHAS};
    }
    for (int i = 0, k; i < r->batches; i++) batches[i] = r->costs[i].batch, from[i] = bench_alpha_break_even(r, i, &k);
    const struct plot_series pays = {NULL, PLOT_LINE, 0, batches, from, NULL, r->batches};
    const struct plot_panel panels[] = {
        {"speed-up over alpha", "alpha, chance of a drafted token", "times plain decoding", curves, count, 1},
        {"alpha from which speculation pays", "batch", "alpha", &pays, 1, NAN}};
    snprintf(title, sizeof title, "what acceptance brings at batch %d", b->o->batch);
    return bench_draw(b, title, panels, r->batches > 1 ? 2 : 1); /* a single batch is in the table */
}

int bench_alpha(struct bench *b) {
    static struct alpha_bench r;
    int context = 0;
    r = (struct alpha_bench){0};
    TRY(bench_needs_draft(b));
    TRY(measure(b, &r, &context));
    show(b, &r, context);
    return draw(b, &r);
}
