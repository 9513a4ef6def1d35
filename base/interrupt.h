/* How a caller ends a library's long work: a question that the work asks from time to time. */
#ifndef DUET_BASE_INTERRUPT_H
#define DUET_BASE_INTERRUPT_H

#include <stdbool.h>
#include <stddef.h>

struct interrupt {
    /* True: the work shall end, with ERR_INTERRUPTED. Called from the thread that does the work. NULL: never. */
    bool (*asked)(void *user);
    void *user;
};

static inline bool interrupt_asked(const struct interrupt *i) {
    return i && i->asked && i->asked(i->user);
}

#endif
