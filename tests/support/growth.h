/* How the cost of something grows with its size, as a ratio within one run: no figure of a machine comes into it. */
#ifndef DUET_TESTS_GROWTH_H
#define DUET_TESTS_GROWTH_H

#include "base/buf.h"

struct growth {
    const char *what;
    size_t n;                   /* the small size; the large one is 16 times that */
    void *(*prepare)(size_t n); /* what `run` works on */
    void (*run)(void *);        /* several times on the same */
    void (*drop)(void *);
};

/* Fails the test if 16 times the size costs more than 64 times the processor time: 16 is linear, 20 to 24 is n log n, 256 is
 * quadratic. The least of several runs counts, and a ratio above the bound is measured again before it is believed. */
void must_grow_like_n_log_n(const struct growth *);

#define GROWTH_COUNT(table) (int)(sizeof(table) / sizeof *(table))

void text_repeat(struct buf *out, const char *unit, size_t times);
/* A text on the heap: `head`, n times `unit`, `tail`. */
void *grown_text(const char *head, const char *unit, size_t n, const char *tail);
void drop_text(void *);

/* A `prepare` of that name. */
#define GROWN_TEXT(name, head, unit, tail)      \
    static void *name(size_t n) {               \
        return grown_text(head, unit, n, tail); \
    }

#endif
