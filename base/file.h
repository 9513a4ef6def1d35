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
    int fd; /* stays open, for mapping_read */
};
/* At least `least` bytes, at least 1, are needed (ERR_FORMAT). */
int mapping_open(struct mapping *, const char *path, size_t least);
void mapping_close(struct mapping *);

/* Copies [from, from + bytes), which may lie in an open mapping, and then is read from its file: pages that are looked at once need no
 * place in the page table, and a file that was cut short is an error (ERR_IO) and no SIGBUS. What lies elsewhere is copied. Several
 * threads may. */
int mapping_read(void *to, const void *from, size_t bytes);
/* Says that these bytes will be needed soon, so that the disk works ahead. A hint: nothing waits, and nothing fails. */
void mapping_read_ahead(const void *from, size_t bytes);

/* The path, escaped, of the open mapping that holds `address`; NULL: none does. A file that shrinks while it is mapped ends the
 * process by SIGBUS at its next look; this is for that signal's handler, and async-signal-safe. */
const char *mapping_path_at(const void *address);

#endif
