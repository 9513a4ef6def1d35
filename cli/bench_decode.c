/* duet bench decode: plain greedy decoding of one sequence, embedding to argmax, each step's token feeding the next: 32 tokens of
 * prompt, then 127 steps, or -n. What published kernels for batch 1 are measured by.
 *
 * A run is timed from the end of the prompt's ingestion to the last token, by the host's clock; its steps by the moments at which
 * their tokens arrive. Its limit is the bytes of a mean step (weights, keys and values) over the read bandwidth of the same run.
 *
 * Beside the time stands the error of its logits. The reference is the host device: the same weights (on CUDA those of f32 files are
 * rounded to bf16, which is part of the error), the same history token by token, with activations, keys and values, products and
 * sums in f32; nothing on its way is rounded to 16 bits, but what --target-weights or --kv ask of both. On the host itself there is
 * nothing to compare with. The device's engine is closed before the host's is opened, which takes as much of the machine's memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench_tables.h"

enum { PROMPT = 32, REPEATS = 7, REPEATS_US = 20000000 };

struct decode_bench {
    char device[96];
    int steps, vocab, repeats;
    double mean_us[REPEATS]; /* [repeats] of a step, ascending */
    double *step_us;         /* [repeats, steps], then the medians in [steps] */
    double limit_us;
    int32_t *tokens;        /* [steps] */
    float *logits;          /* [steps, V] */
    float *reference;       /* likewise; NULL: there is none */
    char no_reference[400]; /* why; "": there is one */
    double error;           /* of all steps */
    int same;               /* steps whose largest logit is the reference's */
};

/* --- logits --------------------------------------------------------------------------------------------------- */

static void ignore_tokens(void *user, struct token_block *block) {
    (void)user;
    (void)block;
}

static struct generation greedy(int max_tokens) {
    return (struct generation){
        .max_tokens = max_tokens, .sampling = {.top_p = 1}, .seed = 1, .ignore_end = true, .on_tokens = ignore_tokens};
}

/* Appends ids [n] and one token, which *token is then. */
static int step_once(struct engine *e, struct sequence *s, const int32_t *ids, int n, int32_t *token) {
    const struct generation g = greedy(1);
    int running = 1, length;
    TRY(engine_generate(e, s, ids, n, &g));
    while (running > 0) TRY(engine_step(e, &running));
    const int32_t *history = engine_tokens(s, &length);
    *token = history[length - 1];
    return 0;
}

static int run_steps(struct engine *e, struct sequence *s, const struct ids *prompt, int steps, bool is_forced,
                     int32_t *tokens, float *logits) {
    const int32_t *next = prompt->data;
    int count = (int)prompt->len;
    for (int i = 0; i < steps; i++) {
        int32_t chosen;
        TRY(step_once(e, s, next, count, &chosen));
        TRY(probe_read_logits(e, logits + (size_t)i * (size_t)engine_info(e).vocab));
        if (!is_forced) tokens[i] = chosen;
        const bool differs = chosen != tokens[i];
        if (differs) TRY(engine_truncate(e, s, (int)prompt->len + i));
        next = &tokens[i], count = differs;
    }
    return 0;
}

int bench_decode_logits(struct engine *e, const struct ids *prompt, int steps, bool is_forced, int32_t *tokens,
                        float *logits) {
    struct sequence *s;
    TRY(engine_open(e, (int)prompt->len + steps + 1, &s));
    int rc = run_steps(e, s, prompt, steps, is_forced, tokens, logits);
    engine_close(e, s);
    return rc;
}

double bench_logit_error(const float *logits, const float *reference, size_t n) {
    double difference = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)logits[i] - (double)reference[i]), r = fabs((double)reference[i]);
        if (isnan(d)) return NAN;
        if (d > difference) difference = d;
        if (r > largest) largest = r;
    }
    return difference / largest;
}

