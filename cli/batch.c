/* duet batch: continuous batching over the lines of a JSONL file. As a sequence ends, the next line joins. */
#include "cli/batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/batch_job.h"
#include "cli/batch_results.h"
#include "cli/cli.h"
#include "cli/speed.h"

enum { LOSS_TOKENS = 256 }; /* of a run, before a loss is remarked */

struct batch {
    const struct options *o;
    struct models models;
    struct engine *engine;
    struct chat_template *chat_template;
    char *template_error;
    struct request_context context;
    struct record_style style;
    struct ignored_fields ignored;
    struct alpha_report report;

    struct buf input;
    struct results results;
    int admitted; /* results that are made, or whose line is running */
    int failed;
    int64_t start_us, tokens;
    double seconds; /* that the run took */

    struct job **jobs; /* [o->batch] running */
    int *job_order;    /* [o->batch] index of each job's result */
};

/* --- records ------------------------------------------------------------------------------------------------ */

/* At a sudden end (signals_set_last_words). */
static void write_last(void *user) {
    results_write_last(&((struct batch *)user)->results);
}

static void say_missing(const struct batch *b) {
    signals_set_consequence(": %d of %d records are missing", b->results.total - b->results.made, b->results.total);
}

static void keep_record(struct batch *b, int slot) {
    struct job *j = b->jobs[slot];
    struct buf record = {0};
    record_write(&record, &j->request, j->answers, j->count, &b->style);
    results_put(&b->results, b->job_order[slot], &record);
    say_missing(b);
    if (j->request.error) b->failed++;
    for (int i = 0; i < j->count; i++) b->tokens += (int64_t)j->answers[i].ids.len;
    job_free(j);
    b->jobs[slot] = NULL;
}

/* --- lines to jobs -------------------------------------------------------------------------------------------- */

static int parse_next(struct batch *b, int slot) {
    struct request request;
    const struct result *result = &b->results.list[b->admitted];
    int rc = request_parse(&request, &b->context, result->number, result->line, result->len);
    struct job *j = rc == 0 ? job_create(&request) : NULL;
    if (!j) {
        request_free(&request);
        return rc != 0 ? rc : err_set(ERR_MEMORY, "out of memory for line %d", result->number);
    }
    j->done = request.error != NULL;
    b->jobs[slot] = j;
    b->job_order[slot] = b->admitted++;
    return 0;
}

static bool has_line(struct batch *b) {
    const struct results *r = &b->results;
    while (b->admitted < r->total && r->list[b->admitted].kept) b->admitted++;
    return b->admitted < r->total;
}

/* Fills free slots with lines, in order. */
static int admit(struct batch *b) {
    for (int slot = 0; slot < b->o->batch; slot++) {
        while (!b->jobs[slot] && has_line(b)) {
            TRY(parse_next(b, slot));
            struct job *j = b->jobs[slot];
            if (!j->done) TRY(job_start(j, b->engine, &b->context));
            if (j->done) keep_record(b, slot);
        }
    }
    return 0;
}

/* --- the run ---------------------------------------------------------------------------------------------------- */

/* Where a later turn cannot start, by Ctrl-C or an error of the machine, the jobs that are done are kept all the same. */
static int finish_jobs(struct batch *b) {
    int first = 0;
    char sentence[1024]; /* of that first error */
    for (int slot = 0; slot < b->o->batch; slot++) {
        struct job *j = b->jobs[slot];
        if (!j || !j->sequence) continue;
        int rc = job_advance(j, &b->context);
        if (rc != 0 && first == 0) first = rc, snprintf(sentence, sizeof sentence, "%s", err_message());
        if (j->done) keep_record(b, slot);
    }
    return first ? err_set((enum err)first, "%s", sentence) : 0;
}

static double seconds_since(int64_t start_us) {
    return (double)(clock_us() - start_us + 1) * 1e-6; /* never 0 */
}

