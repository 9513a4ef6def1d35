/* The faults of one scenario: which calls fail, one run for each, and what was found. */
#ifndef DUET_TESTS_FAULTS_CAMPAIGN_H
#define DUET_TESTS_FAULTS_CAMPAIGN_H

#include <stdio.h>

#include "tests/faults/promise.h"

/* Which calls fail. Two calls are alike if the same functions of the program lead to them. */
enum effort {
    EFFORT_SITES,  /* the first call of those whose three innermost functions are alike; for good, one of four of these;
                   * of sites that an earlier campaign has had, one of eight (campaign_share) */
    EFFORT_STACKS, /* the first and the last call of those with the same stack */
    EFFORT_CALLS,  /* every call */
};

struct tally {
    uint32_t calls, sites; /* in the run without fault */
    uint32_t faults;       /* runs with a fault */
    uint32_t missed;       /* that call did not come */
    uint32_t same, said;   /* endings that keep the promise */
    uint32_t late, signals, broken;
};

/* Faults of the kinds of a mask, counted together. Prints every broken promise to `out`: scenario, kind, call, what was broken,
 * the stack of the call. Those of one site that broke the same are one line. false: the interposer has no force here, which
 * is so where a sanitizer is part of the program itself, or the kernel has no filters for system calls. */
bool campaign_run(const struct scenario *, unsigned kinds, enum effort, struct tally *, FILE *out);

/* From now on campaigns of this process and of its children know of each other's sites; before that, none does. */
void campaign_share(void);

/* Fails the Check test that it is in if a promise was broken, one call a site; skips it where there is no force. */
void campaign_expect(const struct scenario *, unsigned kinds);

extern const char *const fault_kind_names[FAULT_KINDS];

/* "inner FILE:LINE < outer FILE:LINE < ...", the program's own functions and one of a library before them. */
void stack_describe(const struct fault_log *, const struct fault_call *, struct buf *out);

#endif
