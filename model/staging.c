#include "model/staging.h"

#include "base/err.h"

int staging_create(struct staging *s, struct stream *stream) {
    struct device *device = stream_device(stream);
    void *memory;
    *s = (struct staging){.stream = stream};
    TRY(device_alloc_pinned(device, (size_t)STAGING_BUFFERS * STAGING_BYTES, &memory));
    s->memory = memory;
    for (int i = 0; i < STAGING_BUFFERS; i++) TRY(event_create(device, &s->sent[i]));
    return 0;
}

void staging_destroy(struct staging *s) {
    for (int i = 0; i < STAGING_BUFFERS; i++) event_destroy(s->sent[i]);
    if (s->memory) device_free_pinned(stream_device(s->stream), s->memory);
    *s = (struct staging){0};
}

int staging_take(struct staging *s, void **buffer) {
    s->turn = (s->turn + 1) % STAGING_BUFFERS;
    struct event *sent = s->sent[s->turn];
    *buffer = s->memory + (size_t)s->turn * STAGING_BYTES;
    return event_is_done(sent) ? 0 : event_wait(sent);
}

int staging_send(struct staging *s, void *to, size_t bytes) {
    TRY(stream_copy(s->stream, to, s->memory + (size_t)s->turn * STAGING_BYTES, bytes));
    return event_record(s->sent[s->turn], s->stream);
}