/* What is left takes as long as what this run has made, record for record. */
static void put_eta(struct buf *out, double seconds, int made, int left) {
    if (made == 0 || left == 0) return;
    int64_t eta = (int64_t)(seconds * left / made + 0.5);
    buf_printf(out, "eta %lld:%02d, ", (long long)(eta / 60), (int)(eta % 60));
}

static void show_progress(const struct batch *b) {
    const struct results *r = &b->results;
    const struct acceptance *a = engine_stats(b->engine);
    double seconds = seconds_since(b->start_us);
    struct buf tail = {0};
    put_eta(&tail, seconds, r->made - r->kept, r->total - r->made);
    buf_printf(&tail, "%.1f tok/s", (double)a->emitted / seconds);
    if (a->drafted > 0) buf_printf(&tail, ", %.2f accepted", acceptance_draft_rate(a));
    progress_draw("batch", r->made, r->total, buf_text(&tail));
    buf_free(&tail);
}

/* Of an answer, and what they brought: rounds are measured for that. Then, where K is not chosen, whether it was a loss. */
static void put_speed(struct buf *line, const struct batch *b, double speed_up) {
    const struct acceptance *a = engine_stats(b->engine);
    if (a->drafted == 0) return;
    buf_printf(line, "; %.2f tokens a round", (double)a->emitted / (double)(a->rounds + a->plain_rounds));
    if (!isnan(speed_up)) buf_printf(line, ", %.2f times plain decoding by what rounds take", speed_up);
}

static void say_loss(const struct batch *b, double speed_up) {
    const struct engine_info info = engine_info(b->engine);
    if (!(speed_up < SPEED_LOSS) || info.k_auto || engine_stats(b->engine)->emitted < LOSS_TOKENS) return;
    cli_note("K = %d made these answers slower than plain decoding: --k auto chooses K, --k 0 drafts nothing", info.k);
}

/* The lines at the end, which a terminal gets. */
static void say_done(const struct batch *b) {
    const struct results *r = &b->results;
    struct buf line = {0};
    if (!terminal_is_tty(2) || terminal_is_quiet()) return;
    const double speed_up = speed_up_of_run(b->engine);
    buf_printf(&line, "%d record%s", r->written, r->written == 1 ? "" : "s");
    if (r->kept > 0) buf_printf(&line, " (%d kept)", r->kept);
    buf_printf(&line, ", %d failed, %lld tokens in %.1f s, %.1f tok/s", b->failed, (long long)b->tokens, b->seconds,
               (double)b->tokens / b->seconds);
    put_speed(&line, b, speed_up);
    cli_note("%s", buf_text(&line));
    say_loss(b, speed_up);
    buf_free(&line);
}

static int run_lines(struct batch *b) {
    struct results *r = &b->results;
    b->start_us = clock_us();
    TRY(results_write_ready(r)); /* --resume may find all there is */
    while (r->next < r->total && !signals_interrupted()) {
        int running;
        TRY(admit(b));
        TRY(engine_step(b->engine, &running));
        TRY(finish_jobs(b));
        if (r->list[r->next].record.len > 0) progress_clear();
        TRY(results_write_ready(r));
        show_progress(b);
    }
    return 0;
}

/* --- start and end ----------------------------------------------------------------------------------------------- */

static int read_lines(struct batch *b) {
    TRY(input_read(b->o->input, &b->input));
    TRY(results_create(&b->results, &b->input));
    b->jobs = calloc((size_t)b->o->batch, sizeof(struct job *));
    b->job_order = calloc((size_t)b->o->batch, sizeof *b->job_order);
    if (!b->jobs || !b->job_order) return err_set(ERR_MEMORY, "out of memory for %d sequences", b->o->batch);
    return 0;
}

static int open_output(struct batch *b) {
    struct output *output = &b->results.output;
    TRY(output_open(output, b->o->output));
    TRY(output_refuse_input(output, b->o->input));
    TRY(output_refuse_models(output, &b->models));
    return alpha_report_open(&b->report, b->o, &b->models, output);
}

