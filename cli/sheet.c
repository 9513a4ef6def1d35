#include "cli/sheet.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"

struct table *sheet_add_table(struct sheet *s, const char *list, const struct sheet_column *columns, const char *align,
                              const char *drop) {
    int which = s->count++;
    struct table *t = &s->tables[which].table;
    *t = table_create(align, drop);
    s->tables[which].list = list;
    for (int i = 0; i < t->columns; i++) {
        s->tables[which].names[i] = columns[i].name;
        table_add(t, "%s", columns[i].shown);
    }
    return t;
}

void sheet_add_figure(struct table *t, double value, int decimals) {
    if (isfinite(value))
        table_add(t, "%.*f", decimals, value);
    else
        table_add(t, "%s", "");
}

static void add_line(struct buf *out, const char *format, va_list args) {
    char line[1024];
    vsnprintf(line, sizeof line, format, args);
    buf_printf(out, "%s\n", line);
}

void sheet_say(struct sheet *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_line(&s->head, format, args);
    va_end(args);
}

void sheet_note(struct sheet *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_line(&s->notes, format, args);
    va_end(args);
}

void sheet_note_missing(struct sheet *s, const char *sentence) {
    sheet_note(s, "%s", sentence);
    buf_printf(&s->remarks, "%s\n", sentence);
    if (s->missing.len == 0) buf_putc(&s->missing, '[');
    json_put_element(&s->missing);
    json_put_string(&s->missing, sentence, strlen(sentence));
}

static void begin_fact(struct sheet *s, const char *name) {
    if (s->facts.len == 0) buf_putc(&s->facts, '{');
    json_put_name(&s->facts, name);
}

void sheet_put_figure(struct sheet *s, const char *name, double value) {
    begin_fact(s, name);
    json_put_number(&s->facts, value);
}

void sheet_put_word(struct sheet *s, const char *name, const char *word) {
    begin_fact(s, name);
    if (word)
        json_put_string(&s->facts, word, strlen(word));
    else
        buf_puts(&s->facts, "null");
}

/* --- the forms -------------------------------------------------------------------------------------------- */

/* Lines, each broken for the terminal. */
static void print_lines(const struct buf *text, int width) {
    struct buf line = {0};
    for (const char *at = buf_text(text); *at; at += strcspn(at, "\n"), at += *at == '\n') {
        buf_clear(&line);
        buf_append(&line, at, strcspn(at, "\n"));
        terminal_print(stdout, width, 0, 0, buf_text(&line));
    }
    buf_free(&line);
}

static void print_text(struct sheet *s) {
    const int width = terminal_width(1);
    print_lines(&s->head, width);
    for (int i = 0; i < s->count; i++) {
        putchar('\n');
        table_print(&s->tables[i].table, width);
    }
    if (s->notes.len > 0) putchar('\n');
    print_lines(&s->notes, width);
}

static void print_csv(struct sheet *s) {
    struct lines remarks = lines_of(&s->remarks);
    const char *line;
    size_t n;
    while (lines_next(&remarks, &line, &n)) cli_note("%.*s", (int)n, line);
    if (s->count > 1)
        table_print_csv_joined(s->tables, s->count);
    else if (s->count == 1)
        table_print_csv(&s->tables[0].table, s->tables[0].names);
}

static void print_json(struct sheet *s) {
    for (int i = 0; i < s->count; i++) {
        begin_fact(s, s->tables[i].list);
        table_put_json(&s->tables[i].table, s->tables[i].names, &s->facts);
    }
    if (s->missing.len > 0) {
        begin_fact(s, "missing");
        buf_printf(&s->facts, "%s]", buf_text(&s->missing));
    }
    printf("%s}\n", buf_text(&s->facts));
}

void sheet_free(struct sheet *s) {
    for (int i = 0; i < s->count; i++) table_free(&s->tables[i].table);
    buf_free(&s->head);
    buf_free(&s->notes);
    buf_free(&s->remarks);
    buf_free(&s->missing);
    buf_free(&s->facts);
    *s = (struct sheet){0};
}

void sheet_show(struct sheet *s, const struct options *o) {
    if (o->json)
        print_json(s);
    else if (o->csv)
        print_csv(s);
    else
        print_text(s);
    sheet_free(s);
}

/* --- the picture ------------------------------------------------------------------------------------------ */

int plot_file_open(struct output *out, const struct options *o, const struct models *m) {
    *out = OUTPUT_CLOSED;
    if (!o->plot) return 0;
    TRY(output_open(out, o->plot));
    TRY(output_refuse_input(out, o->input));
    TRY(output_refuse_models(out, m));
    return o->force ? 0 : output_refuse_existing(out, false);
}

int plot_file_write(struct output *out, const struct buf *svg) {
    int rc = output_begin(out);
    if (rc == 0) rc = output_line(out, buf_text(svg), svg->len);
    return rc == 0 ? output_close(out) : rc;
}
