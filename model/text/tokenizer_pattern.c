/* Patterns: literal strings, and regexes by PCRE2.
 *
 * tokenizer.json's regexes are Oniguruma's. What PCRE2 would read otherwise is rewritten (\s and \w, whose sets
 * differ by a few characters) or refused (nested character classes, \W in a class, \h). */
#include <stdlib.h>
#include <string.h>

#include "model/text/tokenizer_internal.h"

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"

enum { PATTERN_BYTES_MAX = 1 << 16, LOOKBEHIND_MAX = 255, REASON_BYTES = 160 };

static int fail_unsupported(const char *regex, size_t n, const char *what) {
    return err_set(ERR_UNSUPPORTED, "regex '%.*s' has %s, which is not supported", n < 200 ? (int)n : 200, regex, what);
}

/* The escape at regex[at] (a backslash, with a character behind it). */
static int translate_escape(const char *regex, size_t n, size_t at, bool in_class, struct buf *out) {
    switch (regex[at + 1]) {
    case 's':
        buf_puts(out, "\\p{White_Space}");
        return 0;
    case 'S':
        buf_puts(out, "\\P{White_Space}");
        return 0;
    case 'w':
        buf_puts(out, in_class ? WORD : "[" WORD "]");
        return 0;
    case 'W':
        if (in_class) return fail_unsupported(regex, n, "\\W in a character class");
        buf_puts(out, "[^" WORD "]");
        return 0;
    case 'h':
    case 'H':
    case 'K':
    case 'Q':
    case 'G': /* of a match in windows it would be their beginning */
    case 'X': /* looks back over any number of characters, which nothing counts */
        return fail_unsupported(regex, n, "\\h, \\H, \\K, \\Q, \\G or \\X");
    default:
        buf_append(out, regex + at, 2);
        return 0;
    }
}

/* Whether the '[' at regex[at], inside a class, begins a POSIX class such as [:alpha:]. */
static bool is_posix_class(const char *regex, size_t n, size_t at) {
    return at + 1 < n && regex[at + 1] == ':' && memmem(regex + at, n - at, ":]", 2) != NULL;
}

/* The number in a quantifier {n...} at regex[at]; 0 if it is none. */
static uint32_t read_repeats(const char *regex, size_t n, size_t at) {
    uint32_t count = 0;
    while (++at < n && regex[at] >= '0' && regex[at] <= '9' && count <= UINT16_MAX)
        count = 10 * count + (uint32_t)(regex[at] - '0');
    return count;
}

/* *repeats = the most that an item must be repeated. */
static int translate(const char *regex, size_t n, struct buf *out, uint32_t *repeats) {
    size_t class_at = 0; /* first character that may end the class; 0: outside */
    for (size_t i = 0; i < n; i++) {
        char c = regex[i];
        if (c == '\\' && i + 1 < n) {
            TRY(translate_escape(regex, n, i, class_at != 0, out));
            i++;
            continue;
        }
        if (!class_at && c == '[') {
            class_at = i + 1 + (i + 1 < n && regex[i + 1] == '^') + 1;
        } else if (class_at && c == '[' && is_posix_class(regex, n, i)) {
            const char *end = memmem(regex + i, n - i, ":]", 2);
            size_t length = (size_t)(end - (regex + i)) + 2;
            buf_append(out, regex + i, length);
            i += length - 1;
            continue;
        } else if (class_at && (c == '[' || (c == '&' && i + 1 < n && regex[i + 1] == '&'))) {
            return fail_unsupported(regex, n, "nested character classes");
        } else if (class_at && c == ']' && i >= class_at) {
            class_at = 0;
        } else if (!class_at && c == '(' && i + 1 < n && regex[i + 1] == '*') {
            return fail_unsupported(regex, n, "'(*'");
        } else if (!class_at && c == '{') {
            uint32_t count = read_repeats(regex, n, i);
            if (count > *repeats) *repeats = count;
        }
        buf_putc(out, c);
    }
    return 0;
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
