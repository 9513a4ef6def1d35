/* The program that the test ran last, for suites whose tests look at one run at a time. */
#ifndef DUET_TESTS_LAST_PROGRAM_H
#define DUET_TESTS_LAST_PROGRAM_H

#include "tests/support/program.h"

extern struct program last;

/* As program_run, in place of the one before. */
void last_run(const char *input, const char *const *arguments);
void last_expect_ok(void);
/* One line on standard error, nothing on standard output. */
void last_expect_error(int status, const char *part);
/* On standard output. */
void last_expect_out(const char *part);

#endif
