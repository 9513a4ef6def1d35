/* What can end the program from outside: Ctrl-C and its kin, a pipe without a reader, a mapped file that shrinks, memory that
 * runs out. */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <termios.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"

static volatile sig_atomic_t interrupted; /* since signals_clear */
static volatile sig_atomic_t ended;       /* the signal that ends the program; 0: none */
static volatile sig_atomic_t exits_at_once = 1;
static char consequence[128];
static void (*last_words)(void *);
static void *last_words_user;
static struct termios terminal; /* as it was */
static volatile sig_atomic_t has_terminal;
static struct termios stopped_terminal; /* as the program had it when it was stopped */
static volatile sig_atomic_t was_stopped;

/* Async-signal-safe, here and below. */
static void put(int fd, const char *text) {
    if (write(fd, text, strlen(text)) < 0) return;
}

static void restore_terminal(void) {
    if (terminal_is_tty(2) && !terminal_is_dumb()) put(2, "\r\033[K"); /* the bar */
    if (!has_terminal) return;
    put(STDOUT_FILENO, terminal_is_dumb() ? "\n" : "\033[?2004l\033[0m\n");
    tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal);
}

/* Of several threads that come here the first one ends the program, and the others wait for that. */
static void die(const char *reason, int status) {
    static atomic_flag is_begun = ATOMIC_FLAG_INIT;
    static _Thread_local volatile sig_atomic_t is_own;
    if (!is_own && atomic_flag_test_and_set(&is_begun))
        for (;;) pause();
    is_own = 1;
    void (*speak)(void *) = last_words;
    last_words = NULL; /* a fault in there comes here again */
    if (speak) speak(last_words_user);
    restore_terminal();
    struct iovec parts[4] = {
        {"duet: ", 6}, {(void *)reason, strlen(reason)}, {consequence, strlen(consequence)}, {"\n", 1}};
    if (writev(STDERR_FILENO, parts, 4) < 0) _exit(status);
    _exit(status);
}

/* In the background it is the shell's still. */
void signals_continue(void) {
    if (!was_stopped || tcgetpgrp(STDIN_FILENO) != getpgrp()) return;
    was_stopped = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &stopped_terminal);
}

/* Ctrl-Z: the shell gets the terminal as it was. Ends with the default of the signal, which stops nothing where nobody could
 * continue it. */
static void on_stop(int signal_number) {
    struct sigaction action = {.sa_handler = on_stop}, standard = {.sa_handler = SIG_DFL};
    sigset_t set;
    if (tcgetattr(STDIN_FILENO, &stopped_terminal) == 0) {
        was_stopped = 1;
        put(STDOUT_FILENO, terminal_is_dumb() ? "\n" : "\033[?2004l\033[0m\n");
        tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal);
    }
    sigaction(signal_number, &standard, NULL);
    raise(signal_number);
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    sigaction(signal_number, &action, NULL);
    raise(SIGCONT); /* where it was not stopped */
}

static int status_of(int signal_number) {
    return 128 + signal_number;
}

/* While last words are waiting to be said, the second signal does not wait for the end of a round. */
static void on_signal(int signal_number) {
    bool again = interrupted && last_words;
    interrupted = 1;
    if (signal_number != SIGINT) ended = signal_number;
    if (exits_at_once || again) die("interrupted", status_of(signal_number));
}

/* A page of a mapping has no file behind it any more. Any other SIGBUS is a fault of the program, told as such. */
static void on_bus_error(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    const char *path = mapping_path_at(info->si_addr);
    if (!path) {
        signal(signal_number, SIG_DFL);
        return;
    }
    char reason[1200];
    strcpy(reason, path);
    die(strcat(reason, ": the file was cut short, or could not be read, while it was in use"), STATUS_FAILED);
}

static void on_memory_exhausted(void) {
    die("out of memory", STATUS_FAILED);
}

/* Those that the program was started to ignore (nohup, a job in the background) stay ignored. No SA_RESTART: reads return EINTR. */
static void handle(int signal_number) {
    struct sigaction action = {.sa_handler = on_signal}, before;
    sigaction(signal_number, NULL, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal_number, &action, NULL);
}

static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
enum { HANDLED = sizeof handled / sizeof *handled };

void signals_init(void) {
    for (int i = 0; i < HANDLED; i++) handle(handled[i]);
    struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGBUS, &bus, NULL);
    signal(SIGPIPE, SIG_IGN); /* a failed write says why */
    signal(SIGXFSZ, SIG_IGN);
    memory_on_exhausted(on_memory_exhausted);
}

void signals_set(enum signal_mode mode) {
    exits_at_once = mode == SIGNALS_EXIT;
}

static void mask(int how) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < HANDLED; i++) sigaddset(&set, handled[i]);
    for (int i = 0; i < 3; i++) sigaddset(&set, (int[]){SIGTSTP, SIGCONT, SIGWINCH}[i]); /* those of a terminal */
    sigprocmask(how, &set, NULL);
}

void signals_hold(void) {
    mask(SIG_BLOCK);
}

void signals_release(void) {
    mask(SIG_UNBLOCK);
}

void signals_set_consequence(const char *format, ...) {
    char text[sizeof consequence];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    signals_hold();
    strcpy(consequence, text);
    signals_release();
}

void signals_set_last_words(void (*speak)(void *user), void *user) {
    signals_hold();
    last_words = speak, last_words_user = user;
    signals_release();
}

void signals_keep_terminal(void) {
    struct sigaction action = {.sa_handler = on_stop}, before;
    has_terminal = tcgetattr(STDIN_FILENO, &terminal) == 0;
    sigaction(SIGTSTP, NULL, &before);
    if (has_terminal && before.sa_handler != SIG_IGN) sigaction(SIGTSTP, &action, NULL);
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
    if (!ended) interrupted = 0;
}

void signals_end(int signal_number) {
    interrupted = 1;
    ended = signal_number;
}

int signals_ended(void) {
    return ended;
}

int signals_status(void) {
    return status_of(ended ? ended : SIGINT);
}
