/* The test runner: all suites, or those named on the command line. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#define SUITE(name) Suite *name(void);
#include "suites.h"
#undef SUITE

static const struct {
    const char *name;
    Suite *(*create)(void);
} suites[] = {
#define SUITE(name) {#name, name},
#include "suites.h"
#undef SUITE
};

static int is_wanted(const char *name, int argc, char **argv) {
    if (argc == 1) return 1;
    for (int i = 1; i < argc; i++)
        if (strcmp(name, argv[i]) == 0) return 1;
    return 0;
}

int main(int argc, char **argv) {
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++)
        if (is_wanted(suites[i].name, argc, argv)) srunner_add_suite(runner, suites[i].create());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