static int largest_of(const float *logits, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* --- measuring ------------------------------------------------------------------------------------------------ */

struct arrivals {
    int64_t *us; /* [most] */
    int count, most;
};

static void note_arrival(void *user, struct token_block *block) {
    struct arrivals *a = user;
    for (int i = 0; i < block->count && a->count < a->most; i++) a->us[a->count++] = clock_us();
}

/* One run: step_us [steps], and their mean. */
static int time_run(struct engine *e, struct sequence *s, const struct ids *prompt, struct arrivals *a, double *step_us,
                    double *mean_us) {
    struct generation g = greedy(a->most);
    int running = 1;
    g.on_tokens = note_arrival, g.user = a;
    TRY(engine_generate(e, s, prompt->data, (int)prompt->len, &g));
    TRY(probe_ingest(e));
    const int64_t start_us = clock_us();
    while (running > 0) TRY(engine_step(e, &running));
    if (a->count < a->most)
        return err_set(ERR_INTERNAL, "%d of %d steps gave a token", a->count, a->most); /* nan logits end an answer */
    for (int i = 0; i < a->most; i++) step_us[i] = (double)(a->us[i] - (i > 0 ? a->us[i - 1] : start_us));
    *mean_us = (double)(a->us[a->most - 1] - start_us) / a->most;
    return 0;
}

static int time_steps(struct engine *e, const struct ids *prompt, int steps, double *step_us, double *mean_us) {
    struct arrivals a = {malloc((size_t)steps * sizeof *a.us), 0, steps};
    struct sequence *s = NULL;
    int rc = a.us ? engine_open(e, (int)prompt->len + steps, &s) : err_set(ERR_MEMORY, "out of memory for times");
    if (rc == 0) rc = time_run(e, s, prompt, &a, step_us, mean_us);
    engine_close(e, s);
    free(a.us);
    return rc;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of every step the median of its repeats, into the first. */
static void take_medians(struct decode_bench *r) {
    for (int i = 0; i < r->steps; i++) {
        double us[REPEATS];
        for (int j = 0; j < r->repeats; j++) us[j] = r->step_us[(size_t)j * (size_t)r->steps + (size_t)i];
        qsort(us, (size_t)r->repeats, sizeof *us, compare_doubles);
        r->step_us[i] = us[r->repeats / 2];
    }
    qsort(r->mean_us, (size_t)r->repeats, sizeof *r->mean_us, compare_doubles);
}

/* After a run that does not count. */
static int time_repeats(struct engine *e, const struct ids *prompt, struct decode_bench *r) {
    cli_note("measuring %d steps", r->steps);
    TRY(probe_set_timing(e, 0));
    TRY(time_steps(e, prompt, r->steps, r->step_us, r->mean_us));
    const int64_t start_us = clock_us();
    while (r->repeats < REPEATS && (r->repeats == 0 || clock_us() - start_us < REPEATS_US)) {
        TRY(time_steps(e, prompt, r->steps, r->step_us + (size_t)r->repeats * (size_t)r->steps,
                       &r->mean_us[r->repeats]));
        r->repeats++;
    }
    take_medians(r);
    return 0;
}

/* --- the reference -------------------------------------------------------------------------------------------- */

static const char *why_no_reference(const struct bench *b) {
    if (!engine_info(b->engine).is_async)
        return "The logits are not compared with f32: this is the host device, which computes in f32 itself.";
    if (b->o->shape && b->o->target_weights != WEIGHTS_AS_STORED)
        return "The logits are not compared with f32: random weights that are quantised at loading may differ between "
               "devices.";
    return NULL;
}

/* Closes the engine of the device, and runs the same history on the host. */
static int run_reference(struct bench *b, const struct ids *prompt, struct decode_bench *r) {
    struct options host = *b->o;
    host.device = "host";
    host.context = PROMPT + r->steps + 1;
    cli_note("computing the same steps in f32 on the host");
    engine_destroy(b->engine);
    b->engine = NULL;
    TRY(engine_start(&b->engine, &b->models, &host));
    TRY(bench_decode_logits(b->engine, prompt, r->steps, true, r->tokens, r->reference));
    const size_t vocab = (size_t)r->vocab;
    r->error = bench_logit_error(r->logits, r->reference, (size_t)r->steps * vocab);
    for (size_t i = 0; i < (size_t)r->steps; i++)
        r->same += largest_of(r->logits + i * vocab, r->vocab) == largest_of(r->reference + i * vocab, r->vocab);
    return 0;
}

static int compare_logits(struct bench *b, const struct ids *prompt, struct decode_bench *r) {
    const size_t numbers = (size_t)r->steps * (size_t)r->vocab;
    r->tokens = calloc((size_t)r->steps, sizeof *r->tokens);
    r->logits = malloc(numbers * sizeof *r->logits);
    r->reference = malloc(numbers * sizeof *r->reference);
    if (!r->tokens || !r->logits || !r->reference)
        return err_set(ERR_MEMORY, "out of memory for the logits of %d steps", r->steps);
    TRY(bench_decode_logits(b->engine, prompt, r->steps, false, r->tokens, r->logits));
    return run_reference(b, prompt, r);
}

/* A machine that has no memory for the reference has times all the same. */
static int compare_if_possible(struct bench *b, const struct ids *prompt, struct decode_bench *r) {
    const char *why = why_no_reference(b);
    int rc = why ? 0 : compare_logits(b, prompt, r);
    if (rc == ERR_MEMORY)
        snprintf(r->no_reference, sizeof r->no_reference, "The logits are not compared with f32: %s.", err_message());
    else if (why)
        snprintf(r->no_reference, sizeof r->no_reference, "%s", why);
    return rc == ERR_MEMORY ? 0 : rc;
}

static int measure(struct bench *b, const struct ids *prompt, struct decode_bench *r) {
    const struct engine_info info = engine_info(b->engine);
    r->steps = b->o->max_tokens, r->vocab = info.vocab, r->error = NAN;
    if (PROMPT + r->steps > info.context)
        return err_set(ERR_USAGE, "-n: a context of %d tokens has no room for %d of a prompt and %d steps",
                       info.context, PROMPT, r->steps);
    snprintf(r->device, sizeof r->device, "%s", info.device);
    const int keys = PROMPT + (r->steps - 1) / 2; /* of a mean step */
    r->limit_us = (double)probe_step_bytes(b->engine, PROBE_TARGET, 1, keys) / b->bandwidth * 1e6;
    r->step_us = malloc((size_t)REPEATS * (size_t)r->steps * sizeof *r->step_us);
    if (!r->step_us) return err_set(ERR_MEMORY, "out of memory for the times of %d steps", r->steps);
    TRY(time_repeats(b->engine, prompt, r));
    return compare_if_possible(b, prompt, r);
}

/* --- the table ------------------------------------------------------------------------------------------------ */

static void describe(struct sheet *s, const struct bench *b, const struct decode_bench *r) {
    const char *shape = b->o->shape;
    if (shape) sheet_say(s, "random weights of the shape %.*s", (int)strcspn(shape, ","), shape);
    sheet_say(s, "%s; one sequence, %d tokens of prompt, %d greedy steps, %d runs, %.1f GB/s read", r->device, PROMPT,
              r->steps, r->repeats, b->bandwidth * 1e-9);
    sheet_put_word(s, "device", r->device);
    sheet_put_word(s, "shape", shape);
    sheet_put_figure(s, "prompt_tokens", PROMPT);
    sheet_put_figure(s, "runs", r->repeats);
    sheet_put_figure(s, "read_bandwidth", b->bandwidth);
}

static void show(const struct bench *b, const struct decode_bench *r) {
    static const struct sheet_column columns[] = {{"steps", "steps"},
                                                  {"us a step", "us_per_step"},
                                                  {"least", "least_us_per_step"},
                                                  {"most", "most_us_per_step"},
                                                  {"tok/s", "tok_per_second"},
                                                  {"limit us", "limit_us"},
                                                  {"% of limit", "percent_of_limit"},
                                                  {"error", "logit_error"},
                                                  {"same", "same_argmax"}};
    const double us = r->mean_us[r->repeats / 2];
    struct sheet s = {0};
    describe(&s, b, r);
    struct table *t = sheet_add_table(&s, "decode", columns, "rrrrrrrrr", "832");
    table_add(t, "%d", r->steps);
    sheet_add_figure(t, us, 2);
    sheet_add_figure(t, r->mean_us[0], 2);
    sheet_add_figure(t, r->mean_us[r->repeats - 1], 2);
    sheet_add_figure(t, 1e6 / us, 1);
    sheet_add_figure(t, r->limit_us, 2);
    sheet_add_figure(t, 100 * r->limit_us / us, 1);
    sheet_add_figure(t, r->error, 6);
    sheet_add_figure(t, r->no_reference[0] ? NAN : r->same, 0);
    sheet_note(&s, "us a step: the mean of a run, and of these the median, the least and the most. limit: what the "
                   "bandwidth asks for "
                   "the weights, keys and values of a mean step.");
    if (r->no_reference[0])
        sheet_note_missing(&s, r->no_reference);
    else
        sheet_note(&s, "error: the largest difference of a logit to f32 on the host, over the largest logit; same: "
                       "steps whose token "
                       "f32 chooses too.");
    sheet_show(&s, b->o);
}

/* --- the picture ---------------------------------------------------------------------------------------------- */

/* Of each step, in thousandths of the largest logit of all. */
static void step_errors(const struct decode_bench *r, double *errors) {
    const size_t vocab = (size_t)r->vocab;
    double largest = 0;
    for (size_t i = 0; i < (size_t)r->steps * vocab; i++) largest = fmax(largest, fabs((double)r->reference[i]));
    for (size_t i = 0; i < (size_t)r->steps; i++) {
        errors[i] = 0;
        for (size_t j = i * vocab; j < (i + 1) * vocab; j++)
            errors[i] = fmax(errors[i], fabs((double)r->logits[j] - (double)r->reference[j]) / largest * 1e3);
    }
}

static int draw(struct bench *b, const struct decode_bench *r) {
    const size_t steps = (size_t)r->steps;
    const bool compared = !r->no_reference[0];
    if (b->plot.fd < 0) return 0;
    double *numbers = malloc(3 * steps * sizeof *numbers), *ms = numbers + steps, *errors = ms + steps;
    if (!numbers) return err_set(ERR_MEMORY, "out of memory for a picture of %d steps", r->steps);
    for (size_t i = 0; i < steps; i++) numbers[i] = (double)i + 1, ms[i] = r->step_us[i] * 1e-3;
    if (compared) step_errors(r, errors);
    const struct plot_series times = {"median of the runs", PLOT_LINE, 0, numbers, ms, NULL, r->steps},
                             error = {"largest difference to f32", PLOT_LINE, 1, numbers, errors, NULL, r->steps};
    const struct plot_panel panels[] = {
        {"time of a step; thin: its limit", "step", "ms", &times, 1, r->limit_us * 1e-3},
        {"error of its logits", "step", "thousandths of the largest logit", &error, 1, NAN}};
    int rc = bench_draw(b, "greedy decoding of one sequence", panels, compared ? 2 : 1);
    free(numbers);
    return rc;
}

int bench_decode(struct bench *b) {
    struct decode_bench r = {0};
    struct ids prompt = {0};
    for (int i = 0; i < PROMPT; i++) ids_push(&prompt, (3 + 37 * i) % engine_info(b->engine).vocab);
    int rc = measure(b, &prompt, &r);
    if (rc == 0) show(b, &r);
    if (rc == 0) rc = draw(b, &r);
    ids_free(&prompt);
    free(r.step_us);
    free(r.tokens);
    free(r.logits);
    free(r.reference);
    return rc;
}
