#include "cli/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/wrap.h"

struct table table_create(const char *align, const char *drop) {
    return (struct table){.columns = (int)strlen(align), .align = align, .drop = drop};
}

void table_add(struct table *t, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    t->cell = memory_resize(t->cell, (size_t)(t->cells + 1) * sizeof(char *));
    t->cell[t->cells++] = memory_copy_text(text);
}

void table_free(struct table *t) {
    for (int i = 0; i < t->cells; i++) free(t->cell[i]);
    free(t->cell);
    *t = (struct table){0};
}

static const char *cell_at(const struct table *t, int row, int column) {
    return t->cell[row * t->columns + column];
}

/* --- for a terminal --------------------------------------------------------------------------------------- */

/* Columns of the table; 0: left out. */
struct layout {
    int width[TABLE_COLUMNS_MAX];
    int all; /* with what lies between them */
    struct buf dropped;
};

enum { GAP = 2 };

static struct layout lay_out(const struct table *t, int width) {
    struct layout l = {.all = -GAP};
    for (int i = 0; i < t->cells; i++) {
        int n = wrap_text_columns(t->cell[i]), *most = &l.width[i % t->columns];
        if (n > *most) *most = n;
    }
    for (int c = 0; c < t->columns; c++) l.all += l.width[c] + GAP;
    for (const char *drop = t->drop; *drop && l.all > width; drop++) {
        int c = *drop - '0';
        buf_printf(&l.dropped, "%s%s", l.dropped.len > 0 ? ", " : "", cell_at(t, 0, c));
        l.all -= l.width[c] + GAP;
        l.width[c] = 0;
    }
    if (l.all > width && l.all - width < l.width[0]) l.width[0] -= l.all - width, l.all = width;
    return l;
}

static void print_row(const struct table *t, int row, const struct layout *l) {
    struct buf line = {0};
    for (int c = 0; c < t->columns; c++) {
        const char *text = cell_at(t, row, c);
        int blanks = l->width[c] - wrap_text_columns(text);
        if (l->width[c] == 0) continue;
        if (c == 0 && blanks < 0) printf("%s\n", text), text = "", blanks = l->width[c];
        bool right = t->align[c] == 'r';
        buf_printf(&line, "%*s%s%*s", right ? blanks : 0, "", text, (right ? 0 : blanks) + GAP, "");
    }
    while (line.len > 0 && line.data[line.len - 1] == ' ') line.len--;
    printf("%.*s\n", (int)line.len, buf_text(&line));
    buf_free(&line);
}

void table_print(struct table *t, int width) {
    struct layout l = lay_out(t, width);
    fputs(terminal_style(1, STYLE_BOLD), stdout);
    print_row(t, 0, &l);
    fputs(terminal_style(1, STYLE_RESET), stdout);
    for (int row = 1; row < t->cells / t->columns; row++) print_row(t, row, &l);
    if (l.dropped.len > 0) {
        struct buf said = {0};
        buf_printf(&said, "Left out, for want of room: %s.", buf_text(&l.dropped));
        fputs(terminal_style(1, STYLE_DIM), stdout);
        terminal_print(stdout, width, 0, 0, buf_text(&said));
        fputs(terminal_style(1, STYLE_RESET), stdout);
        buf_free(&said);
    }
    buf_free(&l.dropped);
    table_free(t);
}

/* --- for programs --------------------------------------------------------------------------------------------------- */

/* By RFC 4180. */
static void print_csv_cell(const char *text) {
    if (strcmp(text, TABLE_NO_FIGURE) == 0) return;
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_csv_row(const struct table *t, int row, const char *const *names) {
    const char *separator = "";
    for (int c = 0; c < t->columns; c++) {
        const char *text = names && row == 0 ? names[c] : cell_at(t, row, c);
        if (names && !names[c]) continue;
        fputs(separator, stdout);
        print_csv_cell(text);
        separator = ",";
    }
    putchar('\n');
}

void table_print_csv(struct table *t, const char *const *names) {
    for (int row = 0; row < t->cells / t->columns; row++) print_csv_row(t, row, names);
    table_free(t);
}

/* The column of a name; -1: there is none. */
static int column_of(const struct table_part *part, const char *name) {
    for (int c = 0; c < part->table.columns; c++)
        if (part->names[c] && strcmp(part->names[c], name) == 0) return c;
    return -1;
}

/* The names of all columns, each once. Returns how many. */
static int join_names(const struct table_part *parts, int count, const char **joined) {
    int n = 0;
    for (int i = 0; i < count; i++)
        for (int c = 0; c < parts[i].table.columns; c++) {
            int other = 0;
            while (parts[i].names[c] && other < i && column_of(&parts[other], parts[i].names[c]) < 0) other++;
            if (parts[i].names[c] && other == i) joined[n++] = parts[i].names[c];
        }
    return n;
}

static void print_joined_row(const struct table_part *part, int row, const char *const *names, int columns) {
    print_csv_cell(part->list);
    for (int c = 0; c < columns; c++) {
        const int own = column_of(part, names[c]);
        putchar(',');
        if (own >= 0) print_csv_cell(cell_at(&part->table, row, own));
    }
    putchar('\n');
}

void table_print_csv_joined(struct table_part *parts, int count) {
    const char *names[TABLE_PARTS_MAX * TABLE_COLUMNS_MAX];
    const int columns = join_names(parts, count, names);
    fputs("table", stdout);
    for (int c = 0; c < columns; c++) putchar(','), print_csv_cell(names[c]);
    putchar('\n');
    for (int i = 0; i < count; i++) {
        for (int row = 1; row < parts[i].table.cells / parts[i].table.columns; row++)
            print_joined_row(&parts[i], row, names, columns);
        table_free(&parts[i].table);
    }
}

static void put_cell(const struct table *t, int row, int column, struct buf *out) {
    const char *text = cell_at(t, row, column);
    char *end;
    double value = strtod(text, &end);
    if (t->align[column] == 'l')
        json_put_string(out, text, strlen(text));
    else
        buf_puts(out, end > text && !*end && isfinite(value) ? text : "null");
}

void table_put_json(struct table *t, const char *const *names, struct buf *out) {
    buf_putc(out, '[');
    for (int row = 1; row < t->cells / t->columns; row++) {
        json_put_element(out);
        buf_putc(out, '{');
        for (int c = 0; c < t->columns; c++) {
            if (!names[c]) continue;
            json_put_name(out, names[c]);
            put_cell(t, row, c, out);
        }
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
    table_free(t);
}
