/* The runner of the host's suites. */
#include "tests/runner.h"

#define SUITE(name) Suite *name(void);
#include "suites.h"
#undef SUITE

int main(int argc, char **argv) {
    static const struct named_suite suites[] = {
#define SUITE(name) {#name, name},
#include "suites.h"
#undef SUITE
    };
    return run_suites(suites, (int)(sizeof suites / sizeof *suites), CK_FORK_GETENV, argc, argv);
}
