/* Filters of one value. Those of lists: lists.c. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_number.h"
#include "model/jinja/internal.h"

/* --- by a string's methods --------------------------------------------------------------------------------------- */

static int by_method(struct jinja_run *run, const struct jinja_call *c, const char *name, struct jinja_value *out) {
    struct jinja_call call = *c;
    call.self = jinja_string(jinja_text_of(run, c->self));
    return jinja_method_find(JINJA_TEXT, jinja_literal(name))->run(run, &call, out);
}

static int run_trim(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return by_method(run, c, "strip", out);
}
static int run_upper(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return by_method(run, c, "upper", out);
}
static int run_lower(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return by_method(run, c, "lower", out);
}
static int run_title(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    *out = jinja_title(run, jinja_text_of(run, c->self));
    return 0;
}
static int run_capitalize(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return by_method(run, c, "capitalize", out);
}
static int run_replace(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return by_method(run, c, "replace", out);
}

/* --- what stands for what ---------------------------------------------------------------------------------------- */

static int run_default(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    const bool is_missing = c->self.type == JINJA_UNDEFINED || (jinja_true(c->at[1]) && !jinja_true(c->self));
    (void)run;
    *out = is_missing ? c->given[0] ? c->at[0] : jinja_string(jinja_literal("")) : c->self;
    return 0;
}

static int run_safe(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    *out = jinja_string(jinja_text_of(run, c->self));
    return 0;
}

/* A text's digits as C text; false where it is longer than any number. */
static bool number_text(struct jinja_value v, char *out, size_t size) {
    const struct jinja_text t = jinja_strip(v.text, NULL, true, true);
    if (t.n == 0 || t.n >= size) return false;
    memcpy(out, t.bytes, t.n);
    out[t.n] = '\0';
    return strspn(out, "+-0123456789.eE") == t.n;
}

static int run_int(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    char text[64], *end = text;
    (void)run;
    *out = c->given[0] ? c->at[0] : jinja_int(0);
    if (c->self.type == JINJA_INT) *out = c->self;
    if (c->self.type == JINJA_BOOL) *out = jinja_int(c->self.yes);
    if (c->self.type == JINJA_FLOAT && fabs(c->self.number) < 9e18) *out = jinja_int((int64_t)c->self.number);
    if (c->self.type != JINJA_TEXT || !number_text(c->self, text, sizeof text)) return 0;
    errno = 0;
    const int64_t value = strtoll(text, &end, 10);
    if (*end == '\0' && end > text && errno == 0) {
        *out = jinja_int(value);
    } else {
        const double number = json_number_read(text);
        if (fabs(number) < 9e18) *out = jinja_int((int64_t)number);
    }
    return 0;
}

static int run_float(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    char text[64];
    (void)run;
    *out = c->given[0] ? c->at[0] : jinja_float(0);
    if (jinja_is_number(c->self)) *out = jinja_float(jinja_number(c->self));
    if (c->self.type == JINJA_TEXT && number_text(c->self, text, sizeof text))
        *out = jinja_float(json_number_read(text));
    return 0;
}

static int run_abs(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    (void)run;
    if (!jinja_is_number(c->self)) return err_set(ERR_FORMAT, "%s is no number", jinja_type_name(c->self));
    if (c->self.type == JINJA_FLOAT)
        *out = jinja_float(fabs(c->self.number));
    else if (c->self.type == JINJA_INT && c->self.integer == INT64_MIN)
        return err_set(ERR_LIMIT, "an integer of more than 64 bits");
    else
        *out = jinja_int(c->self.type == JINJA_BOOL ? (int64_t)c->self.yes : llabs(c->self.integer));
    return 0;
}

/* Half to even, as Python rounds; or up, or down. */
static int run_round(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    const int64_t places = c->at[0].type == JINJA_INT ? c->at[0].integer : 0;
    (void)run;
    if (!jinja_is_number(c->self)) return err_set(ERR_FORMAT, "%s is no number", jinja_type_name(c->self));
    if (places < 0 || places > 15) return err_set(ERR_FORMAT, "'round' takes 0 to 15 places");
    const double scale = pow(10, (double)places), x = jinja_number(c->self) * scale;
    const bool is_up = c->at[1].type == JINJA_TEXT && jinja_is(c->at[1].text, "ceil");
    const bool is_down = c->at[1].type == JINJA_TEXT && jinja_is(c->at[1].text, "floor");
    *out = jinja_float((is_up ? ceil(x) : is_down ? floor(x) : nearbyint(x)) / scale);
    return 0;
}

