/* What the program promises when a call fails:
 *
 * - It ends by itself, soon, and by no signal.
 * - If it ends as the run without fault does, with the same status and nothing more on standard error, then all its output
 *   is the same, byte for byte.
 * - Otherwise the status is 1, and standard error has a line "duet: ..." that says why, and no other kind of line.
 * - What is left then of an output is as enum leaves says: above all, an output file has whole records, in order, none of
 *   which is wrong, and every record that was written before the fault; or it is as it was before the run.
 * - A read or write that does less than it was asked for, or is interrupted, and a thread that cannot be had, change nothing. */
#ifndef DUET_TESTS_FAULTS_PROMISE_H
#define DUET_TESTS_FAULTS_PROMISE_H

#include "tests/faults/run.h"

enum verdict { SAME, SAID, BROKEN };

/* How a run with a fault ended, beside the run without. BROKEN: `why` is what it did not keep, in a few words. */
enum verdict promise_check(const struct scenario *, const struct ending *reference, const struct ending *,
                           const struct fault *, const struct fault_log *, struct buf *why);

#endif
