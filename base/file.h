/* Files that are read whole or mapped: regular ones alone. A FIFO, a socket or a device under the name of a model's file is
 * refused at once instead of being waited for, and so is a pointer that Git LFS left in place of one. Errors begin with the path. */
#ifndef DUET_BASE_FILE_H
#define DUET_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Does anything have this name? A dangling link and a file that may not be read do: opening them says what is wrong. */
bool file_exists(const char *path);

bool file_is_directory(const char *path);

/* Appends all of a regular file of at most `most` bytes. ERR_IO; ERR_LIMIT if it is larger. */
int file_read(const char *path, size_t most, struct buf *out);

/* A file mapped read-only. */
struct mapping {
    const char *data; /* [bytes]; NULL: not mapped */
    size_t bytes;
};
/* At least `least` bytes, at least 1, are needed (ERR_FORMAT). */
int mapping_open(struct mapping *, const char *path, size_t least);
void mapping_close(struct mapping *);

/* The path, escaped, of the open mapping that holds `address`; NULL: none does. A file that shrinks while it is mapped ends the
 * process by SIGBUS at its next look; this is for that signal's handler, and async-signal-safe. */
const char *mapping_path_at(const void *address);

#endif
