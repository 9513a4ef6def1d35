#include "draft/history.h"

#include <string.h>

#include "base/err.h"

enum { STAGE_TOK = 2048 };

int history_create(struct history_store *h, struct device *device) {
    void *staging;
    h->device = device;
    if (device_is_planned(device)) return 0; /* which copies nothing */
    TRY(device_alloc_pinned(device, 2 * STAGE_TOK * sizeof *h->staging, &staging));
    h->staging = staging;
    TRY(event_create(device, &h->staged[0]));
    return event_create(device, &h->staged[1]);
}

void history_destroy(struct history_store *h) {
    for (int i = 0; i < 2; i++) event_destroy(h->staged[i]);
    if (h->staging) device_free_pinned(h->device, h->staging);
}

int history_layout(struct history_store *h, int slots, const struct model_limits *limits, struct pool *pool) {
    void *at;
    h->history.capacity = limits->rope_positions;
    const size_t tokens = (size_t)slots * (size_t)h->history.capacity;
    TRY(pool_slice(pool, POOL_SCRATCH, "token history", tokens * sizeof *h->history.tokens, &at));
    h->history.tokens = at;
    return 0;
}

static int stage(struct history_store *h, struct stream *stream, int32_t *to, const int32_t *tokens, int count) {
    h->turn ^= 1;
    struct event *staged = h->staged[h->turn];
    int32_t *staging = h->staging + h->turn * STAGE_TOK;
    if (!event_is_done(staged)) TRY(event_wait(staged));
    memcpy(staging, tokens, (size_t)count * sizeof *tokens);
    TRY(stream_copy(stream, to, staging, (size_t)count * sizeof *tokens));
    return event_record(staged, stream);
}

int history_begin(struct history_store *h, struct stream *stream, const struct proposer_turn *t) {
    int32_t *row = h->history.tokens + (size_t)t->slot * (size_t)h->history.capacity;
    for (int first = t->old_length; first < t->length; first += STAGE_TOK) {
        const int left = t->length - first;
        TRY(stage(h, stream, row + first, t->tokens + first, left < STAGE_TOK ? left : STAGE_TOK));
    }
    return 0;
}

static bool is_on_gpu(const struct stream *stream) {
    return device_kind(stream_device(stream)) == DEVICE_CUDA;
}

int history_append(struct stream *stream, const struct history_rows *op) {
    TRY(round_check_shape("history_append", &op->b, op->batch, 0));
    return is_on_gpu(stream) ? history_append_cuda(stream, op) : history_append_host(stream, op);
}

int history_load(struct stream *stream, const struct history_rows *op) {
    TRY(round_check_shape("history_load", &op->b, op->batch, 0));
    return is_on_gpu(stream) ? history_load_cuda(stream, op) : history_load_host(stream, op);
}
