/* Patterns: literal strings, and regexes by PCRE2.
 *
 * tokenizer.json's regexes are Oniguruma's, with Ruby's syntax. What PCRE2 would read otherwise is rewritten (\s and \w,
 * whose sets differ by a few characters; X{n,m}+, which repeats the group; X{n}?, {,m}, (?m) and \uXXXX) or refused (nested
 * character classes, \W in a class, \h, options in the middle of a group). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "model/text/tokenizer_internal.h"

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"

enum { PATTERN_BYTES_MAX = 1 << 16, LOOKBEHIND_MAX = 255, REASON_BYTES = 160 };

static int fail_unsupported(const char *regex, size_t n, const char *what) {
    return err_set(ERR_UNSUPPORTED, "regex '%.*s' has %s, which is not supported", n < 200 ? (int)n : 200, regex, what);
}

enum { GROUPS_MAX = 64 }; /* parentheses in each other whose beginnings are known */

/* A regex on its way into PCRE2's syntax. */
struct translation {
    const char *regex;
    size_t n, at;
    struct buf *out;
    size_t class_at; /* first character that may end the class; 0: outside */
    size_t item;     /* where in `out` begins what a quantifier would repeat, if has_item */
    bool has_item;
    size_t groups[GROUPS_MAX];
    int depth;
    uint32_t repeats; /* the most that an item must be repeated */
};

static int refuse(const struct translation *t, const char *what) {
    return fail_unsupported(t->regex, t->n, what);
}

static void begin_item(struct translation *t) {
    if (t->class_at) return; /* the class is the item */
    t->item = t->out->len;
    t->has_item = true;
}

static char peek(const struct translation *t, size_t ahead) {
    return t->at + ahead < t->n ? t->regex[t->at + ahead] : '\0';
}

static void copy(struct translation *t, size_t n) {
    buf_append(t->out, t->regex + t->at, n);
    t->at += n;
}

/* \uXXXX, and escapes with a name or a number behind them; *taken = false: none of these. */
static int translate_long_escape(struct translation *t, bool *taken) {
    char kind = peek(t, 1);
    size_t n = 2;
    *taken = true;
    if (kind == 'u') {
        while (n < 6 && isxdigit((unsigned char)peek(t, n))) n++;
        if (n < 6) return refuse(t, "\\u without four digits");
        buf_printf(t->out, "\\x{%.4s}", t->regex + t->at + 2);
        t->at += n;
        return 0;
    }
    if (strchr("pPxoN", kind) && peek(t, 2) == '{') {
        const char *end = memchr(t->regex + t->at, '}', t->n - t->at);
        if (!end) return refuse(t, "'{' without an end");
        copy(t, (size_t)(end - (t->regex + t->at)) + 1);
    } else if (kind == 'x') {
        while (n < 4 && isxdigit((unsigned char)peek(t, n))) n++;
        copy(t, n);
    } else {
        *taken = false;
    }
    return 0;
}

/* The escape at t->at (a backslash, with a character behind it). */
static int translate_escape(struct translation *t) {
    bool in_class = t->class_at != 0, taken;
    begin_item(t);
    char kind = peek(t, 1);
    if (kind == '\0') return refuse(t, "a backslash before U+0000");
    TRY(translate_long_escape(t, &taken));
    if (taken) return 0;
    switch (kind) {
    case 's':
        buf_puts(t->out, "\\p{White_Space}");
        break;
    case 'S':
        buf_puts(t->out, "\\P{White_Space}");
        break;
    case 'w':
        buf_puts(t->out, in_class ? WORD : "[" WORD "]");
        break;
    case 'W':
        if (in_class) return refuse(t, "\\W in a character class");
        buf_puts(t->out, "[^" WORD "]");
        break;
    case 'h':
    case 'H':
    case 'K':
    case 'Q':
    case 'G': /* of a match in windows it would be their beginning */
    case 'X': /* looks back over any number of characters, which nothing counts */
        return refuse(t, "\\h, \\H, \\K, \\Q, \\G or \\X");
    case 'c':
    case 'C':
    case 'M':
    case 'g':
        return refuse(t, "\\c, \\C, \\M or \\g");
    default:
        for (copy(t, 2); isdigit((unsigned char)kind) && isdigit((unsigned char)peek(t, 0));) copy(t, 1);
        return 0;
    }
    t->at += 2;
    return 0;
}

/* The POSIX class such as [:alpha:] that begins at t->at, inside a class; 0: none does. */
static size_t posix_class_length(const struct translation *t) {
    if (peek(t, 0) != '[' || peek(t, 1) != ':') return 0;
    const char *from = t->regex + t->at, *end = memmem(from, t->n - t->at, ":]", 2);
    return end ? (size_t)(end - from) + 2 : 0;
}

