#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    WORK_MIN = 1 << 17,      /* below: one part; some microseconds of one thread */
    PART_WORK_MIN = 1 << 15, /* of a part */
    PARTS_A_THREAD = 4,
    HELPERS_MAX = 255,
    SPINS_OF_CALLER = 1000, /* then it lets others run between looks */
    SPINS_OF_HELPER = 2000, /* then it sleeps */
};

/* `ticket` is the loop's number (32 bits), the helpers that may take part (16) and the parts not yet taken (16), so
 * that a part is taken from the loop that was looked at or not at all. `run`, `context` and `parts` belong to who
 * has taken a part, and stay until `unfinished` is 0. */
static struct {
    _Atomic uint64_t ticket;
    _Atomic int unfinished;
    parallel_fn run;
    const void *context;
    int parts;
    atomic_flag is_taken;
    int helpers;
    _Atomic int sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
} team = {.is_taken = ATOMIC_FLAG_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static int parts_left(uint64_t ticket) {
    return (int)(ticket & 0xFFFF);
}
static int helpers_allowed(uint64_t ticket) {
    return (int)(ticket >> 16 & 0xFFFF);
}
static uint64_t loop_number(uint64_t ticket) {
    return ticket >> 32;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

enum { CALLER = -1 };

/* Takes and does one part of the current loop, if there is one for helper `index`. */
static bool do_one_part(int index) {
    uint64_t ticket = atomic_load(&team.ticket);
    while (parts_left(ticket) > 0 && index < helpers_allowed(ticket))
        if (atomic_compare_exchange_weak(&team.ticket, &ticket, ticket - 1)) {
            team.run(team.context, team.parts - parts_left(ticket), team.parts);
            atomic_fetch_sub(&team.unfinished, 1);
            return true;
        }
    return false;
}

/* Returns when a loop after number `seen` has begun. */
static void await_loop(uint64_t seen) {
    for (int i = 0; i < SPINS_OF_HELPER; i++) {
        if (loop_number(atomic_load(&team.ticket)) != seen) return;
        relax();
    }
    pthread_mutex_lock(&team.mutex);
    atomic_fetch_add(&team.sleepers, 1); /* before the look at the ticket, as the caller looks after its change */
    while (loop_number(atomic_load(&team.ticket)) == seen) pthread_cond_wait(&team.wake, &team.mutex);
    atomic_fetch_sub(&team.sleepers, 1);
    pthread_mutex_unlock(&team.mutex);
}

static void *help(void *argument) {
    const int index = (int)(intptr_t)argument;
    for (;;) {
        uint64_t seen = loop_number(atomic_load(&team.ticket));
        while (do_one_part(index)) {
        }
        await_loop(seen);
    }
    return NULL;
}

/* A child has no helpers, and one of them may have held the mutex. */
static void reset_in_child(void) {
    team.helpers = 0;
    atomic_store(&team.sleepers, 0);
    pthread_mutex_init(&team.mutex, NULL);
    pthread_cond_init(&team.wake, NULL);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, reset_in_child);
}

/* Starts helpers up to `count`; fewer, if the system refuses. They take no signals but those of their own faults. */
static void start_helpers(int count) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* a mapped file that shrank: held back, it would end the process without a word */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (team.helpers < count) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, help, (void *)(intptr_t)team.helpers) != 0) break;
        pthread_detach(thread);
        team.helpers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void begin_loop(int parts, int helpers, parallel_fn run, const void *context) {
    team.run = run, team.context = context, team.parts = parts;
    atomic_store(&team.unfinished, parts);
    uint64_t number = (loop_number(atomic_load(&team.ticket)) + 1) & UINT32_MAX;
    atomic_store(&team.ticket, number << 32 | (uint64_t)helpers << 16 | (uint64_t)parts);
    if (atomic_load(&team.sleepers) == 0) return;
    pthread_mutex_lock(&team.mutex);
    pthread_cond_broadcast(&team.wake);
    pthread_mutex_unlock(&team.mutex);
}

static void finish_loop(void) {
    while (do_one_part(CALLER)) {
    }
    for (int i = 0; atomic_load(&team.unfinished) > 0; i++)
        if (i < SPINS_OF_CALLER)
            relax();
        else
            sched_yield();
}

void parallel_run(int threads, int64_t work, parallel_fn run, const void *context) {
    const int helpers = threads - 1 < HELPERS_MAX ? threads - 1 : HELPERS_MAX;
    if (helpers < 1 || work < WORK_MIN || atomic_flag_test_and_set(&team.is_taken)) {
        run(context, 0, 1);
        return;
    }
    if (team.helpers < helpers) start_helpers(helpers);
    const int64_t most = (int64_t)PARTS_A_THREAD * (helpers + 1), parts = work / PART_WORK_MIN;
    begin_loop((int)(parts < most ? parts : most), helpers, run, context);
    finish_loop();
    atomic_flag_clear(&team.is_taken);
}
