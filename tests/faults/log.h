/* What the interposer (interpose.c, in the program that is tested) and the tests (program.c) say to each other: what is to
 * fail, in the environment, and what was called, in a file that both map. */
#ifndef DUET_TESTS_FAULTS_LOG_H
#define DUET_TESTS_FAULTS_LOG_H

#include <stdint.h>

/* What can fail. Memory, maps and threads fail where the program or a library calls the function by its name. The rest
 * fail at the system call, so that those count too which the C library makes for stdio; what the loader and a sanitizer
 * do for themselves never fails, nor does what is written to standard error. */
enum fault_kind {
    FAULT_MEMORY, /* malloc, calloc, realloc, posix_memalign, aligned_alloc; strdup and all that ends in one of them */
    FAULT_MAP,    /* mmap */
    FAULT_THREAD, /* pthread_create */
    FAULT_OPEN,   /* open, openat */
    FAULT_READ,   /* read, pread, readv */
    FAULT_WRITE,  /* write, pwrite, writev */
    FAULT_CLOSE,
    FAULT_STAT, /* stat, fstat, access */
    FAULT_CUT,  /* ftruncate */
    FAULT_SYNC, /* fsync, fdatasync */
    FAULT_KINDS
};

/* How call number `at` fails, the first being 1. */
enum fault_how {
    FAULT_NEVER,    /* every call is counted, its stack recorded */
    FAULT_ONCE,     /* with the error given */
    FAULT_FOR_GOOD, /* that one and all later ones of the kind */
    FAULT_SHORT,    /* reads or writes half of what was asked, once */
    FAULT_TORN,     /* half, and all later ones fail: a disk that fills up */
};

/* $DUET_FAULT: "KIND AT HOW ERRNO", numbers; $DUET_FAULT_LOG: the file, sizeof(struct fault_log) bytes of zeros;
 * $DUET_FAULT_WATCH: a file whose size at the first fault is kept. */
enum { FAULT_DEPTH = 28, FAULT_CALLS_MAX = 1 << 18, FAULT_MODULES_MAX = 24, FAULT_MODULE_SHIFT = 48 };

/* A call and who made it: return addresses, innermost first, as an offset in a module and the module's index above
 * FAULT_MODULE_SHIFT. Without FAULT_NEVER only the first call that failed is recorded. */
struct fault_call {
    uint32_t kind, depth;
    uint64_t frames[FAULT_DEPTH];
};

struct fault_log {
    uint32_t armed;           /* main began */
    uint32_t sees_system;     /* system calls are watched too */
    uint32_t failed;          /* calls that failed */
    uint32_t recorded;        /* of call[] */
    int64_t watched_bytes;    /* -1: no such file */
    uint32_t at[FAULT_KINDS]; /* calls so far */
    char module[FAULT_MODULES_MAX][256];
    struct fault_call call[FAULT_CALLS_MAX];
};

#endif
