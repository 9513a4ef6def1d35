/* The prompts of a sweep, and all of them answered once under a setting. */
#include <stdlib.h>

#include "base/clock.h"
#include "cli/batch_job.h"
#include "cli/tune.h"
#include "engine/probe.h"

enum { JOBS_MAX = 256 };

int tune_load_prompts(struct tune *t) {
    const char *name = t->o->input ? input_name(t->o->input) : "built-in prompts";
    if (!t->o->input) bench_prompts_write(&t->text, &t->context);
    int rc = bench_prompts_parse(&t->prompts, &t->context, &t->text);
    if (rc != 0) return err_prefix(rc, "%s", name);
    t->greedy = calloc((size_t)t->prompts.count, sizeof *t->greedy);
    return t->greedy ? 0 : err_set(ERR_MEMORY, "out of memory for %d prompts", t->prompts.count);
}

/* Prompts that run at the same time. */
struct group {
    struct job *jobs[JOBS_MAX];
    int count, first; /* index of the first prompt */
};

/* What one run gives; it is added to the setting when it is whole. */
struct outcome {
    double seconds;
    struct acceptance stats;
};

/* A request that is wrong is an error here: a sweep without it would be about other prompts. */
static int refuse(const struct tune *t, const struct request *r) {
    return err_set(ERR_FORMAT, "%s: line %d: %s", t->o->input ? input_name(t->o->input) : "built-in prompts", r->line,
                   r->error);
}

static int start_job(struct tune *t, const struct lines *lines, const char *line, size_t n, struct job **out) {
    struct request r;
    int rc = request_parse(&r, &t->context, lines->number, line, n);
    *out = rc == 0 ? job_create(&r) : NULL;
    if (!*out) {
        request_free(&r);
        return rc != 0 ? rc : err_set(ERR_MEMORY, "out of memory for line %d", lines->number);
    }
    TRY(job_start(*out, t->engine, &t->context));
    return (*out)->request.error ? refuse(t, &(*out)->request) : 0;
}

/* The next prompts, ingested. */
static int start_group(struct tune *t, struct lines *lines, struct group *g) {
    const char *line;
    size_t n;
    g->first += g->count;
    g->count = 0;
    while (g->count < t->o->batch && lines_next(lines, &line, &n)) {
        if (line_is_blank(line, n)) continue;
        g->jobs[g->count] = NULL;
        g->count++;
        TRY(start_job(t, lines, line, n, &g->jobs[g->count - 1]));
    }
    return g->count > 0 ? probe_ingest(t->engine) : 0;
}

/* At temperature 0 every setting gives the same answers: whoever sees another one should not trust its speed. */
static int check_answer(struct tune *t, const struct tune_setting *s, const struct job *j, int which) {
    uint64_t hash = 1;
    if (j->request.sampling.temperature > 0) return 0;
    for (int i = 0; i < j->count; i++) {
        const struct ids *ids = &j->answers[i].ids;
        hash = hash * 31 + line_hash((const char *)ids->data, ids->len * sizeof *ids->data);
    }
    if (t->greedy[which] == 0) t->greedy[which] = hash;
    if (t->greedy[which] == hash) return 0;
    return err_set(ERR_INTERNAL, "line %d: the answer at --k %d --accept %s is not that of plain decoding",
                   j->request.line, s->k, accept_rule_name(s->rule));
}

static void show_progress(struct tune *t, const struct tune_setting *s) {
    char tail[64];
    snprintf(tail, sizeof tail, s->k > 0 ? "K = %d, %s" : "K = %d", s->k, accept_rule_name(s->rule));
    progress_draw("tuning", t->answered, t->to_answer, tail);
}

/* After a step: *live jobs are left. */
static int advance(struct tune *t, const struct tune_setting *s, struct group *g, struct outcome *o, int *live) {
    *live = 0;
    for (int i = 0; i < g->count; i++) {
        struct job *j = g->jobs[i];
        if (j->done) continue;
        TRY(job_advance(j, &t->context));
        *live += !j->done;
        if (!j->done) continue;
        if (j->request.error) return refuse(t, &j->request);
        TRY(check_answer(t, s, j, g->first + i));
        for (int a = 0; a < j->count; a++) acceptance_merge(&o->stats, &j->answers[a].stats);
        t->answered++;
    }
    show_progress(t, s);
    return 0;
}

static int run_group(struct tune *t, const struct tune_setting *s, struct group *g, struct outcome *o) {
    int live = g->count, running;
    while (live > 0) {
        if (signals_interrupted()) return err_set(ERR_INTERRUPTED, "interrupted");
        int64_t start_us = clock_us();
        TRY(engine_step(t->engine, &running));
        o->seconds += (double)(clock_us() - start_us) * 1e-6;
        TRY(advance(t, s, g, o, &live));
    }
    return 0;
}

static void free_group(struct group *g) {
    for (int i = 0; i < g->count; i++) job_free(g->jobs[i]);
}

static void keep(struct tune_setting *s, const struct outcome *o) {
    s->rate[s->runs++] = o->seconds > 0 ? (double)o->stats.emitted / o->seconds : 0;
    s->seconds += o->seconds;
    s->tokens += o->stats.emitted;
    acceptance_merge(&s->stats, &o->stats);
}

int tune_run(struct tune *t, struct tune_setting *s) {
    struct lines lines = lines_of(&t->text);
    struct outcome o = {0};
    struct group g = {0};
    int rc = engine_set_accept(t->engine, s->rule);
    if (rc == 0) rc = engine_set_k(t->engine, s->k);
    do {
        if (rc == 0) rc = start_group(t, &lines, &g);
        if (rc == 0) rc = run_group(t, s, &g, &o);
        free_group(&g);
    } while (rc == 0 && g.count > 0);
    if (rc == 0) keep(s, &o);
    return rc;
}