static int translate_in_class(struct translation *t) {
    char c = peek(t, 0);
    size_t posix = posix_class_length(t);
    if (posix > 0) {
        copy(t, posix);
        return 0;
    }
    if (c == '[' || (c == '&' && peek(t, 1) == '&')) return refuse(t, "nested character classes");
    if (c == ']' && t->at >= t->class_at) t->class_at = 0;
    copy(t, 1);
    return 0;
}

/* Length of the quantifier {n}, {n,}, {n,m} or {,m} at t->at, 0 if it is none: then it is text. */
static size_t interval_length(const struct translation *t, uint32_t *low, bool *has_low, bool *is_fixed) {
    size_t n = 1, begin = 1;
    *low = 0;
    while (isdigit((unsigned char)peek(t, n))) {
        if (*low <= UINT16_MAX) *low = 10 * *low + (uint32_t)(peek(t, n) - '0');
        n++;
    }
    *has_low = n > begin;
    *is_fixed = peek(t, n) != ',';
    if (!*is_fixed) begin = ++n;
    while (!*is_fixed && isdigit((unsigned char)peek(t, n))) n++;
    return peek(t, n) == '}' && (*has_low || (!*is_fixed && n > begin)) ? n + 1 : 0;
}

static void insert(struct buf *out, size_t at, const char *text) {
    size_t n = strlen(text), tail = out->len - at;
    buf_puts(out, text);
    memmove(out->data + at + n, out->data + at, tail);
    memcpy(out->data + at, text, n);
}

/* Ruby's X{n,m}+ and X{n}? repeat X{n,m} and X{n}; PCRE2 would take them as possessive and lazy. */
static int translate_interval(struct translation *t) {
    uint32_t low;
    bool has_low, is_fixed;
    size_t n = interval_length(t, &low, &has_low, &is_fixed);
    if (n == 0) {
        begin_item(t);
        buf_puts(t->out, "\\{");
        t->at++;
        return 0;
    }
    bool nests = peek(t, n) == '+' || (is_fixed && peek(t, n) == '?');
    if (nests && !t->has_item) return refuse(t, "a quantifier such as {n}+ behind what is no single item");
    if (low > t->repeats) t->repeats = low;
    if (nests) insert(t->out, t->item, "(?:");
    buf_puts(t->out, has_low ? "{" : "{0");
    t->at++;
    copy(t, n - 1);
    if (nests) {
        buf_putc(t->out, ')');
        copy(t, 1);
    }
    t->has_item = false;
    return 0;
}

/* Ruby's options (?m) and (?m:...) are PCRE2's s, which is none of Ruby's. An option in the middle holds to the end of the group, alternatives
 * included: in PCRE2 it is no group of its own. */
static int translate_options(struct translation *t) {
    bool is_first = t->at == 0;
    copy(t, 2);
    for (char c; (c = peek(t, 0)) != ':' && c != ')'; t->at++) {
        if (!c || !strchr("ims-", c)) return refuse(t, "options other than i and m");
        buf_putc(t->out, c == 'm' ? 's' : c);
    }
    if (peek(t, 0) == ')' && !is_first) return refuse(t, "an option in the middle");
    copy(t, 1);
    return 0;
}

static int begin_group(struct translation *t) {
    if (peek(t, 1) == '*') return refuse(t, "'(*'");
    if (t->depth < GROUPS_MAX) t->groups[t->depth] = t->out->len;
    t->depth++;
    t->has_item = false;
    if (peek(t, 1) != '?' || strchr(":=!><P#|(&~R+", peek(t, 2))) {
        if (peek(t, 1) == '?' && peek(t, 2) == '#') return refuse(t, "a comment");
        copy(t, 1);
        return 0;
    }
    int rc = translate_options(t);
    if (rc == 0 && t->regex[t->at - 1] == ')') t->depth--;
    return rc;
}

static void end_group(struct translation *t) {
    t->has_item = t->depth > 0 && t->depth <= GROUPS_MAX;
    if (t->depth > 0) t->depth--;
    if (t->has_item) t->item = t->groups[t->depth];
    copy(t, 1);
}

static int translate_outside(struct translation *t) {
    char c = peek(t, 0);
    switch (c) {
    case '[':
        begin_item(t);
        t->class_at = t->at + 1 + (peek(t, 1) == '^') + 1;
        break;
    case '(':
        return begin_group(t);
    case ')':
        end_group(t);
        return 0;
    case '{':
        return translate_interval(t);
    case '*':
    case '+':
    case '?':
        t->has_item = false;
        break;
    default:
        if (((unsigned char)c & 0xc0) != 0x80) begin_item(t);
    }
    copy(t, 1);
    return 0;
}

/* *repeats = the most that an item must be repeated. */
static int translate(const char *regex, size_t n, struct buf *out, uint32_t *repeats) {
    struct translation t = {.regex = regex, .n = n, .out = out};
    int rc = 0;
    while (t.at < n && rc == 0) {
        if (regex[t.at] == '\\' && t.at + 1 < n)
            rc = translate_escape(&t);
        else
            rc = t.class_at ? translate_in_class(&t) : translate_outside(&t);
    }
    *repeats = t.repeats;
    return rc;
}

