/* From a template's source to tokens: what stands between tags, with the white space that the renderer of chat templates leaves of it
 * (trim_blocks, lstrip_blocks, signs in tags), and what stands inside of them. */
#include <string.h>

#include "model/jinja/internal.h"

struct lexer {
    struct jinja_arena *arena;
    struct jinja_text source;
    size_t at, count, cap;
    int line;
    bool strips;        /* the last tag ended with "-": white space goes */
    bool at_line_start; /* what the last tag took ended with a newline, or nothing is taken yet */
    struct jinja_token *tokens;
};

static void add(struct lexer *l, enum jinja_token_kind kind, struct jinja_text text) {
    if (l->count == l->cap) {
        struct jinja_token *more = jinja_alloc(l->arena, 2 * (l->cap + 32) * sizeof *more);
        if (l->count > 0) memcpy(more, l->tokens, l->count * sizeof *more);
        l->tokens = more;
        l->cap = 2 * (l->cap + 32);
    }
    l->tokens[l->count++] = (struct jinja_token){kind, l->line, text};
}

static bool has(const struct lexer *l, size_t at, const char *text) {
    const size_t n = strlen(text);
    return l->source.n - at >= n && memcmp(l->source.bytes + at, text, n) == 0;
}

static char peek(const struct lexer *l, size_t at) {
    return at < l->source.n ? l->source.bytes[at] : '\0';
}

