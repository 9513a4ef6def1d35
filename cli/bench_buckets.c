/* duet bench buckets: for each policy of --buckets its graphs, their memory and their capture; for batch sizes drawn uniformly and as
 * in a day (cli/bench_tables.h) what is padding; and what first uses cost where graphs are captured on use.
 *
 * One engine captures its sets again and again. It starts without graphs, so memory is the difference to what was free then, of the
 * policies with few graphs first: a driver keeps what graphs gave back. A round of a bucket is the sum of its replays, the draft's and
 * the target's, each timed alone on rows without context; sizes above 16 that are no multiple of 8 lie on a line between their
 * neighbours. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench_tables.h"
#include "draft/model.h"
#include "target/target.h"

enum { DISTRIBUTIONS = 2, ROUNDS = 256, EVERY_SIZE = 16, STEP = 8, KEYS_MAX = 3 };

static const char *const policy_names[BENCH_POLICIES] = {
    [BUCKETS_POW2] = "pow2", [BUCKETS_STEP8] = "step8", [BUCKETS_STEP16] = "step16", [BUCKETS_EXACT] = "exact"};

struct set_figures {
    int graphs;
    uint64_t bytes; /* by our counters */
    double memory;  /* by the device's; NAN: not told */
    double seconds; /* of capture, warm-up included */
};

/* Rounds whose sizes were drawn, with EXACT. */
struct use_figures {
    double first_ms,
        worst_ms;   /* what a first use costs beyond the same round again: mean, largest; NAN: there was none */
    double seconds; /* of them all */
    uint64_t captures, evictions;
};

struct buckets_bench {
    int ks[OPTION_INTS_MAX], k_count; /* of the options; without a draft 0 alone */
    struct batch_sizes sizes[DISTRIBUTIONS];
    struct set_figures sets[BENCH_POLICIES];
    int bucket[BENCH_POLICIES][BENCH_BATCH_MAX + 1];
    double ms[OPTION_INTS_MAX][BENCH_BATCH_MAX + 1]; /* of a round, by K (in their order) and bucket */
    struct use_figures use[DISTRIBUTIONS][OPTION_INTS_MAX];
};

/* --- measuring ---------------------------------------------------------------------------------------------- */

/* A graph of a round, and how often a round replays it. */
struct part {
    enum probe_model model;
    struct graph_key key;
    int times;
};

static int parts_of(const struct engine *e, int batch, int k, struct part parts[KEYS_MAX]) {
    int count = 0;
    parts[count++] = (struct part){PROBE_TARGET, {k > 0 ? TARGET_VERIFY : TARGET_DECODE, batch, k + 1}, 1};
    if (!engine_graphs(e, 0) || k == 0) return count;
    parts[count++] = (struct part){PROBE_DRAFT, {DRAFT_FIRST, batch, probe_first_tokens(e, k)}, 1};
    if (k > 1 && !probe_drafts_blocks(e)) parts[count++] = (struct part){PROBE_DRAFT, {DRAFT_STEP, batch, 1}, k - 1};
    return count;
}

static bool is_measured(int batch, int max) {
    return batch <= EVERY_SIZE || batch % STEP == 0 || batch == max;
}

static int time_round(struct engine *e, int batch, int k, double *ms) {
    struct part parts[KEYS_MAX];
    const int count = parts_of(e, batch, k, parts);
    *ms = 0;
    for (int i = 0; i < count; i++) {
        double once;
        TRY(bench_graph(e, parts[i].model, parts[i].key, &once));
        *ms += once * parts[i].times;
    }
    return 0;
}

static int time_rounds(const struct bench *b, struct buckets_bench *r) {
    const int max = b->o->batch;
    for (int i = 0; i < r->k_count; i++) {
        double *ms = r->ms[i];
        cli_note("measuring rounds of K = %d", r->ks[i]);
        for (int batch = 1, last = 0; batch <= max; batch++) {
            if (!is_measured(batch, max)) continue;
            TRY(time_round(b->engine, batch, r->ks[i], &ms[batch]));
            for (int between = last + 1; between < batch; between++)
                ms[between] = ms[last] + (ms[batch] - ms[last]) * (between - last) / (batch - last);
            last = batch;
        }
    }
    return 0;
}

static void add_set(const struct graph_set *set, struct set_figures *f) {
    for (int i = 0; set && i < graph_set_count(set); i++) f->bytes += graph_set_info(set, i).bytes;
    if (!set) return;
    f->graphs += graph_set_count(set);
    f->seconds += (double)graph_set_counts(set).capture_us * 1e-6;
}

/* Of both sets as they are now; before: free bytes without graphs. */
static int read_sets(const struct engine *e, uint64_t before, struct set_figures *f) {
    uint64_t now;
    *f = (struct set_figures){.memory = NAN};
    add_set(engine_graphs(e, 0), f);
    add_set(engine_graphs(e, 1), f);
    TRY(probe_free_bytes(e, &now));
    if (engine_info(e).is_async) f->memory = (double)before - (double)now;
    return 0;
}

