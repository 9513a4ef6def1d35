/* duet bench stack: what each step brings, one after the other: of how rounds run on one engine, then of what is loaded, each on an engine
 * of its own. */
#include <math.h>
#include <stdio.h>

#include "cli/bench_tables.h"

/* What is loaded, each with those before it. */
enum loading { AS_ASKED, FP8_DRAFT, CUT_DRAFT, FP8_TARGET };

/* A step more is a line more, and what switches it in set_step or in open_step. */
static const struct step {
    const char *name;
    bool eager;       /* op by op, without graphs */
    bool early;       /* kernels start while the one before still runs */
    bool speculative; /* the K of the most tokens a second */
    enum loading loading;
} steps[] = {
    {.name = "eager", .eager = true},
    {.name = "graphs"},
    {.name = "dependent launch", .early = true},
    {.name = "speculation at the best K", .early = true, .speculative = true},
    {.name = "an FP8 draft", .early = true, .speculative = true, .loading = FP8_DRAFT},
    {.name = "a draft vocabulary", .early = true, .speculative = true, .loading = CUT_DRAFT},
    {.name = "an FP8 target", .early = true, .speculative = true, .loading = FP8_TARGET},
};
enum { STEPS = sizeof steps / sizeof *steps };

struct stack_bench {
    struct {
        int k;
        double rate;        /* tokens a second; NAN: not measured */
        const char *remark; /* why; or what it costs */
    } rows[STEPS];
    char cut[32]; /* the remark of a cut head */
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

/* So that the first run is not the slower for it. */
static int warm_up(const struct bench *b) {
    struct bench_prompts first = b->prompts;
    struct bench_run ignored;
    if (first.count > b->o->batch) first.count = b->o->batch;
    TRY(probe_set_timing(b->engine, 0));
    return bench_generate(b->engine, &first, b->o, 0, &ignored);
}

static bool is_left(int products, int stored) {
    return products > stored;
}

/* A head that proposes few ids whatever is asked for. */
static bool is_cut_in_files(const struct bench *b) {
    struct model_config c;
    return b->models.draft && checkpoint_config(b->models.draft, &c) == 0 && drafter_is_cut(&c.drafter, c.vocab);
}

/* Why a step loads nothing that the one before had not; NULL: it does. What the user asked for stays. */
static const char *why_not(const struct bench *b, enum loading loading) {
    const struct engine_info info = engine_info(b->engine);
    if (loading != FP8_TARGET && info.draft_parameters == 0) return "no draft model";
    if (loading == CUT_DRAFT && is_cut_in_files(b)) return "cut in its files";
    if (loading == FP8_DRAFT && !is_left(info.draft_products, info.draft_products_stored)) return "quantised already";
    if (loading == FP8_TARGET && !is_left(info.target_products, info.target_products_stored))
        return "quantised already";
    const bool is_asked = loading == FP8_DRAFT   ? b->o->draft_weights != WEIGHTS_AS_STORED
                          : loading == CUT_DRAFT ? b->o->draft_vocab != NULL
                                                 : b->o->target_weights != WEIGHTS_AS_STORED;
    return is_asked ? "above, as asked for" : NULL;
}

/* An engine of what a step loads. */
static int open_step(struct bench *b, enum loading loading, char ids[16]) {
    enum { FEW = 32768 };
    struct options o = *b->o;
    const struct engine_info info = engine_info(b->engine);
    const bool draft_is_left = is_left(info.draft_products, info.draft_products_stored);
    snprintf(ids, 16, "%d", info.vocab >= 2 * FEW ? FEW : info.vocab / 4);
    if (o.draft_weights == WEIGHTS_AS_STORED && draft_is_left) o.draft_weights = WEIGHTS_FP8;
    if (loading >= CUT_DRAFT && !o.draft_vocab && !is_cut_in_files(b)) o.draft_vocab = ids;
    if (loading >= FP8_TARGET && o.target_weights == WEIGHTS_AS_STORED) o.target_weights = WEIGHTS_FP8;
    engine_destroy(b->engine);
    b->engine = NULL;
    TRY(engine_start(&b->engine, &b->models, &o));
    (void)probe_set_early_starts(b->engine, true);
    return warm_up(b);
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
    cli_note("%s", step->name);
    if (!step->speculative) return measure_rate(b, 0, &r->rows[which].rate);
    if (k_max == 0) r->rows[which].remark = "nothing drafts here";
    for (int i = 0; i < b->o->k_count && k_max > 0; i++) {
        if (b->o->ks[i] == 0) continue;
        TRY(measure_rate(b, b->o->ks[i], &rate));
        if (rate < r->rows[which].rate) continue; /* NaN: the first */
        r->rows[which].rate = rate, r->rows[which].k = b->o->ks[i];
    }
    return 0;
}

static int load_step(struct bench *b, const struct step *step, struct stack_bench *r, int which) {
    char ids[16];
    r->rows[which].remark = why_not(b, step->loading);
    if (r->rows[which].remark) return 0;
    TRY(open_step(b, step->loading, ids));
    if (step->loading == CUT_DRAFT) snprintf(r->cut, sizeof r->cut, "%s ids", ids);
    if (step->loading == FP8_TARGET) r->rows[which].remark = "another model";
    TRY(measure_step(b, step, r, which));
    if (step->loading == CUT_DRAFT) r->rows[which].remark = r->cut;
    return 0;
}

static int measure(struct bench *b, struct stack_bench *r) {
    const bool can_start_early = probe_set_early_starts(b->engine, true);
    TRY(warm_up(b));
    for (int i = 0; i < STEPS; i++) {
        const struct step *step = &steps[i], *before = i > 0 ? &steps[i - 1] : NULL;
        r->rows[i].rate = NAN;
        if (step->loading != AS_ASKED) {
            TRY(load_step(b, step, r, i));
            continue;
        }
        TRY(set_step(b, step, before));
        if (before && step->early && !before->early && !can_start_early) {
            r->rows[i].remark = "none on this device";
            continue;
        }
        TRY(measure_step(b, step, r, i));
    }
    return 0;
}

/* --- the table ---------------------------------------------------------------------------------------------- */

static void show(struct sheet *s, const struct bench *b, const struct stack_bench *r) {
    static const struct sheet_column columns[] = {{"step", "step"},
                                                  {"K", "k"},
                                                  {"ms a token", "ms_per_token"},
                                                  {"tok/s", "tok_per_second"},
                                                  {"times", "times_the_first"},
                                                  {"", "remark"}};
    struct table *t = sheet_add_table(s, "steps", columns, "lrrrrl", "");
    for (int i = 0; i < STEPS; i++) {
        const double rate = r->rows[i].rate;
        table_add(t, "%s", steps[i].name);
        table_add(t, "%d", r->rows[i].k);
        sheet_add_figure(t, 1e3 * b->o->batch / rate, 4);
        sheet_add_figure(t, rate, 1);
        sheet_add_figure(t, rate / r->rows[0].rate, 3);
        table_add(t, "%s", r->rows[i].remark ? r->rows[i].remark : "");
    }
    sheet_note(s, "Each row is the one above and one step more; ms a token: of one sequence, of %d at a time.",
               b->o->batch);
    sheet_show(s, b->o);
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
    struct sheet s = {0};
    bench_describe(&s, b, 0); /* of the engine that was asked for */
    int rc = measure(b, &r);
    if (rc != 0) {
        sheet_free(&s);
        return rc;
    }
    show(&s, b, &r);
    return draw(b, &r);
}