/* --- texts ------------------------------------------------------------------------------------------------------- */

/* Spaces: a number of them, or a text. */
static int indent_of(struct jinja_run *run, struct jinja_value width, struct jinja_text *out) {
    struct jinja_out spaces = {.arena = &run->arena};
    const int64_t n = width.type == JINJA_INT ? width.integer : 4;
    if (n < 0 || n > 1000) return err_set(ERR_LIMIT, "an indent of more than 1,000");
    for (int64_t i = 0; i < n; i++) jinja_say(&spaces, " ");
    *out = width.type == JINJA_TEXT ? width.text : jinja_take(&spaces);
    return 0;
}

/* Lines behind the first one are indented, those that are empty only if asked for. */
static int run_indent(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_out text = {.arena = &run->arena};
    struct jinja_text t = jinja_text_of(run, c->self), indent;
    bool is_first = true;
    size_t end;
    TRY(indent_of(run, c->at[0], &indent));
    TRY(jinja_room(run, t.n + 1, indent.n + 1));
    for (bool has_more = true; has_more; is_first = false) {
        has_more = jinja_find(t, jinja_literal("\n"), 0, &end);
        const struct jinja_text line = jinja_part(t, 0, has_more ? end : t.n);
        if (is_first ? jinja_true(c->at[1]) : line.n > 0 || jinja_true(c->at[2])) jinja_add(&text, indent);
        jinja_add(&text, line);
        if (has_more) jinja_say(&text, "\n");
        t = has_more ? jinja_part(t, end + 1, t.n - end - 1) : t;
    }
    *out = jinja_string(jinja_take(&text));
    return 0;
}

static int run_tojson(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_out text = {.arena = &run->arena};
    const bool has_indent = c->given[0] && c->at[0].type == JINJA_INT;
    if (has_indent && (c->at[0].integer < 0 || c->at[0].integer > 100))
        return err_set(ERR_LIMIT, "an indent of more than 100");
    const struct jinja_json json = {has_indent ? (int)c->at[0].integer : -1, jinja_true(c->at[1])};
    TRY(jinja_print_json(&text, c->self, &json, 0));
    *out = jinja_string(jinja_take(&text));
    return 0;
}

static int run_format(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    if (c->at[1].dict->n > 0) return err_set(ERR_UNSUPPORTED, "'format' by names");
    return jinja_format_percent(run, jinja_text_of(run, c->self), c->at[0].list, out);
}

static int run_items(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    if (c->self.type == JINJA_DICT) return jinja_method_find(JINJA_DICT, jinja_literal("items"))->run(run, c, out);
    if (c->self.type != JINJA_UNDEFINED) return err_set(ERR_FORMAT, "%s is no mapping", jinja_type_name(c->self));
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    return 0;
}

const struct jinja_function *jinja_filter_find(struct jinja_text name) {
    static const struct jinja_function all[] = {{"trim", "chars", run_trim},
                                                {"upper", "", run_upper},
                                                {"lower", "", run_lower},
                                                {"title", "", run_title},
                                                {"capitalize", "", run_capitalize},
                                                {"replace", "old new count", run_replace},
                                                {"default", "default_value boolean", run_default},
                                                {"d", "default_value boolean", run_default},
                                                {"string", "", run_safe},
                                                {"safe", "", run_safe},
                                                {"int", "default", run_int},
                                                {"float", "default", run_float},
                                                {"abs", "", run_abs},
                                                {"round", "precision method", run_round},
                                                {"indent", "width first blank", run_indent},
                                                {"tojson", "indent ensure_ascii", run_tojson},
                                                {"format", NULL, run_format},
                                                {"items", "", run_items}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (jinja_is(name, all[i].name)) return &all[i];
    return jinja_list_filter_find(name);
}
