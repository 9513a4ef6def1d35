/* Values as text: as Python prints them, and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_number.h"
#include "model/jinja/internal.h"

/* --- numbers ----------------------------------------------------------------------------------------------------- */

/* The fewest digits that read back, in Python's layout: 1.0, 1e+16, 1e-05. */
static void say_float(struct jinja_out *out, double x) {
    char digits[JSON_NUMBER_BYTES], text[JSON_NUMBER_BYTES];
    if (isnan(x) || isinf(x)) {
        jinja_say(out, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
        return;
    }
    int precision = 0;
    do snprintf(digits, sizeof digits, "%.*e", precision, x);
    while (json_number_read(digits) != x && ++precision < 17);
    const int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= 16 || exponent < -4)
        jinja_say(out, digits);
    else {
        const int places = precision > exponent ? precision - exponent : 0;
        snprintf(text, sizeof text, "%.*f", places > 0 ? places : 1, x);
        jinja_say(out, text);
    }
}

static void say_int(struct jinja_out *out, int64_t i) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, i);
    jinja_say(out, text);
}

/* --- as Python prints -------------------------------------------------------------------------------------------- */

static void repr(struct jinja_out *, struct jinja_value);

/* Then the next step is an error. */
static bool is_full(const struct jinja_out *out) {
    return out->arena->bytes > out->arena->most;
}

/* One character between quotes: one of `quoted` as a backslash and its letter, other control characters by `code`. */
static void put_quoted(struct jinja_out *out, struct jinja_text t, size_t at, size_t length, const char *quoted,
                       const char *letters, const char *code) {
    const char *known = length == 1 && t.bytes[at] ? strchr(quoted, t.bytes[at]) : NULL;
    char escape[8];
    if (known) {
        const char two[] = {'\\', letters[known - quoted], '\0'};
        jinja_say(out, two);
    } else if (length == 1 && ((unsigned char)t.bytes[at] < ' ' || (t.bytes[at] == 0x7f && code[1] == 'x'))) {
        snprintf(escape, sizeof escape, code, (unsigned)(unsigned char)t.bytes[at]);
        jinja_say(out, escape);
    } else {
        jinja_add(out, jinja_part(t, at, length));
    }
}

static void repr_text(struct jinja_out *out, struct jinja_text t) {
    const bool has_single = t.n > 0 && memchr(t.bytes, '\'', t.n), has_double = t.n > 0 && memchr(t.bytes, '"', t.n);
    const bool is_double = has_single && !has_double;
    jinja_say(out, is_double ? "\"" : "'");
    for (size_t at = 0, length; at < t.n; at += length) {
        length = jinja_character(t, at);
        put_quoted(out, t, at, length, is_double ? "\\\n\t\r" : "\\\n\t\r'", "\\ntr'", "\\x%02x");
    }
    jinja_say(out, is_double ? "\"" : "'");
}

static void repr_list(struct jinja_out *out, struct jinja_value v) {
    const bool is_tuple = v.type == JINJA_TUPLE;
    jinja_say(out, is_tuple ? "(" : "[");
    for (size_t i = 0; i < v.list->n && !is_full(out); i++) {
        if (i > 0) jinja_say(out, ", ");
        repr(out, v.list->items[i]);
    }
    if (is_tuple && v.list->n == 1) jinja_say(out, ",");
    jinja_say(out, is_tuple ? ")" : "]");
}

static void repr_dict(struct jinja_out *out, const struct jinja_dict *dict) {
    jinja_say(out, "{");
    for (size_t i = 0; i < dict->n && !is_full(out); i++) {
        if (i > 0) jinja_say(out, ", ");
        repr(out, dict->pairs[i].key);
        jinja_say(out, ": ");
        repr(out, dict->pairs[i].value);
    }
    jinja_say(out, "}");
}

void jinja_print(struct jinja_out *out, struct jinja_value v) {
    if (v.type == JINJA_TEXT)
        jinja_add(out, v.text);
    else if (v.type != JINJA_UNDEFINED)
        repr(out, v);
}

