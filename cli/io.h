/* Input and output of the commands that work on lines. */
#ifndef DUET_CLI_IO_H
#define DUET_CLI_IO_H

#include <stdint.h>

#include "base/buf.h"

/* Reads all of `path`, NULL or "-" for standard input. ERR_IO names it. */
int input_read(const char *path, struct buf *out);
/* What sentences call it: the path, or "standard input". */
const char *input_name(const char *path);

/* The lines of a text: without their end ("\n" or "\r\n"); a last line without one counts. */
struct lines {
    const char *at, *end;
    int number; /* of the line that lines_next gave, from 1 */
};
struct lines lines_of(const struct buf *text);
bool lines_next(struct lines *, const char **line, size_t *n);
bool line_is_blank(const char *line, size_t n);

/* Output in place, never a rename: after a failed write (a full disk) a regular file ends behind its last whole line. Opening
 * creates the file but does not empty it; output_begin does. What shall not be written to is refused between the two, by device
 * and inode, so that links do not help: ERR_USAGE. */
struct output {
    int fd; /* -1: closed */
    const char *name;
    bool is_regular;
    int64_t end; /* of the last whole line in a regular file */
};
#define OUTPUT_CLOSED ((struct output){.fd = -1})

struct models;
int output_open(struct output *, const char *path);                /* NULL or "-": standard output */
int output_refuse_input(const struct output *, const char *input); /* `input` as in input_read */
int output_refuse_models(const struct output *, const struct models *);
int output_refuse_output(const struct output *, const struct output *other);
/* A regular file, not standard output, with something in it. */
bool output_holds(const struct output *);
/* An existing file that is not empty; standard output, under any of its names, is never refused. */
int output_refuse_existing(const struct output *, bool can_resume);
int output_begin(struct output *);
/* Begins behind the first `bytes` of a regular file. */
int output_continue(struct output *, int64_t bytes);
/* Replaces what stands behind `from` by `text`, of whole lines that all stand there already, in another order or twice. At any
 * moment the file holds each of them whole: a copy goes to the end first. */
int output_reorder(struct output *, int64_t from, const char *text, size_t n);
int output_line(struct output *, const char *text, size_t n); /* adds "\n"; Ctrl-C waits until it is out */
/* The same for the end of the process by a signal's handler: async-signal-safe, and without an error to tell. */
void output_line_last(struct output *, const char *text, size_t n);
int output_close(struct output *); /* ERR_IO if what was written did not arrive */

void put_json_ids(struct buf *, const int32_t *ids, size_t n); /* "[1, 2]" */

#endif
