/* How functions are called; the language's own functions, and tests. */
#include <string.h>

#include "model/jinja/internal.h"

/* --- calls ------------------------------------------------------------------------------------------------------- */

/* The place of a parameter among names with blanks between them; -1: there is none. `count` of all. */
static int place_of(const char *parameters, struct jinja_text name, int *count) {
    int place = -1;
    *count = 0;
    for (const char *at = parameters; *at;) {
        const size_t n = strcspn(at, " ");
        if (jinja_same_text(name, (struct jinja_text){at, NULL, n})) place = *count;
        ++*count;
        at += n;
        at += strspn(at, " ");
    }
    return place;
}

int jinja_call(struct jinja_run *run, const struct jinja_function *function, struct jinja_value self,
               const struct jinja_value *at, size_t n, const struct jinja_dict *named, struct jinja_value *out) {
    struct jinja_call call = {.self = self};
    int count;
    TRY(jinja_step(run));
    if (self.type == JINJA_TEXT) jinja_scan(run, self.text.n);
    if (!function->parameters) {
        struct jinja_list list = {(struct jinja_value *)at, n, n};
        struct jinja_dict dict = *named;
        call.at[0] = (struct jinja_value){.type = JINJA_LIST, .list = &list};
        call.at[1] = (struct jinja_value){.type = JINJA_DICT, .dict = &dict};
        return function->run(run, &call, out);
    }
    place_of(function->parameters, jinja_literal(""), &count);
    if (n > (size_t)count)
        return err_set(ERR_FORMAT, "'%s' takes %d values at most, not %zu", function->name, count, n);
    for (size_t i = 0; i < n; i++) call.at[i] = at[i], call.given[i] = true;
    for (size_t i = 0; i < named->n; i++) {
        const struct jinja_text name = named->pairs[i].key.text;
        const int place = place_of(function->parameters, name, &count);
        if (place < 0 || call.given[place])
            return err_set(ERR_UNSUPPORTED, "'%s' is called with '%.*s', which is not known there", function->name,
                           (int)name.n, name.bytes);
        call.at[place] = named->pairs[i].value;
        call.given[place] = true;
    }
    return function->run(run, &call, out);
}

struct jinja_text jinja_text_of(struct jinja_run *run, struct jinja_value v) {
    if (v.type == JINJA_TEXT) return v.text;
    struct jinja_out out = {.arena = &run->arena};
    jinja_print(&out, v);
    return jinja_take(&out);
}

/* --- functions of the language ----------------------------------------------------------------------------------- */

static int run_range(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    enum { MOST = 100000 };
    int64_t bounds[3] = {0, 0, 1};
    const struct jinja_list *at = c->at[0].list;
    if (at->n < 1 || at->n > 3 || c->at[1].dict->n > 0)
        return err_set(ERR_FORMAT, "'range' takes one to three integers");
    for (size_t i = 0; i < at->n; i++) {
        if (at->items[i].type != JINJA_INT) return err_set(ERR_FORMAT, "'range' takes one to three integers");
        bounds[at->n == 1 ? 1 : i] = at->items[i].integer;
    }
    if (bounds[2] == 0) return err_set(ERR_FORMAT, "a range of steps of 0");
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1];) {
        if (out->list->n == MOST) return err_set(ERR_LIMIT, "a range of more than %d numbers", MOST);
        jinja_push(&run->arena, out->list, jinja_int(i));
        if (__builtin_add_overflow(i, bounds[2], &i)) break;
    }
    return 0;
}

static int make_dict(struct jinja_run *run, const struct jinja_call *c, enum jinja_type type, struct jinja_value *out) {
    const struct jinja_list *at = c->at[0].list;
    const struct jinja_dict *named = c->at[1].dict;
    *out = jinja_new_dict(&run->arena, type);
    if (at->n > 1 || (at->n == 1 && !jinja_is_dict(at->items[0])))
        return err_set(ERR_FORMAT, "'%s' takes a mapping, or names", type == JINJA_DICT ? "dict" : "namespace");
    for (size_t i = 0; at->n > 0 && i < at->items[0].dict->n; i++)
        jinja_put(&run->arena, out->dict, at->items[0].dict->pairs[i].key, at->items[0].dict->pairs[i].value);
    for (size_t i = 0; i < named->n; i++) jinja_put(&run->arena, out->dict, named->pairs[i].key, named->pairs[i].value);
    return 0;
}
static int run_dict(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return make_dict(run, c, JINJA_DICT, out);
}
static int run_namespace(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return make_dict(run, c, JINJA_NAMESPACE, out);
}

/* The template's own refusal. */
static int run_raise(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    const struct jinja_text text = jinja_text_of(run, c->at[0]);
    (void)out;
    run->has_raised = true;
    return err_set(ERR_USAGE, "%.*s", text.n > 1000 ? 1000 : (int)text.n, text.bytes);
}

static int run_strftime(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    char format[256], *text = jinja_alloc(&run->arena, 1024);
    if (c->at[0].type != JINJA_TEXT || c->at[0].text.n >= sizeof format)
        return err_set(ERR_FORMAT, "'strftime_now' takes the format of a date");
    memcpy(format, c->at[0].text.bytes, c->at[0].text.n);
    format[c->at[0].text.n] = '\0';
    const size_t n = strftime(text, 1024, format, run->now);
    *out = jinja_string((struct jinja_text){text, NULL, n});
    return 0;
}

