/* Values of templates: their memory, texts that know which of their bytes are plain, lists, dictionaries. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/jinja/internal.h"

/* --- memory ------------------------------------------------------------------------------------------------------ */

enum { CHUNK_BYTES = 1 << 14 };

struct jinja_chunk {
    struct jinja_chunk *before;
    size_t used, size;
    max_align_t data[];
};

void *jinja_alloc(struct jinja_arena *a, size_t bytes) {
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!a->last || a->last->size - a->last->used < bytes) {
        const size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        struct jinja_chunk *chunk = memory_resize(NULL, sizeof *chunk + size);
        *chunk = (struct jinja_chunk){.before = a->last, .size = size};
        a->last = chunk;
    }
    char *at = (char *)a->last->data + a->last->used;
    a->last->used += bytes;
    a->bytes += bytes;
    memset(at, 0, bytes);
    return at;
}

void jinja_arena_free(struct jinja_arena *a) {
    while (a->last) {
        struct jinja_chunk *before = a->last->before;
        free(a->last);
        a->last = before;
    }
    a->bytes = 0;
}

/* Twice the room for items of `size` bytes, of which n are there. */
static void *grow(struct jinja_arena *a, const void *items, size_t n, size_t size, size_t *cap) {
    *cap = *cap ? 2 * *cap : 4;
    void *more = jinja_alloc(a, *cap * size);
    if (n > 0) memcpy(more, items, n * size);
    return more;
}

/* --- texts ------------------------------------------------------------------------------------------------------- */

struct jinja_text jinja_literal(const char *text) {
    return (struct jinja_text){.bytes = text, .n = strlen(text)};
}

struct jinja_text jinja_part(struct jinja_text t, size_t at, size_t n) {
    return (struct jinja_text){t.bytes + at, t.plain ? t.plain + at : NULL, n};
}

bool jinja_is(struct jinja_text t, const char *text) {
    return t.n == strlen(text) && memcmp(t.bytes, text, t.n) == 0;
}

bool jinja_same_text(struct jinja_text a, struct jinja_text b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.bytes, b.bytes, a.n) == 0);
}

bool jinja_find(struct jinja_text t, struct jinja_text word, size_t from, size_t *at) {
    if (from > t.n) return false;
    *at = from;
    if (word.n == 0) return true;
    const char *found = memmem(t.bytes + from, t.n - from, word.bytes, word.n);
    if (found) *at = (size_t)(found - t.bytes);
    return found != NULL;
}

size_t jinja_character(struct jinja_text t, size_t at) {
    uint32_t c;
    const int length = utf8_decode(t.bytes + at, t.n - at, &c);
    return length > 0 ? (size_t)length : 1;
}

size_t jinja_characters(struct jinja_text t) {
    size_t count = 0;
    for (size_t at = 0; at < t.n; at += jinja_character(t, at)) count++;
    return count;
}

size_t jinja_offset(struct jinja_text t, size_t characters) {
    size_t at = 0;
    while (characters-- > 0 && at < t.n) at += jinja_character(t, at);
    return at;
}

void jinja_add(struct jinja_out *out, struct jinja_text t) {
    if (out->n + t.n > out->cap) {
        const size_t cap = 2 * (out->n + t.n) + 64;
        char *bytes = jinja_alloc(out->arena, 2 * cap);
        if (out->n > 0) {
            memcpy(bytes, out->bytes, out->n);
            memcpy(bytes + cap, out->plain, out->n);
        }
        out->bytes = bytes, out->plain = bytes + cap, out->cap = cap;
    }
    if (t.n == 0) return;
    memcpy(out->bytes + out->n, t.bytes, t.n);
    if (t.plain)
        memcpy(out->plain + out->n, t.plain, t.n);
    else
        memset(out->plain + out->n, 0, t.n);
    out->n += t.n;
}

void jinja_say(struct jinja_out *out, const char *text) {
    jinja_add(out, jinja_literal(text));
}

struct jinja_text jinja_take(const struct jinja_out *out) {
    return (struct jinja_text){out->n > 0 ? out->bytes : "", out->plain, out->n};
}

/* --- values ------------------------------------------------------------------------------------------------------ */

struct jinja_value jinja_none(void) {
    return (struct jinja_value){.type = JINJA_NONE};
}
struct jinja_value jinja_bool(bool yes) {
    return (struct jinja_value){.type = JINJA_BOOL, .yes = yes};
}
struct jinja_value jinja_int(int64_t integer) {
    return (struct jinja_value){.type = JINJA_INT, .integer = integer};
}
struct jinja_value jinja_float(double number) {
    return (struct jinja_value){.type = JINJA_FLOAT, .number = number};
}
struct jinja_value jinja_string(struct jinja_text text) {
    return (struct jinja_value){.type = JINJA_TEXT, .text = text};
}
struct jinja_value jinja_undefined(struct jinja_text name) {
    return (struct jinja_value){.type = JINJA_UNDEFINED, .text = name};
}
struct jinja_value jinja_new_list(struct jinja_arena *a, enum jinja_type type) {
    return (struct jinja_value){.type = type, .list = jinja_alloc(a, sizeof(struct jinja_list))};
}
struct jinja_value jinja_new_dict(struct jinja_arena *a, enum jinja_type type) {
    return (struct jinja_value){.type = type, .dict = jinja_alloc(a, sizeof(struct jinja_dict))};
}

