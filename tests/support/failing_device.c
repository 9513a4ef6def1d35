#include "tests/support/failing_device.h"

#include "base/err.h"
#include "graphs/backend.h"

struct failing_device failing_device;

const char *const device_call_names[DEVICE_CALLS] = {
    "open",
    "memory",
    "alloc_arena",
    "alloc_pinned",
    "stream_create",
    "stream_sync",
    "set_workspace",
    "host",
    "copy",
    "fill",
    "event_create",
    "event_record",
    "event_wait",
    "stream_wait_event",
    "event_elapsed_ms",
    "begin_capture",
    "end_capture",
    "fork",
    "join",
    "launch",
};

/* Per kind: what a device had before. A process may have one of each. */
static const struct backend *inner[2];
static struct backend watching[2];

static const struct backend *of(const struct device *d) {
    return inner[d->kind];
}

/* device_resume and device_suspend; one device at a time. */
static _Thread_local bool is_selected;

static int resume(struct device *d) {
    if (is_selected) failing_device.astray++;
    is_selected = true;
    return of(d)->resume ? of(d)->resume(d) : 0;
}

static void suspend(struct device *d) {
    is_selected = false;
    if (of(d)->suspend) of(d)->suspend(d);
}

static bool fails(enum device_call call) {
    int at = ++failing_device.calls[call];
    if (!is_selected && call != CALL_OPEN) failing_device.astray++;
    if (call != failing_device.call || failing_device.at == 0 || at < failing_device.at) return false;
    if (at > failing_device.at && !failing_device.for_good) return false;
    failing_device.failed++;
    return true;
}

static int refuse(enum device_call call) {
    bool is_memory = call == CALL_ALLOC_ARENA || call == CALL_ALLOC_PINNED;
    return err_set(is_memory ? ERR_MEMORY : ERR_DEVICE, DEVICE_GONE);
}

static int made(int rc) {
    if (rc == 0) failing_device.live++;
    return rc;
}

/* A call that is refused, or passed on. */
#define PASS_ON(call, device, name, ...)      return fails(call) ? refuse(call) : of(device)->name(__VA_ARGS__)
#define PASS_ON_MADE(call, device, name, ...) return fails(call) ? refuse(call) : made(of(device)->name(__VA_ARGS__))
#define PASS_ON_DESTROYED(device, name, ...)       \
    do {                                           \
        failing_device.live--;                     \
        if (!is_selected) failing_device.astray++; \
        of(device)->name(__VA_ARGS__);             \
    } while (0)

/* --- the device -------------------------------------------------------------------------------------------------- */

static void close_device(struct device *d) {
    PASS_ON_DESTROYED(d, close, d);
    is_selected = false;
}
static int memory(const struct device *d, uint64_t *free_bytes, uint64_t *total_bytes) {
    PASS_ON(CALL_MEMORY, d, memory, d, free_bytes, total_bytes);
}
static int alloc_arena(struct device *d, size_t bytes, void **out) {
    PASS_ON_MADE(CALL_ALLOC_ARENA, d, alloc_arena, d, bytes, out);
}
static void free_arena(struct device *d, void *arena, size_t bytes) {
    PASS_ON_DESTROYED(d, free_arena, d, arena, bytes);
}
static int alloc_pinned(struct device *d, size_t bytes, void **out) {
    PASS_ON_MADE(CALL_ALLOC_PINNED, d, alloc_pinned, d, bytes, out);
}
static void free_pinned(struct device *d, void *pinned) {
    PASS_ON_DESTROYED(d, free_pinned, d, pinned);
}

/* --- streams ------------------------------------------------------------------------------------------------------- */

static int create_stream(struct device *d, struct stream **out) {
    PASS_ON_MADE(CALL_STREAM_CREATE, d, stream_create, d, out);
}
static void destroy_stream(struct stream *s) {
    PASS_ON_DESTROYED(s->device, stream_destroy, s);
}
static int sync_stream(struct stream *s) {
    PASS_ON(CALL_STREAM_SYNC, s->device, stream_sync, s);
}
static int set_workspace(struct stream *s, void *workspace, size_t bytes) {
    PASS_ON(CALL_SET_WORKSPACE, s->device, set_workspace, s, workspace, bytes);
}
static int run_host(struct stream *s, stream_host_fn run, const void *args, size_t bytes) {
    PASS_ON(CALL_RUN_HOST, s->device, run_host, s, run, args, bytes);
}
static int copy(struct stream *s, void *dst, const void *src, size_t bytes) {
    PASS_ON(CALL_COPY, s->device, copy, s, dst, src, bytes);
}
static int fill(struct stream *s, void *dst, unsigned char byte, size_t bytes) {
    PASS_ON(CALL_FILL, s->device, fill, s, dst, byte, bytes);
}

