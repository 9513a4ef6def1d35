/* `make torture`: all faults of all scenarios, in processes side by side, as a table.
 *
 *   run_torture [SCENARIO...]    of memory, the first and the last call of every stack fail; of the rest, every call
 *                                TORTURE=calls: of memory every call too, which takes hours
 *                                TORTURE=sites: as `make test` does, but of each scenario all sites
 *
 * Exit status 1 if a promise was broken. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/faults/campaign.h"
#include "tests/support/support.h"

enum { JOBS_MAX = 512 };

struct job {
    const struct scenario *scenario;
    enum fault_kind kind;
    struct tally tally;
    double seconds;
    bool done;
    char failure[512]; /* of a check in the job; "" if none */
};
static struct job *jobs; /* shared with the processes */
static int job_count, current;
static enum effort effort_memory = EFFORT_STACKS, effort = EFFORT_CALLS;

/* --- running ---------------------------------------------------------------------------------------------------- */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

START_TEST(every_fault_keeps_the_promise)
{
    struct job *j = &jobs[current];
    if (!campaign_run(j->scenario, 1u << j->kind, j->kind == FAULT_MEMORY ? effort_memory : effort, &j->tally, stdout))
        ck_abort_msg("the interposer has no force here");
}
END_TEST

/* Inside a Check test, whose helpers may fail it. */
static void run_job(int job) {
    double start = now_s();
    current = job;
    Suite *suite = suite_create("torture");
    TCase *tc = tcase_create("torture");
    tcase_add_test(tc, every_fault_keeps_the_promise);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    if (srunner_ntests_failed(runner) > 0) {
        TestResult **failures = srunner_failures(runner);
        snprintf(jobs[job].failure, sizeof jobs[job].failure, "%s:%d: %s", tr_lfile(failures[0]), tr_lno(failures[0]),
                 tr_msg(failures[0]));
        free(failures);
    }
    srunner_free(runner);
    jobs[job].seconds = now_s() - start;
    jobs[job].done = true;
}

static void run_jobs(void) {
    long most = sysconf(_SC_NPROCESSORS_ONLN), running = 0;
    for (int next = 0; next < job_count || running > 0;) {
        if (next < job_count && running < most) {
            fflush(stdout);
            if (fork() == 0) {
                run_job(next);
                exit(0);
            }
            next++, running++;
        } else {
            wait(NULL);
            running--;
        }
    }
}

/* --- the table --------------------------------------------------------------------------------------------------- */

static void add(struct tally *sum, const struct tally *t) {
    sum->faults += t->faults, sum->missed += t->missed;
    sum->same += t->same, sum->said += t->said;
    sum->late += t->late, sum->signals += t->signals, sum->broken += t->broken;
}

static void print_row(const char *scenario, const char *kind, const struct tally *t, double seconds) {
    printf("%-24s %-7s %8u %6u %8u %7u %8u %8u %6u %8u %8u %7.1f\n", scenario, kind, t->calls, t->sites, t->faults,
           t->missed, t->same, t->said, t->late, t->signals, t->broken, seconds);
}

static bool print_table(void) {
    struct tally sum = {0};
    bool holds = true;
    double seconds = 0;
    printf("\n%-24s %-7s %8s %6s %8s %7s %8s %8s %6s %8s %8s %7s\n", "scenario", "kind", "calls", "sites", "faults",
           "missed", "no trace", "said", "late", "signals", "broken", "s");
    for (int i = 0; i < job_count; i++) {
        const struct job *j = &jobs[i];
        if (j->tally.calls > 0) print_row(j->scenario->name, fault_kind_names[j->kind], &j->tally, j->seconds);
        if (j->failure[0] || !j->done)
            printf("%s, %s: %s\n", j->scenario->name, fault_kind_names[j->kind],
                   j->done ? j->failure : "the process ended early");
        holds = holds && j->done && !j->failure[0] && j->tally.broken == 0;
        add(&sum, &j->tally);
        seconds += j->seconds;
    }
    print_row("all", "", &sum, seconds);
    return holds;
}

static bool is_wanted(const char *name, int argc, char **argv) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; i++) wanted = wanted || strcmp(argv[i], name) == 0;
    return wanted;
}

int main(int argc, char **argv) {
    const char *asked = getenv("TORTURE");
    setenv("XDG_CONFIG_HOME", "/dev/null", 1); /* nobody's own configuration file */
    if (asked && strcmp(asked, "calls") == 0) effort_memory = EFFORT_CALLS;
    if (asked && strcmp(asked, "sites") == 0) effort_memory = effort = EFFORT_SITES;
    jobs = mmap(NULL, sizeof *jobs * JOBS_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (jobs == MAP_FAILED) return EXIT_FAILURE;
    for (int s = 0; s < scenario_count; s++)
        for (int kind = 0; kind < FAULT_KINDS; kind++)
            if (scenarios[s].kinds & 1u << kind && is_wanted(scenarios[s].name, argc, argv))
                jobs[job_count++] = (struct job){.scenario = &scenarios[s], .kind = (enum fault_kind)kind};
    run_jobs();
    return print_table() ? EXIT_SUCCESS : EXIT_FAILURE;
}
