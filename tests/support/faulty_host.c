#include "tests/support/faulty_host.h"

#include <signal.h>

#include "base/err.h"
#include "graphs/backend.h"
#include "tests/support/failing_device.h"
#include "tests/support/support.h"

struct faulty_host faulty_host;

int __real_device_open_host(struct device **out, const struct device_options *options);
int __wrap_device_open_host(struct device **out, const struct device_options *options);

static const struct backend *host;

/* --- events, watched -------------------------------------------------------------------------------------------- */

/* In order of the stream: what was recorded with a serial above `waited` may be unfinished. */
enum { WATCHED = 1024 };
static struct watched {
    const struct event *event;
    int serial;        /* of the last record */
    bool is_read;      /* by event_elapsed_ms since then */
    bool is_ever_read; /* it is a mark */
} watched[WATCHED];
static int last_serial, waited;

static struct watched *watch(const struct event *e) {
    int at = 0;
    while (watched[at].event && watched[at].event != e) at++;
    ck_assert_int_lt(at + 1, WATCHED);
    watched[at].event = e;
    return &watched[at];
}

/* --- copies that come late ----------------------------------------------------------------------------------------- */

/* In order of the stream: copies, and records of events among them (`event` set). */
enum { LATE = 256 };
static struct late {
    struct event *event;
    struct stream *stream;
    void *dst;
    const void *src;
    size_t bytes;
} late[LATE];
static int late_count;

static struct late *push_late(void) {
    ck_assert_int_lt(late_count, LATE);
    return &late[late_count++];
}

/* Those before the last record of `e`, or all. */
static int catch_up(const struct event *e) {
    int end = late_count;
    while (e && end > 0 && late[end - 1].event != e) end--;
    for (int i = 0; i < end; i++)
        if (!late[i].event) TRY(host->copy(late[i].stream, late[i].dst, late[i].src, late[i].bytes));
    for (int i = end; i < late_count; i++) late[i - end] = late[i];
    late_count -= end;
    return 0;
}

static bool is_done(const struct event *e) {
    for (int i = 0; i < late_count; i++)
        if (late[i].event == e) return false;
    return host->event_is_done(e);
}

static int copy(struct stream *s, void *dst, const void *src, size_t bytes) {
    if (!faulty_host.copies_late || s->capture) return host->copy(s, dst, src, bytes);
    *push_late() = (struct late){.stream = s, .dst = dst, .src = src, .bytes = bytes};
    return 0;
}

static int run_host(struct stream *s, stream_host_fn run, const void *args, size_t bytes) {
    TRY(catch_up(NULL));
    return host->run_host(s, run, args, bytes);
}

static int fill(struct stream *s, void *dst, unsigned char byte, size_t bytes) {
    TRY(catch_up(NULL));
    return host->fill(s, dst, byte, bytes);
}

static int sync_stream(struct stream *s) {
    TRY(catch_up(NULL));
    return host->stream_sync(s);
}

/* --- events ------------------------------------------------------------------------------------------------------ */

static int record(struct event *e, struct stream *s) {
    if (++faulty_host.records == faulty_host.interrupt_at) raise(SIGINT);
    if (faulty_host.records == faulty_host.fail_at) return err_set(ERR_DEVICE, "the device went away");
    if (faulty_host.watch_events) {
        struct watched *w = watch(e);
        ck_assert_msg(!w->is_ever_read || w->serial > waited || w->is_read,
                      "an event was used again before it was read");
        ck_assert_msg(!w->is_ever_read || w->serial <= waited, "an event was used again before it was done");
        w->serial = ++last_serial;
        w->is_read = false;
    }
    if (late_count > 0) push_late()->event = e;
    return host->event_record(e, s);
}

static int elapsed_ms(const struct event *start, const struct event *end, float *ms) {
    if (!faulty_host.watch_events) return host->event_elapsed_ms(start, end, ms);
    struct watched *a = watch(start), *b = watch(end);
    ck_assert_msg(b->serial <= waited, "an event was read before it was done");
    ck_assert_int_eq(b->serial, a->serial + 1);
    a->is_read = b->is_read = a->is_ever_read = b->is_ever_read = true;
    faulty_host.marks_read++;
    *ms = 1;
    return 0;
}

static int wait_event(struct event *e) {
    if (faulty_host.waits > 0 && --faulty_host.waits == 0) faulty_host.waits = -1;
    if (faulty_host.waits < 0) return err_set(ERR_DEVICE, "the device went away");
    if (faulty_host.watch_events && watch(e)->serial > waited) waited = watch(e)->serial;
    TRY(catch_up(e));
    return host->event_wait(e);
}

static void destroy_event(struct event *e) {
    if (faulty_host.watch_events) *watch(e) = (struct watched){.event = (const struct event *)watched};
    host->event_destroy(e);
}

/* --- the device --------------------------------------------------------------------------------------------------- */

static int memory(const struct device *d, uint64_t *free_bytes, uint64_t *total_bytes) {
    TRY(host->memory(d, free_bytes, total_bytes));
    if (faulty_host.free_bytes > 0) *free_bytes = faulty_host.free_bytes;
    return 0;
}

int __wrap_device_open_host(struct device **out, const struct device_options *options) {
    static struct backend faulty;
    TRY(failing_device_open());
    TRY(__real_device_open_host(out, options));
    late_count = 0;
    if ((*out)->backend != &faulty) host = (*out)->backend;
    faulty = *host;
    faulty.memory = memory;
    faulty.copy = copy, faulty.fill = fill, faulty.run_host = run_host;
    faulty.stream_sync = sync_stream, faulty.event_is_done = is_done;
    faulty.event_record = record;
    faulty.event_wait = wait_event;
    faulty.event_elapsed_ms = elapsed_ms;
    faulty.event_destroy = destroy_event;
    (*out)->backend = &faulty;
    if (faulty_host.is_async) (*out)->is_async = true;
    failing_device_watch(*out);
    return 0;
}
