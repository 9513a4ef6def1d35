#include "tests/support/last_program.h"

#include <string.h>

#include "tests/support/support.h"

struct program last;

void last_run(const char *input, const char *const *arguments) {
    program_free(&last);
    program_run(&last, input, arguments);
}

void last_expect_ok(void) {
    program_expect_status(&last, 0);
}

void last_expect_error(int status, const char *part) {
    program_expect_error(&last, status, part);
    ck_assert_uint_eq(last.out.len, 0);
}

void last_expect_out(const char *part) {
    ck_assert_msg(strstr(buf_text(&last.out), part) != NULL, "'%s' is not in: %s", part, buf_text(&last.out));
}