static int compile(pcre2_code **out, const struct buf *regex, uint32_t options) {
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context) pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code = 0;
    PCRE2_SIZE at = 0;
    options |= PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
    *out = pcre2_compile((PCRE2_SPTR)buf_text(regex), regex->len, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (*out) return 0;
    PCRE2_UCHAR reason[REASON_BYTES];
    pcre2_get_error_message(code, reason, sizeof reason);
    return err_set(code == PCRE2_ERROR_HEAP_FAILED ? ERR_MEMORY : ERR_UNSUPPORTED, "%s", (const char *)reason);
}

static int compile_twice(struct pattern *p, const struct buf *translated) {
    TRY(compile(&p->code, translated, 0));
    TRY(compile(&p->counted, translated, PCRE2_AUTO_CALLOUT | PCRE2_NO_START_OPTIMIZE));
    uint32_t references = 0;
    pcre2_pattern_info(p->code, PCRE2_INFO_BACKREFMAX, &references);
    pcre2_pattern_info(p->code, PCRE2_INFO_MAXLOOKBEHIND, &p->lookbehind);
    /* Nothing counts what a backreference compares before it fails. */
    if (references > 0) return err_set(ERR_UNSUPPORTED, "backreferences are not supported");
    if (p->lookbehind > LOOKBEHIND_MAX)
        return err_set(ERR_UNSUPPORTED, "a lookbehind of %u characters, more than %d", p->lookbehind, LOOKBEHIND_MAX);
    return 0;
}

int pattern_compile(struct pattern *p, const char *regex, size_t n) {
    if (n > PATTERN_BYTES_MAX) return err_set(ERR_LIMIT, "a regex of %zu bytes, more than %d", n, PATTERN_BYTES_MAX);
    struct buf translated = {0};
    int rc = translate(regex, n, &translated, &p->repeats);
    if (rc == 0) {
        rc = compile_twice(p, &translated);
        if (rc != 0) err_prefix(rc, "regex '%.*s'", n < 200 ? (int)n : 200, regex);
    }
    buf_free(&translated);
    return rc;
}

int pattern_from_json(struct pattern *p, const cJSON *owner) {
    const cJSON *pattern = json_get(owner, "pattern");
    if (json_get(pattern, "String")) {
        TRY(tokenizer_read_text(pattern, "String", &p->literal));
        return p->literal.len > 0 ? 0 : err_set(ERR_FORMAT, "the pattern is an empty string");
    }
    if (!json_get(pattern, "Regex")) return err_set(ERR_FORMAT, "a pattern is missing, expected 'String' or 'Regex'");
    struct buf regex = {0};
    int rc = tokenizer_read_text(pattern, "Regex", &regex);
    if (rc == 0) rc = pattern_compile(p, buf_text(&regex), regex.len);
    buf_free(&regex);
    return rc;
}

void pattern_free(struct pattern *p) {
    buf_free(&p->literal);
    pcre2_code_free(p->code);
    pcre2_code_free(p->counted);
    p->code = p->counted = NULL;
}

/* --- searching -------------------------------------------------------------------------------------------- */

static int match_literal(struct search *s, bool *found) {
    const struct buf *literal = &s->pattern->literal;
    const char *at = s->at < s->n ? memmem(s->text + s->at, s->n - s->at, literal->data, literal->len) : NULL;
    *found = at != NULL;
    if (at) {
        s->begin = (size_t)(at - s->text);
        s->end = s->begin + literal->len;
    }
    return work_pass(s->matcher->work, (at ? s->end : s->n) - s->at);
}

/* An empty match right behind the last match does not count. */
int search_next(struct search *s, bool *found) {
    size_t last = s->end;
    for (;;) {
        *found = false;
        if (s->at > s->n) return 0;
        TRY(s->pattern->code ? match_regex(s, found) : match_literal(s, found));
        if (!*found) return 0;
        if (s->begin < s->end || !s->matched_before || s->end != last) break;
        do s->at++;
        while (s->at < s->n && ((unsigned char)s->text[s->at] & 0xc0) == 0x80);
    }
    s->matched_before = true;
    s->at = s->end;
    return 0;
}

int pattern_replace(const struct pattern *p, struct matcher *m, const struct piece *in, const struct buf *content,
                    struct piece_buf *out) {
    struct search s = {p, m, in->text, in->n, 0, 0, 0, false};
    size_t done = 0;
    for (;;) {
        bool found;
        TRY(search_next(&s, &found));
        if (!found) break;
        piece_copy(out, in, done, s.begin);
        piece_put(out, in, s.begin, s.end, buf_text(content), content->len);
        TRY(text_check_length(out->text.len));
        done = s.end;
    }
    piece_copy(out, in, done, in->n);
    return 0;
}
