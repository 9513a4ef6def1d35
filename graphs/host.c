/* The host device: an op runs at once, or is appended to the recording while its stream captures.
 *
 * A recording is one block of nodes, each a header and a copy of the op's arguments, both multiples of 16
 * bytes. Replay walks the block. A forked stream appends to the recording of its origin, so submission
 * order is the order of the graph. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/parallel.h"
#include "graphs/backend.h"
#include "graphs/host_limits.h"

enum { NODE_ALIGN = 16, PINNED_ALIGN = 256 };

struct node {
    stream_host_fn run;
    size_t stride; /* bytes from this header to the next; the arguments follow the header */
};
_Static_assert(sizeof(struct node) % NODE_ALIGN == 0, "arguments stay aligned");

struct host_recording {
    struct recording common;
    unsigned char *block; /* 16-byte aligned by malloc */
    size_t len, cap;
};

struct host_stream {
    struct stream common;
    struct host_recording *recording; /* non-NULL while capturing; a forked stream borrows its origin's */
};

struct host_event {
    struct event common;
    bool recorded;
    int64_t time_us;
};

static int no_memory(const char *what, size_t bytes) {
    return err_set(ERR_MEMORY, "no memory for %s (%zu bytes)", what, bytes);
}

/* --- memory ------------------------------------------------------------------------------------- */

static void host_close(struct device *d) {
    free(d);
}

static int host_memory(const struct device *d, uint64_t *free_bytes, uint64_t *total_bytes) {
    (void)d;
    return host_limits_memory("", free_bytes, total_bytes);
}

static int host_alloc_arena(struct device *d, size_t bytes, void **out) {
    void *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED) {
        int reason = errno;
        uint64_t available = 0, total = 0;
        if (host_memory(d, &available, &total) != 0) available = 0;
        return err_set(ERR_MEMORY, "cannot have %zu bytes of host memory (%.1f GiB, %.1f GiB are free): %s", bytes,
                       (double)bytes / (1 << 30), (double)available / (1 << 30), strerror(reason));
    }
    *out = arena;
    return 0;
}

static void host_free_arena(struct device *d, void *arena, size_t bytes) {
    (void)d;
    munmap(arena, bytes);
}

static int host_alloc_pinned(struct device *d, size_t bytes, void **out) {
    (void)d;
    int rc = posix_memalign(out, PINNED_ALIGN, bytes);
    if (rc != 0) {
        *out = NULL;
        return no_memory("a staging buffer", bytes);
    }
    return 0;
}

static void host_free_pinned(struct device *d, void *memory) {
    (void)d;
    free(memory);
}

/* --- streams ------------------------------------------------------------------------------------ */

static int host_stream_create(struct device *d, struct stream **out) {
    (void)d;
    struct host_stream *s = calloc(1, sizeof *s);
    if (!s) return no_memory("a stream", sizeof *s);
    *out = &s->common;
    return 0;
}

static void host_stream_destroy(struct stream *s) {
    free(s);
}

static int host_stream_sync(struct stream *s) {
    (void)s;
    return 0;
}

static int recording_reserve(struct host_recording *r, size_t more) {
    if (r->cap - r->len >= more) return 0;
    size_t cap = r->cap ? r->cap : 4096;
    while (cap - r->len < more) cap *= 2;
    unsigned char *block = realloc(r->block, cap);
    if (!block) return no_memory("a recording", cap);
    r->block = block;
    r->cap = cap;
    return 0;
}

static int host_run(struct stream *stream, stream_host_fn run, const void *args, size_t bytes) {
    struct host_recording *r = ((struct host_stream *)stream)->recording;
    if (!r) return run(args);
    size_t padded = (bytes + NODE_ALIGN - 1) / NODE_ALIGN * NODE_ALIGN;
    struct node node = {.run = run, .stride = sizeof node + padded};
    TRY(recording_reserve(r, node.stride));
    memcpy(r->block + r->len, &node, sizeof node);
    if (bytes > 0) memcpy(r->block + r->len + sizeof node, args, bytes);
    r->len += node.stride;
    r->common.nodes++;
    return 0;
}

