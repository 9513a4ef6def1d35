#include "tests/support/chat_terminal.h"

#include <locale.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "tests/support/faulty_host.h"
#include "tests/support/support.h"

int chat_here(int argc, char **argv) {
    struct options o;
    setlocale(LC_CTYPE, "");
    ck_ok(options_parse(&o, argc, argv));
    terminal_init(&o);
    signals_init();
    int status = chat_main(&o);
    fflush(stdout);
    return status;
}

void terminal_set_environment(const char *state) {
    unsetenv("NO_COLOR");
    unsetenv("COLUMNS");
    setenv("TERM", "xterm-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("XDG_STATE_HOME", state, 1);
}

struct terminal terminal_open(unsigned short columns, const char *const *arguments) {
    const char *argv[32] = {program_path()}, *state = temp_dir();
    int argc = 1;
    struct terminal t = {0};
    struct winsize size = {.ws_row = 40, .ws_col = columns};
    while (arguments[argc - 1] && argc + 1 < 32) argv[argc] = arguments[argc - 1], argc++;
    t.pid = forkpty(&t.fd, NULL, NULL, &size);
    ck_assert_int_ge(t.pid, 0);
    if (t.pid > 0) return t;
    terminal_set_environment(state);
    if (faulty_host.interrupt_at > 0 || faulty_host.waits > 0) _exit(chat_here(argc, (char **)argv));
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

bool terminal_take(struct terminal *t, int ms) {
    char block[4096];
    struct pollfd p = {t->fd, POLLIN, 0};
    if (poll(&p, 1, ms) <= 0) return false;
    ssize_t n = read(t->fd, block, sizeof block);
    if (n <= 0) return false;
    buf_append(&t->seen, block, (size_t)n);
    return true;
}

const char *terminal_expect(struct terminal *t, const char *text) {
    static struct buf before;
    int64_t end_us = clock_us() + (int64_t)WAIT_MS * 1000;
    char *at;
    while (!(at = strstr(buf_text(&t->seen), text)))
        if (!terminal_take(t, WAIT_MS) || clock_us() > end_us) ck_abort_msg("no '%s' in: %s", text, buf_text(&t->seen));
    size_t n = (size_t)(at - t->seen.data), drop = n + strlen(text);
    buf_clear(&before);
    buf_append(&before, t->seen.data, n);
    memmove(t->seen.data, t->seen.data + drop, t->seen.len - drop + 1);
    t->seen.len -= drop;
    return buf_text(&before);
}

void terminal_type(struct terminal *t, const char *keys) {
    size_t n = strlen(keys);
    ck_assert_int_eq(write(t->fd, keys, n), (ssize_t)n);
}

int terminal_wait_end(struct terminal *t) {
    int status;
    while (terminal_take(t, WAIT_MS)) {
    }
    ck_assert_int_eq(waitpid(t->pid, &status, 0), t->pid);
    close(t->fd);
    buf_free(&t->seen);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void terminal_expect_prompt(struct terminal *t) {
    terminal_expect(t, "\033[?2004h");
    terminal_expect(t, ">\033[0m ");
}

const char *terminal_save(struct terminal *t, const char *name) {
    terminal_type(t, "/save ");
    terminal_type(t, temp_path(name));
    terminal_type(t, "\r");
    return terminal_expect(t, "1 turn saved");
}

void terminal_read_saved(const char *name, struct buf *answer) {
    cJSON *object;
    ck_ok(json_parse_file(&object, temp_path(name)));
    ck_assert(json_string(json_get(cJSON_GetArrayItem(json_get(object, "messages"), 1), "content"), answer));
    cJSON_Delete(object);
}
