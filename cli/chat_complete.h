/* What Tab offers at the end of a command of the chat. Knows no terminal. */
#ifndef DUET_CLI_CHAT_COMPLETE_H
#define DUET_CLI_CHAT_COMPLETE_H

#include <stdbool.h>

#include "base/buf.h"

struct completions {
    size_t from;      /* where in the line the word begins that they complete */
    struct buf words; /* one after the other in alphabetic order, each with a NUL */
    int count;
    size_t common; /* bytes that all of them begin with, in whole characters */
};

/* Completions of `line` [n], which ends at the cursor; none where it is no command. To be freed. A single one ends with a blank
 * where more may follow; a folder with "/". */
void chat_complete(const char *line, size_t n, struct completions *out);
void completions_free(struct completions *);

#endif
