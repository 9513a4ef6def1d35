/* K_AUTO in the engine: what rounds take, at first on the dummy sequence, and the choice for the rows that run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/internal.h"

/* Measuring ends after about so long, but not before the largest bucket was gone through once. On a host whatever else runs there makes a
 * single turn wrong by a quarter; where nobody waits for the first token it may take longer. */
enum {
    MEASURE_US = 400000,
    MEASURE_HOST_US = 80000,
    MEASURE_HOST_BEHIND_US = 400000,
    TURNS = 4,
    TURNS_BEHIND = 16,
    ALL_UP_TO = 8
};
/* After so many rounds an acceptance counts 1/e for its row, and for all rows. */
enum { ROW_ROUNDS = 32, ALL_ROUNDS = 256 };
/* What a row lacks after a trial's distance of plain rounds. */
enum { CATCH_UP_TOKENS = AUTO_LEAST_INTERVAL };

/* --- times ------------------------------------------------------------------------------------------------ */

static struct round *free_round(struct engine *e) {
    return &e->rounds[e->enqueued % (ROUNDS_IN_FLIGHT_MAX + 1)];
}

static void begin_work(struct span *s) {
    s->thread_us = clock_thread_us();
    s->process_us = clock_process_us();
}

static int64_t work_us(const struct engine *e, const struct span *s) {
    const int64_t thread_us = clock_thread_us() - s->thread_us,
                  share_us = (clock_process_us() - s->process_us) / device_threads(e->device);
    return thread_us > share_us ? thread_us : share_us;
}

int span_begin(struct engine *e, struct span *s) {
    marks_restart(&s->marks);
    if (device_is_async(e->device)) return marks_add(&s->marks, e->stream);
    begin_work(s);
    return 0;
}

int span_end(struct engine *e, struct span *s) {
    if (device_is_async(e->device)) return marks_add(&s->marks, e->stream);
    s->us = work_us(e, s);
    return 0;
}

int span_ms(const struct engine *e, const struct span *s, float *ms) {
    if (device_is_async(e->device)) return marks_ms(&s->marks, 0, ms);
    *ms = (float)s->us * 1e-3f;
    return 0;
}

static void begin_lap(struct engine *e) {
    e->lap.us = clock_us();
    if (!device_is_async(e->device)) begin_work(&e->lap);
}

/* What has passed, on a host what was worked; begins the next. */
static double end_lap_ms(struct engine *e) {
    const int64_t us = device_is_async(e->device) ? clock_us() - e->lap.us : work_us(e, &e->lap);
    begin_lap(e);
    return 1e-3 * (double)us;
}

static int time_once(struct engine *e, int bucket, int k, float *ms) {
    struct span *span = &free_round(e)->span;
    TRY(span_begin(e, span));
    TRY(round_run(e, (struct proposer_round){.k = k, .rows = bucket}));
    TRY(span_end(e, span));
    TRY(stream_sync(e->stream));
    return span_ms(e, span, ms);
}

/* What a turn measures: 0, 1, 2, 4 and so on and k_max; but for the first every K up to ALL_UP_TO, since kernels take rows in steps of
 * their own. */
static int next_measured(int k, int k_max, bool all) {
    const int next = k == 0 || (all && k < ALL_UP_TO) ? k + 1 : 2 * k;
    return next < k_max ? next : k_max;
}

/* ms [k_max + 1]: what was not measured, NAN, lies between its neighbours. Only something else on the machine makes a smaller K take
 * longer. */
static void fill(float *ms, int k_max) {
    for (int low = 0, high; low < k_max; low = high) {
        for (high = low + 1; isnan(ms[high]);) high++;
        for (int k = low + 1; k < high; k++)
            ms[k] = ms[low] + (ms[high] - ms[low]) * (float)(k - low) / (float)(high - low);
    }
    for (int k = k_max - 1; k >= 0; k--)
        if (ms[k] > ms[k + 1]) ms[k] = ms[k + 1];
}

/* K in turn, so that what disturbs one disturbs the others, and the least of each. The first turn is always whole. */
static int measure_bucket(struct engine *e, int bucket, int turns, int64_t end_us) {
    const int k_max = e->auto_k.k_max;
    float *ms = e->auto_k.start_ms + (size_t)bucket * ((size_t)k_max + 1), once;
    for (int k = 0; k <= k_max; k++) ms[k] = NAN;
    for (int turn = 0; turn < turns && (turn == 0 || clock_us() < end_us); turn++)
        for (int k = 0, done = -1; done < k_max; done = k, k = next_measured(k, k_max, turn > 0)) {
            TRY(time_once(e, bucket, k, &once));
            ms[k] = fminf(once, ms[k]);
        }
    fill(ms, k_max);
    return 0;
}

