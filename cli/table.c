#include "cli/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "cli/cli.h"

struct table table_create(const char *align) {
    return (struct table){.columns = (int)strlen(align), .align = align};
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

static void print_text_row(const struct table *t, int row, const int *width) {
    struct buf line = {0};
    for (int c = 0; c < t->columns; c++) {
        const char *text = t->cell[row * t->columns + c];
        if (t->align[c] == 'r')
            buf_printf(&line, "%*s  ", width[c], text);
        else
            buf_printf(&line, "%-*s  ", width[c], text);
    }
    while (line.len > 0 && line.data[line.len - 1] == ' ') line.len--;
    printf("%.*s\n", (int)line.len, buf_text(&line));
    buf_free(&line);
}

static void print_csv_row(const struct table *t, int row) {
    for (int c = 0; c < t->columns; c++) {
        const char *text = t->cell[row * t->columns + c];
        bool quote = strpbrk(text, ",\"") != NULL;
        printf("%s%s%s%s", quote ? "\"" : "", text, quote ? "\"" : "", c + 1 == t->columns ? "\n" : ",");
    }
}

void table_print(struct table *t, bool csv) {
    int width[TABLE_COLUMNS_MAX] = {0};
    for (int i = 0; i < t->cells; i++) {
        int n = (int)strlen(t->cell[i]);
        if (n > width[i % t->columns]) width[i % t->columns] = n;
    }
    for (int row = 0; row < t->cells / t->columns; row++) {
        if (csv) {
            print_csv_row(t, row);
            continue;
        }
        if (row == 0) fputs(terminal_style(1, STYLE_BOLD), stdout);
        print_text_row(t, row, width);
        if (row == 0) fputs(terminal_style(1, STYLE_RESET), stdout);
    }
    for (int i = 0; i < t->cells; i++) free(t->cell[i]);
    free(t->cell);
    *t = (struct table){0};
}
