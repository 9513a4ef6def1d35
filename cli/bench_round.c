/* duet bench: every step of a round beside what the machine's read bandwidth allows. */
#include "cli/bench_tables.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/json.h"
#include "base/json_number.h"
#include "cli/table.h"
#include "engine/probe.h"

enum { PREFILLS = 5 };

/* What is measured at one K. */
struct round_bench {
    const struct options *o;
    const struct engine *engine;
    const struct bench_prompts *prompts;
    double bandwidth; /* bytes a second */
    struct bench_steps steps;
    struct bench_prefill prefill[PREFILLS];
    struct bench_pause pause;
    struct bench_run plain, speculative; /* not timed by events */
    struct bench_run timed;              /* the first group of prompts again, every round timed */
};

/* --- the table ---------------------------------------------------------------------------------------------- */

static void add_cells(struct table *t, const char *what, double value, const char *unit, int decimals) {
    table_add(t, "%s", what);
    if (isfinite(value))
        table_add(t, "%.*f", decimals, value);
    else
        table_add(t, "%s", TABLE_NO_FIGURE);
    table_add(t, "%s", unit);
}

static void add_figure(struct table *t, const char *what, double value, const char *unit, int decimals) {
    add_cells(t, what, value, unit, decimals);
    for (int i = 0; i < 3; i++) table_add(t, "%s", "");
}

/* A step that must read `bytes`. */
static void add_step(struct table *t, const struct round_bench *b, const char *what, double ms, uint64_t bytes) {
    double limit_ms = (double)bytes / b->bandwidth * 1e3;
    add_cells(t, what, ms, "ms", 4);
    table_add(t, "%.2f", (double)bytes * 1e-6);
    table_add(t, "%.4f", limit_ms);
    table_add(t, "%.1f", ms > 0 ? 100 * limit_ms / ms : 0);
}

static uint64_t target_bytes(const struct round_bench *b) {
    return probe_step_bytes(b->engine, PROBE_TARGET, b->o->batch, b->steps.context);
}

static uint64_t draft_bytes(const struct round_bench *b) {
    return probe_step_bytes(b->engine, PROBE_DRAFT, b->o->batch, b->steps.context);
}

static void add_steps(struct table *t, const struct round_bench *b) {
    const struct bench_steps *s = &b->steps;
    struct engine_info info = engine_info(b->engine);
    char what[64];
    add_step(t, b, "decode (verify, M = 1)", s->decode_ms, target_bytes(b));
    for (int m = 2; m <= info.k_max + 1; m++) {
        snprintf(what, sizeof what, "verify, M = %d", m);
        add_step(t, b, what, s->verify_ms[m], target_bytes(b));
    }
    if (s->propose_ms > 0) {
        snprintf(what, sizeof what, "%s, K = %d", info.proposer, info.k_max);
        add_figure(t, what, s->propose_ms, "ms", 4);
    }
    if (s->draft_first_ms > 0 && s->draft_step_ms == 0)
        add_step(t, b, "draft, a block", s->draft_first_ms, draft_bytes(b));
    if (s->draft_step_ms > 0) {
        add_step(t, b, "draft, first step", s->draft_first_ms, draft_bytes(b));
        add_step(t, b, "draft, later step", s->draft_step_ms, draft_bytes(b));
        add_figure(t, "sampler, one draw", s->draw_ms, "ms", 4);
    }
    snprintf(what, sizeof what, "sampler, accept at K = %d", info.k);
    add_figure(t, what, s->accept_ms, "ms", 4);
}

static void add_prefill(struct table *t, const struct round_bench *b) {
    char what[64];
    for (int i = 0; i < PREFILLS; i++) {
        const struct bench_prefill *p = &b->prefill[i];
        snprintf(what, sizeof what, "prefill of %d tokens, target", p->tokens);
        if (p->target > 0) add_figure(t, what, p->target, "tok/s", 1);
        snprintf(what, sizeof what, "prefill of %d tokens, both models", p->tokens);
        if (p->pair > 0) add_figure(t, what, p->pair, "tok/s", 1);
    }
}

static void add_pause(struct table *t, const struct round_bench *b) {
    const struct bench_pause *p = &b->pause;
    char what[96];
    if (p->between_ms == 0) return;
    add_figure(t, "longest pause of an answer", p->round_ms, "ms", 3);
    snprintf(what, sizeof what, "... while %d tokens arrive", p->tokens);
    add_figure(t, what, p->between_ms, "ms", 3);
    add_figure(t, "... were they ingested at once", p->at_once_ms, "ms", 3);
}

