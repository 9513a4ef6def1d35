/* `duet batch` in the process of the test, so that its devices can be those of faulty_host.h and failing_device.h. */
#ifndef DUET_TESTS_BATCH_HERE_H
#define DUET_TESTS_BATCH_HERE_H

/* Over the embedded pair on test_device(), at most two lines at once, K = 2, seed 5, at most 12 tokens an answer. `lines` is
 * the input; records go to the file `out`, standard error to `err`. Returns the exit status. */
int batch_here(const char *lines, const char *out, const char *err);

/* Records that have been made since this was last set to 0, whether they were written or not. */
extern int records_made;

#endif
