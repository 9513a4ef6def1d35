/* The fidelity suite as a program: prints the table; exit status 1 if a claim falls short.
 *
 *   run_fidelity [GROUP...]    FIDELITY=small: sizes of `make test`, stopping at the first failure
 *
 * On the host the groups run in processes side by side, on a GPU one after the other in this one. The device is
 * DUET_TEST_DEVICE, else cuda where the build and the machine have it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fidelity/fidelity.h"
#include "tests/support/support.h"

enum { TIME_LIMIT_S = 1200 };

struct outcome {
    struct fidelity fidelity;
    char failure[512]; /* of a check inside the group; "" if none */
    bool done;
};
static struct outcome *outcomes; /* [FIDELITY_GROUPS], shared with the processes */
static int current;

/* --- running ---------------------------------------------------------------------------------------------------- */

START_TEST(every_claim_of_the_group_holds)
{ fidelity_groups[current].run(&outcomes[current].fidelity); }
END_TEST

static void run_group(int group) {
    current = group;
    Suite *suite = suite_create("fidelity");
    TCase *tc = tcase_create("fidelity");
    tcase_add_test(tc, every_claim_of_the_group_holds);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    if (srunner_ntests_failed(runner) > 0) {
        TestResult **failures = srunner_failures(runner);
        snprintf(outcomes[group].failure, sizeof outcomes[group].failure, "%s:%d: %s", tr_lfile(failures[0]),
                 tr_lno(failures[0]), tr_msg(failures[0]));
        free(failures);
    }
    srunner_free(runner);
    outcomes[group].done = true;
}

static pid_t start_group(int group) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0) return pid;
    alarm(TIME_LIMIT_S);
    run_group(group);
    exit(0);
}

/* --- printing --------------------------------------------------------------------------------------------------- */

static bool print_group(int group) {
    static const char *const states[] = {"FAIL", "pass", "skipped"};
    const struct outcome *o = &outcomes[group];
    bool holds = o->done && o->failure[0] == '\0';
    for (int i = 0; i < o->fidelity.count; i++) {
        const struct fidelity_row *row = &o->fidelity.rows[i];
        holds = holds && row->state != FIDELITY_FAIL;
        if (row->state == FIDELITY_SKIPPED)
            printf("%-70s  skipped: %s\n", row->claim, row->sample);
        else
            printf("%-70s  %-28s  %-36s  %-15s  %s\n", row->claim, row->sample, row->figure, row->bound,
                   states[row->state]);
    }
    if (o->failure[0] || !o->done)
        printf("%-70s  FAIL: %s\n", fidelity_groups[group].name, o->done ? o->failure : "the process ended early");
    fflush(stdout);
    return holds;
}

static bool is_wanted(int group, int argc, char **argv) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; i++) wanted = wanted || strcmp(argv[i], fidelity_groups[group].name) == 0;
    return wanted;
}

/* --- all of them ------------------------------------------------------------------------------------------------ */

static bool run_here(int argc, char **argv, bool small) {
    bool holds = true;
    for (int g = 0; g < FIDELITY_GROUPS && (holds || !small); g++) {
        if (!is_wanted(g, argc, argv)) continue;
        run_group(g);
        holds = print_group(g) && holds;
    }
    return holds;
}

/* Starts groups while there is a processor for them; prints them in order as they end. */
static bool run_beside_each_other(int argc, char **argv, bool small) {
    pid_t pids[FIDELITY_GROUPS] = {0};
    bool over[FIDELITY_GROUPS] = {0}, holds = true;
    long jobs = sysconf(_SC_NPROCESSORS_ONLN), running = 0;
    int next = 0, printed = 0;
    while (printed < FIDELITY_GROUPS && (holds || !small)) {
        for (; next < FIDELITY_GROUPS && running < jobs; next++) {
            over[next] = !is_wanted(next, argc, argv);
            if (!over[next]) pids[next] = start_group(next), running++;
        }
        if (running > 0 && !over[printed]) {
            pid_t pid = wait(NULL);
            for (int g = 0; g < next; g++)
                if (pids[g] == pid) over[g] = true, running--;
        }
        for (; printed < next && over[printed]; printed++)
            if (pids[printed] && !print_group(printed)) holds = false;
    }
    for (int g = 0; g < next; g++)
        if (!over[g]) kill(pids[g], SIGKILL);
    return holds;
}

static bool are_groups(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        bool found = false;
        for (int g = 0; g < FIDELITY_GROUPS; g++) found = found || strcmp(argv[i], fidelity_groups[g].name) == 0;
        if (found) continue;
        fprintf(stderr, "no group '%s'; there are", argv[i]);
        for (int g = 0; g < FIDELITY_GROUPS; g++) fprintf(stderr, " %s", fidelity_groups[g].name);
        fputc('\n', stderr);
        return false;
    }
    return true;
}

static bool has_gpu(void) {
    struct device *d;
    if (device_open(&d, "cuda", NULL) != 0) return false;
    device_close(d);
    return true;
}

int main(int argc, char **argv) {
    const char *size = getenv("FIDELITY");
    if (!are_groups(argc, argv)) return EXIT_FAILURE;
    bool small = size && strcmp(size, "small") == 0;
    if (has_gpu()) setenv("DUET_TEST_DEVICE", "cuda", 0);
    outcomes =
        mmap(NULL, sizeof *outcomes * FIDELITY_GROUPS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED) return EXIT_FAILURE;
    for (int g = 0; g < FIDELITY_GROUPS; g++) outcomes[g].fidelity.small = small;
    bool holds = (test_device_is_host() ? run_beside_each_other : run_here)(argc, argv, small);
    puts(holds ? "every claim holds" : "a claim falls short");
    return holds ? EXIT_SUCCESS : EXIT_FAILURE;
}