/* K of the speculative run; 0: there is none. */
static int pair_k(const struct round_bench *b) {
    return engine_info(b->engine).k_max > 0 ? b->o->k : 0;
}

static uint64_t round_bytes(const struct round_bench *b, int k) {
    return target_bytes(b) + (uint64_t)probe_draft_passes(b->engine, k) * draft_bytes(b);
}

static void add_round(struct table *t, const struct round_bench *b, const struct bench_run *run, int k) {
    char what[64];
    snprintf(what, sizeof what, "round, K = %d", k);
    add_step(t, b, what, run->round_ms, round_bytes(b, k));
    snprintf(what, sizeof what, "host to enqueue a round, K = %d", k);
    add_figure(t, what, run->host_us, "us", 1);
    snprintf(what, sizeof what, "host waiting in a round, K = %d", k);
    add_figure(t, what, run->wait_us, "us", 1);
}

/* Rounds with events between their parts; what the events cost is the difference to the round above. */
static void add_timed_round(struct table *t, const struct round_bench *b) {
    int k = pair_k(b);
    char what[64];
    snprintf(what, sizeof what, "round with events, K = %d", k);
    add_step(t, b, what, b->timed.round_ms, round_bytes(b, k));
    snprintf(what, sizeof what, "%s in a round", k > 0 ? engine_info(b->engine).proposer : "");
    if (k > 0 && draft_bytes(b) > 0)
        add_step(t, b, "draft in a round", b->timed.draft_ms,
                 (uint64_t)probe_draft_passes(b->engine, k) * draft_bytes(b));
    else if (k > 0)
        add_figure(t, what, b->timed.draft_ms, "ms", 4);
    add_step(t, b, "verify in a round", b->timed.verify_ms, target_bytes(b));
    add_figure(t, "sampling in a round", b->timed.sampling_ms, "ms", 4);
}

/* What depends on which tokens are accepted says so where that is simulated. */
static void add_outcome(struct table *t, const struct round_bench *b, const char *what, double value, const char *unit,
                        int decimals) {
    char name[96];
    snprintf(name, sizeof name, "%s%s", what, b->o->simulate_alpha > 0 ? " (simulated)" : "");
    add_figure(t, name, value, unit, decimals);
}

static void add_runs(struct table *t, const struct round_bench *b) {
    const struct acceptance *stats = &b->speculative.stats;
    int k = pair_k(b);
    char what[64];
    add_round(t, b, &b->plain, 0);
    if (k > 0) add_round(t, b, &b->speculative, k);
    add_timed_round(t, b);
    add_figure(t, "plain decoding, K = 0", bench_rate(&b->plain), "tok/s", 1);
    if (k == 0) return;
    snprintf(what, sizeof what, "speculative, K = %d", k);
    add_outcome(t, b, what, bench_rate(&b->speculative), "tok/s", 1);
    add_outcome(t, b, "speed-up against K = 0", bench_rate(&b->speculative) / bench_rate(&b->plain), "", 3);
    add_outcome(t, b, "draft_acceptance_rate", acceptance_draft_rate(stats), "", 4);
    add_outcome(t, b, "mean_acceptance_length", acceptance_mean_length(stats), "", 4);
    add_outcome(t, b, "alpha", acceptance_alpha(stats), "", 4);
}

/* Does a step take less time than reading `bytes` from memory would? */
static bool is_cached(const struct round_bench *b, uint64_t bytes, double ms) {
    return (double)bytes / b->bandwidth * 1e3 > ms;
}

static struct table tabulate(const struct round_bench *b) {
    static const char *const heading[] = {"measure", "value", "unit", "MB read", "limit ms", "% of limit"};
    struct table t = table_create("lrlrrr", "435");
    for (int i = 0; i < 6; i++) table_add(&t, "%s", heading[i]);
    add_figure(&t, "read bandwidth", b->bandwidth * 1e-9, "GB/s", 2);
    add_steps(&t, b);
    add_prefill(&t, b);
    add_pause(&t, b);
    add_runs(&t, b);
    return t;
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    terminal_print(stdout, terminal_width(1), 0, 0, line);
}

