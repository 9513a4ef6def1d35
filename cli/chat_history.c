#include "cli/chat_history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HISTORY_SIZE = 1000 };

void chat_state_path(char path[PATH_MAX], const char *name) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (state && *state == '/')
        n = snprintf(path, PATH_MAX, "%s/duet/%s", state, name);
    else if (home && *home == '/')
        n = snprintf(path, PATH_MAX, "%s/.local/state/duet/%s", home, name);
    if (n < 0 || n >= PATH_MAX) {
        path[0] = '\0';
        return;
    }
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        mkdir(path, 0700);
        *p = '/';
    }
}

/* Other chats read and write the file too. Returns what close() ends the lock with; where there are no locks, it goes on
 * without. */
static int lock_file(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR) continue;
    return fd;
}

static void unlock_file(int fd) {
    if (fd >= 0) close(fd);
}

/* The file's newest lines; NULL: out of memory. */
static History *read_lines(const char *path) {
    HistEvent event;
    History *lines = history_init();
    if (!lines) return NULL;
    history(lines, &event, H_SETSIZE, HISTORY_SIZE);
    history(lines, &event, H_SETUNIQUE, 1);
    if (path[0]) history(lines, &event, H_LOAD, path);
    return lines;
}

bool chat_history_open(struct chat_history *h) {
    chat_state_path(h->path, "history");
    int lock = h->path[0] ? lock_file(h->path) : -1;
    h->lines = read_lines(h->path);
    unlock_file(lock);
    return h->lines != NULL;
}

void chat_history_close(struct chat_history *h) {
    if (h->lines) history_end(h->lines);
    h->lines = NULL;
}

/* This chat goes on with its own lines; the file gets the new one behind those that others added meanwhile. */
void chat_history_add(struct chat_history *h, const char *text) {
    HistEvent event;
    history(h->lines, &event, H_ENTER, text);
    if (!h->path[0]) return;
    int lock = lock_file(h->path);
    History *all = read_lines(h->path);
    if (all) {
        history(all, &event, H_ENTER, text);
        history(all, &event, H_SAVE, h->path);
        history_end(all);
    }
    unlock_file(lock);
}