/* An output that holds something is not emptied for an input that holds nothing. */
static int check_output(struct batch *b) {
    struct output *output = &b->results.output;
    if (b->o->resume) TRY(results_resume(&b->results, b->o->output, b->o->format == FORMAT_SPEC_BENCH));
    if (!b->o->resume && !b->o->force) TRY(output_refuse_existing(output, true));
    if (b->results.total > 0 || !output_holds(output)) return 0;
    return err_set(ERR_USAGE, "%s: holds no line to answer, so %s stays as it is", input_name(b->o->input),
                   output->name);
}

static int start(struct batch *b) {
    TRY(models_resolve(&b->models, b->o));
    TRY(open_output(b));
    TRY(read_lines(b));
    TRY(check_output(b));
    say_missing(b);
    TRY(engine_start(&b->engine, &b->models, b->o));
    TRY(models_chat_template(&b->models, b->o, b->engine, &b->chat_template, &b->template_error));
    struct engine_info info = engine_info(b->engine);
    b->context = (struct request_context){.o = b->o,
                                          .tokenizer = engine_tokenizer(b->engine),
                                          .chat_template = b->chat_template,
                                          .template_error = b->template_error,
                                          .vocab = info.vocab,
                                          .context = info.context,
                                          .think = b->o->think,
                                          .ignored = &b->ignored,
                                          .interrupt = &signals_interrupt};
    b->style = (struct record_style){.has_text = b->context.tokenizer != NULL,
                                     .tokenizer = b->context.tokenizer,
                                     .details = b->o->details,
                                     .k_auto = info.k_auto,
                                     .spec_bench = b->o->format == FORMAT_SPEC_BENCH,
                                     .model = b->o->target ? b->o->target : "embedded"};
    return results_begin(&b->results, b->o->resume);
}

static int run(struct batch *b) {
    char sentence[1024]; /* the first error is the one to tell */
    TRY(start(b));
    signals_set_last_words(write_last, b);
    signals_set(SIGNALS_FLAG);
    int rc = run_lines(b);
    b->seconds = seconds_since(b->start_us);
    if (rc == ERR_INTERRUPTED) rc = 0; /* as between two steps: records are missing */
    progress_clear();
    snprintf(sentence, sizeof sentence, "%s", err_message());
    int written = b->results.is_broken ? 0 : results_write_made(&b->results);
    signals_set_last_words(NULL, NULL);
    signals_set_consequence("%s", "");
    return rc == 0 ? written : err_set((enum err)rc, "%s", sentence);
}

static int finish(struct batch *b) {
    TRY(output_close(&b->results.output));
    return alpha_report_write(&b->report, b->engine);
}

static void batch_free(struct batch *b) {
    for (int slot = 0; b->jobs && slot < b->o->batch; slot++) job_free(b->jobs[slot]);
    free(b->jobs);
    free(b->job_order);
    results_free(&b->results);
    alpha_report_close(&b->report);
    chat_template_free(b->chat_template);
    free(b->template_error);
    engine_destroy(b->engine);
    models_free(&b->models);
    ignored_fields_free(&b->ignored);
    buf_free(&b->input);
}

static void say_ignored(const struct batch *b) {
    if (b->ignored.count == 0 || terminal_is_quiet()) return;
    struct buf names = {0};
    ignored_fields_list(&b->ignored, &names);
    cli_error("fields that mean nothing here were ignored: %s (--strict refuses them)", buf_text(&names));
    buf_free(&names);
}

int batch_main(const struct options *o) {
    struct batch b = {.o = o, .results.output = OUTPUT_CLOSED, .report.file = OUTPUT_CLOSED};
    int status = STATUS_OK;
    int rc = run(&b);
    if (rc == 0) rc = finish(&b);
    if (rc == 0) say_done(&b);
    if (rc == 0) say_ignored(&b);
    if (rc != 0) {
        status = cli_fail(rc);
    } else if (b.results.written < b.results.total) {
        cli_error("interrupted: %d of %d records are missing", b.results.total - b.results.written, b.results.total);
        status = signals_status();
    } else if (b.failed > 0) {
        cli_error("%d of %d lines failed", b.failed, b.results.total);
        status = STATUS_FAILED;
    }
    batch_free(&b);
    return status;
}
