/* duet bench stack: what each step of the engine brings, one after the other, on one engine. */
#include <math.h>
#include <stdio.h>

#include "cli/bench_tables.h"

/* How rounds run. A step more is a line more, and what switches it in set_step. */
static const struct step {
    const char *name;
    bool eager;       /* op by op, without graphs */
    bool early;       /* kernels start while the one before still runs */
    bool speculative; /* the K of the most tokens a second */
} steps[] = {
    {.name = "eager", .eager = true},
    {.name = "graphs"},
    {.name = "dependent launch", .early = true},
    {.name = "speculation at the best K", .early = true, .speculative = true},
};
enum { STEPS = sizeof steps / sizeof *steps };

struct stack_bench {
    struct {
        int k;
        double rate;        /* tokens a second; NAN: not measured */
        const char *remark; /* why */
    } rows[STEPS];
};

/* --- measuring ---------------------------------------------------------------------------------------------- */

/* Graphs keep how their kernels start, so they are captured again where that changes. */
static int set_step(const struct bench *b, const struct step *step, const struct step *before) {
    bool can = probe_set_early_starts(b->engine, step->early);
    probe_set_eager(b->engine, step->eager);
    if (!can || (before ? before->early : true) == step->early) return 0;
    TRY(probe_set_buckets(b->engine, b->o->buckets));
    probe_set_eager(b->engine, step->eager);
    progress_clear();
    return 0;
}

static int measure_rate(const struct bench *b, int k, double *rate) {
    struct bench_run run;
    TRY(bench_generate(b->engine, &b->prompts, b->o, k, &run));
    *rate = bench_rate(&run);
    return 0;
}

static int measure_step(const struct bench *b, const struct step *step, struct stack_bench *r, int which) {
    const int k_max = engine_info(b->engine).k_max;
    double rate;
    r->rows[which].rate = NAN;
    cli_note("%s", step->name);
    if (!step->speculative) return measure_rate(b, 0, &r->rows[which].rate);
    if (k_max == 0) r->rows[which].remark = "nothing drafts here";
    for (int i = 0; i < b->o->k_count && k_max > 0; i++) {
        if (b->o->ks[i] == 0) continue;
        TRY(measure_rate(b, b->o->ks[i], &rate));
        if (rate < r->rows[which].rate) continue;
        r->rows[which].rate = rate, r->rows[which].k = b->o->ks[i];
    }
    return 0;
}

static int measure(const struct bench *b, struct stack_bench *r) {
    const bool can_start_early = probe_set_early_starts(b->engine, true);
    struct bench_prompts first = b->prompts;
    struct bench_run ignored;
    if (first.count > b->o->batch) first.count = b->o->batch;
    TRY(probe_set_timing(b->engine, 0));
    TRY(bench_generate(b->engine, &first, b->o, 0, &ignored)); /* so that the first step is not the slower for it */
    for (int i = 0; i < STEPS; i++) {
        const struct step *step = &steps[i], *before = i > 0 ? &steps[i - 1] : NULL;
        TRY(set_step(b, step, before));
        if (before && step->early && !before->early && !can_start_early) {
            r->rows[i].rate = NAN;
            r->rows[i].remark = "none on this device";
            continue;
        }
        TRY(measure_step(b, step, r, i));
    }
    return 0;
}

/* --- the table ---------------------------------------------------------------------------------------------- */

static void show(const struct bench *b, const struct stack_bench *r) {
    static const struct sheet_column columns[] = {{"step", "step"},
                                                  {"K", "k"},
                                                  {"ms a token", "ms_per_token"},
                                                  {"tok/s", "tok_per_second"},
                                                  {"times", "times_the_first"},
                                                  {"", "remark"}};
    struct sheet s = {0};
    bench_describe(&s, b, 0);
    struct table *t = sheet_add_table(&s, "steps", columns, "lrrrrl", "");
    for (int i = 0; i < STEPS; i++) {
        const double rate = r->rows[i].rate;
        table_add(t, "%s", steps[i].name);
        table_add(t, "%d", r->rows[i].k);
        sheet_add_figure(t, 1e3 * b->o->batch / rate, 4);
        sheet_add_figure(t, rate, 1);
        sheet_add_figure(t, rate / r->rows[0].rate, 3);
        table_add(t, "%s", r->rows[i].remark ? r->rows[i].remark : "");
    }
    sheet_note(&s, "Each row is the one above and one step more; ms a token: of one sequence, of %d at a time.",
               b->o->batch);
    sheet_show(&s, b->o);
}

static int draw(struct bench *b, const struct stack_bench *r) {
    double x[STEPS], rate[STEPS];
    struct plot_series bars[STEPS];
    char title[64];
    for (int i = 0; i < STEPS; i++) {
        x[i] = i + 1, rate[i] = r->rows[i].rate;
        bars[i] = (struct plot_series){steps[i].name, PLOT_BARS, i % PLOT_COLORS, &x[i], &rate[i], NULL, 1};
    }
    const struct plot_panel panel = {"tokens a second", "step", "tok/s", bars, STEPS, NAN};
    snprintf(title, sizeof title, "what each step brings, batch %d", b->o->batch);
    return bench_draw(b, title, &panel, 1);
}

int bench_stack(struct bench *b) {
    struct stack_bench r = {0};
    TRY(measure(b, &r));
    show(b, &r);
    return draw(b, &r);
}
