/* duet: chooses the command. */
#include <errno.h>
#include <locale.h>
#include <string.h>

#include "cli/cli.h"

/* Without a command: the short usage, or one line where stderr is no terminal. */
static int say_usage(void) {
    if (terminal_is_tty(2))
        help_print_usage(stderr);
    else
        cli_error("usage: duet chat|batch|inspect|tokenize|bench [OPTION]...; see duet --help");
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
    default:
        return say_usage();
    }
}

static int run(const struct options *o) {
    if (o->man) {
        help_print_man(stdout);
    } else if (o->help) {
        help_print(stdout, o->command);
    } else if (o->version) {
        puts("duet " DUET_VERSION);
    } else {
        return run_command(o);
    }
    return STATUS_OK;
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, "");
    struct options o;
    int rc = options_parse(&o, argc, argv);
    terminal_init(&o);
    if (rc != 0) return cli_fail(rc);
    signals_set(SIGNALS_EXIT);
    int status = run(&o);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == STATUS_OK) {
        cli_error("standard output: %s", strerror(errno));
        status = STATUS_FAILED;
    }
    return status;
}
