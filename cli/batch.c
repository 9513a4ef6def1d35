/* duet batch: continuous batching over the lines of a JSONL file. As a sequence ends, the next line joins. */
#include "cli/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/batch_job.h"
#include "cli/cli.h"
#include "cli/io.h"

struct result {
    struct buf record; /* empty until it is made, and again after it is written */
};

struct batch {
    const struct options *o;
    struct models models;
    struct engine *engine;
    struct chat_template *chat_template;
    char *template_error;
    struct request_context context;
    struct ignored_fields ignored;
    struct alpha_report report;

    struct buf input;
    struct lines lines;
    struct output output;
    bool is_broken;               /* the output failed: nothing more goes there */
    struct result *results;       /* [total], in input order */
    int total, admitted, written; /* lines that are not blank */
    int finished;                 /* records made, written or not */
    int next;                     /* the record whose turn it is */
    int failed;
    int64_t start_us, tokens;

    struct job **jobs; /* [o->batch] running */
    int *job_order;    /* [o->batch] index of each job's result */
};

/* --- records ------------------------------------------------------------------------------------------------ */

/* Between hold and release a sudden end sees the record as written or as not. */
static int write_result(struct batch *b, struct result *r) {
    signals_hold();
    int rc = output_line(&b->output, r->record.data, r->record.len);
    if (rc != 0) b->is_broken = true;
    buf_free(&r->record);
    b->written += rc == 0;
    signals_release();
    return rc;
}

/* Writes the records whose turn has come. */
static int write_ready(struct batch *b) {
    for (; b->next < b->total && b->results[b->next].record.len > 0; b->next++)
        TRY(write_result(b, &b->results[b->next]));
    return 0;
}

/* At an early end: what is finished, in order. */
static int write_finished(struct batch *b) {
    for (int i = b->next; i < b->total; i++)
        if (b->results[i].record.len > 0) TRY(write_result(b, &b->results[i]));
    return 0;
}

/* The same at a sudden end (signals_set_last_words). */
static void write_last(void *user) {
    struct batch *b = user;
    for (int i = b->next; i < b->total && !b->is_broken; i++)
        if (b->results[i].record.len > 0)
            output_line_last(&b->output, b->results[i].record.data, b->results[i].record.len);
}

static void say_missing(const struct batch *b) {
    signals_set_consequence(": %d of %d records are missing", b->total - b->finished, b->total);
}

static void keep_record(struct batch *b, int slot) {
    struct job *j = b->jobs[slot];
    struct buf record = {0};
    record_write(&record, &j->request, j->answers, j->count, b->context.tokenizer != NULL);
    signals_hold();
    b->results[b->job_order[slot]].record = record;
    b->finished++;
    signals_release();
    say_missing(b);
    if (j->request.error) b->failed++;
    for (int i = 0; i < j->count; i++) b->tokens += (int64_t)j->answers[i].ids.len;
    job_free(j);
    b->jobs[slot] = NULL;
}

/* --- lines to jobs -------------------------------------------------------------------------------------------- */

static void next_line(struct batch *b, const char **line, size_t *n) {
    do lines_next(&b->lines, line, n);
    while (line_is_blank(*line, *n));
}

static int parse_next(struct batch *b, int slot) {
    struct request request;
    const char *line;
    size_t n;
    next_line(b, &line, &n);
    int rc = request_parse(&request, &b->context, b->lines.number, line, n);
    struct job *j = rc == 0 ? job_create(&request) : NULL;
    if (!j) {
        request_free(&request);
        return rc != 0 ? rc : err_set(ERR_MEMORY, "out of memory for line %d", b->lines.number);
    }
    j->done = request.error != NULL;
    b->jobs[slot] = j;
    b->job_order[slot] = b->admitted++;
    return 0;
}

