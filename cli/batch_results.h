/* The lines of a run and their records, in input order: which are made, written, or kept from an earlier run (--resume).
 *
 * Records go out when their turn comes. With --resume the kept ones stay where they are in the file and the others are appended;
 * as soon as nothing is missing up to the last kept one, what stands out of order is put in order (output_reorder). So a run
 * that is killed at any moment loses nothing: whatever it had kept or written, the next --resume finds in the file. */
#ifndef DUET_CLI_BATCH_RESULTS_H
#define DUET_CLI_BATCH_RESULTS_H

#include "cli/io.h"

struct result {
    const char *line; /* [len] of the input */
    size_t len;
    int number;        /* of that line, from 1 */
    struct buf record; /* made; empty until then, and again when it stands in its place */
    const char *kept;  /* [kept_len] the record of an earlier run; NULL: none */
    size_t kept_len;
    bool is_written;
};

struct results {
    struct output output;
    bool is_begun;       /* what the output held before is gone, or continued */
    bool is_broken;      /* the output failed: nothing more goes there */
    struct result *list; /* [total] */
    int total;           /* lines that are not blank */
    int made, written;   /* kept ones count as both */
    int kept;
    int next; /* whose turn it is */

    /* --resume */
    struct buf old;   /* the output's whole lines, as they were found */
    int64_t in_place; /* bytes at the start of the file with list[0..first-1], in order */
    int first, last;  /* last: the last kept one behind these; -1: none, so the file is in order */
};

/* The lines that are not blank; `input` must outlive the results. */
int results_create(struct results *, const struct buf *input);
void results_free(struct results *); /* closes the output */

/* Reads what the output, open and a regular file, holds: a record is kept if it is of a line that is still the same, and no error.
 * Of several the last counts. ERR_USAGE if there are only other things in it, or if the input is another one: a finished record
 * has no line there, or more are of lines that are not the same than are kept. `path` is the output's; spec_bench: its form. */
int results_resume(struct results *, const char *path, bool spec_bench);
/* With `resume` the file ends behind what is kept from here on; else what it holds stays until the first record is written. */
int results_begin(struct results *, bool resume);

/* Takes the record of list[i]. */
void results_put(struct results *, int i, struct buf *record);
/* Writes the records whose turn has come. */
int results_write_ready(struct results *);
/* At an early end: what is made, in order. */
int results_write_made(struct results *);
/* The same at a sudden end: async-signal-safe. */
void results_write_last(struct results *);

#endif