static void repr_value(struct jinja_out *out, struct jinja_value v) {
    switch (v.type) {
    case JINJA_UNDEFINED:
        jinja_say(out, "Undefined");
        break;
    case JINJA_NONE:
        jinja_say(out, "None");
        break;
    case JINJA_BOOL:
        jinja_say(out, v.yes ? "True" : "False");
        break;
    case JINJA_INT:
        say_int(out, v.integer);
        break;
    case JINJA_FLOAT:
        say_float(out, v.number);
        break;
    case JINJA_TEXT:
        repr_text(out, v.text);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        repr_list(out, v);
        break;
    case JINJA_DICT:
    case JINJA_NAMESPACE:
        repr_dict(out, v.dict);
        break;
    default:
        jinja_say(out, "<");
        jinja_say(out, jinja_type_name(v));
        jinja_say(out, ">");
    }
}

static void repr(struct jinja_out *out, struct jinja_value v) {
    if (++out->depth > JINJA_NESTED_MAX)
        jinja_say(out, "...");
    else
        repr_value(out, v);
    out->depth--;
}

/* --- as JSON ----------------------------------------------------------------------------------------------------- */

/* A character past ASCII by its code, or by those of two halves. */
static void json_code(struct jinja_out *out, uint32_t c) {
    char text[16];
    if (c >= 0x10000)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    else
        snprintf(text, sizeof text, "\\u%04x", c);
    jinja_say(out, text);
}

static void json_text(struct jinja_out *out, struct jinja_text t, bool is_ascii) {
    jinja_say(out, "\"");
    for (size_t at = 0, length; at < t.n; at += length) {
        uint32_t c;
        length = jinja_character(t, at);
        if (is_ascii && length > 1 && utf8_decode(t.bytes + at, length, &c) > 0)
            json_code(out, c);
        else
            put_quoted(out, t, at, length, "\\\"\n\t\r\b\f", "\\\"ntrbf", "\\u%04x");
    }
    jinja_say(out, "\"");
}

static void new_line(struct jinja_out *out, const struct jinja_json *j, int depth) {
    if (j->indent < 0) return;
    jinja_say(out, "\n");
    for (int i = 0; i < j->indent * depth; i++) jinja_say(out, " ");
}

/* Before an item, or behind the last one. */
static void part(struct jinja_out *out, const struct jinja_json *j, size_t i, int depth) {
    if (i > 0) jinja_say(out, j->indent < 0 ? ", " : ",");
    new_line(out, j, depth + 1);
}

static int json_list(struct jinja_out *out, const struct jinja_list *list, const struct jinja_json *j, int depth) {
    jinja_say(out, "[");
    for (size_t i = 0; i < list->n; i++) {
        part(out, j, i, depth);
        TRY(jinja_print_json(out, list->items[i], j, depth + 1));
    }
    if (list->n > 0) new_line(out, j, depth);
    jinja_say(out, "]");
    return 0;
}

/* A key that is no text is one all the same. */
static int json_key(struct jinja_out *out, struct jinja_value key, const struct jinja_json *j) {
    if (key.type != JINJA_TEXT) jinja_say(out, "\"");
    TRY(jinja_print_json(out, key, j, 0));
    jinja_say(out, key.type == JINJA_TEXT ? ": " : "\": ");
    return 0;
}

static int json_dict(struct jinja_out *out, const struct jinja_dict *dict, const struct jinja_json *j, int depth) {
    jinja_say(out, "{");
    for (size_t i = 0; i < dict->n; i++) {
        part(out, j, i, depth);
        TRY(json_key(out, dict->pairs[i].key, j));
        TRY(jinja_print_json(out, dict->pairs[i].value, j, depth + 1));
    }
    if (dict->n > 0) new_line(out, j, depth);
    jinja_say(out, "}");
    return 0;
}

int jinja_print_json(struct jinja_out *out, struct jinja_value v, const struct jinja_json *j, int depth) {
    if (depth > JINJA_NESTED_MAX) return err_set(ERR_LIMIT, "nested too deeply for JSON");
    if (is_full(out)) return err_set(ERR_LIMIT, "too long for JSON");
    switch (v.type) {
    case JINJA_NONE:
        jinja_say(out, "null");
        return 0;
    case JINJA_BOOL:
        jinja_say(out, v.yes ? "true" : "false");
        return 0;
    case JINJA_INT:
    case JINJA_FLOAT:
        jinja_print(out, v);
        return 0;
    case JINJA_TEXT:
        json_text(out, v.text, j->is_ascii);
        return 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return json_list(out, v.list, j, depth);
    case JINJA_DICT:
    case JINJA_NAMESPACE:
        return json_dict(out, v.dict, j, depth);
    default:
        return err_set(ERR_FORMAT, "%s cannot be written as JSON", jinja_type_name(v));
    }
}
