/* The graphs of one model, keyed by (kind, batch, q_len). What a kind is, the caller knows; here it has a name.
 *
 * A set owns capture (largest bucket first: warm up eagerly, capture, keep), the choice of the bucket for
 * a number of live rows, and replay. What a graph does is the caller's `build` function, which submits the
 * ops of one key to a stream; the same function is the eager path of --graphs off. The caller pads the
 * batch to its bucket with the dummy sequence (slot 0).
 *
 * Modes: GRAPHS_ON replays recordings; GRAPHS_OFF calls build each time; GRAPHS_DEBUG goes through capture
 * and replay with one break around everything, so that every op runs eagerly and a debugger can step in.
 *
 * Policies: POW2 (default), STEP8 and STEP16 (powers of 2 up to the step, then its multiples) capture all their buckets at
 * start-up; EXACT captures a batch on first use and evicts the least recently used beyond `exact_max`: the one stated exception to
 * "no capture after start-up". What kernels do once, at their first launch, happens at start-up there too, for the keys that the
 * caller names by graph_set_warm_up: such that every kernel runs once. */
#ifndef DUET_GRAPHS_GRAPH_SET_H
#define DUET_GRAPHS_GRAPH_SET_H

#include "base/progress.h"
#include "graphs/device.h"
#include "graphs/pool.h"

enum graph_mode { GRAPHS_ON, GRAPHS_OFF, GRAPHS_DEBUG };
enum bucket_policy { BUCKETS_POW2, BUCKETS_STEP8, BUCKETS_STEP16, BUCKETS_EXACT };

struct graph_key {
    int kind;  /* 0 .. kind_count - 1 */
    int batch; /* rows of the bucket, padding included */
    int q_len; /* tokens a row */
};

/* Submits the work of `key` to `stream`: once per warm-up, once per capture, once per eager call. A warm-up (on
 * asynchronous devices, whose kernels load at their first launch) runs the work for real on the persistent
 * buffers: at graph_set_capture the caller has put them into a state in which every key is harmless (all rows
 * serve the dummy sequence). */
typedef int (*graph_build_fn)(void *user, struct stream *stream, struct graph_key key);

struct graph_set_options {
    const char *name;              /* "draft", "target": for progress and reports */
    const char *const *kind_names; /* [kind_count], which outlive the set */
    int kind_count;
    enum graph_mode mode;
    enum bucket_policy policy;
    int max_batch; /* 1..256 */
    int exact_max; /* EXACT: recordings kept; 0: 32 */
    graph_build_fn build;
    void *user;
    const struct pool *pool; /* its generation is stored in each graph and checked at replay */
    struct stream *stream;   /* captures and warm-ups run here */
    struct progress progress;
};

struct graph_set;

/* Copies the options. Nothing is captured yet. Allocates. */
int graph_set_create(struct graph_set **out, const struct graph_set_options *);
void graph_set_destroy(struct graph_set *);

/* The smallest bucket that holds `batch` rows: the one function that gives the shape to capture and the
 * shape to replay. 1 <= batch <= max_batch (0 otherwise); the largest bucket is max_batch itself. */
int graph_set_bucket(const struct graph_set *, int batch);

/* Declares that (kind, q_len) will be replayed at every bucket; once more changes nothing. Before
 * graph_set_capture. */
int graph_set_add(struct graph_set *, int kind, int q_len);
/* The same for a kind of which there is one row at a time: a batch of 1 alone. */
int graph_set_add_single(struct graph_set *, int kind, int q_len);
/* With EXACT: this declared key runs once at start-up, as those of the largest batch do. Before graph_set_capture. */
int graph_set_warm_up(struct graph_set *, struct graph_key key);

/* Captures all declared keys at all buckets, largest first (for EXACT and OFF the warm-up alone). Once; progress names the
 * bucket and the device's free memory. Allocates, synchronises. On error the set holds what was captured until then. */
int graph_set_capture(struct graph_set *);

/* Replays the graph of `key`. ERR_INTERNAL if key.batch is no bucket, or the pool's generation changed since the
 * capture. A key that was not captured runs eagerly and is counted as a fallback (in mode OFF every key runs
 * eagerly, and nothing is counted). EXACT captures a declared key here: its first launch is the warm-up and does
 * the work, so that no work runs twice on live state; only then this allocates. */
int graph_set_launch(struct graph_set *, struct graph_key key, struct stream *stream);

/* From here on every launch is eager, as with OFF, and the graphs are kept; or not any more. For measurements. */
void graph_set_run_eagerly(struct graph_set *, bool on);

struct graph_info {
    struct graph_key key;
    int segments, nodes;
    float capture_ms;
    size_t bytes; /* from our own counters */
    uint64_t replays;
};
int graph_set_count(const struct graph_set *);
const char *graph_set_kind_name(const struct graph_set *, int kind);
struct graph_info graph_set_info(const struct graph_set *, int index); /* in order of capture */

/* EXACT: graphs that are kept at a time, of all that a first use may capture; 0: all were captured at start-up. */
int graph_set_kept_on_use(const struct graph_set *);
/* What was declared, as keys of the largest batch that each has. */
int graph_set_shape_count(const struct graph_set *);
struct graph_key graph_set_shape(const struct graph_set *, int index);

struct graph_set_counts {
    uint64_t replays, eager_fallbacks, captures, evictions;
    int64_t capture_us; /* in graph_set_capture: warm-ups and captures */
};
struct graph_set_counts graph_set_counts(const struct graph_set *);

#endif
