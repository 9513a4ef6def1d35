/* Inside of a device, for graphs/ and for the files of one backend; not for users of devices.
 *
 * device.c owns the rules (what is refused in a capture, what is counted) and calls a backend for the work.
 * A backend allocates its own streams, events and recordings, each beginning with the common part below,
 * and fills in what is marked "backend"; device.c fills in the rest. Backends need not check what device.c
 * has checked: arguments of one device, no capture where none is allowed. */
#ifndef DUET_GRAPHS_BACKEND_H
#define DUET_GRAPHS_BACKEND_H

#include "graphs/device.h"

struct breakable;

struct device {
    const struct backend *backend; /* backend */
    enum device_kind kind;         /* backend */
    bool is_async;                 /* backend */
    bool can_start_early;          /* backend */
    bool starts_apart;             /* device_set_early_starts */
    int threads;                   /* backend */
    char name[96];                 /* backend */
    char missing[128];             /* why "auto" found no GPU for this build's CUDA device; "": nothing is missing */
    bool checks_launches;          /* device_options */
    int capturing;                 /* streams that capture now, forked ones not counted */
    uint64_t allocations, synchronises;
};

struct stream {
    struct device *device;
    struct stream *capture;      /* NULL: runs; itself: captures; another: forked off that capture */
    struct breakable *breakable; /* the breakable graph that captures this stream, or NULL */
    struct stream_counts counts;
    uint64_t synchronises_before; /* the device's count when the stream was created */
};

struct event {
    struct device *device;
};

struct recording {
    struct device *device;
    int nodes;    /* backend */
    size_t bytes; /* backend */
};

struct backend {
    void (*close)(struct device *);
    int (*resume)(struct device *);   /* NULL: threads have nothing selected */
    void (*suspend)(struct device *); /* likewise */
    int (*memory)(const struct device *, uint64_t *free_bytes, uint64_t *total_bytes);
    int (*alloc_arena)(struct device *, size_t bytes, void **out); /* bytes > 0 */
    void (*free_arena)(struct device *, void *arena, size_t bytes);
    int (*alloc_pinned)(struct device *, size_t bytes, void **out); /* bytes > 0 */
    void (*free_pinned)(struct device *, void *memory);

    int (*stream_create)(struct device *, struct stream **out);
    void (*stream_destroy)(struct stream *);
    int (*stream_sync)(struct stream *);                                                  /* reports deferred errors */
    int (*set_workspace)(struct stream *, void *workspace, size_t bytes);                 /* NULL: has no use for one */
    int (*run_host)(struct stream *, stream_host_fn run, const void *args, size_t bytes); /* NULL: not a host */
    int (*copy)(struct stream *, void *dst, const void *src, size_t bytes);               /* bytes > 0 */
    int (*fill)(struct stream *, void *dst, unsigned char byte, size_t bytes);            /* bytes > 0 */

    int (*sum_words)(struct stream *, const void *words, size_t bytes, uint64_t *sum); /* bytes > 0, of 16 */

    int (*event_create)(struct device *, struct event **out);
    void (*event_destroy)(struct event *);
    int (*event_record)(struct event *, struct stream *);
    int (*event_wait)(struct event *); /* reports deferred errors */
    bool (*event_is_done)(const struct event *);
    int (*stream_wait_event)(struct stream *, struct event *);
    int (*event_elapsed_ms)(const struct event *start, const struct event *end, float *ms);

    int (*begin_capture)(struct stream *);
    int (*end_capture)(struct stream *,
                       struct recording **out); /* ready to launch; the capture is over even on error */
    void (*abort_capture)(struct stream *);
    int (*fork)(struct stream *origin, struct stream *side); /* side's work becomes part of origin's capture */
    int (*join)(struct stream *origin, struct stream *side); /* origin's later work comes after side's */
    void (*recording_destroy)(struct recording *);           /* may still be in flight */
    int (*launch)(struct recording *, struct stream *);
};

/* Opens the one device of a backend. device_open_cuda: ERR_DEVICE if this build or machine has none. */
int device_open_host(struct device **out, const struct device_options *);
int device_open_cuda(struct device **out, const struct device_options *);

/* ERR_INTERNAL with a sentence about `what` while a stream of the device captures, else 0. */
int device_refuse_capture(const struct device *, const char *what);

/* Makes `side` part of the capture of `origin`, and takes it out again. Only graphs/breakable.c calls these.
 * stream_join of an origin that stopped capturing only takes `side` out. */
int stream_fork(struct stream *origin, struct stream *side);
int stream_join(struct stream *origin, struct stream *side);

#endif
