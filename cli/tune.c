/* duet tune: which K and which rule of acceptance pay on these models, prompts and machine. */
#include "cli/tune.h"

#include <stdlib.h>

#include "cli/sheet.h"

/* --- what a round's launches take ------------------------------------------------------------------------------- */

static int time_steps(struct tune *t) {
    struct bench_steps steps;
    cli_note("measuring single steps");
    TRY(bench_steps(t->engine, &t->prompts, t->o, &steps));
    for (int k = 0; k <= t->results.k_max; k++) t->results.round_ms[k] = bench_round_ms(&steps, k);
    return 0;
}

/* --- the sweep ---------------------------------------------------------------------------------------------------- */

static int run_new(struct tune *t, int k, enum accept_rule rule) {
    struct tune_results *r = &t->results;
    struct tune_setting *s = &r->settings[r->count];
    *s = (struct tune_setting){.k = k, .rule = rule};
    TRY(tune_run(t, s));
    r->count++;
    return 0;
}

/* Every setting once, from K = 0 up to where no K can win. */
static int sweep(struct tune *t) {
    struct tune_results *r = &t->results;
    const int rules = r->is_greedy ? 1 : TUNE_RULES;
    t->to_answer = (int64_t)t->prompts.count * (2 + r->k_max * rules);
    TRY(run_new(t, 0, ACCEPT_TOKEN));
    for (int k = 1; k <= r->k_max && !tune_is_over(r, k); k++)
        for (int rule = 0; rule < rules; rule++) TRY(run_new(t, k, (enum accept_rule)rule));
    return 0;
}

/* K = 0 and those near the best once more; every other time backwards, so that a drift is not always for the same. Who they are is
 * settled before. */
static int repeat(struct tune *t, const bool *again, bool backwards) {
    struct tune_results *r = &t->results;
    for (int i = 0; i < r->count; i++) {
        int which = backwards ? r->count - 1 - i : i;
        if (again[which]) TRY(tune_run(t, &r->settings[which]));
    }
    return 0;
}

static int measure(struct tune *t) {
    bool again[sizeof t->results.settings / sizeof *t->results.settings] = {0};
    int contenders = 0;
    TRY(sweep(t));
    if (t->o->repeats > 1) TRY(tune_run(t, &t->results.settings[0])); /* did the machine change meanwhile? */
    for (int i = 0; i < t->results.count; i++) {
        again[i] = tune_is_contender(&t->results, &t->results.settings[i]);
        contenders += again[i];
    }
    t->to_answer = t->answered + (int64_t)(t->o->repeats - 1) * contenders * t->prompts.count;
    for (int i = 1; i < t->o->repeats; i++) TRY(repeat(t, again, i % 2 == 1));
    return 0;
}

/* --- start and end ------------------------------------------------------------------------------------------------ */

/* What can be refused before models load. */
static int open_files(struct tune *t) {
    if (t->o->input) TRY(input_read(t->o->input, &t->text));
    TRY(models_resolve(&t->models, t->o));
    return plot_file_open(&t->plot, t->o, &t->models);
}

static int start(struct tune *t) {
    TRY(open_files(t));
    TRY(engine_start(&t->engine, &t->models, t->o));
    TRY(models_chat_template(&t->models, t->o, t->engine, &t->chat_template, &t->template_error));
    struct engine_info info = engine_info(t->engine);
    t->context = (struct request_context){.o = t->o,
                                          .tokenizer = engine_tokenizer(t->engine),
                                          .chat_template = t->chat_template,
                                          .template_error = t->template_error,
                                          .vocab = info.vocab,
                                          .context = info.context,
                                          .think = t->o->think,
                                          .interrupt = &signals_interrupt};
    TRY(tune_load_prompts(t));
    t->results.k_max = info.k_max;
    t->results.is_greedy = !t->prompts.is_sampled;
    return time_steps(t);
}

static int run(struct tune *t) {
    TRY(start(t));
    signals_set(SIGNALS_FLAG);
    int rc = measure(t);
    progress_clear();
    if (rc != 0 && rc != ERR_INTERRUPTED) return rc;
    if (t->results.count == 0) return 0; /* interrupted before there was anything */
    tune_print(t);
    return tune_write_plot(t);
}

static void tune_free(struct tune *t) {
    (void)output_close(&t->plot);
    bench_prompts_free(&t->prompts);
    free(t->greedy);
    buf_free(&t->text);
    chat_template_free(t->chat_template);
    free(t->template_error);
    engine_destroy(t->engine);
    models_free(&t->models);
}

int tune_main(const struct options *given) {
    struct options o = *given; /* all settings get the same seeds */
    struct tune *t = calloc(1, sizeof *t);
    if (!t) return cli_fail(err_set(ERR_MEMORY, "out of memory for the sweep"));
    t->o = &o;
    t->plot = OUTPUT_CLOSED;
    int rc = option_given(&o, "seed") ? 0 : option_set(&o, "seed", "1", "--seed");
    if (rc == 0) rc = run(t);
    int status = rc == 0 ? STATUS_OK : cli_fail(rc);
    if (rc == 0 && signals_interrupted()) {
        cli_error("interrupted: %s", t->results.count > 0 ? "this is of what was measured" : "nothing was measured");
        status = signals_status();
    }
    tune_free(t);
    free(t);
    return status;
}
