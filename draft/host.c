/* N-gram lookup, and histories, on the host device. */
#include "draft/ngram_internal.h"

static uint64_t find_best(const int32_t *t, int n) {
    uint64_t best = 0;
    for (int end = NGRAM_LEAST - 1; end < n - 1; end++) {
        uint64_t rank = t[end] == t[n - 1] ? ngram_rank(t, n, end) : 0;
        if (rank > best) best = rank;
    }
    return best;
}

static int run_search(const void *args) {
    const struct ngram_search *op = args;
    const struct round_state *b = &op->b;
    for (int row = 0; row < op->batch; row++) {
        int s = b->row_slot[row], n = b->slot[s].length;
        if (b->slot[s].status != SLOT_LIVE) continue;
        const int32_t *t = op->history.tokens + (size_t)s * (size_t)op->history.capacity;
        uint64_t best = find_best(t, n);
        int count = ngram_count(best, n, op->k);
        for (int j = 0; j < op->k; j++) ngram_store(b, s, j, j < count ? t[ngram_next(best) + j] : -1);
        b->offered[s] = count;
    }
    return 0;
}

static int run_append(const void *args) {
    const struct history_rows *op = args;
    for (int row = 0; row < op->batch; row++) {
        const struct round_record *r = &op->b.records[row];
        int32_t *t = op->history.tokens + (size_t)r->slot * (size_t)op->history.capacity;
        for (int i = 0; i < r->emitted; i++) t[r->length - r->emitted + i] = r->tokens[i];
    }
    return 0;
}

int ngram_search_host(struct stream *stream, const struct ngram_search *op) {
    return stream_run_host(stream, run_search, op, sizeof *op);
}

int history_append_host(struct stream *stream, const struct history_rows *op) {
    return stream_run_host(stream, run_append, op, sizeof *op);
}

static int run_load(const void *args) {
    const struct history_rows *op = args;
    const struct round_state *b = &op->b;
    const int each = op->first;
    for (int at = 0; at < op->batch * each; at++) {
        const int s = b->row_slot[at / each], place = b->slot[s].length - each + at % each,
                  position = history_position(b, &b->slot[s], place);
        const int32_t *t = op->history.tokens + (size_t)s * (size_t)op->history.capacity;
        b->draft_tokens[at] = position < 0 ? 0 : id_or_zero(t[place], b->vocab_input);
        b->draft_positions_in[at] = position;
    }
    return 0;
}

int history_load_host(struct stream *stream, const struct history_rows *op) {
    return stream_run_host(stream, run_load, op, sizeof *op);
}
