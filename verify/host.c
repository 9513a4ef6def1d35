/* Acceptance on the host device. Rows of p_target are made first, spread over threads; then rows are walked through, and what the
 * rule asks about a position is worked out when it is asked. */
#include "base/err.h"
#include "base/parallel.h"
#include "sampler/vector.h"
#include "verify/internal.h"

/* What a submission freezes: the header's arguments and the number of threads. */
struct accept_args {
    struct verify_accept op;
    int threads;
};
_Static_assert(sizeof(struct accept_args) <= STREAM_ARGS_MAX, "arguments fit a submission");

/* --- what the walk looks at ------------------------------------------------------------------------------- */

struct view {
    const struct vector *v;
    const struct round_state *b;
    int row, slot, n, round_k; /* n: length when the round began */
    uint64_t key;
    int winner_at, winner; /* the last one that was asked for */
};

#define WALK static

static float *p_target_of(const struct view *at, int j) {
    return round_p_target(at->b, at->row, at->round_k, j);
}

static struct short_row p_draft_of(const struct view *at, int j) {
    return (struct short_row){round_p_draft(at->b, at->slot, j), at->b->draft_ids, at->b->vocab_draft};
}

static int race_at(const struct view *at, const float *p, int j, enum philox_purpose purpose) {
    struct rule_stream from = rule_stream(at->b->rule, at->n, j, purpose);
    return at->v->race(p, at->b->vocab_target, NULL, at->key, from.subsequence, from.purpose);
}

static struct token_pair look_pair(struct view *at, int j) {
    return pair_at(at->b, p_target_of(at, j), at->slot, j);
}

static float look_uniform(struct view *at, int j) {
    return uniform_at(at->b, at->key, at->n, j);
}

static float look_overlap(struct view *at, int j) {
    return rule_sum(at->v->mass_min(p_target_of(at, j), at->b->vocab_target, p_draft_of(at, j)));
}

static float look_excess(struct view *at, int j, float carry) {
    return rule_sum(at->v->mass_excess(carry, p_target_of(at, j), at->b->vocab_target, p_draft_of(at, j)));
}

static int look_winner(struct view *at, int j) {
    if (at->winner_at != j) at->winner = race_at(at, p_target_of(at, j), j, PHILOX_PLAIN);
    at->winner_at = j;
    return at->winner;
}

static bool look_draft_is_bad(struct view *at, int j) {
    return isnan(p_draft_of(at, j).q[0]);
}

static bool look_target_is_bad(struct view *at, int j) {
    return isnan(p_target_of(at, j)[0]);
}

#include "verify/walk.h"

/* --- rows ------------------------------------------------------------------------------------------------- */

/* The token of position j: after a rejection from the residual, which goes to the block's last row, unused then. */
static int draw_last(struct view *at, const struct walk *w, int j) {
    const struct round_state *b = at->b;
    float *p = p_target_of(at, j), *residual = p_target_of(at, at->round_k);
    if (is_coupled(b)) return look_winner(at, j);
    if (!w->record.rejected) return race_at(at, p, j, w->record.k > 0 ? PHILOX_RESIDUAL : PHILOX_PLAIN);
    at->v->residual(w->carry, p, b->vocab_target, p_draft_of(at, j), residual);
    int token = race_at(at, residual, j, PHILOX_RESIDUAL);
    return token >= 0 ? token : race_at(at, p, j, PHILOX_RESIDUAL);
}

static void accept_row(const struct verify_accept *op, int row) {
    const struct round_state *b = &op->b;
    struct walk w;
    walk_begin(&w, b, b->row_slot[row], op->k, b->records[row].tokens);
    if (w.record.live) {
        struct view at = {.v = vector_at(0),
                          .b = b,
                          .row = row,
                          .slot = w.record.slot,
                          .n = w.slot.length,
                          .round_k = op->k,
                          .key = w.slot.key,
                          .winner_at = -1};
        int j = walk_round(b, &w, &at);
        walk_end(b, &w, j, j >= 0 ? draw_last(&at, &w, j) : -1);
        b->slot[w.record.slot] = w.slot;
    }
    store_record(&b->records[row], &w.record);
}

/* Row j of a graph row's block, if the rule can come to it. */
static void fill_target(const struct verify_accept *op, int row, int j) {
    const struct round_state *b = &op->b;
    int s = b->row_slot[row];
    const struct slot *slot = &b->slot[s];
    if (slot->status != SLOT_LIVE || j > round_row_k(b, s, op->k)) return;
    size_t at = (size_t)row * (size_t)(op->k + 1) + (size_t)j;
    float *p = round_p_target(b, row, op->k, j);
    const float *logits = b->target_logits + at * (size_t)b->target_stride;
    if (!distribution_of(vector_at(0), &slot->sampling, logits, b->vocab_target, p)) p[0] = NAN;
}

static void fill_part(const void *context, int part, int parts) {
    const struct verify_accept *op = context;
    int block = op->k + 1;
    struct range rows = parallel_range(op->batch * block, part, parts);
    for (int i = rows.first; i < rows.end; i++) fill_target(op, i / block, i % block);
}

static void accept_part(const void *context, int part, int parts) {
    const struct verify_accept *op = context;
    struct range rows = parallel_range(op->batch, part, parts);
    for (int row = rows.first; row < rows.end; row++) accept_row(op, row);
}

static int run_accept(const void *args) {
    const struct accept_args *a = args;
    const struct verify_accept *op = &a->op;
    parallel_run(a->threads, vector_work(op->batch * (op->k + 1), op->b.vocab_target), fill_part, op);
    parallel_run(a->threads, vector_work(op->batch, op->b.vocab_target), accept_part, op);
    return 0;
}

int verify_accept_host(struct stream *stream, const struct verify_accept *op) {
    struct accept_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_accept, &args, sizeof args);
}

/* --- log probabilities -------------------------------------------------------------------------------------- */

static float logprob_of(const float *logits, int vocab, int id) {
    float max = logits[0];
    double sum = 0;
    for (int i = 1; i < vocab; i++) max = logits[i] > max ? logits[i] : max;
    for (int i = 0; i < vocab; i++) sum += (double)fmath_exp(logits[i] - max);
    return (float)((double)logits[id] - (double)max - log(sum));
}

static void logprobs_part(const void *context, int part, int parts) {
    const struct verify_accept *op = context;
    const struct round_state *b = &op->b;
    int block = op->k + 1;
    struct range rows = parallel_range(op->batch * block, part, parts);
    for (int i = rows.first; i < rows.end; i++) {
        int id = emitted_at(op, i / block, i % block);
        if (id < 0) continue;
        const float *logits = b->target_logits + (size_t)i * (size_t)b->target_stride;
        b->records[i / block].logprobs[i % block] = logprob_of(logits, b->vocab_target, id);
    }
}

static int run_logprobs(const void *args) {
    const struct accept_args *a = args;
    parallel_run(a->threads, vector_work(a->op.batch * (a->op.k + 1), a->op.b.vocab_target), logprobs_part, &a->op);
    return 0;
}

int verify_logprobs_host(struct stream *stream, const struct verify_accept *op) {
    struct accept_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_logprobs, &args, sizeof args);
}
