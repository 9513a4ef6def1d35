/* The host device of the runners, with faults to order. device_open_host goes through here (the linker's --wrap, see the
 * Makefile); with everything zero it is the host device itself. */
#ifndef DUET_TESTS_FAULTY_HOST_H
#define DUET_TESTS_FAULTY_HOST_H

#include "graphs/device.h"

/* Read when a device is opened and at each call; a test sets it before it opens an engine. */
struct faulty_host {
    bool is_async;       /* devices say that they work while the host goes on, so that graph sets warm up */
    uint64_t free_bytes; /* device_memory says so much is free; 0: the truth */
    int waits;           /* event_wait fails with ERR_DEVICE after so many; 0: never */
    bool watch_events;   /* checks the use of events as if work were done only once it was waited for */
    bool
        copies_late; /* what a copy reads and writes is looked at when the host waits for it, or submits an op, and not before */
    int marks_read;   /* event_elapsed_ms calls with watch_events */
    int records;      /* event_record calls: one a chunk of a prompt, one a prompt, one a round */
    int interrupt_at; /* the process gets a SIGINT in that one; 0: never */
    int fail_at;      /* that one fails with ERR_DEVICE; 0: none */
};
extern struct faulty_host faulty_host;

#endif
