/* The inputs of fuzz/corpus, one child process each, so that every later build keeps what fuzzing has found. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

typedef int (*harness_fn)(const uint8_t *data, size_t n);

#define HARNESS(name) int name(const uint8_t *data, size_t n);
#include "harnesses.h"
#undef HARNESS

static const struct harness {
    const char *name; /* fuzz_NAME */
    harness_fn run;
} harnesses[] = {
#define HARNESS(name) {#name, name},
#include "harnesses.h"
#undef HARNESS
};
enum { HARNESSES = sizeof harnesses / sizeof *harnesses };

/* In a block of just its size. */
static void run_file(harness_fn run, const char *path) {
    struct buf text = {0};
    text_of_file(path, &text);
    uint8_t *data = malloc(text.len > 0 ? text.len : 1);
    ck_assert_ptr_nonnull(data);
    if (text.len > 0) memcpy(data, text.data, text.len);
    size_t n = text.len;
    buf_free(&text);
    run(data, n);
    free(data);
}

/* Flushes before the fork and leaves by exit, where a sanitizer looks for leaks. */
static int status_of_child(harness_fn run, const char *path) {
    int status;
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        run_file(run, path);
        exit(EXIT_SUCCESS);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

/* Number of inputs. */
static int run_corpus(const struct harness *h) {
    char path[512];
    int count = 0;
    snprintf(path, sizeof path, "fuzz/corpus/%s", h->name + strlen("fuzz_"));
    DIR *dir = opendir(path);
    ck_assert_msg(dir, "no %s", path);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "fuzz/corpus/%s/%s", h->name + strlen("fuzz_"), entry->d_name);
        int status = status_of_child(h->run, path);
        ck_assert_msg(status == 0, "%s: status %d", path, status);
        count++;
    }
    closedir(dir);
    return count;
}

START_TEST(every_input_of_the_corpus_holds)
{ ck_assert_int_ge(run_corpus(&harnesses[_i]), 3); }
END_TEST

/* A control: claims are checked in this build, and what fails ends its child. */
static int claim_no_object(const uint8_t *data, size_t n) {
    if (!freopen("/dev/null", "w", stderr)) return 0;
    if (n > 0) claim(data[0] != '{', "an input that begins with %c", data[0]);
    return 0;
}

START_TEST(a_claim_that_does_not_hold_is_seen)
{
    int status = status_of_child(claim_no_object, "assets/target/config.json");
    ck_assert(WIFSIGNALED(status));
}
END_TEST

Suite *check_fuzz(void) {
    Suite *suite = suite_create("fuzz");
    TCase *corpus = tcase_create("corpus");
    tcase_add_loop_test(corpus, every_input_of_the_corpus_holds, 0, HARNESSES);
    tcase_add_test(corpus, a_claim_that_does_not_hold_is_seen);
    suite_add_tcase(suite, corpus);
    return suite;
}
