/* What every suite shares: where test data lie, and checks that print duet's own sentence. */
#ifndef DUET_TESTS_SUPPORT_H
#define DUET_TESTS_SUPPORT_H

#include <check.h>
#include <stdbool.h>

#include "base/err.h"
#include "model/files/checkpoint.h"

/* Builds with sanitizers are some ten times slower: long loops of a test may take fewer turns there. The thread sanitizer is
 * for loops on several threads: what is of one thread alone, and long, may be left out. */
#ifdef __has_feature /* as clang tells it */
#define IS_SANITIZED(kind) __has_feature(kind##_sanitizer)
#else
#define IS_SANITIZED(kind) 0
#endif
#if defined __SANITIZE_THREAD__ || IS_SANITIZED(thread)
enum { SANITIZED_THREADS = 1 };
#else
enum { SANITIZED_THREADS = 0 };
#endif
#if defined __SANITIZE_ADDRESS__ || IS_SANITIZED(address)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = SANITIZED_THREADS };
#endif

/* Small cases alone: under sanitizers, and where $DUET_TEST_SMALL is set (compute-sanitizer). */
bool test_is_small(void);

/* The prototype of a suite that runs on every device, by which the Makefile finds it. */
#define DEVICE_SUITE(name) Suite *name(void)

/* The call returned 0; prints err_message otherwise. */
#define ck_ok(call) ck_assert_msg((call) == 0, "%s: %s", #call, err_message())

/* ck_assert for hot loops: Check writes to a file at every ck_assert that holds. */
#define require(condition, ...)                      \
    do {                                             \
        if (!(condition)) ck_abort_msg(__VA_ARGS__); \
    } while (0)
#define require_ok(call) require((call) == 0, "%s: %s", #call, err_message())

/* Path below the shared test data ($DUET_SHARED, else ../shared beside the checkout), or NULL where there is none: the
 * test should return after saying so with skip(). The result is a static buffer, four in turn. */
const char *shared_path(const char *relative);
/* Path below assets/ of the checkout; always there. */
const char *asset_path(const char *relative);
/* The device that suites run on which can run on any: $DUET_TEST_DEVICE, else "host". */
const char *test_device(void);
bool test_device_is_host(void);
/* Prints "skipped: CLAIM (REASON)" once; the caller returns. */
void skip(const char *reason);
/* The checkpoint in a directory, and one of a shape: the same object for the same name, which is never closed. */
const struct checkpoint *test_checkpoint(const char *dir);
const struct checkpoint *test_shape(const char *shape);
/* A temporary directory of the test that runs, removed at exit of the process that made it. Static buffer. */
const char *temp_dir(void);

#endif