void jinja_push(struct jinja_arena *a, struct jinja_list *list, struct jinja_value v) {
    if (list->n == list->cap) list->items = grow(a, list->items, list->n, sizeof v, &list->cap);
    list->items[list->n++] = v;
}

bool jinja_is_key(struct jinja_value v) {
    return v.type == JINJA_TEXT || v.type == JINJA_NONE || jinja_is_number(v);
}

static bool is_same_key(struct jinja_value a, struct jinja_value b) {
    if (a.type == JINJA_TEXT && b.type == JINJA_TEXT) return jinja_same_text(a.text, b.text);
    int64_t steps_left = 2;
    return jinja_is_key(b) && jinja_equal(a, b, &steps_left);
}

const struct jinja_value *jinja_get(const struct jinja_dict *dict, struct jinja_value key) {
    for (size_t i = 0; i < dict->n; i++)
        if (is_same_key(dict->pairs[i].key, key)) return &dict->pairs[i].value;
    return NULL;
}

const struct jinja_value *jinja_get_named(const struct jinja_dict *dict, struct jinja_text name) {
    return jinja_get(dict, jinja_string(name));
}

void jinja_put(struct jinja_arena *a, struct jinja_dict *dict, struct jinja_value key, struct jinja_value v) {
    for (size_t i = 0; i < dict->n; i++)
        if (is_same_key(dict->pairs[i].key, key)) {
            dict->pairs[i].value = v;
            return;
        }
    if (dict->n == dict->cap) dict->pairs = grow(a, dict->pairs, dict->n, sizeof *dict->pairs, &dict->cap);
    dict->pairs[dict->n++] = (struct jinja_pair){key, v};
}

bool jinja_is_list(struct jinja_value v) {
    return v.type == JINJA_LIST || v.type == JINJA_TUPLE;
}

bool jinja_is_dict(struct jinja_value v) {
    return v.type == JINJA_DICT;
}

bool jinja_is_number(struct jinja_value v) {
    return v.type == JINJA_INT || v.type == JINJA_FLOAT || v.type == JINJA_BOOL;
}

double jinja_number(struct jinja_value v) {
    return v.type == JINJA_FLOAT ? v.number : v.type == JINJA_BOOL ? (double)v.yes : (double)v.integer;
}

bool jinja_true(struct jinja_value v) {
    switch (v.type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.yes;
    case JINJA_INT:
        return v.integer != 0;
    case JINJA_FLOAT:
        return v.number != 0;
    case JINJA_TEXT:
        return v.text.n > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.list->n > 0;
    case JINJA_DICT:
        return v.dict->n > 0;
    default:
        return true;
    }
}

static bool equal(struct jinja_value, struct jinja_value, int depth, int64_t *steps_left);

static bool equal_lists(const struct jinja_list *a, const struct jinja_list *b, int depth, int64_t *steps_left) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!equal(a->items[i], b->items[i], depth, steps_left)) return false;
    return true;
}

static bool equal_dicts(const struct jinja_dict *a, const struct jinja_dict *b, int depth, int64_t *steps_left) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct jinja_value *other = jinja_get(b, a->pairs[i].key);
        if (!other || !equal(a->pairs[i].value, *other, depth, steps_left)) return false;
    }
    return true;
}

static bool equal(struct jinja_value a, struct jinja_value b, int depth, int64_t *steps_left) {
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.type == JINJA_INT && b.type == JINJA_INT) return a.integer == b.integer;
        return jinja_number(a) == jinja_number(b);
    }
    if (a.type != b.type || depth > JINJA_NESTED_MAX || --*steps_left < 0) return false;
    switch (a.type) {
    case JINJA_TEXT:
        return jinja_same_text(a.text, b.text);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return equal_lists(a.list, b.list, depth + 1, steps_left);
    case JINJA_DICT:
        return equal_dicts(a.dict, b.dict, depth + 1, steps_left);
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    case JINJA_NAMESPACE:
        return a.dict == b.dict;
    case JINJA_LOOP:
        return a.loop == b.loop;
    case JINJA_MACRO:
        return a.macro == b.macro;
    default:
        return false;
    }
}

bool jinja_equal(struct jinja_value a, struct jinja_value b, int64_t *steps_left) {
    return equal(a, b, 0, steps_left);
}

const char *jinja_type_name(struct jinja_value v) {
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "undefined",   [JINJA_NONE] = "none",        [JINJA_BOOL] = "a boolean",
        [JINJA_INT] = "an integer",        [JINJA_FLOAT] = "a float",    [JINJA_TEXT] = "a string",
        [JINJA_LIST] = "a list",           [JINJA_TUPLE] = "a tuple",    [JINJA_DICT] = "a mapping",
        [JINJA_NAMESPACE] = "a namespace", [JINJA_LOOP] = "a loop",      [JINJA_MACRO] = "a macro",
        [JINJA_METHOD] = "a method",       [JINJA_GLOBAL] = "a function"};
    return names[v.type];
}
