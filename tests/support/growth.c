#include "tests/support/growth.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/support.h"

enum { RUNS = 5, TRIES = 3, FACTOR = 16, BOUND = 64 };
static const double ENOUGH_S = 0.3, FLOOR_S = 20e-6; /* below, a clock's own cost counts */

/* Of this thread alone: other processes take none of it. */
static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cost_s(const struct growth *g, size_t n) {
    void *input = g->prepare(n);
    double least = 1e9, total = 0;
    for (int i = 0; i < RUNS && (i == 0 || total < ENOUGH_S); i++) {
        double start = now_s();
        g->run(input);
        double took = now_s() - start;
        total += took;
        if (took < least) least = took;
    }
    g->drop(input);
    return least;
}

void must_grow_like_n_log_n(const struct growth *g) {
    double small = 0, large = 0;
    const size_t n = SANITIZED ? g->n / 4 : g->n;
    for (int i = 0; i < TRIES; i++) {
        small = cost_s(g, n), large = cost_s(g, n * FACTOR);
        if (small < FLOOR_S) small = FLOOR_S;
        if (large <= BOUND * small) return;
    }
    ck_abort_msg("%s: %zu take %.3f ms, %zu take %.3f ms, %.0f times as long", g->what, n, small * 1e3, n * FACTOR,
                 large * 1e3, large / small);
}

void text_repeat(struct buf *out, const char *unit, size_t times) {
    buf_reserve(out, strlen(unit) * times);
    for (size_t i = 0; i < times; i++) buf_puts(out, unit);
}

void *grown_text(const char *head, const char *unit, size_t n, const char *tail) {
    struct buf *text = calloc(1, sizeof *text);
    require(text != NULL, "no memory");
    buf_puts(text, head);
    text_repeat(text, unit, n);
    buf_puts(text, tail);
    return text;
}

void drop_text(void *text) {
    buf_free(text);
    free(text);
}
