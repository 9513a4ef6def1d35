#include "graphs/breakable.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "graphs/backend.h"

enum { SIDES_MAX = 8 };

/* Either a recording or an eager call. */
struct segment {
    struct recording *recording;
    graph_eager_fn fn;
    void *args; /* own copy */
};

struct breakable {
    struct stream *origin;
    bool is_open;                    /* between begin and end */
    struct stream *sides[SIDES_MAX]; /* forked now, in order of the forks */
    int side_count;
    struct segment *segments; /* [count] */
    int count, cap;
    size_t args_bytes;
};

static int append_segment(struct breakable *g, struct segment segment) {
    if (g->count == g->cap) {
        int cap = g->cap ? 2 * g->cap : 4;
        struct segment *segments = realloc(g->segments, (size_t)cap * sizeof *segments);
        if (!segments) return err_set(ERR_MEMORY, "no memory for a graph of %d segments", cap);
        g->segments = segments;
        g->cap = cap;
    }
    g->segments[g->count++] = segment;
    return 0;
}

/* --- capture ------------------------------------------------------------------------------------ */

static int begin_segment(struct breakable *g) {
    TRY(stream_begin_capture(g->origin));
    g->origin->breakable = g;
    for (int i = 0; i < g->side_count; i++) TRY(stream_fork(g->origin, g->sides[i]));
    return 0;
}

/* Joins the sides but remembers them, so that begin_segment forks them again. */
static int end_segment(struct breakable *g) {
    for (int i = 0; i < g->side_count; i++) TRY(stream_join(g->origin, g->sides[i]));
    g->origin->breakable = NULL;
    struct recording *recording;
    TRY(stream_end_capture(g->origin, &recording));
    int rc = 0;
    if (recording_nodes(recording) > 0) {
        rc = append_segment(g, (struct segment){.recording = recording});
        if (rc == 0) return 0;
    }
    recording_destroy(recording);
    return rc;
}

static int append_eager(struct breakable *g, graph_eager_fn fn, const void *args, size_t bytes) {
    void *copy = NULL;
    if (bytes > 0) {
        copy = malloc(bytes);
        if (!copy) return err_set(ERR_MEMORY, "no memory for the arguments of a break (%zu bytes)", bytes);
        memcpy(copy, args, bytes);
    }
    int rc = append_segment(g, (struct segment){.fn = fn, .args = copy});
    if (rc != 0)
        free(copy);
    else
        g->args_bytes += bytes;
    return rc;
}

static int check_open(const struct breakable *g, const char *what) {
    if (g->is_open) return 0;
    return err_set(ERR_INTERNAL, "%s: the capture of this graph has ended", what);
}

int breakable_begin(struct breakable **out, struct stream *stream) {
    struct breakable *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return err_set(ERR_MEMORY, "no memory for a graph");
    g->origin = stream;
    int rc = begin_segment(g);
    if (rc != 0) {
        free(g);
        return rc;
    }
    g->is_open = true;
    *out = g;
    return 0;
}

int graph_break(struct breakable *g, graph_eager_fn fn, const void *args, size_t bytes) {
    TRY(check_open(g, "graph_break"));
    TRY(end_segment(g));
    TRY(append_eager(g, fn, args, bytes));
    return begin_segment(g);
}

int graph_run_eager(struct stream *stream, graph_eager_fn fn, const void *args, size_t bytes) {
    if (!stream->capture) return fn(stream, args);
    if (stream->capture->breakable) return graph_break(stream->capture->breakable, fn, args, bytes);
    return err_set(ERR_INTERNAL, "an eager call is not allowed in a capture that cannot be broken");
}

int graph_fork(struct breakable *g, struct stream *side) {
    TRY(check_open(g, "graph_fork"));
    if (g->side_count == SIDES_MAX) return err_set(ERR_INTERNAL, "graph_fork: more than %d forks", SIDES_MAX);
    TRY(stream_fork(g->origin, side));
    g->sides[g->side_count++] = side;
    return 0;
}

int graph_join(struct breakable *g, struct stream *side) {
    TRY(check_open(g, "graph_join"));
    TRY(stream_join(g->origin, side));
    int at = 0;
    while (g->sides[at] != side) at++;
    g->side_count--;
    memmove(&g->sides[at], &g->sides[at + 1], (size_t)(g->side_count - at) * sizeof g->sides[0]);
    return 0;
}

int breakable_end(struct breakable *g) {
    TRY(check_open(g, "breakable_end"));
    TRY(end_segment(g));
    g->side_count = 0;
    g->is_open = false;
    return 0;
}

void breakable_abort(struct breakable *g) {
    if (!g) return;
    for (int i = 0; i < g->side_count; i++)
        if (g->sides[i]->capture == g->origin) stream_join(g->origin, g->sides[i]);
    g->origin->breakable = NULL;
    stream_abort_capture(g->origin);
    g->is_open = false;
    breakable_destroy(g);
}

/* --- replay ------------------------------------------------------------------------------------- */

int breakable_launch(struct breakable *g, struct stream *stream) {
    if (g->is_open) return err_set(ERR_INTERNAL, "breakable_launch: this graph is still being captured");
    TRY(device_refuse_capture(stream->device, "launching a graph"));
    for (int i = 0; i < g->count; i++) {
        const struct segment *segment = &g->segments[i];
        if (segment->recording)
            TRY(recording_launch(segment->recording, stream));
        else
            TRY(segment->fn(stream, segment->args));
    }
    return 0;
}

int breakable_segments(const struct breakable *g) {
    return g->count;
}

int breakable_nodes(const struct breakable *g) {
    int nodes = 0;
    for (int i = 0; i < g->count; i++)
        if (g->segments[i].recording) nodes += recording_nodes(g->segments[i].recording);
    return nodes;
}

size_t breakable_bytes(const struct breakable *g) {
    size_t bytes = sizeof *g + (size_t)g->cap * sizeof *g->segments + g->args_bytes;
    for (int i = 0; i < g->count; i++)
        if (g->segments[i].recording) bytes += recording_bytes(g->segments[i].recording);
    return bytes;
}

void breakable_destroy(struct breakable *g) {
    if (!g) return;
    if (g->is_open) {
        breakable_abort(g);
        return;
    }
    for (int i = 0; i < g->count; i++) {
        recording_destroy(g->segments[i].recording);
        free(g->segments[i].args);
    }
    free(g->segments);
    free(g);
}
