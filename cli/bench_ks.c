/* duet bench --k 0,1,2,4: a row a K, of one engine; K = 0, which the others are held against, always runs. */
#include <math.h>
#include <stdio.h>

#include "cli/bench_tables.h"
#include "engine/probe.h"

struct row {
    int k;
    struct bench_run run;
};

struct ks_bench {
    struct bench_steps steps;
    struct row rows[OPTION_INTS_MAX + 1]; /* [count], K ascending; the first is K = 0 */
    int count;
};

static int measure(struct bench *b, struct ks_bench *r) {
    cli_note("measuring single steps");
    TRY(bench_steps(b->engine, &b->prompts, b->o, &r->steps));
    TRY(probe_set_timing(b->engine, 0));
    if (b->o->ks[0] > 0) r->count++; /* K = 0 */
    for (int i = 0; i < b->o->k_count; i++) {
        /* Without a draft there is nothing but K = 0. */
        if (b->o->ks[i] <= engine_info(b->engine).k_max) r->rows[r->count++].k = b->o->ks[i];
    }
    for (int i = 0; i < r->count; i++) {
        cli_note("decoding with K = %d", r->rows[i].k);
        TRY(bench_generate(b->engine, &b->prompts, b->o, r->rows[i].k, &r->rows[i].run));
    }
    return 0;
}

static double speed_up(const struct ks_bench *r, const struct row *row) {
    return bench_rate(&row->run) / bench_rate(&r->rows[0].run);
}

/* --- the table ---------------------------------------------------------------------------------------------- */

static void show(const struct bench *b, const struct ks_bench *r) {
    static const struct sheet_column columns[] = {{"K", "k"},
                                                  {"round ms", "round_ms"},
                                                  {"tok/s", "tok_per_second"},
                                                  {"speed-up", "speed_up"},
                                                  {"draft step ms", "draft_step_ms"},
                                                  {"verify ms", "verify_ms"},
                                                  {"alpha", "alpha"},
                                                  {"length", "mean_acceptance_length"}};
    struct sheet s = {0};
    bench_describe(&s, b, r->steps.context);
    struct table *t = sheet_add_table(&s, "ks", columns, "rrrrrrrr", "7645");
    for (int i = 0; i < r->count; i++) {
        const struct row *row = &r->rows[i];
        table_add(t, "%d", row->k);
        sheet_add_figure(t, row->run.round_ms, 4);
        sheet_add_figure(t, bench_rate(&row->run), 1);
        sheet_add_figure(t, speed_up(r, row), 3);
        sheet_add_figure(t, row->k > 0 ? bench_draft_ms(&r->steps, row->k) / row->k : NAN, 4);
        sheet_add_figure(t, row->k > 0 ? r->steps.verify_ms[row->k + 1] : r->steps.decode_ms, 4);
        sheet_add_figure(t, row->k > 0 ? acceptance_alpha(&row->run.stats) : NAN, 4);
        sheet_add_figure(t, row->k > 0 ? acceptance_mean_length(&row->run.stats) : NAN, 3);
    }
    sheet_show(&s, b->o);
}

static int draw(struct bench *b, const struct ks_bench *r) {
    double k[OPTION_INTS_MAX + 1], gain[OPTION_INTS_MAX + 1], ms[OPTION_INTS_MAX + 1];
    char title[128];
    int best = 0;
    for (int i = 0; i < r->count; i++) {
        k[i] = r->rows[i].k, gain[i] = speed_up(r, &r->rows[i]), ms[i] = r->rows[i].run.round_ms;
        if (gain[i] > gain[best]) best = i;
    }
    const struct plot_series speed = {NULL, PLOT_LINE, 0, k, gain, NULL, r->count},
                             rounds = {NULL, PLOT_LINE, 1, k, ms, NULL, r->count};
    const struct plot_panel panels[] = {
        {"speed-up over K", "K, tokens drafted a round", "times plain decoding", &speed, 1, 1},
        {"what a round takes", "K, tokens drafted a round", "ms", &rounds, 1, NAN}};
    snprintf(title, sizeof title, "batch %d: K = %d runs at %.2f times plain decoding", b->o->batch, r->rows[best].k,
             gain[best]);
    return bench_draw(b, title, panels, 2);
}

int bench_ks(struct bench *b) {
    struct ks_bench r = {0};
    TRY(measure(b, &r));
    show(b, &r);
    return draw(b, &r);
}
