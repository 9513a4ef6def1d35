/* Runs the built program ($DUET, else build/duet) and keeps what it wrote. */
#ifndef DUET_TESTS_PROGRAM_H
#define DUET_TESTS_PROGRAM_H

#include <cjson/cJSON.h>
#include <sys/types.h>

#include "base/buf.h"

struct program {
    pid_t pid;
    int status; /* exit status; 128 + signal if a signal ended it */
    struct buf out, err;
};

/* `input` NULL: nothing on standard input. Arguments end with NULL. Standard output and error are files. */
void program_run(struct program *, const char *input, const char *const *arguments);
/* The same in a terminal's worth of so many columns ($COLUMNS). */
struct program program_run_at(int columns, const char *input, const char *const *arguments);
/* As program_run without waiting; program_wait collects it. */
void program_start(struct program *, const char *input, const char *const *arguments);
void program_wait(struct program *);
void program_free(struct program *);
/* The exit status; with 0, nothing on stderr, which is no terminal. */
void program_expect_status(const struct program *, int status);
/* A status, and one line on stderr, "duet: ...", that holds `part`. */
void program_expect_error(const struct program *, int status, const char *part);

#define ARGUMENTS(...)      \
    (const char *const[]) { \
        __VA_ARGS__, NULL   \
    }

/* Path of the program; a static buffer. */
const char *program_path(void);
/* A path in temp_dir(); static buffers, four in turn. */
const char *temp_path(const char *name);
void text_to_file(const char *path, const char *text);
void text_of_file(const char *path, struct buf *out);

/* The i-th line of `text` (from 0) parsed as JSON, which must be an object; NULL past the end. */
cJSON *json_line(const struct buf *text, int i);
int count_lines(const struct buf *text);
/* Members of a record that must be there. */
const char *get_string(const cJSON *record, const char *name);
double get_number(const cJSON *record, const char *name);

#endif
