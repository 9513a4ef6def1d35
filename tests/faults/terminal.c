#include "tests/faults/terminal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/support.h"

void typist_open(struct typist *t, const char *const *lines) {
    *t = (struct typist){.fd = -1, .lines = lines};
    if (!lines) return;
    t->fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert_int_ge(t->fd, 0);
    ck_assert(grantpt(t->fd) == 0 && unlockpt(t->fd) == 0);
    ck_assert_int_eq(ptsname_r(t->fd, t->path, sizeof t->path), 0);
}

/* The program may have gone: then nobody reads it. Ctrl-D ends nothing behind half a line, so that is ended first, in turn. */
static void type_next(struct typist *t) {
    char line[256];
    const char *end = t->ends % 2 ? "\r" : "\004";
    t->ends += !*t->lines;
    int n = *t->lines ? snprintf(line, sizeof line, "%s\r", *t->lines++) : snprintf(line, sizeof line, "%s", end);
    if (write(t->fd, line, (size_t)n) < 0) return;
}

/* "> ", or ". " for a further line, in bold. */
static bool shows_prompt(struct typist *t, const char *text, ssize_t n) {
    static const char mark[] = "\033[1m*\033[0m ";
    bool shown = false;
    for (ssize_t i = 0; i < n; i++) {
        bool fits = mark[t->matched] == '*' ? text[i] == '>' || text[i] == '.' : text[i] == mark[t->matched];
        t->matched = fits ? t->matched + 1 : text[i] == mark[0];
        if (mark[t->matched] != '\0') continue;
        shown = true;
        t->matched = 0;
    }
    return shown;
}

void typist_go_on(struct typist *t, bool ready) {
    char block[4096];
    ssize_t n = ready ? read(t->fd, block, sizeof block) : 0;
    if (!ready || (n > 0 && shows_prompt(t, block, n))) type_next(t);
    if (n < 0) usleep(1000); /* the program has closed its side, and ends */
}

void typist_close(struct typist *t) {
    if (t->fd >= 0) close(t->fd);
}
