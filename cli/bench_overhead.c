/* duet bench overhead: where the time of a round goes, by graphs and without them.
 *
 * The whole is the host's clock over rounds that follow each other. The device's part is from events in every fourth of these rounds:
 * around each replay, or what is submitted in its place, and around each draw and the acceptance. The replays by themselves are
 * timed back to back; bytes over the bandwidth of the same run are their limit. bench_split_round (cli/bench_tables.h) says how the
 * parts follow. Gaps between the kernels of one replay are in no event, so they count as kernels. */
#include <math.h>
#include <stdio.h>

#include "cli/bench_tables.h"

enum { MODES = 2 };
static const char *const mode_names[MODES] = {"graphs", "eager"};

struct overhead_bench {
    struct bench_steps steps;
    struct {
        int k;
        struct {
            struct round_measure measure;
            double enqueue_ms; /* that the host takes for a round, hidden behind the device or not */
            double parts[ROUND_PARTS];
        } modes[MODES];
    } rows[OPTION_INTS_MAX + 1]; /* [count]; the first is K = 0 */
    int count;
};

static double at_most(double x, double limit) {
    return x < 0 ? 0 : x < limit ? x : limit;
}

void bench_split_round(const struct round_measure *m, double parts[ROUND_PARTS]) {
    const double span = m->replays + m->sampler, scale = span > m->whole ? m->whole / span : 1;
    const double replays = m->replays * scale, alone = at_most(m->alone, replays),
                 idle = fmax(m->whole - span * scale, 0);
    parts[PART_WEIGHTS] = at_most(m->limit, alone);
    parts[PART_KERNELS] = alone - parts[PART_WEIGHTS];
    parts[PART_GAPS] = replays - alone;
    parts[PART_SAMPLER] = m->sampler * scale;
    parts[PART_WAITING] = at_most(m->wait, idle);
    parts[PART_HOST] = idle - parts[PART_WAITING];
}

/* --- measuring ---------------------------------------------------------------------------------------------- */

static uint64_t round_bytes(const struct bench *b, int k, int context) {
    const int batch = b->o->batch;
    return probe_step_bytes(b->engine, PROBE_TARGET, batch, context) +
           (uint64_t)probe_draft_passes(b->engine, k) * probe_step_bytes(b->engine, PROBE_DRAFT, batch, context);
}

static int measure_round(const struct bench *b, struct overhead_bench *r, int row, int mode) {
    const int k = r->rows[row].k;
    struct round_measure *m = &r->rows[row].modes[mode].measure;
    struct bench_run run;
    probe_set_eager(b->engine, mode == 1);
    cli_note("rounds of K = %d, %s", k, mode_names[mode]);
    int rc = bench_generate(b->engine, &b->prompts, b->o, k, &run);
    probe_set_eager(b->engine, false);
    TRY(rc);
    m->whole = run.rounds > 0 ? run.seconds * 1e3 / (double)run.rounds : 0;
    m->limit = (double)round_bytes(b, k, r->steps.context) / b->bandwidth * 1e3;
    m->alone = bench_draft_ms(&r->steps, k) + (k > 0 ? r->steps.verify_ms[k + 1] : r->steps.decode_ms);
    m->replays = run.draft_ms + run.verify_ms;
    m->sampler = run.sampling_ms;
    m->wait = run.wait_us * 1e-3;
    r->rows[row].modes[mode].enqueue_ms = run.host_us * 1e-3;
    bench_split_round(m, r->rows[row].modes[mode].parts);
    return 0;
}

static int measure(const struct bench *b, struct overhead_bench *r) {
    cli_note("measuring single steps");
    TRY(bench_steps(b->engine, &b->prompts, b->o, &r->steps));
    TRY(probe_set_timing(b->engine, TIMED_EVERY));
    r->count = 1; /* K = 0 */
    for (int i = 0; i < b->o->k_count; i++)
        if (b->o->ks[i] > 0 && b->o->ks[i] <= engine_info(b->engine).k_max) r->rows[r->count++].k = b->o->ks[i];
    for (int row = 0; row < r->count; row++)
        for (int mode = 0; mode < MODES; mode++) TRY(measure_round(b, r, row, mode));
    return 0;
}

/* --- the table ---------------------------------------------------------------------------------------------- */

static const char *const part_names[ROUND_PARTS] = {"weights", "kernels", "gaps", "sampler", "host", "waiting"};

static void show(const struct bench *b, const struct overhead_bench *r) {
    static const struct sheet_column columns[] = {{"K", "k"},
                                                  {"by", "mode"},
                                                  {"ms", "round_ms"},
                                                  {"weights", "weights_ms"},
                                                  {"kernels", "kernels_ms"},
                                                  {"gaps", "gaps_ms"},
                                                  {"sampler", "sampler_ms"},
                                                  {"host", "host_ms"},
                                                  {"waiting", "waiting_ms"},
                                                  {"enqueue", "enqueue_ms"}};
    struct sheet s = {0};
    bench_describe(&s, b, r->steps.context);
    sheet_put_figure(&s, "read_bandwidth", b->bandwidth);
    struct table *t = sheet_add_table(&s, "rounds", columns, "rlrrrrrrrr", "9");
    for (int row = 0; row < r->count; row++)
        for (int mode = 0; mode < MODES; mode++) {
            table_add(t, "%d", r->rows[row].k);
            table_add(t, "%s", mode_names[mode]);
            sheet_add_figure(t, r->rows[row].modes[mode].measure.whole, 4);
            for (int part = 0; part < ROUND_PARTS; part++) sheet_add_figure(t, r->rows[row].modes[mode].parts[part], 4);
            sheet_add_figure(t, r->rows[row].modes[mode].enqueue_ms, 4);
        }
    sheet_note(&s,
               "The six parts add up to ms. weights: what %.1f GB/s ask for; kernels: what replays take beyond it, by "
               "themselves; gaps: beyond that, in a round; host, waiting: the device has no round. enqueue: the host's "
               "time for a round, hidden behind the device or not.",
               b->bandwidth * 1e-9);
    sheet_show(&s, b->o);
}

static int draw(struct bench *b, const struct overhead_bench *r) {
    static double x[OPTION_INTS_MAX + 1], y[MODES][ROUND_PARTS][OPTION_INTS_MAX + 1];
    struct plot_series bars[MODES][ROUND_PARTS];
    struct plot_panel panels[MODES];
    char title[64];
    for (int mode = 0; mode < MODES; mode++) {
        for (int part = 0; part < ROUND_PARTS; part++) {
            for (int row = 0; row < r->count; row++)
                x[row] = r->rows[row].k, y[mode][part][row] = r->rows[row].modes[mode].parts[part];
            bars[mode][part] =
                (struct plot_series){part_names[part], PLOT_PILES, part, x, y[mode][part], NULL, r->count};
        }
        panels[mode] = (struct plot_panel){
            mode_names[mode], "K, tokens drafted a round", "ms of a round", bars[mode], ROUND_PARTS, NAN};
    }
    snprintf(title, sizeof title, "where a round goes, batch %d", b->o->batch);
    return bench_draw(b, title, panels, MODES);
}

int bench_overhead(struct bench *b) {
    struct overhead_bench r = {0};
    TRY(measure(b, &r));
    show(b, &r);
    return draw(b, &r);
}
