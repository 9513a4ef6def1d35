/* What `make install` leaves: the library with its API and nothing else, what pkg-config says, the example built against it. The
 * Makefile installs below $DUET_INSTALLED before the suites run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/version.h"
#include "lib/duet.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

static const char *installed(void) {
    const char *tree = getenv("DUET_INSTALLED");
    if (!tree || !getenv("DUET_CC")) skip("run by make test, which installs a tree to look at");
    return tree;
}

/* Runs a command of the shell; returns its status, with what it wrote on both streams in `out`. */
static int shell(struct buf *out, const char *command) {
    char block[4096];
    size_t n;
    struct buf line = {0};
    buf_printf(&line, "exec 2>&1\n%s", command);
    FILE *f = popen(buf_text(&line), "r");
    ck_assert_ptr_nonnull(f);
    while ((n = fread(block, 1, sizeof block, f)) > 0) buf_append(out, block, n);
    buf_free(&line);
    return pclose(f);
}

static void expect(const char *command, const char *wanted) {
    struct buf out = {0};
    ck_assert_msg(shell(&out, command) == 0, "%s: %s", command, buf_text(&out));
    if (wanted) ck_assert_str_eq(buf_text(&out), wanted);
    buf_free(&out);
}

START_TEST(the_library_exports_what_the_header_declares_and_no_more)
{
    if (!installed()) return;
    char command[1024];
    snprintf(
        command, sizeof command,
        "cd %s && nm -D --defined-only $DUET_INSTALLED/lib/libduet.so | sed 's/.* //' | grep -v '^_' | sort > exported;"
        "grep -o 'duet_[a-z_]*(' $DUET_INSTALLED/include/duet/duet.h | tr -d '(' | sort -u > declared;"
        "test -s declared && diff exported declared",
        temp_dir());
    expect(command, "");
}
END_TEST

START_TEST(the_library_has_a_versioned_name_and_stays_loaded)
{
    if (!installed()) return;
    expect("readelf -d $DUET_INSTALLED/lib/libduet.so | sed -n 's/.*SONAME.*\\[\\(.*\\)\\]/\\1/p'", "libduet.so.0\n");
    expect("readelf -d $DUET_INSTALLED/lib/libduet.so | grep -c NODELETE", "1\n");
    expect("readlink $DUET_INSTALLED/lib/libduet.so.0", "libduet.so." DUET_VERSION "\n");
    expect("PKG_CONFIG_PATH=$DUET_INSTALLED/lib/pkgconfig pkg-config --modversion duet", DUET_VERSION "\n");
}
END_TEST

START_TEST(the_example_builds_against_the_installed_tree_and_finds_its_pair_there)
{
    if (!installed()) return;
    char command[2048];
    struct buf out = {0};
    snprintf(
        command, sizeof command,
        "cd %s && PKG_CONFIG_PATH=$DUET_INSTALLED/lib/pkgconfig && export PKG_CONFIG_PATH &&"
        "$DUET_CC -Wall -Wextra -Werror \"$OLDPWD/examples/answer.c\" $(pkg-config --cflags --libs duet) -o answer &&"
        "LD_LIBRARY_PATH=$DUET_INSTALLED/lib ./answer 'What is the sun?' 'What is rain?'",
        temp_dir());
    ck_assert_msg(shell(&out, command) == 0, "%s", buf_text(&out));
    ck_assert_msg(strstr(buf_text(&out), "sun") != NULL, "%s", buf_text(&out));
    ck_assert_msg(strstr(buf_text(&out), " rounds; ") != NULL, "%s", buf_text(&out));
    buf_free(&out);
}
END_TEST

START_TEST(the_header_is_c_plus_plus_and_strict_c_too)
{
    if (!installed()) return;
    expect(
        "echo '#include <duet/duet.h>' | $DUET_CC -std=c99 -pedantic -Wall -Wextra -Werror -I$DUET_INSTALLED/include "
        "-fsyntax-only -x c -",
        "");
    struct buf out = {0};
    if (shell(&out, "command -v g++ || command -v clang++") != 0) return skip("there is no C++ compiler");
    expect("printf '#include <duet/duet.h>\\nint main() { duet_info i; duet_get_info(nullptr, &i, 0); }\\n' | "
           "$(command -v g++ || command -v clang++) -Wall -Wextra -Werror -I$DUET_INSTALLED/include -fsyntax-only -x "
           "c++ -",
           "");
    buf_free(&out);
}
END_TEST

Suite *check_installed(void);
Suite *check_installed(void) {
    Suite *s = suite_create("installed");
    TCase *tc = tcase_create("tree");
    tcase_add_test(tc, the_library_exports_what_the_header_declares_and_no_more);
    tcase_add_test(tc, the_library_has_a_versioned_name_and_stays_loaded);
    tcase_add_test(tc, the_example_builds_against_the_installed_tree_and_finds_its_pair_there);
    tcase_add_test(tc, the_header_is_c_plus_plus_and_strict_c_too);
    suite_add_tcase(s, tc);
    return s;
}
