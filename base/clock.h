/* Monotonic time. */
#ifndef DUET_BASE_CLOCK_H
#define DUET_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_us(void); /* microseconds since an arbitrary start; never goes back */

#endif
