/* A breakable graph: a list of segments, each a recording or an eager call.
 *
 * graph_break inside a capture ends the running segment, stores the call, and begins the next segment.
 * Work that was forked onto other streams is joined before the break and forked again after it. What an
 * eager call produces lies in persistent buffers that the later segments read. */
#ifndef DUET_GRAPHS_BREAKABLE_H
#define DUET_GRAPHS_BREAKABLE_H

#include "graphs/device.h"

struct breakable;

/* An eager call of a replay: submits work to `stream`. `args` is a copy made at capture. */
typedef int (*graph_eager_fn)(struct stream *stream, const void *args);

/* Starts capturing on `stream`. Allocates. */
int breakable_begin(struct breakable **out, struct stream *stream);
int graph_break(struct breakable *, graph_eager_fn fn, const void *args, size_t bytes);
/* For code that submits work and does not know whether it is captured: a break where `stream` belongs to the
 * capture of a breakable graph, else a call of `fn` now. */
int graph_run_eager(struct stream *stream, graph_eager_fn fn, const void *args, size_t bytes);
/* Forks `side` off the capturing stream, so that work submitted to it is part of the same graph. */
int graph_fork(struct breakable *, struct stream *side);
int graph_join(struct breakable *, struct stream *side);
/* Ends the capture; forks that were not joined are joined here. */
int breakable_end(struct breakable *);
/* After an error between begin and end, breakable_end's own included: ends the capture, destroys the graph. */
void breakable_abort(struct breakable *);

/* Replays the segments in order. Stops at the first error. */
int breakable_launch(struct breakable *, struct stream *);
int breakable_segments(const struct breakable *); /* recordings without nodes are dropped */
int breakable_nodes(const struct breakable *);    /* of the recordings; eager calls are not counted */
size_t breakable_bytes(const struct breakable *);
void breakable_destroy(struct breakable *);

#endif
