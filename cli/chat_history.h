/* The lines that were typed at chats: this chat's own in memory, those of all chats in a file that is read at the start. */
#ifndef DUET_CLI_CHAT_HISTORY_H
#define DUET_CLI_CHAT_HISTORY_H

#include <histedit.h>
#include <limits.h>
#include <stdbool.h>

struct chat_history {
    History *lines;
    char path[PATH_MAX]; /* "": no file */
};

/* false: out of memory. Where there is no home, or the file cannot be read, there is no file. */
bool chat_history_open(struct chat_history *);
void chat_history_close(struct chat_history *);
void chat_history_add(struct chat_history *, const char *text);

/* A file of the program's own: $XDG_STATE_HOME/duet/NAME, else ~/.local/state/duet/NAME. Its folders are made. "" where there
 * is no home. */
void chat_state_path(char path[PATH_MAX], const char *name);

#endif