/* What a draft model takes for the tokens of some plain rounds of so many rows, or for a whole context where that is shorter: the least
 * of three, since the first may load kernels. */
static int time_catch_up(struct engine *e, int rows, double *ms) {
    static const int32_t tokens[CATCH_UP_TOKENS + 1];
    const int length = (e->context < CATCH_UP_TOKENS ? e->context : CATCH_UP_TOKENS) + 1;
    const struct proposer_turn turn = {.slot = 0, .tokens = tokens, .length = length};
    struct span *span = &free_round(e)->span;
    float once, least = INFINITY;
    for (int i = 0; i < rows; i++) e->behind[i] = (struct proposer_row){0, tokens, turn.length, turn.length - 1};
    for (int i = 0; i < 3; i++) {
        TRY(proposer_begin(e->proposer, e->stream, &turn));
        TRY(span_begin(e, span));
        TRY(proposer_ingest(e->proposer, e->stream, e->behind, rows));
        TRY(span_end(e, span));
        TRY(stream_sync(e->stream));
        TRY(span_ms(e, span, &once));
        least = fminf(once, least);
    }
    *ms = (double)least;
    return 0;
}

/* A host takes so much for each token, whoever's it is. */
static int measure_catch_up(struct engine *e) {
    e->together_ms = INFINITY;
    if (!engine_draft(e)) return 0;
    TRY(time_catch_up(e, 1, &e->catch_up_ms));
    return e->max_batch > 1 && device_is_async(e->device) ? time_catch_up(e, e->max_batch, &e->together_ms) : 0;
}

/* All rows serve the dummy sequence. The next round brings a row map of its own. */
static int rows_to_dummy(struct engine *e) {
    int32_t *rows = free_round(e)->row_slot;
    memset(rows, 0, (size_t)e->max_batch * sizeof *rows);
    e->rows_sent = NULL;
    return stream_copy(e->stream, e->state.row_slot, rows, (size_t)e->max_batch * sizeof *rows);
}

/* From the largest bucket down, each with half of the time that is left. Those for which there is none, and those in between, are
 * taken to be as the one above. */
static int measure(struct engine *e, int turns, int64_t left_us) {
    const size_t row = (size_t)e->k_max + 1;
    float *ms = e->auto_k.start_ms;
    TRY(rows_to_dummy(e));
    for (int b = e->max_batch, rows = b; b >= 0; b--) {
        const bool is_bucket = b > 0 && graph_set_bucket(e->target.graphs, b) == b && (b == rows || 2 * b <= rows);
        const int64_t start_us = clock_us();
        if (is_bucket && (b == e->max_batch || left_us > 0)) {
            TRY(measure_bucket(e, b, turns, start_us + left_us / 2));
            left_us -= clock_us() - start_us;
            rows = b;
        } else {
            memcpy(ms + (size_t)b * row, ms + (size_t)(b + 1) * row, row * sizeof *ms);
        }
    }
    return measure_catch_up(e);
}

int auto_measure(struct engine *e, bool is_behind) {
    const int64_t host_us = is_behind ? MEASURE_HOST_BEHIND_US : MEASURE_HOST_US;
    if (e->has_measured || e->auto_k.is_fixed) return 0;
    e->has_measured = true;
    e->state.penalises = e->gives_logprobs = false;
    return measure(e, is_behind ? TURNS_BEHIND : TURNS, device_is_async(e->device) ? MEASURE_US : host_us);
}

/* --- the choice ------------------------------------------------------------------------------------------- */

/* A row of the next round, now or once its proposer has caught up. */
static bool runs(const struct sequence *s) {
    return round_wants(s) || (s && s->phase == PHASE_INGESTING && s->has_begun);
}

/* A row was in no round yet. */
static bool is_joined(const struct engine *e) {
    for (int slot = 1; slot <= e->max_batch; slot++)
        if (runs(e->slots[slot]) && auto_k_is_new(&e->slots[slot]->estimate)) return true;
    return false;
}

static bool is_catching_up(const struct engine *e) {
    for (int slot = 1; slot <= e->max_batch; slot++)
        if (e->slots[slot] && e->slots[slot]->phase == PHASE_INGESTING && e->slots[slot]->has_begun) return true;
    return false;
}

/* A draft model lacks the tokens of plain rounds. It reads them a row after another, on a GPU a few in the time of many; or those of all
 * rows together. */
struct behind {
    int rows, most; /* of one */
    double ms;      /* one after another */
};

static void add_behind(struct behind *b, const struct sequence *s) {
    const struct engine *e = s->engine;
    /* While it speculates the question is what plain rounds would cost. */
    const bool plain = e->auto_k.k > 0 || round_plain_in_flight(s);
    const int lacking = proposer_lags(e->proposer, s->slot, (int)s->tokens.len, plain);
    const int at_once = device_is_async(e->device) ? prefill_chunk(e->device) / 4 : CATCH_UP_TOKENS;
    if (lacking <= 0) return;
    b->rows++;
    b->most = lacking > b->most ? lacking : b->most;
    b->ms += e->catch_up_ms * fmax(1, (double)lacking / at_once);
}