/* Fills free slots with lines, in order. */
static int admit(struct batch *b) {
    for (int slot = 0; slot < b->o->batch; slot++) {
        while (!b->jobs[slot] && b->admitted < b->total) {
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

static void show_progress(const struct batch *b, int running) {
    char tail[96];
    int done = b->admitted;
    for (int slot = 0; slot < b->o->batch; slot++) done -= b->jobs[slot] != NULL;
    const struct acceptance *a = engine_stats(b->engine);
    double seconds = (double)(clock_us() - b->start_us) * 1e-6;
    int n = snprintf(tail, sizeof tail, "%d running, %.1f tok/s", running, (double)a->emitted / seconds);
    if (a->drafted > 0) snprintf(tail + n, sizeof tail - (size_t)n, ", %.2f accepted", acceptance_draft_rate(a));
    progress_draw("batch", done, b->total, tail);
}

static int run_lines(struct batch *b) {
    b->start_us = clock_us();
    while (b->next < b->total && !signals_interrupted()) {
        int running;
        TRY(admit(b));
        TRY(engine_step(b->engine, &running));
        TRY(finish_jobs(b));
        if (b->results[b->next].record.len > 0) progress_clear();
        TRY(write_ready(b));
        show_progress(b, running);
    }
    return 0;
}

/* --- start and end ----------------------------------------------------------------------------------------------- */

static int read_lines(struct batch *b) {
    const char *line;
    size_t n;
    TRY(input_read(b->o->input, &b->input));
    for (struct lines l = lines_of(&b->input); lines_next(&l, &line, &n);) b->total += !line_is_blank(line, n);
    b->lines = lines_of(&b->input);
    b->results = calloc((size_t)b->total + 1, sizeof *b->results);
    b->jobs = calloc((size_t)b->o->batch, sizeof(struct job *));
    b->job_order = calloc((size_t)b->o->batch, sizeof *b->job_order);
    if (!b->results || !b->jobs || !b->job_order) return err_set(ERR_MEMORY, "out of memory for %d lines", b->total);
    say_missing(b);
    return 0;
}

/* A template that is not recognised is an error of the lines that need one, unless it was asked for by name. */
static int load_template(struct batch *b) {
    const struct checkpoint *target = b->models.target;
    if (b->o->chat_template) {
        TRY(checkpoint_chat_template(target, b->o->chat_template, &b->chat_template));
    } else if (engine_tokenizer(b->engine) && checkpoint_chat_template(target, NULL, &b->chat_template) != 0) {
        b->template_error = memory_copy_text(err_message());
    }
    models_note_think(b->o, b->chat_template);
    return 0;
}

static int start(struct batch *b) {
    TRY(models_resolve(&b->models, b->o));
    TRY(output_open(&b->output, b->o->output));
    TRY(output_refuse_input(&b->output, b->o->input));
    TRY(output_refuse_models(&b->output, &b->models));
    TRY(alpha_report_open(&b->report, b->o, &b->models, &b->output));
    TRY(read_lines(b));
    TRY(engine_start(&b->engine, &b->models, b->o));
    TRY(load_template(b));
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
    return output_begin(&b->output);
}

static int run(struct batch *b) {
    char sentence[1024]; /* the first error is the one to tell */
    TRY(start(b));
    signals_set_last_words(write_last, b);
    signals_set(SIGNALS_FLAG);
    int rc = run_lines(b);
    if (rc == ERR_INTERRUPTED) rc = 0; /* as between two steps: records are missing */
    progress_clear();
    snprintf(sentence, sizeof sentence, "%s", err_message());
    int written = b->is_broken ? 0 : write_finished(b);
    signals_set_last_words(NULL, NULL);
    signals_set_consequence("%s", "");
    return rc == 0 ? written : err_set((enum err)rc, "%s", sentence);
}

static int finish(struct batch *b) {
    TRY(output_close(&b->output));
    return alpha_report_write(&b->report, b->engine);
}

static void batch_free(struct batch *b) {
    for (int slot = 0; b->jobs && slot < b->o->batch; slot++) job_free(b->jobs[slot]);
    for (int i = 0; b->results && i < b->total; i++) buf_free(&b->results[i].record);
    free(b->jobs);
    free(b->job_order);
    free(b->results);
    output_close(&b->output);
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
    struct batch b = {.o = o, .output = OUTPUT_CLOSED, .report.file = OUTPUT_CLOSED};
    int status = STATUS_OK;
    int rc = run(&b);
    if (rc == 0) rc = finish(&b);
    if (rc == 0) say_ignored(&b);
    if (rc != 0) {
        status = cli_fail(rc);
    } else if (b.written < b.total) {
        cli_error("interrupted: %d of %d records are missing", b.total - b.written, b.total);
        status = signals_status();
    } else if (b.failed > 0) {
        cli_error("%d of %d lines failed", b.failed, b.total);
        status = STATUS_FAILED;
    }
    batch_free(&b);
    return status;
}
