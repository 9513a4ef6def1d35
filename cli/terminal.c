/* stderr and stdout as terminals: errors, notes, colour, the progress bar. */
#include <langinfo.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/wrap.h"

enum { WIDTH_UNKNOWN = 80, WIDTH_MAX = 1000 };

static struct {
    bool tty[3];
    bool quiet, color, unicode, dumb;
    bool bar_drawn;
    int64_t bar_us;
} term;

void terminal_init(const struct options *o) {
    for (int fd = 0; fd < 3; fd++) term.tty[fd] = isatty(fd);
    const char *no_color = getenv("NO_COLOR"), *type = getenv("TERM");
    term.quiet = o->quiet;
    term.dumb = !type || strcmp(type, "dumb") == 0;
    term.color = !(no_color && *no_color) && !term.dumb;
    term.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

bool terminal_is_tty(int fd) {
    return term.tty[fd];
}

bool terminal_is_quiet(void) {
    return term.quiet;
}

bool terminal_has_color(int fd) {
    return term.tty[fd] && term.color;
}

bool terminal_is_dumb(void) {
    return term.dumb;
}

int terminal_columns(int fd) {
    struct winsize size;
    return term.tty[fd] && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

const char *terminal_style(int fd, enum style style) {
    static const char *const sequence[] = {
        [STYLE_RESET] = "\033[0m",  [STYLE_DIM] = "\033[2m",     [STYLE_BOLD] = "\033[1m", [STYLE_RED] = "\033[31m",
        [STYLE_GREEN] = "\033[32m", [STYLE_YELLOW] = "\033[33m", [STYLE_CYAN] = "\033[36m"};
    return terminal_has_color(fd) ? sequence[style] : "";
}

/* --- width ------------------------------------------------------------------------------------------------ */

int terminal_width(int fd) {
    const char *given = getenv("COLUMNS");
    long columns = given ? strtol(given, NULL, 10) : 0;
    if (columns <= 0) columns = terminal_columns(fd);
    return columns <= 0 ? WIDTH_UNKNOWN : columns > WIDTH_MAX ? WIDTH_MAX : (int)columns;
}

void terminal_wrap(struct buf *out, int width, int column, int indent, const char *text) {
    struct wrap w = {.columns = width, .indent = indent, .column = column, .blanks_end = column};
    wrap_push(&w, text, strlen(text));
    wrap_finish(&w);
    buf_puts(out, buf_text(&w.out));
    wrap_free(&w);
}

void terminal_print(FILE *out, int width, int column, int indent, const char *text) {
    struct buf wrapped = {0};
    terminal_wrap(&wrapped, width, column, indent, text);
    fprintf(out, "%s\n", buf_text(&wrapped));
    buf_free(&wrapped);
}

void terminal_put_bar(struct buf *out, double share, int columns) {
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    if (!(share > 0)) return;
    int parts = (int)lround(share * columns * 8);
    for (int i = 0; i < parts / 8; i++) buf_puts(out, term.unicode ? "█" : "#");
    if (term.unicode) buf_puts(out, eighths[parts % 8]);
}

/* --- errors and notes ------------------------------------------------------------------------------------- */

static void print_error(const char *sentence) {
    progress_clear();
    fflush(stdout);
    if (term.tty[2]) {
        fputs("duet: ", stderr);
        terminal_print(stderr, terminal_width(2), 6, 0, sentence);
    } else {
        fprintf(stderr, "duet: %s\n", sentence);
    }
}

void cli_error(const char *format, ...) {
    char sentence[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    err_set(ERR_USAGE, "%s", sentence); /* escapes what came from files */
    print_error(err_message());
}

int cli_fail(int rc) {
    if (signals_ended() == SIGPIPE) return signals_status();
    print_error(err_message());
    return rc == ERR_USAGE ? STATUS_USAGE : STATUS_FAILED;
}

void cli_note(const char *format, ...) {
    if (term.quiet || !term.tty[2]) return;
    char line[1024], shown[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    progress_clear();
    fprintf(stderr, "%sduet: ", terminal_style(2, STYLE_DIM));
    terminal_print(stderr, terminal_width(2), 6, 0, err_escape(line, shown, sizeof shown));
    fputs(terminal_style(2, STYLE_RESET), stderr);
}

/* --- the bar ------------------------------------------------------------------------------------------------ */

enum { BAR_WIDTH = 24, BAR_WIDTH_MIN = 8, BAR_INTERVAL_US = 100000 };

void progress_clear(void) {
    if (!term.bar_drawn) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    term.bar_drawn = false;
}

/* 80 where unknown */
static int bar_columns(void) {
    for (int fd = 2; fd >= 0; fd--)
        if (terminal_columns(fd) > 0) return terminal_columns(fd);
    return WIDTH_UNKNOWN;
}

void progress_draw(const char *what, int64_t done, int64_t total, const char *tail) {
    if (term.quiet || !term.tty[2] || term.dumb || total <= 0) return;
    int64_t now = clock_us();
    if (term.bar_drawn && done < total && now - term.bar_us < BAR_INTERVAL_US) return;
    term.bar_us = now;
    char numbers[160], line[512];
    snprintf(numbers, sizeof numbers, "%lld/%lld%s%s", (long long)done, (long long)total, tail ? "  " : "",
             tail ? tail : "");
    int columns = bar_columns();
    int width = columns - 5 - (int)strlen(what) - (int)strlen(numbers); /* what is left for the bar */
    width = width > BAR_WIDTH ? BAR_WIDTH : width < BAR_WIDTH_MIN ? BAR_WIDTH_MIN : width;
    int full = (int)((double)width * (double)done / (double)total);
    char bar[BAR_WIDTH + 1] = "";
    for (int i = 0; i < width; i++) bar[i] = i < full ? '#' : ' ';
    snprintf(line, sizeof line, "%s [%s] %s", what, bar, numbers);
    fprintf(stderr, "\r%s%.*s%s\033[K", terminal_style(2, STYLE_DIM), columns - 1, line,
            terminal_style(2, STYLE_RESET));
    fflush(stderr);
    term.bar_drawn = true;
}

static void report_progress(void *user, const char *what, int64_t done, int64_t total) {
    (void)user;
    progress_draw(what, done, total, NULL);
}

struct progress progress_bar(void) {
    return (struct progress){.report = report_progress};
}
