/* The sampler's launches on the host device. Rows without a distribution (non-finite logits) are marked by NaN in
 * their first element, which sampler_accept reads; nothing else passes from one launch to the next. */
#include "base/err.h"
#include "base/parallel.h"
#include "sampler/internal.h"

/* What a submission freezes: the header's arguments and the number of threads. */
struct load_args {
    struct sampler_load op;
};
struct draw_args {
    struct sampler_draw op;
    int threads;
};
struct accept_args {
    struct sampler_accept op;
    int threads;
};
_Static_assert(sizeof(struct accept_args) <= STREAM_ARGS_MAX && sizeof(struct draw_args) <= STREAM_ARGS_MAX,
               "arguments fit a submission");

/* The size of a loop over the vocabulary, in multiply-adds, for parallel_run. */
static int64_t work_of(int rows, int vocab) {
    enum { WORK_AN_ID = 8 };
    return (int64_t)rows * vocab * WORK_AN_ID;
}

/* --- inputs ----------------------------------------------------------------------------------------------- */

static int run_load_pending(const void *args) {
    const struct sampler_load *op = &((const struct load_args *)args)->op;
    const struct sampler_buffers *b = &op->b;
    for (int row = 0; row < op->batch; row++) {
        const struct slot *slot = &b->slot[b->row_slot[row]];
        for (int i = 0; i < 2; i++) {
            int position = slot->length - 2 + i;
            bool inert = slot->status != SLOT_LIVE || position < 0 || position >= b->draft_positions;
            b->draft_tokens[2 * row + i] = inert ? 0 : id_or_zero(slot->last[i], b->vocab_draft);
            b->draft_positions_in[2 * row + i] = inert ? -1 : position;
        }
    }
    return 0;
}

static int run_load_block(const void *args) {
    const struct sampler_load *op = &((const struct load_args *)args)->op;
    const struct sampler_buffers *b = &op->b;
    for (int row = 0; row < op->batch; row++) {
        int s = b->row_slot[row];
        const struct slot *slot = &b->slot[s];
        bool live = slot->status == SLOT_LIVE;
        for (int j = 0; j <= op->k; j++) {
            int id = j == 0 ? slot->last[1] : b->drafted[s * b->k_max + j - 1];
            size_t at = (size_t)row * (size_t)(op->k + 1) + (size_t)j;
            b->target_tokens[at] = live ? id_or_zero(id, b->vocab_target) : 0;
            b->target_positions[at] = live ? slot->length - 1 + j : -1;
        }
    }
    return 0;
}

/* --- draw ------------------------------------------------------------------------------------------------- */

static int race(const struct vector *v, const float *p, int vocab, const struct slot *slot, struct rule_stream from) {
    return v->race(p, vocab, slot->key, from.subsequence, from.purpose);
}

static void draw_row(const struct sampler_draw *op, int row) {
    const struct sampler_buffers *b = &op->b;
    int s = b->row_slot[row], position = b->slot[s].length + op->index;
    const struct slot *slot = &b->slot[s];
    b->draft_tokens[row] = 0;
    b->draft_positions_in[row] = -1;
    if (slot->status != SLOT_LIVE) return;

    const struct vector *v = vector_at(0);
    float *p = draft_row(b, s, op->index);
    const float *logits = b->draft_logits + (size_t)row * (size_t)b->draft_stride;
    int drawn = -1;
    if (distribution_of(v, &slot->sampling, logits, b->vocab_draft, p))
        drawn = race(v, p, b->vocab_draft, slot, rule_stream(b->rule, slot->length, op->index, PHILOX_DRAFT_DRAW));
    else
        p[0] = NAN;
    b->drafted[s * b->k_max + op->index] = drawn;
    if (position >= b->draft_positions) return;
    b->draft_tokens[row] = id_or_zero(drawn, b->vocab_draft);
    b->draft_positions_in[row] = position;
}

static void draw_part(const void *context, int part, int parts) {
    const struct sampler_draw *op = context;
    struct range rows = parallel_range(op->batch, part, parts);
    for (int row = rows.first; row < rows.end; row++) draw_row(op, row);
}

static int run_draw(const void *args) {
    const struct draw_args *a = args;
    parallel_run(a->threads, work_of(a->op.batch, a->op.b.vocab_draft), draw_part, &a->op);
    return 0;
}

/* --- accept ----------------------------------------------------------------------------------------------- */

/* One row's round as the rule walks through it. Indices of drafted tokens begin at 0. */
struct walk {
    const struct vector *v;
    const struct sampler_buffers *b;
    struct slot *slot;
    struct round_record *record;
    int s, n;        /* slot, and its length when the round began */
    float *p_target; /* [round's k + 1, vocab_target]; the last row is free unless all are accepted */
    int round_k;
};

static float *target_row(const struct walk *w, int j) {
    return w->p_target + (size_t)j * (size_t)w->b->vocab_target;
}

static int drafted_id(const struct walk *w, int j) {
    return w->b->drafted[w->s * w->b->k_max + j];
}

/* Commits and records a token; true if the sequence goes on. */
static bool emit(struct walk *w, int token) {
    w->record->tokens[w->record->emitted++] = token;
    return commit_token(w->b, w->slot, token);
}

