/* A strict recursive-descent parser (RFC 8259) that builds cJSON's tree. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_number.h"

enum { FILE_BYTES_MAX = 1 << 30 };

struct parser {
    const char *text;
    size_t n, at;
    int depth;
    bool takes_python; /* NaN, Infinity and -Infinity are numbers */
};

/* The reason, with the place: a byte offset (from 0) in one line of text, else line and column (from 1). */
static int fail(const struct parser *p, size_t at, const char *format, ...) {
    char reason[128];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (!memchr(p->text, '\n', p->n)) return err_set(ERR_FORMAT, "malformed JSON at byte %zu: %s", at, reason);
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        if (p->text[i] == '\n')
            line++, column = 1;
        else if (((unsigned char)p->text[i] & 0xc0) != 0x80)
            column++;
    }
    return err_set(ERR_FORMAT, "malformed JSON at line %zu, column %zu: %s", line, column, reason);
}

/* What stands at p->at is not what JSON wants there. */
static int fail_expected(const struct parser *p, const char *expected) {
    if (p->at >= p->n) return fail(p, p->n, "the text ends, expected %s", expected);
    uint32_t code_point;
    int length = utf8_decode(p->text + p->at, p->n - p->at, &code_point);
    if (length == 0) return fail(p, p->at, "not valid UTF-8");
    if (code_point == 0) return fail(p, p->at, "unexpected U+0000, expected %s", expected);
    return fail(p, p->at, "unexpected '%.*s', expected %s", length, p->text + p->at, expected);
}