const struct jinja_function *jinja_global_find(struct jinja_text name) {
    static const struct jinja_function all[] = {{"range", NULL, run_range},
                                                {"dict", NULL, run_dict},
                                                {"namespace", NULL, run_namespace},
                                                {"raise_exception", "message", run_raise},
                                                {"strftime_now", "format", run_strftime}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (jinja_is(name, all[i].name)) return &all[i];
    return NULL;
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

#define TEST(NAME, IS_SO)                                                                                         \
    static int test_##NAME(struct jinja_run *run, struct jinja_value v, struct jinja_value argument, bool *out) { \
        (void)run, (void)argument, (void)v;                                                                       \
        *out = (IS_SO);                                                                                           \
        return 0;                                                                                                 \
    }
TEST(defined, v.type != JINJA_UNDEFINED)
TEST(undefined, v.type == JINJA_UNDEFINED)
TEST(none, v.type == JINJA_NONE)
TEST(boolean, v.type == JINJA_BOOL)
TEST(true, v.type == JINJA_BOOL && v.yes)
TEST(false, v.type == JINJA_BOOL && !v.yes)
TEST(integer, v.type == JINJA_INT)
TEST(float, v.type == JINJA_FLOAT)
TEST(number, jinja_is_number(v))
TEST(string, v.type == JINJA_TEXT)
TEST(mapping, v.type == JINJA_DICT)
TEST(sequence, v.type == JINJA_TEXT || jinja_is_list(v) || v.type == JINJA_DICT || v.type == JINJA_UNDEFINED)
TEST(iterable, v.type == JINJA_TEXT || jinja_is_list(v) || v.type == JINJA_DICT || v.type == JINJA_UNDEFINED ||
                   v.type == JINJA_LOOP)
TEST(callable, v.type == JINJA_MACRO || v.type == JINJA_METHOD || v.type == JINJA_GLOBAL)
TEST(equal, jinja_equal(v, argument, &run->steps_left))
TEST(unequal, !jinja_equal(v, argument, &run->steps_left))
TEST(same, v.type == argument.type && jinja_equal(v, argument, &run->steps_left))
#undef TEST

static int test_in(struct jinja_run *run, struct jinja_value v, struct jinja_value argument, bool *out) {
    return jinja_contains(run, argument, v, out);
}

#define ORDER(NAME, IS_SO)                                                                                        \
    static int test_##NAME(struct jinja_run *run, struct jinja_value v, struct jinja_value argument, bool *out) { \
        int order;                                                                                                \
        (void)run;                                                                                                \
        TRY(jinja_order(v, argument, &order));                                                                    \
        *out = (IS_SO);                                                                                           \
        return 0;                                                                                                 \
    }
ORDER(less, order < 0)
ORDER(at_most, order <= 0)
ORDER(greater, order > 0)
ORDER(at_least, order >= 0)
#undef ORDER

static int divides(struct jinja_value v, int64_t by, bool *out) {
    if (v.type != JINJA_INT) return err_set(ERR_FORMAT, "%s is no integer", jinja_type_name(v));
    if (by == 0) return err_set(ERR_FORMAT, "a division by zero");
    *out = by == -1 || v.integer % by == 0;
    return 0;
}
static int test_even(struct jinja_run *run, struct jinja_value v, struct jinja_value argument, bool *out) {
    (void)run, (void)argument;
    return divides(v, 2, out);
}
static int test_odd(struct jinja_run *run, struct jinja_value v, struct jinja_value argument, bool *out) {
    TRY(test_even(run, v, argument, out));
    *out = !*out;
    return 0;
}
static int test_divisible(struct jinja_run *run, struct jinja_value v, struct jinja_value argument, bool *out) {
    (void)run;
    if (argument.type != JINJA_INT) return err_set(ERR_FORMAT, "%s is no integer", jinja_type_name(argument));
    return divides(v, argument.integer, out);
}

const struct jinja_test *jinja_test_find(struct jinja_text name) {
    static const struct jinja_test all[] = {{"defined", false, test_defined},
                                            {"undefined", false, test_undefined},
                                            {"none", false, test_none},
                                            {"boolean", false, test_boolean},
                                            {"true", false, test_true},
                                            {"false", false, test_false},
                                            {"integer", false, test_integer},
                                            {"float", false, test_float},
                                            {"number", false, test_number},
                                            {"string", false, test_string},
                                            {"mapping", false, test_mapping},
                                            {"sequence", false, test_sequence},
                                            {"iterable", false, test_iterable},
                                            {"callable", false, test_callable},
                                            {"odd", false, test_odd},
                                            {"even", false, test_even},
                                            {"eq", true, test_equal},
                                            {"equalto", true, test_equal},
                                            {"==", true, test_equal},
                                            {"ne", true, test_unequal},
                                            {"!=", true, test_unequal},
                                            {"sameas", true, test_same},
                                            {"in", true, test_in},
                                            {"lt", true, test_less},
                                            {"lessthan", true, test_less},
                                            {"<", true, test_less},
                                            {"le", true, test_at_most},
                                            {"<=", true, test_at_most},
                                            {"gt", true, test_greater},
                                            {"greaterthan", true, test_greater},
                                            {">", true, test_greater},
                                            {"ge", true, test_at_least},
                                            {">=", true, test_at_least},
                                            {"divisibleby", true, test_divisible}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (jinja_is(name, all[i].name)) return &all[i];
    return NULL;
}
