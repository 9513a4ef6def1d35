/* One shape for the host and the CUDA device: arenas, streams, events, capture.
 *
 * A stream is an ordered queue. On CUDA it is a cudaStream_t and capture is cudaStreamBeginCapture. On
 * the host an op is submitted as (function, arguments by value): it runs at once, or, while the stream
 * captures, is appended to the recording and does not run. So a host graph freezes scalars and keeps
 * addresses exactly as a CUDA graph does, and every capture fault (a host value baked in, an allocation
 * inside, a moved buffer) shows on a machine without a GPU.
 *
 * Threading: a device and its streams belong to one thread at a time, which has it selected: device_open selects, and
 * device_suspend and device_resume lead it to another thread, or leave the thread to GPUs of others. Host ops spread over threads
 * (base/parallel.h) inside one submission. Functions that are not marked "synchronises" never wait for the device;
 * only those marked "allocates" allocate. */
#ifndef DUET_GRAPHS_DEVICE_H
#define DUET_GRAPHS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum device_kind { DEVICE_HOST, DEVICE_CUDA };

struct device;
struct stream;
struct event;
struct recording; /* one captured, launchable graph of one device */

struct device_options {
    int threads; /* of work on the host: its ops, loading for any device; 0: the CPUs that affinity and cgroup allow */
    int gpu;     /* CUDA: which GPU, from 0 */
    /* Wait after every launch outside a capture, so that a fault is told of the kernel that made it. */
    bool check_launches;
};

/* --- device ------------------------------------------------------------------------------------- */

/* Opens "host", "cuda" or "auto" (cuda when this build has it and there is a GPU, else host). Allocates.
 * ERR_DEVICE with the reason when "cuda" cannot be had ("no CUDA device in this build"). */
int device_open(struct device **out, const char *name, const struct device_options *options);
/* A device that is not there, with so much free memory, to plan for: its kind and memory may be asked for, and nothing else. */
int device_open_planned(struct device **out, enum device_kind, uint64_t bytes);
bool device_is_planned(const struct device *);
bool device_cuda_is_built(void);    /* has this build the CUDA device? */
void device_close(struct device *); /* NULL is fine; its streams, events, recordings, arenas must be gone */

/* CUDA's calls mean the GPU that their thread has selected. Opening a device selects its GPU; suspending and closing it select the
 * one that this thread had before. Resuming one, on any thread, selects it again; not twice without a suspension between. */
int device_resume(struct device *);
void device_suspend(struct device *);

enum device_kind device_kind(const struct device *);
const char *device_name(const struct device *); /* "host, 8 threads (AVX-512)", "NVIDIA H200" */
/* After "auto" took the host in a build with CUDA: the reason, one sentence; else "". */
const char *device_missing(const struct device *);
int device_threads(const struct device *);   /* of device_options */
bool device_is_async(const struct device *); /* does work overlap with the caller? (CUDA: yes) */

/* Whether kernels may start while the one before them still runs (programmatic dependent launch): from the start, where the device
 * can. A recording keeps what held when it was captured. For measurements; false: this device has nothing of the kind. */
bool device_set_early_starts(struct device *, bool on);

/* Memory that arenas can come from: free now and in all, in bytes. On the host, what the machine and the
 * cgroup allow. */
int device_memory(const struct device *, uint64_t *free_bytes, uint64_t *total_bytes);

/* Arena memory of the device, 256-byte aligned, zeroed. Only graphs/pool.c calls these. Allocates.
 * The host arena is mapped lazily: untouched pages cost nothing. */
int device_alloc_arena(struct device *, size_t bytes, void **out);
void device_free_arena(struct device *, void *arena, size_t bytes);

/* Page-locked host memory for staging and result rings (ordinary memory on the host device). Allocates. */
int device_alloc_pinned(struct device *, size_t bytes, void **out);
void device_free_pinned(struct device *, void *memory);

/* Number of arena and pinned allocations since device_open, for tests that nothing allocates. */
uint64_t device_allocations(const struct device *);

/* --- streams ------------------------------------------------------------------------------------ */

/* What went through a stream since it was created; counted at submission, not inside replays. */
struct stream_counts {
    uint64_t graph_launches;  /* recordings replayed */
    uint64_t kernel_launches; /* ops submitted outside a capture */
    uint64_t copies;          /* copies and fills outside a capture */
    uint64_t synchronises;    /* host waits: stream_sync and event_wait on this device */
    uint64_t captures;        /* recordings made */
};

int stream_create(struct device *, struct stream **out); /* allocates */
void stream_destroy(struct stream *);
struct device *stream_device(const struct stream *);
struct stream_counts stream_counts(const struct stream *);
int stream_sync(struct stream *); /* synchronises: all submitted work is done; reports deferred errors */
bool stream_is_capturing(const struct stream *);
/* Lends `bytes` of arena memory to what works beside the ops of this stream: on CUDA the library that multiplies whole matrices, cuBLAS,
 * which is opened here and closed with the stream, and kernels whose blocks exchange sums; WORKSPACE_BYTES is enough for both. Other
 * devices ignore it. Once a stream; allocates, so before the pool is sealed. */
enum { WORKSPACE_BYTES = (32 + 26) << 20 };
int stream_set_workspace(struct stream *, void *workspace, size_t bytes);

/* The host op: `run(args)` with a copy of [args, args+bytes), bytes <= STREAM_ARGS_MAX. Host device only
 * (ERR_INTERNAL elsewhere). A non-zero result of `run` is an error: at once when running, at replay when
 * captured. The arguments hold addresses of pool slices and scalars; nothing else survives. */
enum { STREAM_ARGS_MAX = 1024 };
typedef int (*stream_host_fn)(const void *args);
int stream_run_host(struct stream *, stream_host_fn run, const void *args, size_t bytes);

/* Asynchronous copy in any direction between arena, pinned and ordinary host memory; capturable between
 * arena addresses. The source must not change before the copy is done: use pinned staging and an event. */
int stream_copy(struct stream *, void *dst, const void *src, size_t bytes);
int stream_fill(struct stream *, void *dst, unsigned char byte, size_t bytes);
/* Adds the 64-bit words of [words, words + bytes) to *sum, modulo 2^64: one launch that reads every byte once, as fast as the
 * device can read (the yardstick of `duet bench`). Device memory; `bytes` is a multiple of 16. */
int stream_sum_words(struct stream *, const void *words, size_t bytes, uint64_t *sum);

/* --- events ------------------------------------------------------------------------------------- */

int event_create(struct device *, struct event **out); /* allocates */
void event_destroy(struct event *);
int event_record(struct event *, struct stream *);
int event_wait(struct event *);                         /* synchronises: the host waits for the event */
bool event_is_done(const struct event *);               /* never waits; true if never recorded */
int stream_wait_event(struct stream *, struct event *); /* later work of the stream waits; the host does not */
int event_elapsed_ms(const struct event *start, const struct event *end, float *ms); /* both done */

/* --- capture ------------------------------------------------------------------------------------ */

/* Between begin and end, submissions are recorded and do not run. No allocation, synchronisation or
 * launch of another recording may happen on the device in between, nor an event be recorded or waited for on
 * the capturing stream (ERR_INTERNAL): an event outside means nothing at replay. Allocates. */
int stream_begin_capture(struct stream *);
int stream_end_capture(struct stream *, struct recording **out);
void stream_abort_capture(struct stream *); /* after an error inside a capture: drops the recording */

void recording_destroy(struct recording *);
int recording_nodes(const struct recording *);
size_t recording_bytes(const struct recording *); /* host memory of nodes and arguments, own count */
int recording_launch(struct recording *, struct stream *);

#endif
