/* duet: chooses the command. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/config_file.h"

#ifndef DUET_COMMIT
#define DUET_COMMIT ""
#endif
#ifdef __clang__
#define DUET_COMPILER "clang " __clang_version__
#else
#define DUET_COMPILER "gcc " __VERSION__
#endif

/* Without a command: the short usage, or one line where stderr is no terminal. */
static int say_usage(void) {
    struct buf commands = {0};
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++)
        buf_printf(&commands, "%s%s", commands.len > 0 ? "|" : "", command_table[c].name);
    if (terminal_is_tty(2))
        help_print_usage(stderr);
    else
        cli_error("usage: duet %s [OPTION]...; see duet --help", buf_text(&commands));
    buf_free(&commands);
    return STATUS_USAGE;
}

static int run_command(const struct options *o) {
    switch (o->command) {
    case COMMAND_CHAT:
        return chat_main(o);
    case COMMAND_BATCH:
        return batch_main(o);
    case COMMAND_INSPECT:
        return inspect_main(o);
    case COMMAND_TOKENIZE:
        return tokenize_main(o);
    case COMMAND_BENCH:
        return bench_main(o);
    case COMMAND_MODELS:
        return models_main(o);
    case COMMAND_TUNE:
        return tune_main(o);
    default:
        return say_usage();
    }
}

/* What a report of a fault needs to say, in one line. */
static void print_version(void) {
    const char *commit = DUET_COMMIT;
    printf("duet %s (%s%s%s, %s)\n", DUET_VERSION, commit, *commit ? ", " : "",
           device_cuda_is_built() ? "host and CUDA" : "host", DUET_COMPILER);
}

static int run(const struct options *o) {
    if (o->man) {
        help_print_man(stdout);
    } else if (o->completion) {
        completion_print(stdout, o->completion);
    } else if (o->help) {
        help_print(stdout, o->command);
    } else if (o->version) {
        print_version();
    } else {
        return run_command(o);
    }
    return STATUS_OK;
}

/* A file that is opened while a standard one is closed would get its number, and what is meant for the terminal with it. What
 * takes the place fails as the closed one would: it is open in the other direction. */
static bool occupy_standard_files(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return false;
    return true;
}

/* What stdio still held. A pipe without a reader ends the program quietly. */
static int flush_output(int status) {
    if ((fflush(stdout) == 0 && !ferror(stdout)) || status != STATUS_OK) return status;
    if (errno == EPIPE) signals_end(SIGPIPE);
    return cli_fail(err_set(ERR_IO, "standard output: %s", strerror(errno)));
}

int main(int argc, char **argv) {
    if (!occupy_standard_files()) return STATUS_FAILED;
    setlocale(LC_CTYPE, "");
    struct options o;
    struct buf config = {0};
    int rc = options_parse_arguments(&o, argc, argv);
    terminal_init(&o);
    signals_init();
    if (rc == 0 && !options_ask_for_text(&o)) rc = config_file_apply(&o, &config);
    terminal_init(&o); /* the file may ask for quiet */
    if (rc == 0) rc = options_finish(&o);
    int status = rc == 0 ? flush_output(run(&o)) : cli_fail(rc);
    buf_free(&config);
    return status;
}
