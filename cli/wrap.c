#include "cli/wrap.h"

#include <string.h>
#include <utf8proc.h>

enum { TAB_COLUMNS = 8 };

static void append(struct buf *to, const struct buf *from) {
    buf_append(to, buf_text(from), from->len);
}

/* --- the line --------------------------------------------------------------------------------------------------- */

static bool wraps(const struct wrap *w) {
    return w->columns >= WRAP_COLUMNS_MIN;
}

/* Whether blanks and word may stand on this line. */
static bool fits(const struct wrap *w) {
    return !wraps(w) || w->blanks_end + w->word_columns <= w->columns;
}

static void drop_blanks(struct wrap *w) {
    buf_clear(&w->blanks);
    w->blanks_end = w->column;
}

static void put_blanks(struct wrap *w) {
    append(&w->out, &w->blanks);
    w->column = w->blanks_end;
    drop_blanks(w);
}

static void end_line(struct wrap *w) {
    buf_putc(&w->out, '\n');
    w->column = 0;
    w->line_begun = false;
    drop_blanks(w);
}

/* The text's own line breaks are not indented. */
static void break_line(struct wrap *w) {
    end_line(w);
    for (int i = 0; i < w->indent; i++) buf_putc(&w->out, ' ');
    w->column = w->blanks_end = w->indent;
}

/* --- the word --------------------------------------------------------------------------------------------------- */

static void close_style(struct wrap *w) {
    if (w->style_open && w->reset) buf_puts(&w->word, w->reset);
    w->style_open = false;
}

/* Puts what is held on this line, or on the next; more of the word follows it there. */
static void put_word(struct wrap *w) {
    close_style(w);
    if (!w->flows && !fits(w) && w->column > w->indent) break_line(w);
    put_blanks(w);
    append(&w->out, &w->word);
    w->column += w->word_columns;
    w->blanks_end = w->column;
    w->line_begun = true;
    w->flows = true;
    buf_clear(&w->word);
    w->word_columns = 0;
}

static void end_word(struct wrap *w) {
    if (w->word.len > 0) put_word(w);
    w->flows = w->wide = false;
}

static void add_to_word(struct wrap *w, const char *bytes, size_t n, int columns) {
    if (!w->style_open && w->style) buf_puts(&w->word, w->style);
    w->style_open = w->style != NULL;
    buf_append(&w->word, bytes, n);
    w->word_columns += columns;
    bool at_start = w->column == 0 && w->blanks.len == 0;
    if (w->flows || w->wide || at_start || !fits(w) || !wraps(w)) put_word(w);
}

/* --- characters ------------------------------------------------------------------------------------------------- */

static void push_newline(struct wrap *w) {
    end_word(w);
    if (fits(w)) put_blanks(w);
    end_line(w);
}

/* Indentation is out at once: only blanks behind a word may be dropped. */
static void push_blank(struct wrap *w, char blank) {
    end_word(w);
    buf_putc(&w->blanks, blank);
    w->blanks_end += blank == '\t' ? TAB_COLUMNS - w->blanks_end % TAB_COLUMNS : 1;
    if (!w->line_begun || !wraps(w)) put_blanks(w);
}

/* `begins`: not a part of the character before. */
static void push_character(struct wrap *w, const char *bytes, size_t n, int columns, bool begins) {
    if (begins && (w->wide || columns > 1)) end_word(w);
    if (begins && columns > 1) w->wide = true;
    if (begins && w->flows && wraps(w) && w->column + columns > w->columns)
        w->column = w->blanks_end = 0; /* the terminal breaks the word */
    add_to_word(w, bytes, n, columns);
}

void wrap_push(struct wrap *w, const char *text, size_t n) {
    for (size_t at = 0; at < n;) {
        uint32_t c = 0;
        size_t length = (size_t)utf8_decode(text + at, n - at, &c);
        int columns = length > 0 ? utf8proc_charwidth((utf8proc_int32_t)c) : 1;
        if (length == 0) length = 1, c = 0xfffd;
        bool begins = utf8proc_grapheme_break_stateful((utf8proc_int32_t)w->last, (utf8proc_int32_t)c, &w->clusters);
        w->last = c;
        if (c == '\n')
            push_newline(w);
        else if (c == ' ' || c == '\t')
            push_blank(w, (char)c);
        else
            push_character(w, text + at, length, columns, begins);
        at += length;
    }
    close_style(w);
}

void wrap_finish(struct wrap *w) {
    end_word(w);
    if (fits(w)) put_blanks(w);
    buf_clear(&w->blanks);
    *w = (struct wrap){.columns = w->columns,
                       .indent = w->indent,
                       .style = w->style,
                       .reset = w->reset,
                       .out = w->out,
                       .blanks = w->blanks,
                       .word = w->word};
}

void wrap_free(struct wrap *w) {
    buf_free(&w->out);
    buf_free(&w->blanks);
    buf_free(&w->word);
}

int wrap_text_columns(const char *text) {
    int columns = 0;
    for (size_t n = strlen(text); n > 0;) {
        uint32_t c = 0;
        size_t length = (size_t)utf8_decode(text, n, &c);
        columns += length > 0 ? utf8proc_charwidth((utf8proc_int32_t)c) : 1;
        length = length > 0 ? length : 1;
        text += length, n -= length;
    }
    return columns;
}
