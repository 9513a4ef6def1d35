/* Draws on the host device: rows are spread over threads. */
#include "base/parallel.h"
#include "sampler/internal.h"
#include "sampler/vector.h"

/* What a submission freezes: the header's arguments and the number of threads. */
struct draw_args {
    struct sampler_draw op;
    int threads;
};
_Static_assert(sizeof(struct draw_args) <= STREAM_ARGS_MAX, "arguments fit a submission");

static void draw_row(const struct sampler_draw *op, int row) {
    const struct round_state *b = &op->b;
    int s = b->row_slot[row];
    const struct slot *slot = &b->slot[s];
    b->draft_tokens[row] = 0;
    b->draft_positions_in[row] = -1;
    if (slot->status != SLOT_LIVE) return;

    const struct vector *v = vector_at(0);
    float *p = round_p_draft(b, s, op->index);
    const float *logits = round_draft_logits(b, row, op->index);
    struct rule_stream from = rule_stream(b->rule, slot->length, op->index, PHILOX_DRAFT_DRAW);
    int drawn = -1;
    if (distribution_of(v, &slot->sampling, logits, b->vocab_draft, p))
        drawn = v->race(p, b->vocab_draft, b->draft_ids, slot->key, from.subsequence, from.purpose);
    else
        p[0] = NAN;
    b->drafted[s * b->k_max + op->index] = drawn;
    b->offered[s] = rule_offered(b, slot->length, op->index);
    b->draft_positions_in[row] = rule_position(b, slot->length, op->index);
    if (b->draft_positions_in[row] >= 0) b->draft_tokens[row] = id_or_zero(drawn, b->vocab_input);
}

static void draw_part(const void *context, int part, int parts) {
    const struct sampler_draw *op = context;
    struct range rows = parallel_range(op->batch, part, parts);
    for (int row = rows.first; row < rows.end; row++) draw_row(op, row);
}

static int run_draw(const void *args) {
    const struct draw_args *a = args;
    parallel_run(a->threads, vector_work(a->op.batch, a->op.b.vocab_draft), draw_part, &a->op);
    return 0;
}

int sampler_draw_host(struct stream *stream, const struct sampler_draw *op) {
    struct draw_args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run_draw, &args, sizeof args);
}