static void skip_space(struct parser *p) {
    while (p->at < p->n) {
        char c = p->text[p->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
        p->at++;
    }
}

static bool take(struct parser *p, char c) {
    if (p->at >= p->n || p->text[p->at] != c) return false;
    p->at++;
    return true;
}

static size_t take_digits(struct parser *p) {
    size_t first = p->at;
    while (p->at < p->n && p->text[p->at] >= '0' && p->text[p->at] <= '9') p->at++;
    return p->at - first;
}

/* The four digits after "\u" at `at`; -1 if they are not four hexadecimal digits. */
static int32_t hex4(const struct parser *p, size_t at) {
    if (p->n - at < 4) return -1;
    int32_t value = 0;
    for (size_t i = at; i < at + 4; i++) {
        char c = p->text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* p->at stands behind "\u". */
static int parse_unicode_escape(struct parser *p, char out[4], int *length) {
    size_t escape = p->at - 2;
    int32_t unit = hex4(p, p->at);
    if (unit < 0) return fail(p, escape, "\\u without four hexadecimal digits");
    p->at += 4;
    uint32_t code_point = (uint32_t)unit;
    if (unit >= 0xd800 && unit < 0xe000) {
        int32_t low = -1;
        if (unit < 0xdc00 && p->n - p->at >= 6 && memcmp(p->text + p->at, "\\u", 2) == 0) low = hex4(p, p->at + 2);
        if (low < 0xdc00 || low >= 0xe000) return fail(p, escape, "lone surrogate \\u%04x", (unsigned)unit);
        p->at += 6;
        code_point = 0x10000 + (((uint32_t)unit & 0x3ff) << 10 | ((uint32_t)low & 0x3ff));
    }
    if (code_point == 0) {
        memcpy(out, "\xc0\x80", *length = 2);
        return 0;
    }
    *length = utf8_encode(code_point, out);
    return 0;
}

static int parse_escape(struct parser *p, char out[4], int *length) {
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char letter = p->at + 1 < p->n ? p->text[p->at + 1] : '\0';
    if (letter == 'u') {
        p->at += 2;
        return parse_unicode_escape(p, out, length);
    }
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (!known) return fail(p, p->at, "unknown escape in a string");
    out[0] = values[known - letters];
    *length = 1;
    p->at += 2;
    return 0;
}

/* Bytes of the string's text as it stands, p->at behind the opening quote; n - at if it has no end. */
static size_t raw_length(const struct parser *p) {
    size_t at = p->at;
    while (at < p->n && p->text[at] != '"') at += p->text[at] == '\\' ? 2 : 1;
    return (at < p->n ? at : p->n) - p->at;
}

/* Decodes up to the closing quote into `out`, which has room: no escape is shorter than what it stands for. */
static int parse_string_into(struct parser *p, char *out) {
    while (p->at < p->n) {
        unsigned char c = (unsigned char)p->text[p->at];
        int length = 1;
        if (c == '"') {
            p->at++;
            *out = '\0';
            return 0;
        }
        if (c == '\\') {
            char decoded[4];
            TRY(parse_escape(p, decoded, &length));
            memcpy(out, decoded, (size_t)length);
        } else if (c < 0x20) {
            return fail(p, p->at, "control character in a string");
        } else {
            uint32_t code_point;
            if (c >= 0x80) length = utf8_decode(p->text + p->at, p->n - p->at, &code_point);
            if (length == 0) return fail(p, p->at, "not valid UTF-8");
            memcpy(out, p->text + p->at, (size_t)length);
            p->at += (size_t)length;
        }
        out += length;
    }
    return fail(p, p->n, "the text ends inside a string");
}

static int out_of_memory(void) {
    return err_set(ERR_MEMORY, "out of memory while parsing JSON");
}

/* *out is freed by the caller, also after an error. */
static int parse_string(struct parser *p, char **out) {
    p->at++;
    *out = cJSON_malloc(raw_length(p) + 1);
    if (!*out) return out_of_memory();
    return parse_string_into(p, *out);
}

/* Whether the digits are an integer above 2^53, which a double may round. Numbers past a double's range keep theirs too. */
static bool is_big(const char *digits, size_t n) {
    if (n != 16) return n > 16;
    return memcmp(digits, "9007199254740992", 16) > 0;
}

static int set_number(cJSON *item, const char *text, size_t n, bool keep) {
    char small[48];
    char *copy = n < sizeof small && !keep ? small : cJSON_malloc(n + 1);
    if (!copy) return out_of_memory();
    memcpy(copy, text, n);
    copy[n] = '\0';
    cJSON_SetNumberValue(item, json_number_read(copy));
    if (keep)
        item->valuestring = copy;
    else if (copy != small)
        cJSON_free(copy);
    return keep || isfinite(item->valuedouble) ? 0 : set_number(item, text, n, true);
}

static bool take_word(struct parser *p, const char *word) {
    const size_t length = strlen(word);
    if (p->n - p->at < length || memcmp(p->text + p->at, word, length) != 0) return false;
    p->at += length;
    return true;
}

/* As Python writes what JSON has no word for. */
static bool take_python_number(struct parser *p, cJSON *item) {
    static const struct {
        const char *word;
        double value;
    } words[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
    for (size_t i = 0; p->takes_python && i < sizeof words / sizeof *words; i++) {
        if (!take_word(p, words[i].word)) continue;
        item->type = cJSON_Number, item->valuedouble = words[i].value;
        return true;
    }
    return false;
}

static int parse_number(struct parser *p, cJSON *item) {
    size_t first = p->at;
    bool is_integer = true;
    take(p, '-');
    size_t digits_at = p->at;
    if (take_digits(p) == 0) return fail_expected(p, "a digit");
    size_t digits = p->at - digits_at;
    if (digits > 1 && p->text[digits_at] == '0') return fail(p, digits_at, "number with a leading zero");
    if (take(p, '.')) {
        is_integer = false;
        if (take_digits(p) == 0) return fail_expected(p, "a digit");
    }
    if (take(p, 'e') || take(p, 'E')) {
        is_integer = false;
        if (!take(p, '+')) take(p, '-');
        if (take_digits(p) == 0) return fail_expected(p, "a digit");
    }
    item->type = cJSON_Number;
    return set_number(item, p->text + first, p->at - first, is_integer && is_big(p->text + digits_at, digits));
}

static int parse_literal(struct parser *p, cJSON *item) {
    static const struct {
        const char *word;
        int type;
    } literals[] = {{"true", cJSON_True}, {"false", cJSON_False}, {"null", cJSON_NULL}};
    for (size_t i = 0; i < sizeof literals / sizeof *literals; i++) {
        if (!take_word(p, literals[i].word)) continue;
        item->type = literals[i].type;
        return 0;
    }
    return fail_expected(p, "a value");
}

static int parse_value(struct parser *p, cJSON *item);

/* Appends an empty child to `parent`, whose first child's `prev` is its last (cJSON's convention). */
static cJSON *append_child(cJSON *parent) {
    cJSON *child = cJSON_CreateNull();
    if (!child) return NULL;
    if (parent->child) {
        child->prev = parent->child->prev;
        child->prev->next = child;
    } else {
        parent->child = child;
    }
    parent->child->prev = child;
    return child;
}

static int parse_member(struct parser *p, cJSON *parent) {
    cJSON *child = append_child(parent);
    if (!child) return out_of_memory();
    if (parent->type == cJSON_Object) {
        if (p->at >= p->n || p->text[p->at] != '"') return fail_expected(p, "a member name in quotes");
        TRY(parse_string(p, &child->string));
        skip_space(p);
        if (!take(p, ':')) return fail_expected(p, "':'");
        skip_space(p);
    }
    return parse_value(p, child);
}

static int parse_container(struct parser *p, cJSON *item, char close) {
    if (p->depth == JSON_DEPTH_MAX) return fail(p, p->at, "nested too deeply (more than %d levels)", JSON_DEPTH_MAX);
    p->at++;
    p->depth++;
    skip_space(p);
    if (!take(p, close)) {
        for (;;) {
            TRY(parse_member(p, item));
            skip_space(p);
            if (take(p, close)) break;
            if (!take(p, ',')) return fail_expected(p, close == '}' ? "',' or '}'" : "',' or ']'");
            skip_space(p);
        }
    }
    p->depth--;
    return 0;
}

static int parse_value(struct parser *p, cJSON *item) {
    char c = p->at < p->n ? p->text[p->at] : '\0';
    switch (c) {
    case '{':
        item->type = cJSON_Object;
        return parse_container(p, item, '}');
    case '[':
        item->type = cJSON_Array;
        return parse_container(p, item, ']');
    case '"':
        item->type = cJSON_String;
        return parse_string(p, &item->valuestring);
    default:
        if (take_python_number(p, item)) return 0;
        return c == '-' || (c >= '0' && c <= '9') ? parse_number(p, item) : parse_literal(p, item);
    }
}

static int parse_text(struct parser *p, cJSON *item) {
    if (p->n >= 3 && memcmp(p->text, "\xef\xbb\xbf", 3) == 0) p->at = 3; /* byte order mark */
    skip_space(p);
    TRY(parse_value(p, item));
    skip_space(p);
    return p->at < p->n ? fail_expected(p, "the end of the text") : 0;
}

static int parse(cJSON **out, const char *text, size_t n, bool takes_python) {
    *out = NULL;
    cJSON *item = cJSON_CreateNull();
    if (!item) return out_of_memory();
    struct parser p = {.text = n ? text : "", .n = n, .takes_python = takes_python};
    int rc = parse_text(&p, item);
    if (rc != 0) {
        cJSON_Delete(item);
        return rc;
    }
    *out = item;
    return 0;
}

int json_parse(cJSON **out, const char *text, size_t n) {
    return parse(out, text, n, false);
}

int json_parse_file(cJSON **out, const char *path) {
    struct buf text = {0};
    *out = NULL;
    int rc = file_read(path, FILE_BYTES_MAX, &text);
    if (rc == 0) {
        rc = parse(out, buf_text(&text), text.len, true);
        if (rc != 0) err_prefix(rc, "%s", path);
    }
    buf_free(&text);
    return rc;
}
