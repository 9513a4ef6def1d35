/* How a library reports long work (loading, capture, batch) without printing: a callback of the caller. */
#ifndef DUET_BASE_PROGRESS_H
#define DUET_BASE_PROGRESS_H

#include <stdint.h>

struct progress {
    /* `what` is a short phrase ("loading target", "capturing draft (batch 8, q 2)"), done of total units.
     * Called from the thread that does the work. NULL: no report. */
    void (*report)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
};

static inline void progress_report(const struct progress *p, const char *what, int64_t done, int64_t total) {
    if (p && p->report) p->report(p->user, what, done, total);
}

#endif
