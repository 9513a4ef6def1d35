/* Any device of the runners, with one call that fails: the linker's --wrap leads device_open_host (by faulty_host.c)
 * and device_open_cuda through here, and every call of such a device's backend is counted. */
#ifndef DUET_TESTS_FAILING_DEVICE_H
#define DUET_TESTS_FAILING_DEVICE_H

#include <stdbool.h>

struct device;

/* The calls of struct backend that can fail, in its order, after the opening of the device itself. */
enum device_call {
    CALL_OPEN,
    CALL_MEMORY,
    CALL_ALLOC_ARENA,
    CALL_ALLOC_PINNED,
    CALL_STREAM_CREATE,
    CALL_STREAM_SYNC,
    CALL_SET_WORKSPACE,
    CALL_RUN_HOST, /* of the host device alone: an op submitted */
    CALL_COPY,
    CALL_FILL,
    CALL_EVENT_CREATE,
    CALL_EVENT_RECORD,
    CALL_EVENT_WAIT,
    CALL_STREAM_WAIT_EVENT,
    CALL_EVENT_ELAPSED,
    CALL_BEGIN_CAPTURE,
    CALL_END_CAPTURE,
    CALL_FORK,
    CALL_JOIN,
    CALL_LAUNCH,
    DEVICE_CALLS
};
extern const char *const device_call_names[DEVICE_CALLS];

/* A test sets the first part before it opens an engine; with `watches` unset devices are as they are. */
struct failing_device {
    bool watches;
    enum device_call call;
    int at; /* that call of the kind fails, the first being 1; 0: none */
    bool for_good;

    int calls[DEVICE_CALLS];
    int failed; /* calls */
    int astray; /* calls on a thread that does not have the device selected, and selections of one that does (device.h) */
    int live;   /* devices, arenas, pinned memory, streams, events and recordings that were made and not destroyed */
};
extern struct failing_device failing_device;

/* What every failed call says, with ERR_MEMORY where memory was asked for, else ERR_DEVICE. */
#define DEVICE_GONE "the device went away"

/* Has the device that was just opened go through here, if failing_device.watches. */
void failing_device_watch(struct device *);
/* CALL_OPEN: 0, or the error that opening a device fails with. */
int failing_device_open(void);

#endif
