/* Launches of the penalty, and what they do on the host device. */
#include "sampler/penalty.h"

#include "base/err.h"
#include "base/parallel.h"
#include "sampler/internal.h"
#include "sampler/penalty_rules.h"

/* --- the host device ---------------------------------------------------------------------------------------- */

struct penalise_args {
    struct penalise op;
    int rows, threads;
};
_Static_assert(sizeof(struct penalise_args) <= STREAM_ARGS_MAX, "arguments fit a submission");

static void penalise_part(const void *context, int part, int parts) {
    const struct penalise_args *a = context;
    const struct round_state *b = &a->op.b;
    struct range rows = parallel_range(a->rows, part, parts);
    for (int i = rows.first; i < rows.end; i++) {
        const struct penalised_row r = penalised_row_at(&a->op, i);
        if (r.slot < 0) continue;
        for (int word = 0; word < b->seen_words; word++) penalise_word(b, &r, word);
        for (int j = 0; j < r.index; j++) penalise_drafted(b, &r, j);
    }
}

static int run_penalise(const void *args) {
    const struct penalise_args *a = args;
    parallel_run(a->threads, (int64_t)a->rows * a->op.b.seen_words, penalise_part, a);
    return 0;
}

static int run_mark_seen(const void *args) {
    const struct mark_seen *op = args;
    for (int row = 0; row < op->batch; row++) {
        const struct round_record *record = &op->b.records[row];
        uint32_t *seen = op->b.seen + (size_t)record->slot * (size_t)op->b.seen_words;
        for (int i = 0; i < record->emitted; i++) seen[record->tokens[i] / 32] |= 1u << record->tokens[i] % 32;
    }
    return 0;
}

/* --- launches ----------------------------------------------------------------------------------------------- */

int sampler_penalise(struct stream *stream, const struct penalise *op) {
    TRY(round_check_shape("penalise", &op->b, op->batch, op->of_draft ? op->index + 1 : op->k));
    struct penalise_args args = {*op, op->of_draft ? op->batch : op->batch * (op->k + 1),
                                 device_threads(stream_device(stream))};
    if (device_kind(stream_device(stream)) == DEVICE_CUDA) return sampler_penalise_cuda(stream, op, args.rows);
    return stream_run_host(stream, run_penalise, &args, sizeof args);
}

int sampler_mark_seen(struct stream *stream, const struct mark_seen *op) {
    TRY(round_check_shape("mark_seen", &op->b, op->batch, 0));
    if (device_kind(stream_device(stream)) == DEVICE_CUDA) return sampler_mark_seen_cuda(stream, op);
    return stream_run_host(stream, run_mark_seen, op, sizeof *op);
}
