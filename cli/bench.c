/* duet bench: every step of a round beside what the machine's read bandwidth allows. */
#include "cli/bench.h"

#include <stdlib.h>

#include "cli/cli.h"
#include "cli/table.h"
#include "engine/probe.h"

struct bench {
    const struct options *o;
    struct models models;
    struct engine *engine;
    struct bench_prompts prompts;
    double bandwidth; /* bytes a second */
    struct bench_steps steps;
    struct bench_run plain, speculative;
};

/* --- the table ---------------------------------------------------------------------------------------------- */

static void add_cells(struct table *t, const char *what, double value, const char *unit, int decimals) {
    table_add(t, "%s", what);
    table_add(t, "%.*f", decimals, value);
    table_add(t, "%s", unit);
}

static void add_figure(struct table *t, const char *what, double value, const char *unit, int decimals) {
    add_cells(t, what, value, unit, decimals);
    for (int i = 0; i < 3; i++) table_add(t, "%s", "");
}

/* A step that must read `bytes`. */
static void add_step(struct table *t, const struct bench *b, const char *what, double ms, uint64_t bytes) {
    double limit_ms = (double)bytes / b->bandwidth * 1e3;
    add_cells(t, what, ms, "ms", 4);
    table_add(t, "%.2f", (double)bytes * 1e-6);
    table_add(t, "%.4f", limit_ms);
    table_add(t, "%.1f", ms > 0 ? 100 * limit_ms / ms : 0);
}

static uint64_t target_bytes(const struct bench *b) {
    return probe_step_bytes(b->engine, PROBE_TARGET, b->o->batch, b->steps.context);
}

static uint64_t draft_bytes(const struct bench *b) {
    return probe_step_bytes(b->engine, PROBE_DRAFT, b->o->batch, b->steps.context);
}

static void add_steps(struct table *t, const struct bench *b) {
    const struct bench_steps *s = &b->steps;
    struct engine_info info = engine_info(b->engine);
    char what[64];
    add_step(t, b, "decode", s->decode_ms, target_bytes(b));
    for (int m = 2; m <= info.k_max + 1; m++) {
        snprintf(what, sizeof what, "verify, M = %d", m);
        add_step(t, b, what, s->verify_ms[m], target_bytes(b));
    }
    if (info.k_max > 0) {
        add_step(t, b, "draft, first step", s->draft_first_ms, draft_bytes(b));
        add_step(t, b, "draft, later step", s->draft_step_ms, draft_bytes(b));
        add_figure(t, "sampler, one draw", s->draw_ms, "ms", 4);
    }
    add_figure(t, "sampler, accept", s->accept_ms, "ms", 4);
}

static double rate(const struct bench_run *run) {
    return run->seconds > 0 ? (double)run->tokens / run->seconds : 0;
}

static void add_runs(struct table *t, const struct bench *b) {
    int k = b->o->k;
    bool pair = engine_info(b->engine).k_max > 0 && k > 0;
    char what[64];
    add_step(t, b, "round, K = 0", b->plain.round_ms, target_bytes(b));
    if (pair) {
        snprintf(what, sizeof what, "round, K = %d", k);
        add_step(t, b, what, b->speculative.round_ms, target_bytes(b) + (uint64_t)k * draft_bytes(b));
    }
    add_figure(t, "plain decoding, K = 0", rate(&b->plain), "tok/s", 1);
    if (!pair) return;
    snprintf(what, sizeof what, "speculative, K = %d", k);
    add_figure(t, what, rate(&b->speculative), "tok/s", 1);
    add_figure(t, "speed-up against K = 0", rate(&b->speculative) / rate(&b->plain), "", 3);
    add_figure(t, "draft_acceptance_rate", acceptance_draft_rate(&b->speculative.stats), "", 4);
    add_figure(t, "mean_acceptance_length", acceptance_mean_length(&b->speculative.stats), "", 4);
    add_figure(t, "alpha", acceptance_alpha(&b->speculative.stats), "", 4);
}

static void print_results(const struct bench *b) {
    static const char *const heading[] = {"measure", "value", "unit", "MB read", "limit ms", "% of limit"};
    struct engine_info info = engine_info(b->engine);
    struct table t = table_create("lrlrrr");
    for (int i = 0; i < 6; i++) table_add(&t, "%s", heading[i]);
    add_figure(&t, "read bandwidth", b->bandwidth * 1e-9, "GB/s", 2);
    add_steps(&t, b);
    add_runs(&t, b);
    if (b->o->shape && !b->o->csv) printf("random weights of the shape %s: nothing here is about text\n", b->o->shape);
    if (b->o->simulate_alpha > 0)
        printf("%sacceptance is simulated: alpha %g\n", b->o->csv ? "# " : "", (double)b->o->simulate_alpha);
    if (!b->o->csv)
        printf("%s; batch %d, accept %s, %d prompts, %d tokens each, temperature %g, %d tokens of context in the "
               "steps\n\n",
               info.device, b->o->batch, accept_rule_name(info.accept), b->prompts.count, b->o->max_tokens,
               (double)b->o->sampling.temperature, b->steps.context);
    table_print(&t, b->o->csv);
    if (!b->o->csv && (double)target_bytes(b) / b->bandwidth * 1e3 > b->steps.decode_ms)
        puts("\nAbove 100 %: what a step reads stays in the caches.");
    double speed_up = rate(&b->speculative) / rate(&b->plain);
    if (!b->o->csv && b->speculative.tokens > 0 && speed_up < 1)
        printf("\nSpeculation does not pay here: it runs at %.2f of the speed of plain decoding.\n", speed_up);
}

/* --- the run -------------------------------------------------------------------------------------------------- */

static int run(struct bench *b) {
    const struct options *o = b->o;
    cli_note("measuring the read bandwidth");
    TRY(bench_bandwidth(o->device, o->threads, &b->bandwidth));
    TRY(engine_start(&b->engine, &b->models, o));
    TRY(bench_prompts_load(&b->prompts, o, b->engine, b->models.target));
    cli_note("measuring single steps");
    TRY(bench_steps(b->engine, &b->prompts, o, &b->steps));
    cli_note("plain decoding");
    TRY(bench_generate(b->engine, &b->prompts, o, 0, &b->plain));
    if (engine_info(b->engine).k_max > 0 && o->k > 0) {
        cli_note("decoding with K = %d", o->k);
        TRY(bench_generate(b->engine, &b->prompts, o, o->k, &b->speculative));
    }
    return 0;
}

int bench_main(const struct options *o) {
    struct bench b = {.o = o};
    int rc = run(&b);
    int status = STATUS_OK;
    if (rc == 0)
        print_results(&b);
    else
        status = cli_fail(rc);
    bench_prompts_free(&b.prompts);
    engine_destroy(b.engine);
    models_free(&b.models);
    return status;
}