/* Commits drafted token j; true if the sequence goes on. */
static bool emit_drafted(struct walk *w, int j) {
    w->record->accepted++;
    return emit(w, drafted_id(w, j));
}

/* Drafted tokens that can be emitted: up to the first end id, and to the limit. */
static int count_usable(const struct walk *w) {
    int k = w->record->k, room = w->slot->limit - w->n;
    for (int j = 0; j < k; j++)
        if (j + 1 == room || is_end(w->b, w->slot, drafted_id(w, j))) return j + 1;
    return k;
}

/* An id of both maps; no other is ever accepted. */
static bool is_common(const struct walk *w, int id) {
    return id >= 0 && id < w->b->vocab_target && id < w->b->vocab_draft;
}

/* p_target and p_draft of a drafted token. */
struct pair {
    float target, draft;
};

static struct pair pair_of(const struct walk *w, int j) {
    int d = drafted_id(w, j);
    if (!is_common(w, d)) return (struct pair){0, 1};
    return (struct pair){target_row(w, j)[d], draft_row(w->b, w->s, j)[d]};
}

static float uniform_at(const struct walk *w, int j) {
    struct rule_stream from = rule_stream(w->b->rule, w->n, j, PHILOX_ACCEPT);
    return rule_uniform(philox_word(w->slot->key, from.subsequence, from.purpose, 0));
}

static int race_at(const struct walk *w, const float *p, int j, enum philox_purpose purpose) {
    return race(w->v, p, w->b->vocab_target, w->slot, rule_stream(w->b->rule, w->n, j, purpose));
}

/* The replacement of drafted token j. The residual goes to the block's last row, which a rejection leaves unused. */
static int draw_residual(const struct walk *w, int j, float carry) {
    const struct sampler_buffers *b = w->b;
    float *residual = target_row(w, w->round_k);
    w->v->residual(carry, target_row(w, j), b->vocab_target, draft_row(b, w->s, j), b->vocab_draft, residual);
    int token = race_at(w, residual, j, PHILOX_RESIDUAL);
    return token >= 0 ? token : race_at(w, target_row(w, j), j, PHILOX_RESIDUAL);
}

/* The token in place of drafted token j, or -1 if that is accepted. */
static int replace_token(const struct walk *w, int j) {
    const struct sampler_buffers *b = w->b;
    int d = drafted_id(w, j);
    if (is_coupled(b)) {
        int winner = race_at(w, target_row(w, j), j, PHILOX_PLAIN);
        return winner == d ? -1 : winner;
    }
    float u = uniform_at(w, j);
    struct pair pair = pair_of(w, j);
    bool is_accepted =
        b->simulate_alpha > 0 ? is_common(w, d) && u < b->simulate_alpha : rule_accepts(u, pair.target, pair.draft);
    return is_accepted ? -1 : draw_residual(w, j, 1);
}

/* Position j is decided: what its distributions say about acceptance. */
static void note_evaluated(struct walk *w, int j) {
    const struct sampler_buffers *b = w->b;
    int both = b->vocab_draft < b->vocab_target ? b->vocab_draft : b->vocab_target;
    float overlap = rule_sum(w->v->mass_min(target_row(w, j), draft_row(b, w->s, j), both));
    w->record->evaluated++;
    w->record->overlap_sum += overlap;
    w->record->coupled_sum += overlap / (2 - overlap);
}

static void note_expected(struct walk *w, int usable) {
    float by_token = 1, by_block = 1;
    for (int j = 0; j < usable && !isnan(target_row(w, j)[0]); j++) {
        struct pair pair = pair_of(w, j);
        by_token = by_token * rule_carry(1, pair.target, pair.draft);
        by_block = rule_carry(by_block, pair.target, pair.draft);
        w->record->expected_token += by_token;
        w->record->expected_block += by_block;
    }
}

/* The token after all drafted ones. False, as in the walks, if it meets a row without a distribution. */
static bool emit_last(struct walk *w) {
    int k = w->record->k;
    const float *p = target_row(w, k);
    if (isnan(p[0])) return false;
    emit(w, race_at(w, p, k, k > 0 ? PHILOX_RESIDUAL : PHILOX_PLAIN));
    return true;
}

static bool walk_tokens(struct walk *w) {
    for (int j = 0; j < w->record->k; j++) {
        if (isnan(target_row(w, j)[0])) return false;
        note_evaluated(w, j);
        int token = replace_token(w, j);
        if (token >= 0) {
            w->record->rejected = 1;
            emit(w, token);
            return true;
        }
        if (!emit_drafted(w, j)) return true;
    }
    return emit_last(w);
}

/* How many of the usable drafted tokens block verification keeps, and what it carries from there. */
static int count_kept(const struct walk *w, int usable, float *kept_carry) {
    const struct sampler_buffers *b = w->b;
    float carry = 1;
    int kept = 0;
    *kept_carry = 1;
    for (int j = 0; j < usable; j++) {
        struct pair pair = pair_of(w, j);
        float threshold = carry = rule_carry(carry, pair.target, pair.draft);
        if (j + 1 < usable) {
            const float *p = target_row(w, j + 1), *q = draft_row(b, w->s, j + 1);
            uint64_t excess = w->v->mass_excess(carry, p, b->vocab_target, q, b->vocab_draft);
            threshold = rule_threshold(rule_sum(excess), carry);
        }
        if (uniform_at(w, j) < threshold) kept = j + 1, *kept_carry = carry;
    }
    return kept;
}