static double catch_up_ms(const struct engine *e, const struct behind *b) {
    if (b->rows < 2) return b->ms;
    const double passes = ceil((double)b->most / prefill_q_len(engine_draft(e), b->rows)),
                 share = (double)b->rows * b->most / (e->max_batch * CATCH_UP_TOKENS);
    return fmin(b->ms, passes * e->catch_up_ms + share * fmax(0, e->together_ms - e->catch_up_ms));
}

static bool finds(const struct sequence *s) {
    return proposer_finds(s->engine->proposer, s->tokens.data, (int)s->tokens.len);
}

/* Rows for which the proposer finds something. */
static int count_found(const struct engine *e) {
    int count = 0;
    for (int slot = 1; slot <= e->max_batch; slot++) count += runs(e->slots[slot]) && finds(e->slots[slot]);
    return count;
}

/* The span of a trial's first round begins here: catching up is a part of what the trial takes, a prompt before it is none. */
int auto_choose(struct engine *e) {
    double tokens[K_MAX + 1] = {0};
    struct behind behind = {0};
    int rows = 0;
    if (!e->chooses_k) return 0;
    const int found = count_found(e);
    if (is_joined(e)) {
        auto_k_joined(&e->auto_k);
    } else if (auto_k_rests(&e->auto_k) && found == e->found) {
        e->k = 0;
        return 0;
    }
    if (is_catching_up(e)) return 0;
    e->found = found;
    for (int slot = 1; slot <= e->max_batch; slot++) {
        const struct sequence *s = e->slots[slot];
        if (!runs(s)) continue;
        auto_k_expect(&e->auto_k, finds(s) ? &s->estimate : NULL, tokens);
        add_behind(&behind, s);
        rows++;
    }
    if (rows == 0) return 0;
    const int bucket = graph_set_bucket(e->target.graphs, rows);
    const bool was_billing = auto_k_is_billing(&e->auto_k);
    e->k = auto_k_choose(&e->auto_k, bucket, tokens, catch_up_ms(e, &behind));
    if (was_billing) return 0;
    if (e->collected == e->enqueued || !device_is_async(e->device)) begin_lap(e);
    e->spans_trial = auto_k_is_billing(&e->auto_k);
    return e->spans_trial ? span_begin(e, &free_round(e)->span) : 0;
}

int auto_enqueue(struct engine *e, struct round *r) {
    const int bucket = graph_set_bucket(e->target.graphs, r->rows);
    const bool has_begun = e->spans_trial;
    r->is_next = e->is_next;
    r->spanned = e->chooses_k && (has_begun || auto_k_asks_time(&e->auto_k, bucket, r->k));
    e->is_next = true, e->spans_trial = false;
    for (int row = 0; row < r->rows && e->chooses_k; row++) {
        struct sequence *s = e->slots[r->row_slot[row]];
        s->finds[r - e->rounds] = finds(s);
    }
    return r->spanned && !has_begun ? span_begin(e, &r->span) : 0;
}

void auto_enqueued(struct engine *e, struct round *r) {
    if (e->chooses_k) r->expected = auto_k_ran(&e->auto_k, graph_set_bucket(e->target.graphs, r->rows), r->k);
}

/* The first round of another K finds caches that others filled: it says what a change costs, not what the K does. */
int auto_collected(struct engine *e, const struct round *r) {
    float ms;
    if (!e->chooses_k) return 0;
    const int bucket = graph_set_bucket(e->target.graphs, r->rows);
    const bool is_first = r->k != e->timed_k;
    e->timed_k = r->k;
    if (r->spanned) TRY(span_ms(e, &r->span, &ms));
    if (r->spanned && !is_first) auto_k_time(&e->auto_k, bucket, r->k, (double)ms);
    if (!auto_k_is_billing(&e->auto_k)) {
        if (device_is_async(e->device)) begin_lap(e);
        return 0;
    }
    const double lap = end_lap_ms(e);
    if (r->is_next || r->spanned) auto_k_settle(&e->auto_k, bucket, r->k, r->expected, r->is_next ? lap : (double)ms);
    return 0;
}

void auto_learn(struct sequence *s, const struct round *r, const struct round_record *record) {
    struct engine *e = s->engine;
    if (!e->chooses_k) return;
    if (!s->finds[r - e->rounds]) {
        auto_k_pass(&s->estimate);
        return;
    }
    auto_k_learn(&s->estimate, record, r->k, ROW_ROUNDS);
    auto_k_learn(&e->auto_k.all, record, r->k, ALL_ROUNDS);
}