static void move_to(struct lexer *l, size_t at) {
    for (; l->at < at; l->at++) l->line += l->source.bytes[l->at] == '\n';
}

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Newlines as "\n"; one at the very end goes. */
static struct jinja_text normalise(struct jinja_arena *a, const char *source, size_t n) {
    char *text = jinja_alloc(a, n + 1);
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n') continue;
        text[length++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (length > 0 && text[length - 1] == '\n') length--;
    return (struct jinja_text){.bytes = text, .n = length};
}

/* --- between tags ------------------------------------------------------------------------------------------------ */

/* The text up to a tag at `end` (or the end of the source), less the white space that the tags around it take. */
static void take_data(struct lexer *l, size_t end) {
    const char kind = peek(l, end + 1), sign = end < l->source.n ? peek(l, end + 2) : '\0';
    const bool at_tag = end < l->source.n;
    const struct jinja_text all = jinja_part(l->source, l->at, end - l->at);
    struct jinja_text data = jinja_strip(all, NULL, l->strips, at_tag && sign == '-');
    if (at_tag && sign != '-' && sign != '+' && kind != '{') {
        size_t line = data.n;
        while (line > 0 && data.bytes[line - 1] != '\n') line--;
        const size_t before = (size_t)(data.bytes - all.bytes);
        const bool is_start = line > 0 || (before > 0 ? all.bytes[before - 1] == '\n' : l->at_line_start);
        if (is_start && jinja_strip(jinja_part(data, line, data.n - line), NULL, true, false).n == 0) data.n = line;
    }
    if (data.n > 0) add(l, TOKEN_DATA, data);
    l->strips = false;
    move_to(l, end);
}

static size_t find_tag(const struct lexer *l) {
    size_t at = l->at;
    while (at < l->source.n &&
           !(l->source.bytes[at] == '{' && (has(l, at, "{{") || has(l, at, "{%") || has(l, at, "{#"))))
        at++;
    return at;
}

/* A tag's end at `at`: "%}", "-%}" or "+%}" (last: '%', '}' or '#'). Its length, or 0. */
static size_t end_length(const struct lexer *l, size_t at, char last) {
    const bool is_signed = peek(l, at) == '-' || (peek(l, at) == '+' && last != '}');
    const size_t from = at + (is_signed ? 1 : 0);
    return peek(l, from) == last && peek(l, from + 1) == '}' ? from - at + 2 : 0;
}

/* Behind a tag's end of so many bytes. */
static void leave_tag(struct lexer *l, size_t length, bool trims) {
    const char sign = l->source.bytes[l->at];
    l->strips = length == 3 && sign == '-';
    move_to(l, l->at + length);
    l->at_line_start = false;
    if (trims && length == 2 && peek(l, l->at) == '\n' && l->at < l->source.n) {
        move_to(l, l->at + 1);
        l->at_line_start = true;
    }
}

static int skip_comment(struct lexer *l) {
    const int line = l->line;
    size_t at = l->at + 2, length = 0;
    while (at < l->source.n && !(length = end_length(l, at, '#'))) at++;
    if (length == 0) return err_set(ERR_FORMAT, "line %d: a comment without an end", line);
    move_to(l, at);
    leave_tag(l, length, true);
    return 0;
}

/* --- inside of tags ---------------------------------------------------------------------------------------------- */

static int digit_of(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 99;
}

/* The code behind \x, \u, \U or an octal escape: `count` digits of `base` at most. */
static uint32_t read_code(struct jinja_text t, size_t *at, int count, int base) {
    uint32_t code = 0;
    for (; count > 0 && *at < t.n && digit_of(t.bytes[*at]) < base; count--, ++*at)
        code = code * (uint32_t)base + (uint32_t)digit_of(t.bytes[*at]);
    return code;
}

/* What a backslash and what follows it, at *at, mean; those that mean nothing stay. */
static void unescape_one(struct jinja_out *out, struct jinja_text t, size_t *at) {
    static const char letters[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = t.bytes[*at + 1];
    const char *known = c ? strchr(letters, c) : NULL;
    char utf8[4];
    if (known) {
        jinja_add(out, (struct jinja_text){&values[known - letters], NULL, 1});
        *at += 2;
    } else if (c == '\n') {
        *at += 2;
    } else if (c == 'x' || c == 'u' || c == 'U' || digit_of(c) < 8) {
        const bool is_octal = digit_of(c) < 8;
        *at += is_octal ? 1 : 2;
        const uint32_t code = read_code(t, at, c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 3, is_octal ? 8 : 16);
        const bool is_valid = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
        jinja_add(out, (struct jinja_text){utf8, NULL, (size_t)utf8_encode(is_valid ? code : 0xfffd, utf8)});
    } else {
        jinja_add(out, jinja_part(t, *at, 2));
        *at += 2;
    }
}

static int lex_string(struct lexer *l) {
    const char quote = l->source.bytes[l->at];
    size_t end = l->at + 1;
    while (end < l->source.n && l->source.bytes[end] != quote) end += l->source.bytes[end] == '\\' ? 2 : 1;
    if (end >= l->source.n) return err_set(ERR_FORMAT, "line %d: a string without an end", l->line);
    const struct jinja_text raw = jinja_part(l->source, l->at + 1, end - l->at - 1);
    struct jinja_out out = {.arena = l->arena};
    for (size_t at = 0; at < raw.n;)
        if (raw.bytes[at] == '\\')
            unescape_one(&out, raw, &at);
        else
            jinja_add(&out, jinja_part(raw, at++, 1));
    struct jinja_text text = jinja_take(&out);
    text.plain = NULL;
    add(l, TOKEN_STRING, text);
    move_to(l, end + 1);
    return 0;
}

static bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Digits, a fraction, an exponent; "1.strip" is no float. */
static void lex_number(struct lexer *l) {
    size_t at = l->at;
    bool is_float = false;
    while (is_digit(peek(l, at)) || (peek(l, at) == '_' && is_digit(peek(l, at + 1)))) at++;
    if (peek(l, at) == '.' && is_digit(peek(l, at + 1))) {
        is_float = true;
        for (at++; is_digit(peek(l, at));) at++;
    }
    const size_t sign = peek(l, at + 1) == '-' || peek(l, at + 1) == '+' ? 1 : 0;
    if ((peek(l, at) == 'e' || peek(l, at) == 'E') && is_digit(peek(l, at + 1 + sign))) {
        is_float = true;
        for (at += 1 + sign; is_digit(peek(l, at));) at++;
    }
    add(l, is_float ? TOKEN_FLOAT : TOKEN_INTEGER, jinja_part(l->source, l->at, at - l->at));
    move_to(l, at);
}

static int lex_sign(struct lexer *l) {
    static const char *const twos[] = {"==", "!=", "<=", ">=", "//", "**"};
    for (size_t i = 0; i < sizeof twos / sizeof *twos; i++)
        if (has(l, l->at, twos[i])) {
            add(l, TOKEN_SIGN, jinja_part(l->source, l->at, 2));
            move_to(l, l->at + 2);
            return 0;
        }
    if (!peek(l, l->at) || !strchr("+-*/%~<>=.,:|()[]{}", peek(l, l->at))) {
        char text[8] = {0}, shown[40];
        memcpy(text, l->source.bytes + l->at, jinja_character(l->source, l->at));
        return err_set(ERR_FORMAT, "line %d: '%s' is not expected in a tag", l->line,
                       err_escape(text, shown, sizeof shown));
    }
    add(l, TOKEN_SIGN, jinja_part(l->source, l->at, 1));
    move_to(l, l->at + 1);
    return 0;
}

static int lex_one(struct lexer *l) {
    const char c = l->source.bytes[l->at];
    if (c == '\'' || c == '"') return lex_string(l);
    if (is_name_start(c)) {
        size_t at = l->at;
        while (is_name_start(peek(l, at)) || is_digit(peek(l, at))) at++;
        add(l, TOKEN_NAME, jinja_part(l->source, l->at, at - l->at));
        move_to(l, at);
        return 0;
    }
    if (is_digit(c)) {
        lex_number(l);
        return 0;
    }
    return lex_sign(l);
}

/* A tag's inside, up to behind its end. Brackets that are open keep "}}" from being one. */
static int lex_tag(struct lexer *l, enum jinja_token_kind kind) {
    const char last = kind == TOKEN_OUTPUT ? '}' : '%';
    const int line = l->line;
    int open = 0;
    add(l, kind, jinja_part(l->source, l->at, 2));
    move_to(l, l->at + 2);
    if (peek(l, l->at) == '-' || (peek(l, l->at) == '+' && kind == TOKEN_TAG)) move_to(l, l->at + 1);
    while (l->at < l->source.n) {
        const size_t length = open == 0 ? end_length(l, l->at, last) : 0;
        if (length > 0) {
            add(l, kind == TOKEN_OUTPUT ? TOKEN_OUTPUT_END : TOKEN_TAG_END, jinja_part(l->source, l->at, length));
            leave_tag(l, length, kind == TOKEN_TAG);
            return 0;
        }
        const char c = l->source.bytes[l->at];
        if (is_blank(c)) {
            move_to(l, l->at + 1);
            continue;
        }
        if (strchr("([{", c) && c) open++;
        if (strchr(")]}", c) && c && open > 0) open--;
        TRY(lex_one(l));
    }
    return err_set(ERR_FORMAT, "line %d: a tag without an end", line);
}

/* --- raw text ---------------------------------------------------------------------------------------------------- */

/* The length of "{% name %}" at `at`, with any signs; 0 if something else stands there. */
static size_t tag_of_name(const struct lexer *l, size_t at, const char *name) {
    size_t i = at;
    if (!has(l, i, "{%")) return 0;
    i += 2;
    if (peek(l, i) == '-' || peek(l, i) == '+') i++;
    while (is_blank(peek(l, i))) i++;
    if (i > l->source.n || !has(l, i, name)) return 0;
    i += strlen(name);
    while (is_blank(peek(l, i))) i++;
    const size_t length = i < l->source.n ? end_length(l, i, '%') : 0;
    return length > 0 ? i + length - at : 0;
}

/* Behind a tag of `length` bytes. */
static void pass_tag(struct lexer *l, size_t length, bool trims) {
    const size_t end = l->at + length;
    const bool is_signed = l->source.bytes[end - 3] == '-' || l->source.bytes[end - 3] == '+';
    move_to(l, end - (is_signed ? 3 : 2));
    leave_tag(l, is_signed ? 3 : 2, trims);
}

static int lex_raw(struct lexer *l, size_t length) {
    const int line = l->line;
    pass_tag(l, length, false);
    size_t end = l->at, end_tag = 0;
    while (end < l->source.n && !(end_tag = tag_of_name(l, end, "endraw"))) end++;
    if (end_tag == 0) return err_set(ERR_FORMAT, "line %d: raw text without an end", line);
    take_data(l, end);
    pass_tag(l, end_tag, true);
    return 0;
}

int jinja_lex(struct jinja_arena *arena, const char *source, size_t n, struct jinja_token **out, size_t *count) {
    struct lexer l = {.arena = arena, .source = normalise(arena, source, n), .line = 1, .at_line_start = true};
    while (l.at < l.source.n) {
        take_data(&l, find_tag(&l));
        if (l.at >= l.source.n) break;
        const char kind = l.source.bytes[l.at + 1];
        const size_t raw = tag_of_name(&l, l.at, "raw");
        if (raw > 0)
            TRY(lex_raw(&l, raw));
        else if (kind == '#')
            TRY(skip_comment(&l));
        else
            TRY(lex_tag(&l, kind == '{' ? TOKEN_OUTPUT : TOKEN_TAG));
    }
    add(&l, TOKEN_END, jinja_literal(""));
    *out = l.tokens;
    *count = l.count;
    return 0;
}
