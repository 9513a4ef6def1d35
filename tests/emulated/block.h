/* A block of threads on one OS thread: each of its threads is a fiber, which runs until it meets others. */
#ifndef DUET_EMULATED_BLOCK_H
#define DUET_EMULATED_BLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <vector_types.h>

#include <functional>

namespace emulated {

enum { WARP = 32, THREADS_MAX = 1024, WARPS_MAX = THREADS_MAX / WARP, BARRIERS = 16 };

/* What lanes of a warp brought to where they met: of[i] is lane i's, for the bits of mask. */
struct meeting {
    uint32_t mask;
    void *of[WARP];
};
typedef void (*action)(struct meeting &);

struct copies; /* cp.async of a thread */

struct lane {
    uint3 thread;
    int index; /* in its block */
    struct block *block;
    void *stack_pointer;
    action waits_for; /* NULL: for no lanes of its warp */
    uint32_t mask;
    void *brought;
    struct copies *copies;
    unsigned turn; /* of the cluster's barrier, when it arrived */
};

/* Lanes as bits. One that is in none of these waits at a barrier. */
struct warp {
    uint32_t exist, ended, runnable, waiting;
};

struct barrier {
    int arrived;
    int sum, result; /* of what arrived with a number */
    uint32_t waiting[WARPS_MAX];
};

struct launch {
    const char *name;
    dim3 grid, block;
    size_t shared;
    int cluster;   /* blocks along x that can read each other's shared memory */
    bool together; /* all blocks run at once */
    std::function<void()> call;
};

struct block {
    const struct launch *launch;
    uint3 grid, dim, index;
    int threads, live;
    unsigned char *shared; /* dynamic, launch->shared bytes */
    char *anchor;          /* near which this OS thread has its static __shared__ variables */
    int rank;              /* in its cluster */
    struct block **peers;  /* the blocks of its cluster */
    struct cluster_gate *gate;
    struct warp warps[WARPS_MAX];
    struct barrier barriers[BARRIERS];
    struct lane lanes[THREADS_MAX];
    void *main_stack_pointer;
};

/* The thread that runs. Plain, so that a read of it is one instruction. */
extern __thread struct lane *self;

/* Runs all blocks; returns when they ended. */
void run(const struct launch &);

/* The lanes of `mask` meet; the last one acts for all of them. */
void meet(uint32_t mask, action act, void *brought);
/* Barrier `id` of so many threads, 0: of all that live; the sum of what they brought. */
int wait_at(int id, int threads, int value);
void arrive_at(int id, int threads);
/* All threads of all blocks of the cluster. */
void cluster_arrive();
void cluster_wait();
/* Lets others run, where a thread waits in a loop. */
void pause();

/* Shared memory by its 32-bit address, of which bits 24 and up are a block's rank in its cluster. */
uint32_t shared_address(const void *);
void *shared_at(uint32_t address, size_t bytes);
uint32_t address_of_rank(uint32_t address, uint32_t rank);

/* Says what is wrong where, and ends the process. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A number from the environment. */
long option(const char *name, long otherwise);

} /* namespace emulated */

#endif