struct copy_args {
    void *dst;
    const void *src;
    size_t bytes;
};

static int run_copy(const void *args) {
    const struct copy_args *a = args;
    memcpy(a->dst, a->src, a->bytes);
    return 0;
}

static int host_copy(struct stream *s, void *dst, const void *src, size_t bytes) {
    struct copy_args args = {dst, src, bytes};
    return host_run(s, run_copy, &args, sizeof args);
}

struct fill_args {
    void *dst;
    size_t bytes;
    unsigned char byte;
};

static int run_fill(const void *args) {
    const struct fill_args *a = args;
    memset(a->dst, a->byte, a->bytes);
    return 0;
}

static int host_fill(struct stream *s, void *dst, unsigned char byte, size_t bytes) {
    struct fill_args args = {dst, bytes, byte};
    return host_run(s, run_fill, &args, sizeof args);
}

enum { WORDS_A_BLOCK = 1 << 16 };

struct sum_args {
    const uint64_t *words;
    size_t count;
    uint64_t *sum;
    int threads;
};
struct sum {
    const struct sum_args *args;
    _Atomic uint64_t *total;
};

/* In independent chains, so that loads and not the adds decide; checked by no sanitizer, which would be what is timed. */
__attribute__((no_sanitize("address", "undefined"))) static uint64_t sum_block(const uint64_t *words, size_t n) {
    uint64_t s[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) s[j] += words[i + (size_t)j];
    for (; i < n; i++) s[0] += words[i];
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static int sum_blocks(const struct sum_args *a) {
    return (int)((a->count + WORDS_A_BLOCK - 1) / WORDS_A_BLOCK);
}

static void sum_part(const void *context, int part, int parts) {
    const struct sum *s = context;
    struct range r = parallel_range(sum_blocks(s->args), part, parts);
    uint64_t sum = 0;
    for (int i = r.first; i < r.end; i++) {
        size_t first = (size_t)i * WORDS_A_BLOCK, left = s->args->count - first;
        sum += sum_block(s->args->words + first, left < WORDS_A_BLOCK ? left : WORDS_A_BLOCK);
    }
    *s->total += sum;
}

static int run_sum(const void *args) {
    const struct sum_args *a = args;
    _Atomic uint64_t total = 0;
    struct sum sum = {a, &total};
    parallel_run(a->threads, (int64_t)a->count, sum_part, &sum);
    *a->sum += total;
    return 0;
}

static int host_sum_words(struct stream *s, const void *words, size_t bytes, uint64_t *sum) {
    struct sum_args args = {words, bytes / sizeof(uint64_t), sum, s->device->threads};
    return stream_run_host(s, run_sum, &args, sizeof args);
}

/* --- events: a stream has done its work when the submission returns --------------------------------- */

static int host_event_create(struct device *d, struct event **out) {
    (void)d;
    struct host_event *e = calloc(1, sizeof *e);
    if (!e) return no_memory("an event", sizeof *e);
    *out = &e->common;
    return 0;
}

static void host_event_destroy(struct event *e) {
    free(e);
}

static int host_event_record(struct event *event, struct stream *s) {
    (void)s;
    struct host_event *e = (struct host_event *)event;
    e->recorded = true;
    e->time_us = clock_us();
    return 0;
}

static int host_event_wait(struct event *e) {
    (void)e;
    return 0;
}

static bool host_event_is_done(const struct event *e) {
    (void)e;
    return true;
}

static int host_stream_wait_event(struct stream *s, struct event *e) {
    (void)s, (void)e;
    return 0;
}

static int host_event_elapsed_ms(const struct event *start, const struct event *end, float *ms) {
    const struct host_event *a = (const struct host_event *)start, *b = (const struct host_event *)end;
    if (!a->recorded || !b->recorded) return err_set(ERR_INTERNAL, "event_elapsed_ms: an event was never recorded");
    *ms = (float)(b->time_us - a->time_us) / 1000.0f;
    return 0;
}

/* --- capture ------------------------------------------------------------------------------------ */

static void host_recording_destroy(struct recording *recording) {
    struct host_recording *r = (struct host_recording *)recording;
    free(r->block);
    free(r);
}

static int host_begin_capture(struct stream *stream) {
    struct host_recording *r = calloc(1, sizeof *r);
    if (!r) return no_memory("a recording", sizeof *r);
    ((struct host_stream *)stream)->recording = r;
    return 0;
}

static int host_end_capture(struct stream *stream, struct recording **out) {
    struct host_stream *s = (struct host_stream *)stream;
    struct host_recording *r = s->recording;
    s->recording = NULL;
    unsigned char *fitted = r->len > 0 ? realloc(r->block, r->len) : NULL;
    if (fitted) {
        r->block = fitted;
        r->cap = r->len;
    }
    r->common.bytes = sizeof *r + r->cap;
    *out = &r->common;
    return 0;
}

static void host_abort_capture(struct stream *stream) {
    struct host_stream *s = (struct host_stream *)stream;
    host_recording_destroy(&s->recording->common);
    s->recording = NULL;
}

static int host_fork(struct stream *origin, struct stream *side) {
    ((struct host_stream *)side)->recording = ((struct host_stream *)origin)->recording;
    return 0;
}

static int host_join(struct stream *origin, struct stream *side) {
    (void)origin;
    ((struct host_stream *)side)->recording = NULL;
    return 0;
}

static int host_launch(struct recording *recording, struct stream *s) {
    (void)s;
    const struct host_recording *r = (const struct host_recording *)recording;
    for (size_t at = 0; at < r->len;) {
        const struct node *node = (const struct node *)(const void *)(r->block + at);
        TRY(node->run(node + 1));
        at += node->stride;
    }
    return 0;
}

/* --- the device --------------------------------------------------------------------------------- */

static const struct backend host_backend = {
    .close = host_close,
    .memory = host_memory,
    .alloc_arena = host_alloc_arena,
    .free_arena = host_free_arena,
    .alloc_pinned = host_alloc_pinned,
    .free_pinned = host_free_pinned,
    .stream_create = host_stream_create,
    .stream_destroy = host_stream_destroy,
    .stream_sync = host_stream_sync,
    .run_host = host_run,
    .copy = host_copy,
    .fill = host_fill,
    .sum_words = host_sum_words,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_record = host_event_record,
    .event_wait = host_event_wait,
    .event_is_done = host_event_is_done,
    .stream_wait_event = host_stream_wait_event,
    .event_elapsed_ms = host_event_elapsed_ms,
    .begin_capture = host_begin_capture,
    .end_capture = host_end_capture,
    .abort_capture = host_abort_capture,
    .fork = host_fork,
    .join = host_join,
    .recording_destroy = host_recording_destroy,
    .launch = host_launch,
};

static const char *instruction_set(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return " (AVX-512)";
    if (__builtin_cpu_supports("avx2")) return " (AVX2)";
#elif defined(__aarch64__)
    return " (NEON)";
#endif
    return "";
}

int device_open_host(struct device **out, const struct device_options *options) {
    *out = NULL;
    if (options->threads < 0) return err_set(ERR_USAGE, "%d threads: expected 0 or more", options->threads);
    struct device *d = calloc(1, sizeof *d);
    if (!d) return no_memory("a device", sizeof *d);
    d->backend = &host_backend;
    d->kind = DEVICE_HOST;
    d->threads = options->threads > 0 ? options->threads : host_limits_threads("");
    snprintf(d->name, sizeof d->name, "host, %d thread%s%s", d->threads, d->threads == 1 ? "" : "s", instruction_set());
    *out = d;
    return 0;
}
