/* The Python package, by its own tests (python/tests), over the installed library. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/program.h"
#include "tests/support/support.h"

/* A python3 that has pytest; NULL: there is none. */
static const char *find_python(void) {
    static const char *const names[] = {"python3", "/usr/bin/python3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char command[128];
        snprintf(command, sizeof command, "%s -c 'import pytest' > /dev/null 2>&1", names[i]);
        if (system(command) == 0) return names[i];
    }
    return NULL;
}

START_TEST(the_package_does_what_its_tests_say)
{
    const char *python = find_python();
    char command[8192], *line = NULL;
    size_t size = 0;
    struct buf out = {0};
    if (SANITIZED) return skip("a sanitizer's library cannot be loaded into Python");
    if (!getenv("DUET_INSTALLED")) return skip("run by make test, which installs a tree to look at");
    if (!python) return skip("there is no python3 with pytest");
    snprintf(command, sizeof command,
             "DUET_PROGRAM=%s DUET_LIBRARY=$DUET_INSTALLED/lib/libduet.so PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 "
             "%s -m pytest -q -p no:cacheprovider python/tests 2>&1",
             program_path(), python);
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    while (getline(&line, &size, f) >= 0) buf_puts(&out, line);
    free(line);
    ck_assert_msg(pclose(f) == 0, "%s", buf_text(&out));
    buf_free(&out);
}
END_TEST

Suite *check_python(void);
Suite *check_python(void) {
    Suite *s = suite_create("python");
    TCase *tc = tcase_create("package");
    tcase_set_timeout(tc, 240);
    tcase_add_test(tc, the_package_does_what_its_tests_say);
    suite_add_tcase(s, tc);
    return s;
}
