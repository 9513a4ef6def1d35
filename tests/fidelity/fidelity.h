/* The fidelity suite: speculation changes speed and nothing else, claim by claim, each with its figure.
 *
 * A group runs some claims and adds a row for each. It runs inside a Check test, so that the helpers of other suites may
 * fail it; rows lie in memory that outlives a forked test. Everything is seeded: a run gives the same figures again. */
#ifndef DUET_TESTS_FIDELITY_H
#define DUET_TESTS_FIDELITY_H

#include <stdbool.h>

#include "tests/support/engine_support.h"

enum fidelity_state { FIDELITY_FAIL, FIDELITY_PASS, FIDELITY_SKIPPED };

struct fidelity_row {
    char claim[80], sample[48], figure[64], bound[32];
    enum fidelity_state state;
};

struct fidelity {
    bool small; /* sizes for `make test` */
    int count;
    struct fidelity_row rows[24];
};

struct fidelity_group {
    const char *name;
    void (*run)(struct fidelity *);
};
enum { FIDELITY_GROUPS = 16 };
extern const struct fidelity_group fidelity_groups[FIDELITY_GROUPS];

/* Adds a row: what was tested on how much, the figure, and the bound that it keeps if `holds`. */
void fidelity_add(struct fidelity *, bool holds, const char *claim, const char *sample, const char *figure,
                  const char *bound);
/* Adds a row for a claim that cannot be tested here. */
void fidelity_skip(struct fidelity *, const char *claim, const char *why);
/* printf into one of eight static buffers in turn. */
const char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A count with a comma at every thousand; a buffer as text's. */
const char *count_text(int64_t n);

/* A number of turns, tokens or the like: in full, small, and under sanitizers, where all is ten times slower. */
int64_t fidelity_size(const struct fidelity *, int64_t full, int64_t small);

/* --- groups ----------------------------------------------------------------------------------------------------- */

void fidelity_plain(struct fidelity *);
void fidelity_token(struct fidelity *);
void fidelity_coupled(struct fidelity *);
void fidelity_block(struct fidelity *);
void fidelity_ngram(struct fidelity *);
void fidelity_auto_token(struct fidelity *);
void fidelity_auto_coupled(struct fidelity *);
void fidelity_auto_block(struct fidelity *);
void fidelity_auto_texts(struct fidelity *);
void fidelity_controls(struct fidelity *);
void fidelity_greedy(struct fidelity *);
void fidelity_sampled(struct fidelity *);
void fidelity_caches(struct fidelity *);
void fidelity_graphs(struct fidelity *);
void fidelity_ends(struct fidelity *);
void fidelity_figures(struct fidelity *);

#endif
