/* The rules that hold on every device, and the calls into the backend that does the work. */
#include "graphs/device.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "graphs/backend.h"

/* --- device ------------------------------------------------------------------------------------- */

static int open_any(struct device **out, const struct device_options *options) {
    if (device_open_cuda(out, options) == 0) return 0;
    char missing[sizeof(*out)->missing] = "";
    if (device_cuda_is_built()) snprintf(missing, sizeof missing, "%s", err_message());
    TRY(device_open_host(out, options));
    memcpy((*out)->missing, missing, sizeof missing);
    return 0;
}

static int open_named(struct device **out, const char *name, const struct device_options *options) {
    if (strcmp(name, "host") == 0) return device_open_host(out, options);
    if (strcmp(name, "cuda") == 0) return device_open_cuda(out, options);
    if (strcmp(name, "auto") != 0) return err_set(ERR_USAGE, "device '%s': expected auto, host or cuda", name);
    return open_any(out, options);
}

int device_open(struct device **out, const char *name, const struct device_options *options) {
    static const struct device_options defaults;
    if (!options) options = &defaults;
    *out = NULL;
    TRY(open_named(out, name, options));
    (*out)->checks_launches = options->check_launches;
    return 0;
}

void device_close(struct device *d) {
    if (d) d->backend->close(d);
}

int device_resume(struct device *d) {
    return d->backend->resume ? d->backend->resume(d) : 0;
}

void device_suspend(struct device *d) {
    if (d->backend->suspend) d->backend->suspend(d);
}

enum device_kind device_kind(const struct device *d) {
    return d->kind;
}

const char *device_name(const struct device *d) {
    return d->name;
}

const char *device_missing(const struct device *d) {
    return d->missing;
}

int device_threads(const struct device *d) {
    return d->threads;
}

bool device_is_async(const struct device *d) {
    return d->is_async;
}

bool device_set_early_starts(struct device *d, bool on) {
    d->starts_apart = !on;
    return d->can_start_early;
}

int device_memory(const struct device *d, uint64_t *free_bytes, uint64_t *total_bytes) {
    return d->backend->memory(d, free_bytes, total_bytes);
}

int device_refuse_capture(const struct device *d, const char *what) {
    if (d->capturing == 0) return 0;
    return err_set(ERR_INTERNAL, "%s is not allowed while a stream captures", what);
}

int device_alloc_arena(struct device *d, size_t bytes, void **out) {
    *out = NULL;
    TRY(device_refuse_capture(d, "allocating an arena"));
    if (bytes == 0) return 0;
    TRY(d->backend->alloc_arena(d, bytes, out));
    d->allocations++;
    return 0;
}

void device_free_arena(struct device *d, void *arena, size_t bytes) {
    if (arena) d->backend->free_arena(d, arena, bytes);
}

int device_alloc_pinned(struct device *d, size_t bytes, void **out) {
    *out = NULL;
    TRY(device_refuse_capture(d, "allocating pinned memory"));
    if (bytes == 0) return 0;
    TRY(d->backend->alloc_pinned(d, bytes, out));
    d->allocations++;
    return 0;
}

void device_free_pinned(struct device *d, void *memory) {
    if (memory) d->backend->free_pinned(d, memory);
}

uint64_t device_allocations(const struct device *d) {
    return d->allocations;
}

/* --- streams ------------------------------------------------------------------------------------ */

int stream_create(struct device *d, struct stream **out) {
    *out = NULL;
    TRY(device_refuse_capture(d, "creating a stream"));
    TRY(d->backend->stream_create(d, out));
    (*out)->device = d;
    (*out)->synchronises_before = d->synchronises;
    return 0;
}

void stream_destroy(struct stream *s) {
    if (!s) return;
    stream_abort_capture(s);
    s->device->backend->stream_destroy(s);
}

struct device *stream_device(const struct stream *s) {
    return s->device;
}

struct stream_counts stream_counts(const struct stream *s) {
    struct stream_counts counts = s->counts;
    counts.synchronises = s->device->synchronises - s->synchronises_before;
    return counts;
}

int stream_sync(struct stream *s) {
    TRY(device_refuse_capture(s->device, "stream_sync"));
    s->device->synchronises++;
    return s->device->backend->stream_sync(s);
}

bool stream_is_capturing(const struct stream *s) {
    return s->capture != NULL;
}

int stream_set_workspace(struct stream *s, void *workspace, size_t bytes) {
    TRY(device_refuse_capture(s->device, "setting a workspace"));
    return s->device->backend->set_workspace ? s->device->backend->set_workspace(s, workspace, bytes) : 0;
}

int stream_run_host(struct stream *s, stream_host_fn run, const void *args, size_t bytes) {
    if (!s->device->backend->run_host)
        return err_set(ERR_INTERNAL, "a host op was submitted to a stream of %s", s->device->name);
    if (bytes > STREAM_ARGS_MAX)
        return err_set(ERR_INTERNAL, "a host op has %zu bytes of arguments, at most %d fit", bytes, STREAM_ARGS_MAX);
    if (!s->capture) s->counts.kernel_launches++;
    return s->device->backend->run_host(s, run, args, bytes);
}