static bool walk_block(struct walk *w, int usable) {
    for (int j = 0; j < usable; j++)
        if (isnan(target_row(w, j)[0])) return false;
    float carry;
    int kept = count_kept(w, usable, &carry);
    for (int j = 0; j < kept; j++) {
        note_evaluated(w, j);
        if (!emit_drafted(w, j)) return true;
    }
    if (kept == w->record->k) return emit_last(w);
    note_evaluated(w, kept);
    w->record->rejected = 1;
    emit(w, draw_residual(w, kept, carry));
    return true;
}

static bool walk_round(struct walk *w) {
    int usable = count_usable(w);
    for (int j = 0; j < w->record->k; j++)
        if (isnan(draft_row(w->b, w->s, j)[0])) return false;
    note_expected(w, usable);
    return is_by_block(w->b) ? walk_block(w, usable) : walk_tokens(w);
}

static float *block_of(const struct sampler_accept *op, int row) {
    return op->b.p_target + (size_t)row * (size_t)(op->k + 1) * (size_t)op->b.vocab_target;
}

static void accept_row(const struct sampler_accept *op, int row) {
    const struct sampler_buffers *b = &op->b;
    struct round_record *record = &b->records[row];
    int s = b->row_slot[row];
    struct slot *slot = &b->slot[s], before = *slot;
    *record = (struct round_record){.slot = s, .serial = slot->serial, .status = slot->status};
    if (slot->status != SLOT_LIVE) return;
    record->live = 1;
    record->k = rule_drafted(slot->length, op->k, b->draft_positions);
    struct walk walk = {.v = vector_at(0),
                        .b = b,
                        .slot = slot,
                        .record = record,
                        .s = s,
                        .n = slot->length,
                        .p_target = block_of(op, row),
                        .round_k = op->k};
    if (!walk_round(&walk)) {
        *slot = before;
        slot->status = SLOT_ERROR;
        clear_counts(record);
    }
    record->status = slot->status;
    record->length = slot->length;
}

/* Row j of a graph row's block, if the rule can come to it. */
static void fill_target(const struct sampler_accept *op, int row, int j) {
    const struct sampler_buffers *b = &op->b;
    const struct slot *slot = &b->slot[b->row_slot[row]];
    if (slot->status != SLOT_LIVE || j > rule_drafted(slot->length, op->k, b->draft_positions)) return;
    size_t at = (size_t)row * (size_t)(op->k + 1) + (size_t)j;
    float *p = b->p_target + at * (size_t)b->vocab_target;
    const float *logits = b->target_logits + at * (size_t)b->target_stride;
    if (!distribution_of(vector_at(0), &slot->sampling, logits, b->vocab_target, p)) p[0] = NAN;
}

static void fill_part(const void *context, int part, int parts) {
    const struct sampler_accept *op = context;
    int block = op->k + 1;
    struct range rows = parallel_range(op->batch * block, part, parts);
    for (int i = rows.first; i < rows.end; i++) fill_target(op, i / block, i % block);
}

static void accept_part(const void *context, int part, int parts) {
    const struct sampler_accept *op = context;
    struct range rows = parallel_range(op->batch, part, parts);
    for (int row = rows.first; row < rows.end; row++) accept_row(op, row);
}

static int run_accept(const void *args) {
    const struct accept_args *a = args;
    const struct sampler_accept *op = &a->op;
    parallel_run(a->threads, work_of(op->batch * (op->k + 1), op->b.vocab_target), fill_part, op);
    parallel_run(a->threads, work_of(op->batch, op->b.vocab_target), accept_part, op);
    return 0;
}

/* --- the table -------------------------------------------------------------------------------------------- */

static int load_pending(struct stream *stream, const struct sampler_load *op) {
    TRY(sampler_check_shape("load_pending", &op->b, op->batch, 0));
    struct load_args args = {*op};
    return stream_run_host(stream, run_load_pending, &args, sizeof args);
}

static int draw(struct stream *stream, const struct sampler_draw *op) {
    TRY(sampler_check_shape("draw", &op->b, op->batch, op->index + 1));
    struct draw_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_draw, &args, sizeof args);
}

static int load_block(struct stream *stream, const struct sampler_load *op) {
    TRY(sampler_check_shape("load_block", &op->b, op->batch, op->k));
    struct load_args args = {*op};
    return stream_run_host(stream, run_load_block, &args, sizeof args);
}

static int accept(struct stream *stream, const struct sampler_accept *op) {
    TRY(sampler_check_shape("accept", &op->b, op->batch, op->k));
    struct accept_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_accept, &args, sizeof args);
}

const struct sampler_ops *sampler_host(void) {
    static const struct sampler_ops ops = {load_pending, draw, load_block, accept};
    return &ops;
}
