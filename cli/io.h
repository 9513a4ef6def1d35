/* Input and output of the commands that work on lines, and JSON written by hand. */
#ifndef DUET_CLI_IO_H
#define DUET_CLI_IO_H

#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"

/* Reads all of `path`, NULL or "-" for standard input. ERR_IO names it. */
int input_read(const char *path, struct buf *out);

/* The lines of a text: without their end ("\n" or "\r\n"); a last line without one counts. */
struct lines {
    const char *at, *end;
    int number; /* of the line that lines_next gave, from 1 */
};
struct lines lines_of(const struct buf *text);
bool lines_next(struct lines *, const char **line, size_t *n);
bool line_is_blank(const char *line, size_t n);

/* Output in place, never a rename. Opening creates the file but does not empty it, and refuses `input` (as in
 * input_read); output_begin empties it. */
struct output {
    FILE *file;
    const char *name;
};
int output_open(struct output *, const char *path, const char *input);
int output_begin(struct output *);
int output_line(struct output *, const char *text, size_t n); /* adds "\n" and flushes */
int output_close(struct output *);                            /* ERR_IO if what was written did not arrive */

void put_json_string(struct buf *, const char *text, size_t n);
void put_json_ids(struct buf *, const int32_t *ids, size_t n); /* "[1, 2]" */

#endif