static void print_text(const struct round_bench *b) {
    struct engine_info info = engine_info(b->engine);
    struct table t = tabulate(b);
    struct buf tokens = {0};
    int most;
    if (b->o->shape) say("random weights of the shape %s: nothing here is about text", b->o->shape);
    if (info.draft_vocab > 0) say("the draft's head is cut to %d ids", info.draft_vocab);
    if (b->o->simulate_alpha > 0) say("acceptance is simulated: alpha %g", (double)b->o->simulate_alpha);
    bench_prompts_put_tokens(b->prompts, &tokens, &most);
    say("%s; batch %d, accept %s, %s, temperature %g, %d tokens of context in the steps\n", info.device, b->o->batch,
        accept_rule_name(info.accept), buf_text(&tokens), (double)b->o->sampling.temperature, b->steps.context);
    buf_free(&tokens);
    table_print(&t, terminal_width(1));
    bool is_draft_cached =
        info.k_max > 0 && b->steps.draft_step_ms > 0 && is_cached(b, draft_bytes(b), b->steps.draft_step_ms);
    if (is_draft_cached || is_cached(b, target_bytes(b), b->steps.decode_ms))
        say("\nAbove 100 %%: what a step reads stays in the caches.");
    double speed_up = bench_rate(&b->speculative) / bench_rate(&b->plain);
    if (b->speculative.tokens > 0 && speed_up < 1)
        say("\nSpeculation does not pay here: it runs at %.2f of the speed of plain decoding.", speed_up);
}

static void print_csv(const struct round_bench *b) {
    struct table t = tabulate(b);
    if (b->o->simulate_alpha > 0) cli_note("acceptance is simulated: alpha %g", (double)b->o->simulate_alpha);
    table_print_csv(&t, NULL);
}

/* The rows of the table under stable names, and what they were measured with. */
static void print_json(const struct round_bench *b) {
    static const char *const names[] = {"measure", "value", "unit", "mb_read", "limit_ms", "percent_of_limit"};
    struct engine_info info = engine_info(b->engine);
    struct table t = tabulate(b);
    struct buf text = {0};
    const char *rule = accept_rule_name(info.accept);
    int most;
    bench_prompts_put_tokens(b->prompts, &text, &most);
    buf_clear(&text);
    buf_putc(&text, '{');
    json_put_name(&text, "device"), json_put_string(&text, info.device, strlen(info.device));
    json_put_name(&text, "batch"), json_put_number(&text, b->o->batch);
    json_put_name(&text, "k"), json_put_number(&text, pair_k(b));
    json_put_name(&text, "accept"), json_put_string(&text, rule, strlen(rule));
    json_put_name(&text, "prompts"), json_put_number(&text, b->prompts->count);
    json_put_name(&text, "max_tokens"), json_put_number(&text, most);
    json_put_name(&text, "temperature"), json_put_number(&text, json_number_of_float(b->o->sampling.temperature));
    json_put_name(&text, "context"), json_put_number(&text, b->steps.context);
    json_put_name(&text, "draft_vocab");
    json_put_number(&text, info.draft_vocab > 0 ? info.draft_vocab : NAN);
    json_put_name(&text, "simulated_alpha");
    json_put_number(&text, b->o->simulate_alpha > 0 ? json_number_of_float(b->o->simulate_alpha) : NAN);
    json_put_name(&text, "measures"), table_put_json(&t, names, &text);
    printf("%s}\n", buf_text(&text));
    buf_free(&text);
}

static void print_results(const struct round_bench *b) {
    if (b->o->json)
        print_json(b);
    else if (b->o->csv)
        print_csv(b);
    else
        print_text(b);
}

/* --- the run -------------------------------------------------------------------------------------------------- */

static int run_answers(struct bench *b, struct round_bench *r) {
    struct bench_prompts first = b->prompts;
    int k = pair_k(r);
    if (first.count > b->o->batch) first.count = b->o->batch;
    TRY(probe_set_timing(b->engine, 0));
    cli_note("plain decoding");
    TRY(bench_generate(b->engine, &b->prompts, b->o, 0, &r->plain));
    if (k > 0) {
        cli_note("decoding with K = %d", k);
        TRY(bench_generate(b->engine, &b->prompts, b->o, k, &r->speculative));
    }
    cli_note("timing the parts of rounds");
    TRY(probe_set_timing(b->engine, 1));
    return bench_generate(b->engine, &first, b->o, k, &r->timed);
}

int bench_round(struct bench *b) {
    struct round_bench r = {
        .o = b->o,
        .engine = b->engine,
        .prompts = &b->prompts,
        .bandwidth = b->bandwidth,
        .prefill = {{.tokens = 16}, {.tokens = 64}, {.tokens = 256}, {.tokens = 512}, {.tokens = 2048}}};
    cli_note("measuring single steps");
    TRY(bench_steps(b->engine, &b->prompts, b->o, &r.steps));
    TRY(bench_prefill(b->engine, r.prefill, PREFILLS));
    TRY(bench_pause(b->engine, b->o->batch, &r.pause));
    TRY(run_answers(b, &r));
    print_results(&r);
    return 0;
}
