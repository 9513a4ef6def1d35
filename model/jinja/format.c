/* Texts with places for values: "%s" and "{}". */
#include <string.h>

#include "model/jinja/internal.h"

/* "%s", "%d" and "%%", of values one behind the other. */
int jinja_format_percent(struct jinja_run *run, struct jinja_text format, const struct jinja_list *values,
                         struct jinja_value *out) {
    struct jinja_out text = {.arena = &run->arena};
    size_t at, used = 0;
    for (; jinja_find(format, jinja_literal("%"), 0, &at); format = jinja_part(format, at + 2, format.n - at - 2)) {
        const char kind = at + 1 < format.n ? format.bytes[at + 1] : '\0';
        jinja_add(&text, jinja_part(format, 0, at));
        if (kind == '%') {
            jinja_say(&text, "%");
            continue;
        }
        if (kind != 's' && kind != 'd' && kind != 'i')
            return err_set(ERR_UNSUPPORTED, "of places for values '%%s' and '%%d' are known alone");
        if (used == values->n) return err_set(ERR_FORMAT, "more places than values");
        if (kind != 's' && values->items[used].type != JINJA_INT)
            return err_set(ERR_FORMAT, "%s in the place of an integer", jinja_type_name(values->items[used]));
        jinja_print(&text, values->items[used++]);
    }
    if (used < values->n) return err_set(ERR_FORMAT, "more values than places");
    jinja_add(&text, format);
    *out = jinja_string(jinja_take(&text));
    return 0;
}

/* The value of a place: the next one, one by its number, or one by its name. */
static int place_of(struct jinja_text name, const struct jinja_list *at, const struct jinja_dict *named, size_t *next,
                    struct jinja_value *out) {
    size_t number = 0;
    const struct jinja_value *found = NULL;
    if (name.n == 0) {
        number = (*next)++;
    } else if (strspn(name.bytes, "0123456789") >= name.n) {
        for (size_t i = 0; i < name.n && number <= at->n; i++) number = number * 10 + (size_t)(name.bytes[i] - '0');
    } else {
        found = jinja_get_named(named, name);
        number = at->n;
    }
    if (number < at->n) found = &at->items[number];
    if (!found)
        return err_set(ERR_FORMAT, "'format' has no value for '{%.*s}'", name.n > 60 ? 60 : (int)name.n, name.bytes);
    *out = *found;
    return 0;
}

int jinja_format_braces(struct jinja_run *run, struct jinja_text format, const struct jinja_list *at,
                        const struct jinja_dict *named, struct jinja_value *out) {
    struct jinja_out text = {.arena = &run->arena};
    size_t next = 0, end;
    for (size_t i = 0; i < format.n; i++) {
        const char c = format.bytes[i];
        const bool is_double = i + 1 < format.n && format.bytes[i + 1] == c;
        if ((c != '{' && c != '}') || is_double) {
            jinja_add(&text, jinja_part(format, i, 1));
            i += c == '{' || c == '}';
            continue;
        }
        if (c == '}' || !jinja_find(format, jinja_literal("}"), i, &end))
            return err_set(ERR_FORMAT, "'format' of single braces");
        const struct jinja_text name = jinja_part(format, i + 1, end - i - 1);
        if (name.n > 0 &&
            (memchr(name.bytes, ':', name.n) || memchr(name.bytes, '!', name.n) || memchr(name.bytes, '.', name.n)))
            return err_set(ERR_UNSUPPORTED, "'format' with more than names and numbers in braces");
        struct jinja_value v;
        TRY(place_of(name, at, named, &next, &v));
        jinja_print(&text, v);
        i = end;
    }
    *out = jinja_string(jinja_take(&text));
    return 0;
}
