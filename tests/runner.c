#include "tests/runner.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static int is_wanted(const char *name, int argc, char **argv) {
    if (argc == 1) return 1;
    for (int i = 1; i < argc; i++)
        if (strcmp(name, argv[i]) == 0) return 1;
    return 0;
}

int run_suites(const struct named_suite *suites, int count, enum fork_status fork, int argc, char **argv) {
    setenv("XDG_CONFIG_HOME", "/dev/null", 1); /* nobody's own configuration file */
    /* A shell's background job ignores some, nohup another, and tests send them. */
    static const int sent[] = {SIGINT, SIGQUIT, SIGHUP, SIGTERM};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) signal(sent[i], SIG_DFL);
    setenv("CK_DEFAULT_TIMEOUT", "900", 0); /* against a test that hangs: none claims a time by it */
    SRunner *runner = srunner_create(NULL);
    srunner_set_fork_status(runner, fork);
    for (int i = 0; i < count; i++)
        if (is_wanted(suites[i].name, argc, argv)) srunner_add_suite(runner, suites[i].create());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
