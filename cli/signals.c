/* Ctrl-C. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t exits_at_once;
static char message[256] = "duet: interrupted\n";
static volatile sig_atomic_t message_len = sizeof "duet: interrupted\n" - 1;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    if (exits_at_once) {
        if (write(STDERR_FILENO, message, (size_t)message_len) < 0) _exit(STATUS_INTERRUPTED);
        _exit(STATUS_INTERRUPTED);
    }
    interrupted = 1;
}

void signals_set(enum signal_mode mode) {
    exits_at_once = mode == SIGNALS_EXIT;
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: reads return EINTR */
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a failed write says why */
    signal(SIGXFSZ, SIG_IGN);
}

static void mask_interrupt(int how) {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(how, &interrupt, NULL);
}

void signals_hold(void) {
    mask_interrupt(SIG_BLOCK);
}

void signals_release(void) {
    mask_interrupt(SIG_UNBLOCK);
}

void signals_set_message(const char *line) {
    message_len = 0; /* an interrupt in between writes nothing */
    int n = snprintf(message, sizeof message, "%s\n", line);
    message_len = n < (int)sizeof message ? n : (int)sizeof message - 1;
}

bool signals_interrupted(void) {
    return interrupted;
}

static bool is_interrupted(void *user) {
    (void)user;
    return interrupted;
}

const struct interrupt signals_interrupt = {is_interrupted, NULL};

void signals_clear(void) {
    interrupted = 0;
}
