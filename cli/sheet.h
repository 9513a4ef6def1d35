/* What a measurement gives, in every form that can be asked for: text for a terminal, CSV, one JSON object, a picture. A command fills
 * a sheet and shows it once, so no form has a figure that another lacks.
 *
 * As text: the head, the tables, the notes. As CSV: the table and nothing else, under the names of its columns; two are one, with a column
 * that says which (table_print_csv_joined). As JSON: the facts, then a list a table, with an object a row. */
#ifndef DUET_CLI_SHEET_H
#define DUET_CLI_SHEET_H

#include "cli/io.h"
#include "cli/options.h"
#include "cli/table.h"

/* A column of a table: what a terminal shows, and its name in CSV and JSON. */
struct sheet_column {
    const char *shown, *name;
};

struct sheet {
    struct buf head, notes; /* lines */
    struct buf remarks;     /* lines that are notes of the program where the tables are CSV */
    struct buf missing;     /* elements of a list in JSON */
    struct buf facts;       /* the object, without its end */
    struct table_part tables[TABLE_PARTS_MAX];
    int count;
};

/* A table with its heading; align and drop as of table_create. It stays valid until the sheet is shown. */
struct table *sheet_add_table(struct sheet *, const char *list, const struct sheet_column *columns, const char *align,
                              const char *drop);
/* An empty cell where there is no figure. */
void sheet_add_figure(struct table *, double value, int decimals);

void sheet_say(struct sheet *, const char *format, ...) __attribute__((format(printf, 2, 3)));  /* above the tables */
void sheet_note(struct sheet *, const char *format, ...) __attribute__((format(printf, 2, 3))); /* below them */
/* A note that says why rows are missing: beside CSV a note of the program, and in JSON in a list of such sentences. */
void sheet_note_missing(struct sheet *, const char *sentence);
void sheet_put_figure(struct sheet *, const char *name, double value);   /* a fact */
void sheet_put_word(struct sheet *, const char *name, const char *word); /* NULL: null */

/* Prints it, as the options ask. And frees it. */
void sheet_show(struct sheet *, const struct options *);
void sheet_free(struct sheet *);

/* --- the picture: --plot FILE.svg ------------------------------------------------------------------------- */

/* Opens the file before anything is measured; not the input, no file of the models, and without --force none that holds
 * something. Nothing where none was asked for. */
int plot_file_open(struct output *, const struct options *, const struct models *);
/* Writes and closes it. */
int plot_file_write(struct output *, const struct buf *svg);

#endif
