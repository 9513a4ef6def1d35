/* A scanner for Jinja, which sorts a template into what it says and what it does. White space between tags is treated
 * as the renderer of chat templates treats it: trim_blocks, lstrip_blocks, "-" in tags. */
#include <string.h>

#include "model/text/chat_template_internal.h"

struct scanner {
    const char *text;
    size_t n, at;
    bool strip;        /* the last tag ended with "-": white space goes */
    bool trim_newline; /* the last tag was a block or a comment: one newline goes */
    struct template_words *out;
};

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_role_word(const char *text, size_t n) {
    static const char *const words[] = {"role", "content", "system", "user", "assistant"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && memcmp(words[i], text, n) == 0) return true;
    return false;
}

static void unescape(const char *text, size_t n, struct buf *out) {
    static const char letters[] = "ntr\\'\"", values[] = "\n\t\r\\'\"";
    for (size_t i = 0; i < n; i++) {
        const char *known = text[i] == '\\' && i + 1 < n && text[i + 1] ? strchr(letters, text[i + 1]) : NULL;
        buf_putc(out, known ? values[known - letters] : text[i]);
        if (known) i++;
    }
}

/* Text and literals alike, between bytes that UTF-8 has no use for: no text can stand for the border of two. */
static void put_exact(struct scanner *s, const char *text, size_t n) {
    buf_putc(&s->out->exact, '\xff');
    buf_append(&s->out->exact, text, n);
    buf_putc(&s->out->exact, '\xfe');
}

static void put_code(struct scanner *s, char c) {
    buf_putc(&s->out->code, c);
    buf_putc(&s->out->exact, c);
}

/* A string literal that begins at s->at. */
static bool scan_literal(struct scanner *s) {
    char quote = s->text[s->at++];
    size_t begin = s->at;
    while (s->at < s->n && s->text[s->at] != quote) s->at += s->text[s->at] == '\\' ? 2 : 1;
    if (s->at >= s->n) return false;
    size_t length = s->at++ - begin;
    struct buf literal = {0};
    unescape(s->text + begin, length, &literal);
    put_exact(s, buf_text(&literal), literal.len);
    buf_putc(&s->out->code, '\'');
    buf_append(is_role_word(s->text + begin, length) ? &s->out->code : &s->out->said, buf_text(&literal), literal.len);
    buf_putc(&s->out->code, '\'');
    buf_free(&literal);
    return true;
}

/* The text before a tag at `end`. */
static void take_text(struct scanner *s, size_t end) {
    size_t begin = s->at;
    char kind = end + 1 < s->n ? s->text[end + 1] : '\0', sign = end + 2 < s->n ? s->text[end + 2] : '\0';
    if (s->strip)
        while (begin < end && is_space(s->text[begin])) begin++;
    else if (s->trim_newline && begin < end && s->text[begin] == '\n')
        begin++;
    size_t line = end;
    while (line > begin && (s->text[line - 1] == ' ' || s->text[line - 1] == '\t')) line--;
    bool at_line_start = line == 0 || (line > begin ? s->text[line - 1] == '\n' : s->text[line - 1] == '\n');
    if (end == s->n) {
        if (end > begin && s->text[end - 1] == '\n') end--;
    } else if (sign == '-') {
        while (end > begin && is_space(s->text[end - 1])) end--;
    } else if (kind != '{' && sign != '+' && at_line_start) {
        end = line;
    }
    if (end == begin) return;
    buf_append(&s->out->said, s->text + begin, end - begin);
    put_exact(s, s->text + begin, end - begin);
}

/* A tag that begins at s->at; up to behind its end. */
static bool scan_tag(struct scanner *s) {
    char kind = s->text[s->at + 1], last = kind == '{' ? '}' : kind;
    s->at += 2;
    if (s->at < s->n && (s->text[s->at] == '-' || s->text[s->at] == '+')) s->at++;
    for (; s->at + 1 < s->n; s->at++) {
        char c = s->text[s->at];
        if (c == last && s->text[s->at + 1] == '}') {
            s->strip = s->text[s->at - 1] == '-';
            s->trim_newline = kind != '{' && s->text[s->at - 1] != '+';
            s->at += 2;
            if (kind != '#') put_code(s, ';');
            return true;
        }
        bool is_sign = (c == '-' || c == '+') && s->at + 2 < s->n && s->text[s->at + 1] == last;
        if (kind == '#' || (is_sign && s->text[s->at + 2] == '}')) continue;
        if (c == '\'' || c == '"') {
            if (!scan_literal(s)) return false;
            s->at--;
        } else if (!is_space(c)) {
            put_code(s, c);
        }
    }
    return false;
}

bool template_scan(const char *source, size_t n, struct template_words *out) {
    struct scanner s = {.text = source, .n = n, .out = out};
    while (s.at < n) {
        size_t tag = s.at;
        while (tag + 1 < n && !(source[tag] == '{' && strchr("{%#", source[tag + 1]) && source[tag + 1])) tag++;
        if (tag + 1 >= n) tag = n;
        take_text(&s, tag);
        s.at = tag;
        if (tag < n && !scan_tag(&s)) return false;
    }
    return true;
}

void template_words_free(struct template_words *w) {
    buf_free(&w->said);
    buf_free(&w->code);
    buf_free(&w->exact);
}
