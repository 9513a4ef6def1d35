/* The runner on a GPU: its own suites, and the host's that take a device. No test is forked: CUDA does not survive that. */
#include <stdio.h>
#include <stdlib.h>

#include "graphs/device.h"
#include "tests/runner.h"
#include "tests/support/support.h"

#define SUITE(name) Suite *name(void);
#include "suites.h"
#undef SUITE

static int must_have_gpu(void) {
    struct device *device;
    if (device_open(&device, "cuda", NULL) != 0) {
        fprintf(stderr, "%s\n", err_message());
        return EXIT_FAILURE;
    }
    printf("%s\n", device_name(device));
    device_close(device);
    return 0;
}

int main(int argc, char **argv) {
    static const struct named_suite suites[] = {
#define SUITE(name) {#name, name},
#include "suites.h"
#undef SUITE
    };
    if (must_have_gpu() != 0) return EXIT_FAILURE;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("DUET_TEST_DEVICE", "cuda", 1);
    return run_suites(suites, (int)(sizeof suites / sizeof *suites), CK_NOFORK, argc, argv);
}
