#include "tests/support/xml.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"

void expect_xml(const char *text) {
    char open[16][32];
    int depth = 0, tags = 0;
    for (const char *at = strpbrk(text, "<&>"); at; at = strpbrk(at, "<&>"), tags++) {
        if (*at == '&') {
            ck_assert_msg(strncmp(at, "&lt;", 4) == 0 || strncmp(at, "&gt;", 4) == 0 || strncmp(at, "&amp;", 5) == 0,
                          "a bare &: %.40s", at);
            at++;
            continue;
        }
        ck_assert_msg(*at == '<', "a bare >: %.40s", at);
        const char *end = strchr(at, '>');
        bool closes = at[1] == '/';
        size_t n = strcspn(at + 1 + closes, " />");
        ck_assert(end && n > 0 && n < sizeof open[0]);
        if (closes) {
            ck_assert_int_gt(depth--, 0);
            ck_assert_msg(strlen(open[depth]) == n && memcmp(open[depth], at + 2, n) == 0, "%s closed by %.20s",
                          open[depth], at);
        } else if (end[-1] != '/') {
            ck_assert_int_lt(depth, 16);
            snprintf(open[depth++], sizeof open[0], "%.*s", (int)n, at + 1);
        }
        at = end + 1;
    }
    ck_assert_int_eq(depth, 0);
    ck_assert_int_gt(tags, 10);
}

int count_parts(const char *text, const char *part) {
    int n = 0;
    while ((text = strstr(text, part))) n++, text++;
    return n;
}
