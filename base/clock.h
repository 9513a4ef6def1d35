/* Monotonic time. */
#ifndef DUET_BASE_CLOCK_H
#define DUET_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_us(void); /* microseconds since an arbitrary start; never goes back */

/* Processor time of the calling thread, and of all threads of the process: other programs do not lengthen it. */
int64_t clock_thread_us(void);
int64_t clock_process_us(void);

#endif
