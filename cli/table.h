/* A text table on stdout: columns as wide as their widest cell, numbers to the right. Where it is wider than the terminal it loses
 * whole columns, the least important first, and never a digit of a number. */
#ifndef DUET_CLI_TABLE_H
#define DUET_CLI_TABLE_H

#include "base/buf.h"

enum { TABLE_COLUMNS_MAX = 72, TABLE_PARTS_MAX = 2 };

/* What a terminal may show where there is no figure: nothing in CSV, null in JSON. */
#define TABLE_NO_FIGURE "-"

struct table {
    int columns, cells;
    char **cell;       /* [cells], row by row; the first row is the heading */
    const char *align; /* [columns]: 'l' or 'r' */
    const char *drop;  /* columns that may be left out, the first of them first: '0' + column */
};

/* A table among several of one measurement, under the names that programs see. */
struct table_part {
    struct table table;
    const char *list;                     /* its own */
    const char *names[TABLE_COLUMNS_MAX]; /* of its columns; NULL: a column for a terminal alone */
};

/* `align` has one letter a column. */
struct table table_create(const char *align, const char *drop);
void table_add(struct table *, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* At most `width` columns wide, where leaving columns out brings that; the last line then says which. A first cell that has no room
 * beside the others stands on a line of its own. And frees it. */
void table_print(struct table *, int width);
/* All of it, with `names` [columns] in place of the heading, where one is NULL without the column; NULL: as it is. And frees it. */
void table_print_csv(struct table *, const char *const *names);
/* Several as one, since a CSV is one table: the column `table` says which a row is of, and the columns of all follow, those of one name
 * as one, empty where a row's table lacks it. `count` up to TABLE_PARTS_MAX. And frees them. */
void table_print_csv_joined(struct table_part *, int count);
/* Appends a list of objects, one a row, with `names` likewise. Cells of 'r' columns are numbers, or null where they hold none. And frees
 * it. */
void table_put_json(struct table *, const char *const *names, struct buf *out);
void table_free(struct table *); /* of one that is not shown */

#endif