int stream_copy(struct stream *s, void *dst, const void *src, size_t bytes) {
    if (bytes == 0) return 0;
    if (!s->capture) s->counts.copies++;
    return s->device->backend->copy(s, dst, src, bytes);
}

int stream_fill(struct stream *s, void *dst, unsigned char byte, size_t bytes) {
    if (bytes == 0) return 0;
    if (!s->capture) s->counts.copies++;
    return s->device->backend->fill(s, dst, byte, bytes);
}

int stream_sum_words(struct stream *s, const void *words, size_t bytes, uint64_t *sum) {
    if (bytes % 16 != 0) return err_set(ERR_INTERNAL, "stream_sum_words: %zu bytes are no multiple of 16", bytes);
    return bytes > 0 ? s->device->backend->sum_words(s, words, bytes, sum) : 0;
}

/* --- events ------------------------------------------------------------------------------------- */

int event_create(struct device *d, struct event **out) {
    *out = NULL;
    TRY(device_refuse_capture(d, "creating an event"));
    TRY(d->backend->event_create(d, out));
    (*out)->device = d;
    return 0;
}

void event_destroy(struct event *e) {
    if (e) e->device->backend->event_destroy(e);
}

static int check_event_use(const struct event *e, const struct stream *s, const char *what) {
    if (e->device != s->device) return err_set(ERR_INTERNAL, "%s: the event is of another device", what);
    if (s->capture) return err_set(ERR_INTERNAL, "%s is not allowed in a capture; fork and join order streams", what);
    return 0;
}

int event_record(struct event *e, struct stream *s) {
    TRY(check_event_use(e, s, "event_record"));
    return e->device->backend->event_record(e, s);
}

int event_wait(struct event *e) {
    TRY(device_refuse_capture(e->device, "event_wait"));
    e->device->synchronises++;
    return e->device->backend->event_wait(e);
}

bool event_is_done(const struct event *e) {
    return e->device->backend->event_is_done(e);
}

int stream_wait_event(struct stream *s, struct event *e) {
    TRY(check_event_use(e, s, "stream_wait_event"));
    return e->device->backend->stream_wait_event(s, e);
}

int event_elapsed_ms(const struct event *start, const struct event *end, float *ms) {
    if (start->device != end->device) return err_set(ERR_INTERNAL, "event_elapsed_ms: events of two devices");
    TRY(device_refuse_capture(start->device, "event_elapsed_ms"));
    return start->device->backend->event_elapsed_ms(start, end, ms);
}

/* --- capture ------------------------------------------------------------------------------------ */

int stream_begin_capture(struct stream *s) {
    TRY(device_refuse_capture(s->device, "beginning a capture"));
    TRY(s->device->backend->begin_capture(s));
    s->capture = s;
    s->device->capturing++;
    return 0;
}

int stream_end_capture(struct stream *s, struct recording **out) {
    *out = NULL;
    if (s->capture != s) return err_set(ERR_INTERNAL, "stream_end_capture: the stream began no capture");
    s->capture = NULL;
    s->device->capturing--;
    TRY(s->device->backend->end_capture(s, out));
    (*out)->device = s->device;
    s->counts.captures++;
    return 0;
}

void stream_abort_capture(struct stream *s) {
    if (s->capture != s) return;
    s->capture = NULL;
    s->device->capturing--;
    s->device->backend->abort_capture(s);
}

int stream_fork(struct stream *origin, struct stream *side) {
    if (origin->capture != origin) return err_set(ERR_INTERNAL, "fork: the origin does not capture");
    if (side->device != origin->device) return err_set(ERR_INTERNAL, "fork: the side stream is of another device");
    if (side->capture) return err_set(ERR_INTERNAL, "fork: the side stream is part of a capture already");
    TRY(origin->device->backend->fork(origin, side));
    side->capture = origin;
    return 0;
}

int stream_join(struct stream *origin, struct stream *side) {
    if (side->capture != origin || side == origin)
        return err_set(ERR_INTERNAL, "join: the side stream was not forked off this capture");
    side->capture = NULL;
    return origin->device->backend->join(origin, side);
}

void recording_destroy(struct recording *r) {
    if (r) r->device->backend->recording_destroy(r);
}

int recording_nodes(const struct recording *r) {
    return r->nodes;
}

size_t recording_bytes(const struct recording *r) {
    return r->bytes;
}

int recording_launch(struct recording *r, struct stream *s) {
    if (r->device != s->device) return err_set(ERR_INTERNAL, "recording_launch: the stream is of another device");
    TRY(device_refuse_capture(s->device, "launching a recording"));
    s->counts.graph_launches++;
    return s->device->backend->launch(r, s);
}