/* --- events -------------------------------------------------------------------------------------------------------- */

static int create_event(struct device *d, struct event **out) {
    PASS_ON_MADE(CALL_EVENT_CREATE, d, event_create, d, out);
}
static void destroy_event(struct event *e) {
    PASS_ON_DESTROYED(e->device, event_destroy, e);
}
static int record_event(struct event *e, struct stream *s) {
    PASS_ON(CALL_EVENT_RECORD, s->device, event_record, e, s);
}
static int wait_event(struct event *e) {
    PASS_ON(CALL_EVENT_WAIT, e->device, event_wait, e);
}
static int wait_for_event(struct stream *s, struct event *e) {
    PASS_ON(CALL_STREAM_WAIT_EVENT, s->device, stream_wait_event, s, e);
}
static int elapsed_ms(const struct event *start, const struct event *end, float *ms) {
    PASS_ON(CALL_EVENT_ELAPSED, start->device, event_elapsed_ms, start, end, ms);
}

/* --- capture ------------------------------------------------------------------------------------------------------- */

static int begin_capture(struct stream *s) {
    PASS_ON(CALL_BEGIN_CAPTURE, s->device, begin_capture, s);
}

/* The capture is over even on error. */
static int end_capture(struct stream *s, struct recording **out) {
    if (!fails(CALL_END_CAPTURE)) return made(of(s->device)->end_capture(s, out));
    of(s->device)->abort_capture(s);
    return refuse(CALL_END_CAPTURE);
}
static int fork_stream(struct stream *origin, struct stream *side) {
    PASS_ON(CALL_FORK, origin->device, fork, origin, side);
}
static int join_stream(struct stream *origin, struct stream *side) {
    bool refused = fails(CALL_JOIN);
    int rc = of(origin->device)->join(origin, side); /* the side leaves the capture in any case */
    return refused ? refuse(CALL_JOIN) : rc;
}
static void destroy_recording(struct recording *r) {
    PASS_ON_DESTROYED(r->device, recording_destroy, r);
}
static int launch(struct recording *r, struct stream *s) {
    PASS_ON(CALL_LAUNCH, s->device, launch, r, s);
}

/* --- opening ------------------------------------------------------------------------------------------------------- */

int failing_device_open(void) {
    return failing_device.watches && fails(CALL_OPEN) ? refuse(CALL_OPEN) : 0;
}

void failing_device_watch(struct device *d) {
    if (!failing_device.watches) return;
    struct backend *b = &watching[d->kind];
    if (d->backend != b) inner[d->kind] = d->backend;
    *b = *inner[d->kind]; /* event_is_done and abort_capture as they are */
    b->close = close_device, b->memory = memory;
    b->resume = resume, b->suspend = suspend;
    b->alloc_arena = alloc_arena, b->free_arena = free_arena;
    b->alloc_pinned = alloc_pinned, b->free_pinned = free_pinned;
    b->stream_create = create_stream, b->stream_destroy = destroy_stream, b->stream_sync = sync_stream;
    if (b->set_workspace) b->set_workspace = set_workspace;
    if (b->run_host) b->run_host = run_host;
    b->copy = copy, b->fill = fill;
    b->event_create = create_event, b->event_destroy = destroy_event;
    b->event_record = record_event, b->event_wait = wait_event;
    b->stream_wait_event = wait_for_event, b->event_elapsed_ms = elapsed_ms;
    b->begin_capture = begin_capture, b->end_capture = end_capture;
    b->fork = fork_stream, b->join = join_stream;
    b->recording_destroy = destroy_recording, b->launch = launch;
    d->backend = b;
    is_selected = true;
    failing_device.live++;
}

int __real_device_open_cuda(struct device **out, const struct device_options *options);
int __wrap_device_open_cuda(struct device **out, const struct device_options *options);

int __wrap_device_open_cuda(struct device **out, const struct device_options *options) {
    TRY(failing_device_open());
    TRY(__real_device_open_cuda(out, options));
    failing_device_watch(*out);
    return 0;
}
