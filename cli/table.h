/* A text table on stdout: columns as wide as their widest cell, numbers to the right. */
#ifndef DUET_CLI_TABLE_H
#define DUET_CLI_TABLE_H

#include <stdbool.h>

enum { TABLE_COLUMNS_MAX = 12 };

struct table {
    int columns, cells;
    char **cell;       /* [cells], row by row; the first row is the heading */
    const char *align; /* [columns]: 'l' or 'r' */
};

/* `align` has one letter a column. */
struct table table_create(const char *align);
void table_add(struct table *, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(struct table *, bool csv); /* and frees it */

#endif
