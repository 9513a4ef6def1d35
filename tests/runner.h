/* The main of a test runner: all suites of a table, or those named on the command line. */
#ifndef DUET_TESTS_RUNNER_H
#define DUET_TESTS_RUNNER_H

#include <check.h>

struct named_suite {
    const char *name;
    Suite *(*create)(void);
};

/* Returns the exit status. */
int run_suites(const struct named_suite *, int count, enum fork_status, int argc, char **argv);

#endif
