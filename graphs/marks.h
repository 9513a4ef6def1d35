/* Points in time along a stream, to measure what lies between them without waiting.
 *
 * A mark is an event. Its cost is the record alone: some 1 us of the host and of the stream on CUDA, a clock reading on the
 * host device. Marks of work that has been waited for are read by marks_ms; only then the list may be used again. */
#ifndef DUET_GRAPHS_MARKS_H
#define DUET_GRAPHS_MARKS_H

#include "graphs/device.h"

struct marks {
    struct event **events; /* [cap] */
    int count, cap;        /* recorded since marks_restart; events there are */
};

int marks_create(struct marks *, struct device *, int cap); /* allocates */
void marks_destroy(struct marks *);
void marks_restart(struct marks *);
/* Records the next mark; nothing if `marks` is NULL. ERR_INTERNAL past the last one. */
int marks_add(struct marks *, struct stream *);
/* Milliseconds between mark i and mark i + 1; both are done. */
int marks_ms(const struct marks *, int i, float *ms);

#endif