static int capture_all(const struct bench *b, uint64_t before, struct buckets_bench *r) {
    static const enum bucket_policy order[] = {BUCKETS_POW2, BUCKETS_STEP16, BUCKETS_STEP8, BUCKETS_EXACT};
    for (int i = 0; i < BENCH_POLICIES; i++) {
        const enum bucket_policy policy = order[i];
        TRY(probe_set_buckets(b->engine, policy));
        progress_clear();
        for (int batch = 1; batch <= b->o->batch; batch++)
            r->bucket[policy][batch] = graph_set_bucket(engine_graphs(b->engine, 1), batch);
        TRY(read_sets(b->engine, before, &r->sets[policy]));
    }
    return 0;
}

static uint64_t captures_of(const struct engine *e) {
    struct engine_counts c = engine_counts(e);
    return c.draft.captures + c.target.captures;
}

static int run_round(struct engine *e, int batch, int k, double *ms) {
    struct part parts[KEYS_MAX];
    const int count = parts_of(e, batch, k, parts);
    int64_t start_us = clock_us();
    for (int i = 0; i < count; i++)
        for (int j = 0; j < parts[i].times; j++) TRY(probe_launch(e, parts[i].model, parts[i].key));
    TRY(probe_sync(e));
    *ms = (double)(clock_us() - start_us) * 1e-3;
    return 0;
}

/* The sizes of a day come in its order, those of the other distribution in any; the golden ratio spreads them evenly. */
static int drawn_size(const struct batch_sizes *s, const struct batch_sizes *hours, int round) {
    double u = fmod(0.5 + round * 0.6180339887498949, 1);
    return bench_sizes_at(hours ? &hours[round * 24 / ROUNDS] : s, u);
}

static int use_exact(const struct bench *b, const struct buckets_bench *r, int which, int i, struct use_figures *f) {
    static struct batch_sizes hours[24];
    const bool is_day = which == 1;
    uint64_t before = captures_of(b->engine);
    double sum = 0, worst = 0, ms, again;
    int first = 0;
    for (int h = 0; is_day && h < 24; h++) bench_sizes_hour(&hours[h], b->o->batch, h / 24.0);
    for (int round = 0; round < ROUNDS; round++) {
        const int batch = drawn_size(&r->sizes[which], is_day ? hours : NULL, round);
        TRY(run_round(b->engine, batch, r->ks[i], &ms));
        if (captures_of(b->engine) == before) continue;
        before = captures_of(b->engine);
        TRY(run_round(b->engine, batch, r->ks[i], &again));
        double extra = fmax(ms - again, 0);
        sum += extra, first++;
        worst = fmax(worst, extra);
    }
    struct engine_counts c = engine_counts(b->engine);
    *f = (struct use_figures){.first_ms = first > 0 ? sum / first : NAN,
                              .worst_ms = first > 0 ? worst : NAN,
                              .seconds = sum * 1e-3,
                              .captures = before,
                              .evictions = c.draft.evictions + c.target.evictions};
    return 0;
}

static int measure(const struct bench *b, struct buckets_bench *r) {
    uint64_t before;
    struct set_figures *exact = &r->sets[BUCKETS_EXACT];
    bench_sizes_uniform(&r->sizes[0], b->o->batch);
    bench_sizes_day(&r->sizes[1], b->o->batch);
    TRY(probe_free_bytes(b->engine, &before));
    cli_note("capturing graphs");
    TRY(capture_all(b, before, r));
    TRY(time_rounds(b, r));
    for (int which = 0; which < DISTRIBUTIONS; which++)
        for (int i = 0; i < r->k_count; i++) {
            cli_note("rounds of drawn sizes: %s, K = %d", r->sizes[which].name, r->ks[i]);
            TRY(probe_set_buckets(b->engine, BUCKETS_EXACT));
            progress_clear();
            TRY(use_exact(b, r, which, i, &r->use[which][i]));
            if (which > 0 || i + 1 < r->k_count) continue;
            TRY(read_sets(b->engine, before, exact)); /* as the uniform sizes of the largest K leave them */
            exact->seconds = r->use[0][i].seconds;
        }
    return bench_check_answer(b->engine, &b->prompts, b->o); /* which captures graphs too */
}

/* --- the tables --------------------------------------------------------------------------------------------- */

static void add_sets(struct sheet *s, const struct buckets_bench *r) {
    static const struct sheet_column columns[] = {{"policy", "policy"},
                                                  {"graphs", "graphs"},
                                                  {"bytes counted", "counted_bytes"},
                                                  {"free memory less", "free_memory_bytes"},
                                                  {"capture s", "capture_seconds"}};
    struct table *t = sheet_add_table(s, "policies", columns, "lrrrr", "");
    for (int p = 0; p < BENCH_POLICIES; p++) {
        const struct set_figures *f = &r->sets[p];
        table_add(t, "%s", policy_names[p]);
        table_add(t, "%d", f->graphs);
        table_add(t, "%llu", (unsigned long long)f->bytes);
        sheet_add_figure(t, f->memory, 0);
        sheet_add_figure(t, f->seconds, 4);
    }
}

