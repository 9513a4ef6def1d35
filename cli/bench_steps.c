/* Single launches, and the prefill of long prompts, timed. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/bench.h"
#include "draft/model.h"
#include "engine/probe.h"
#include "target/target.h"

/* --- single launches -------------------------------------------------------------------------------------- */

enum { GROUPS = 7, GROUP_US = 20000, LAUNCHES_MAX = 256 };

struct launch {
    enum { LAUNCH_GRAPH, LAUNCH_DRAW, LAUNCH_PROPOSE, LAUNCH_ACCEPT } kind;
    enum probe_model model;
    struct graph_key key;
    int k, at_most; /* launches a group */
};

static int submit(struct engine *e, const struct launch *l) {
    if (l->kind == LAUNCH_PROPOSE) return probe_launch_propose(e, l->key.batch, l->k);
    if (l->kind == LAUNCH_DRAW) return probe_launch_draw(e, l->key.batch);
    if (l->kind == LAUNCH_ACCEPT) return probe_launch_accept(e, l->key.batch, l->k);
    return probe_launch(e, l->model, l->key);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of several groups of launches; a group lasts long enough for the clock. */
static int time_launch(struct engine *e, const struct launch *l, double *ms) {
    double group_ms[GROUPS];
    int launches = 1;
    TRY(submit(e, l));
    TRY(probe_sync(e));
    for (int g = 0; g < GROUPS; g++) {
        int64_t start_us = clock_us();
        for (int i = 0; i < launches; i++) TRY(submit(e, l));
        TRY(probe_sync(e));
        int64_t us = clock_us() - start_us;
        group_ms[g] = (double)us * 1e-3 / launches;
        if (us >= GROUP_US || g >= GROUPS / 2) continue;
        launches = us > 0 ? (int)(launches * (GROUP_US / (double)us)) + 1 : l->at_most;
        if (launches > l->at_most) launches = l->at_most;
    }
    qsort(group_ms, GROUPS, sizeof *group_ms, compare_doubles);
    *ms = group_ms[GROUPS / 2];
    return 0;
}

int bench_graph(struct engine *e, enum probe_model which, struct graph_key key, double *ms) {
    struct launch launch = {LAUNCH_GRAPH, which, key, 0, LAUNCHES_MAX};
    return time_launch(e, &launch, ms);
}

static int time_graph(struct engine *e, enum probe_model which, int kind, int batch, int q_len, double *ms) {
    return bench_graph(e, which, (struct graph_key){kind, batch, q_len}, ms);
}

static int time_draft(struct engine *e, int bucket, struct bench_steps *s) {
    struct launch draw = {.kind = LAUNCH_DRAW, .key = {.batch = bucket}, .at_most = LAUNCHES_MAX};
    const int first = probe_first_tokens(e, engine_info(e).k);
    TRY(time_graph(e, PROBE_DRAFT, DRAFT_FIRST, bucket, first, &s->draft_first_ms));
    if (probe_drafts_blocks(e)) return 0;
    TRY(time_graph(e, PROBE_DRAFT, DRAFT_STEP, bucket, 1, &s->draft_step_ms));
    return time_launch(e, &draw, &s->draw_ms);
}

/* Every acceptance commits up to K + 1 tokens: the rows must not reach their end while it is timed, at either K. */
static int time_accept(struct engine *e, int bucket, int context, int k, double *ms) {
    int room = (engine_info(e).context - context) / (k + 1) / (GROUPS + 1) / 2;
    if (room > LAUNCHES_MAX) room = LAUNCHES_MAX;
    struct launch accept = {.kind = LAUNCH_ACCEPT, .key = {.batch = bucket}, .k = k, .at_most = room > 1 ? room : 1};
    return time_launch(e, &accept, ms);
}

static int time_scores(struct engine *e, int bucket, struct bench_steps *s) {
    TRY(time_graph(e, PROBE_TARGET, TARGET_DECODE, bucket, 1, &s->decode_ms));
    for (int m = 2; m <= engine_info(e).k_max + 1; m++)
        TRY(time_graph(e, PROBE_TARGET, TARGET_VERIFY, bucket, m, &s->verify_ms[m]));
    return 0;
}

static int time_steps(struct engine *e, int bucket, struct bench_steps *s) {
    struct engine_info info = engine_info(e);
    TRY(time_scores(e, bucket, s));
    struct launch propose = {
        .kind = LAUNCH_PROPOSE, .key = {.batch = bucket}, .k = info.k_max, .at_most = LAUNCHES_MAX};
    const bool has_model = engine_graphs(e, 0);
    if (has_model) TRY(time_draft(e, bucket, s));
    if (info.proposer && (!has_model || probe_drafts_blocks(e))) TRY(time_launch(e, &propose, &s->propose_ms));
    s->accept_k = info.k;
    TRY(time_accept(e, bucket, s->context, 0, &s->accept_plain_ms));
    return time_accept(e, bucket, s->context, info.k, &s->accept_ms);
}

typedef int (*time_fn)(struct engine *, int bucket, struct bench_steps *);

/* With rows in mid-answer. */
static int time_answers(struct engine *e, const struct bench_prompts *p, const struct options *o, time_fn time,
                        struct bench_steps *s) {
    *s = (struct bench_steps){0};
    struct sequence *sequences[256] = {0};
    int running;
    TRY(engine_set_k(e, engine_info(e).k));
    int rc = bench_check_answer(e, p, o);
    if (rc == 0) rc = bench_open_group(e, p, o, 0, o->batch, ANSWER_FILLS_CONTEXT, sequences);
    if (rc == 0) rc = engine_step(e, &running); /* fills the row map */
    if (rc == 0) engine_tokens(sequences[0], &s->context);
    if (rc == 0) rc = time(e, graph_set_bucket(engine_graphs(e, 1), o->batch), s);
    bench_close_group(e, sequences, o->batch);
    return rc;
}

int bench_steps(struct engine *e, const struct bench_prompts *p, const struct options *o, struct bench_steps *s) {
    return time_answers(e, p, o, time_steps, s);
}

int bench_scores(struct engine *e, const struct bench_prompts *p, const struct options *o, struct bench_steps *s) {
    return time_answers(e, p, o, time_scores, s);
}

double bench_draft_ms(const struct bench_steps *s, int k) {
    if (k == 0 || s->propose_ms > 0) return k > 0 ? s->propose_ms : 0;
    return s->draft_first_ms + (k - 1) * s->draft_step_ms;
}

double bench_round_ms(const struct bench_steps *s, int k) {
    double slope = s->accept_k > 0 ? (s->accept_ms - s->accept_plain_ms) / s->accept_k : 0;
    double accept_ms = s->accept_plain_ms + k * slope, verify_ms = k > 0 ? s->verify_ms[k + 1] : s->decode_ms;
    return bench_draft_ms(s, k) + k * s->draw_ms + verify_ms + accept_ms;
}

/* --- prefill ---------------------------------------------------------------------------------------------- */

enum { PREFILLS = 5, PREFILL_US = 500000 };

/* One prompt of `length` made-up ids through the caches of the target, and of the draft if K > 0. */
static int time_one_prefill(struct engine *e, const struct ids *prompt, int64_t *us) {
    struct sequence *s;
    struct generation g = {.max_tokens = 1, .sampling = {.top_p = 1}, .seed = 1};
    TRY(engine_open(e, (int)prompt->len + 1, &s));
    int rc = probe_sync(e);
    int64_t start_us = clock_us();
    if (rc == 0) rc = engine_generate(e, s, prompt->data, (int)prompt->len, &g);
    if (rc == 0) rc = probe_ingest(e);
    *us = clock_us() - start_us;
    engine_close(e, s);
    return rc;
}

/* Median of a few, after one that does not count. */
static int time_prefill(struct engine *e, int length, int k, double *tok_per_second) {
    double us[PREFILLS];
    struct ids prompt = {0};
    int64_t one_us, all_us = 0;
    int count = 0;
    for (int i = 0; i < length; i++) ids_push(&prompt, (3 + 37 * i) % engine_info(e).vocab);
    int rc = engine_set_k(e, k);
    if (rc == 0) rc = time_one_prefill(e, &prompt, &one_us);
    while (rc == 0 && count < PREFILLS && (count == 0 || all_us < PREFILL_US)) {
        rc = time_one_prefill(e, &prompt, &one_us);
        all_us += one_us;
        us[count++] = (double)one_us;
    }
    ids_free(&prompt);
    TRY(rc);
    qsort(us, (size_t)count, sizeof *us, compare_doubles);
    *tok_per_second = us[count / 2] > 0 ? length * 1e6 / us[count / 2] : 0;
    return 0;
}

int bench_prefill(struct engine *e, struct bench_prefill *p, int count) {
    struct engine_info info = engine_info(e);
    for (int i = 0; i < count; i++) {
        p[i].target = p[i].pair = 0;
        if (p[i].tokens + 1 > info.context) continue;
        TRY(time_prefill(e, p[i].tokens, 0, &p[i].target));
        if (engine_graphs(e, 0)) TRY(time_prefill(e, p[i].tokens, info.k_max, &p[i].pair));
    }
    return engine_set_k(e, info.k);
}
