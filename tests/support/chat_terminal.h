/* `duet chat` at a pseudo-terminal, and what a user does there: types, and waits for what comes. */
#ifndef DUET_TESTS_CHAT_TERMINAL_H
#define DUET_TESTS_CHAT_TERMINAL_H

#include "tests/support/program.h"

enum { WAIT_MS = 60000 }; /* nothing takes so long */

/* Short passes on one thread: other suites may run beside this one. */
#define CHAT_ARGUMENTS(...) ARGUMENTS("chat", "--threads", "1", __VA_ARGS__)
#define GREEDY              "--temperature", "0", "-n", "16", "--stop", "\n"
/* At a high temperature hardly any answer ends by itself. */
#define ENDLESS "--temperature", "9", "--seed", "3", "--quiet"

struct terminal {
    pid_t pid;
    int fd;
    struct buf seen; /* since the last terminal_expect */
};

/* duet chat in this process, so that faulty_host can time a Ctrl-C or a failure. */
int chat_here(int argc, char **argv);

/* The program in a terminal of its own of so many columns, with its files in temp_dir(); by chat_here where faulty_host has orders. */
struct terminal terminal_open(unsigned short columns, const char *const *arguments);
#define WIDE_TERMINAL(columns, ...) terminal_open(columns, CHAT_ARGUMENTS(__VA_ARGS__))
#define TERMINAL(...)               WIDE_TERMINAL(120, __VA_ARGS__)
/* The environment of the program, for the child; `state`: temp_dir() of the test. */
void terminal_set_environment(const char *state);

/* Reads what is there, waiting up to `ms`. false: the program has closed the terminal, or nothing came. */
bool terminal_take(struct terminal *, int ms);
/* Waits until `text` has come; drops everything up to its end. Returns what stood before it (static until the next). */
const char *terminal_expect(struct terminal *, const char *text);
/* libedit's prompt, drawn and waiting for keys. */
void terminal_expect_prompt(struct terminal *);
void terminal_type(struct terminal *, const char *keys);
/* The status that the program ends with. */
int terminal_wait_end(struct terminal *);

/* Saves a chat of one turn as `name` in temp_dir(); returns what was shown meanwhile. */
const char *terminal_save(struct terminal *, const char *name);
/* The first answer of the chat in that file. */
void terminal_read_saved(const char *name, struct buf *answer);

#endif
