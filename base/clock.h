/* Monotonic time. */
#ifndef DUET_BASE_CLOCK_H
#define DUET_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_us(void); /* microseconds since an arbitrary start; never goes back */
int64_t
clock_thread_us(void); /* of processor time that the calling thread has had: other programs do not lengthen it */

#endif
