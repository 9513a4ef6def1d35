/* An op whose result says in which order ops ran: out = 10 * in + digit. On a GPU it takes its time before it reads, so that
 * what should have waited and did not shows. */
#ifndef DUET_TESTS_DIGIT_OPS_H
#define DUET_TESTS_DIGIT_OPS_H

#include <stdint.h>

#include "graphs/device.h"

struct digit_op {
    int32_t *out;
    const int32_t *in;
    int32_t digit;
};

int digit_run(struct stream *, const struct digit_op *);
int digit_run_cuda(struct stream *, const struct digit_op *);

#endif