static void add_padding(struct sheet *s, const struct buckets_bench *r) {
    static const struct sheet_column columns[] = {{"sizes", "sizes"},
                                                  {"K", "k"},
                                                  {"policy", "policy"},
                                                  {"rows %", "padding_rows_percent"},
                                                  {"time %", "padding_time_percent"},
                                                  {"first use ms", "first_use_ms"},
                                                  {"worst ms", "worst_first_use_ms"},
                                                  {"captures", "captures"},
                                                  {"evictions", "evictions"}};
    struct table *t = sheet_add_table(s, "padding", columns, "lrlrrrrrr", "675");
    for (int which = 0; which < DISTRIBUTIONS; which++)
        for (int i = 0; i < r->k_count; i++)
            for (int p = 0; p < BENCH_POLICIES; p++) {
                const struct use_figures *use = &r->use[which][i];
                const bool on_use = p == BUCKETS_EXACT;
                table_add(t, "%s", r->sizes[which].name);
                table_add(t, "%d", r->ks[i]);
                table_add(t, "%s", policy_names[p]);
                sheet_add_figure(t, 100 * bench_padding_rows(&r->sizes[which], r->bucket[p]), 1);
                sheet_add_figure(t, 100 * bench_padding_time(&r->sizes[which], r->bucket[p], r->ms[i]), 1);
                sheet_add_figure(t, on_use ? use->first_ms : NAN, 3);
                sheet_add_figure(t, on_use ? use->worst_ms : NAN, 3);
                sheet_add_figure(t, on_use ? (double)use->captures : NAN, 0);
                sheet_add_figure(t, on_use ? (double)use->evictions : NAN, 0);
            }
}

static void show(const struct bench *b, const struct buckets_bench *r) {
    struct sheet s = {0};
    bench_describe(&s, b, 0);
    add_sets(&s, r);
    add_padding(&s, r);
    if (!engine_info(b->engine).is_async)
        sheet_note(&s,
                   "How much less memory is free is not told on the host, where other processes take and give too.");
    sheet_note(
        &s,
        "uniform: sizes 1 to %d as often; day: a day's load, with Poisson arrivals, of which two deviations above "
        "the mean of the peak fill the batch. exact: %d rounds of sizes drawn so, after which it was looked at; a "
        "first use is what such a round takes beyond the same one again.",
        b->o->batch, ROUNDS);
    sheet_show(&s, b->o);
}

static int draw(struct bench *b, const struct buckets_bench *r) {
    static double x[BENCH_BATCH_MAX], rows[BENCH_POLICIES][BENCH_BATCH_MAX], share[DISTRIBUTIONS][BENCH_BATCH_MAX];
    struct plot_series padding[BUCKETS_EXACT], sizes[DISTRIBUTIONS];
    const int max = b->o->batch;
    char title[64];
    for (int i = 0; i < max; i++) x[i] = i + 1;
    for (int p = 0; p < BUCKETS_EXACT; p++) {
        for (int i = 0; i < max; i++) rows[p][i] = 100.0 * (r->bucket[p][i + 1] - (i + 1)) / r->bucket[p][i + 1];
        padding[p] = (struct plot_series){policy_names[p], PLOT_DASHES, p, x, rows[p], NULL, max};
    }
    for (int which = 0; which < DISTRIBUTIONS; which++) {
        for (int i = 0; i < max; i++) share[which][i] = 100 * r->sizes[which].share[i + 1];
        sizes[which] = (struct plot_series){r->sizes[which].name, PLOT_DASHES, which, x, share[which], NULL, max};
    }
    const struct plot_series round = {NULL, PLOT_LINE, 0, x, &r->ms[r->k_count - 1][1], NULL, max};
    const struct plot_panel panels[] = {
        {"padding by size", "rows that run", "% of the bucket", padding, BUCKETS_EXACT, NAN},
        {"replays of a round", "rows of the bucket", "ms", &round, 1, NAN},
        {"how often a size is", "rows that run", "% of the time", sizes, 2, NAN}};
    snprintf(title, sizeof title, "buckets up to %d, K = %d", max, r->ks[r->k_count - 1]);
    return bench_draw(b, title, panels, 3);
}

int bench_buckets(struct bench *b) {
    static struct buckets_bench r;
    memset(&r, 0, sizeof r);
    for (int i = 0; i < b->o->k_count; i++)
        if (b->o->ks[i] <= engine_info(b->engine).k_max) r.ks[r.k_count++] = b->o->ks[i];
    if (r.k_count == 0) r.k_count = 1; /* K = 0 */
    TRY(measure(b, &r));
    show(b, &r);
    return draw(b, &r);
}
