/* Where a chat's turns come from: a terminal with libedit, or lines of a pipe or file. One at a time in a process. */
#ifndef DUET_CLI_CHAT_INPUT_H
#define DUET_CLI_CHAT_INPUT_H

#include <stdbool.h>

#include "base/buf.h"

struct chat_input;

/* `edit`: standard input and output are a terminal; line editing, history, Tab, several lines by `\` or bracketed paste. */
int chat_input_create(struct chat_input **out, bool edit);
void chat_input_free(struct chat_input *);

enum input_result {
    INPUT_TURN,        /* text of a turn, without the newline at its end, without `"""` around it */
    INPUT_INTERRUPTED, /* Ctrl-C; what had been typed is gone */
    INPUT_END,         /* end of file, Ctrl-D, Ctrl-C again with no key between */
    INPUT_FAILED,      /* a line that could not be read: err_message() */
};

/* Waits for the next turn. At a terminal, Ctrl-C is noticed through signals.c (SIGNALS_FLAG must be set). */
enum input_result chat_input_read(struct chat_input *, struct buf *text);

#endif
