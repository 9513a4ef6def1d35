#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/parallel.h"
#include "tests/support/support.h"

enum { PARTS_MAX = 4 * 16, MUCH = 1 << 26 };

/* How often each part ran, and in which threads. */
struct tally {
    _Atomic int runs[PARTS_MAX];
    _Atomic int parts;
    _Atomic int own; /* parts that the calling thread did */
    pthread_t caller;
};

static void count_part(const void *context, int part, int parts) {
    struct tally *t = *(struct tally *const *)context;
    ck_assert(part >= 0 && part < parts && parts <= PARTS_MAX);
    atomic_fetch_add(&t->runs[part], 1);
    atomic_store(&t->parts, parts);
    if (pthread_equal(pthread_self(), t->caller)) atomic_fetch_add(&t->own, 1);
}

static int check_loop(int threads, int64_t work) {
    struct tally tally = {.caller = pthread_self()}, *t = &tally;
    parallel_run(threads, work, count_part, &t);
    for (int i = 0; i < PARTS_MAX; i++) ck_assert_int_eq(t->runs[i], i < t->parts);
    return t->parts;
}

START_TEST(every_part_runs_once)
{
    for (int threads = 1; threads <= 16; threads++)
        for (int repeat = 0; repeat < 300; repeat++) check_loop(threads, MUCH);
    ck_assert_int_eq(check_loop(3, MUCH), 12);
}
END_TEST

START_TEST(little_work_or_one_thread_is_one_part)
{
    ck_assert_int_eq(check_loop(8, 1000), 1);
    ck_assert_int_eq(check_loop(8, 0), 1);
    ck_assert_int_eq(check_loop(1, MUCH), 1);
    ck_assert_int_gt(check_loop(2, 200000), 1);
}
END_TEST

static void nested_part(const void *context, int part, int parts) {
    (void)part, (void)parts;
    _Atomic int *inner = *(_Atomic int *const *)context;
    atomic_fetch_add(inner, check_loop(4, MUCH));
}

START_TEST(loop_inside_a_part_is_one_part)
{
    _Atomic int parts = 0, *p = &parts;
    parallel_run(4, MUCH, nested_part, &p);
    ck_assert_int_eq(parts, 16); /* 16 outer parts, each with one inner part */
}
END_TEST

static void *run_loops(void *unused) {
    for (int i = 0; i < 2000; i++) check_loop(4, MUCH);
    return unused;
}

START_TEST(two_threads_may_run_loops_at_once)
{
    pthread_t other;
    ck_assert_int_eq(pthread_create(&other, NULL, run_loops, NULL), 0);
    run_loops(NULL);
    pthread_join(other, NULL);
}
END_TEST

START_TEST(sleeping_helpers_wake_for_the_next_loop)
{
    for (int i = 0; i < 20; i++) {
        check_loop(4, MUCH);
        usleep(2000);
    }
}
END_TEST

/* The address sanitizer's allocator is no part of this: a thread that has just begun may hold its lock while another forks, and
 * the child waits for ever. */
START_TEST(child_of_a_fork_runs_loops)
{
    if (SANITIZED && !SANITIZED_THREADS) {
        skip("the sanitizer's allocator does not outlive a fork beside threads");
        return;
    }
    check_loop(4, MUCH);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) _exit(check_loop(4, MUCH) == 16 ? 0 : 1);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

static void write_units(const void *context, int part, int parts) {
    int *units = *(int *const *)context;
    struct range mine = parallel_range(1001, part, parts);
    for (int i = mine.first; i < mine.end; i++) units[i] += i;
}

START_TEST(results_are_there_when_the_loop_returns)
{
    int units[1001] = {0}, *u = units;
    for (int repeat = 1; repeat <= 500; repeat++) {
        parallel_run(4, MUCH, write_units, &u);
        for (int i = 0; i < 1001; i++)
            if (units[i] != repeat * i) ck_abort_msg("unit %d is %d, expected %d", i, units[i], repeat * i);
    }
}
END_TEST

Suite *check_parallel(void);
Suite *check_parallel(void) {
    Suite *suite = suite_create("parallel");
    TCase *tc = tcase_create("parallel");
    tcase_add_test(tc, every_part_runs_once);
    tcase_add_test(tc, little_work_or_one_thread_is_one_part);
    tcase_add_test(tc, loop_inside_a_part_is_one_part);
    tcase_add_test(tc, two_threads_may_run_loops_at_once);
    tcase_add_test(tc, sleeping_helpers_wake_for_the_next_loop);
    tcase_add_test(tc, child_of_a_fork_runs_loops);
    tcase_add_test(tc, results_are_there_when_the_loop_returns);
    suite_add_tcase(suite, tc);
    return suite;
}
