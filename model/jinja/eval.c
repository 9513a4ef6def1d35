/* Expressions, evaluated. */
#include <string.h>

#include "model/jinja/internal.h"

enum { DEPTH_MAX = 400 };

int jinja_step(struct jinja_run *run) {
    if (--run->steps_left < 0) return err_set(ERR_LIMIT, "the template takes too many steps");
    return jinja_room(run, 0, 0);
}

void jinja_scan(struct jinja_run *run, size_t bytes) {
    run->steps_left -= (int64_t)(bytes / 64);
}

int jinja_room(struct jinja_run *run, size_t a, size_t b) {
    if (run->arena.bytes <= run->arena.most && (b == 0 || a <= run->arena.most / b)) return 0;
    return err_set(ERR_LIMIT, "the template takes more than %zu MB", run->arena.most >> 20);
}

int jinja_wrong(const char *what, struct jinja_value v) {
    if (v.type == JINJA_UNDEFINED)
        return err_set(ERR_FORMAT, "'%.*s' is undefined", v.text.n > 60 ? 60 : (int)v.text.n, v.text.bytes);
    return err_set(ERR_FORMAT, "%s %s", jinja_type_name(v), what);
}

/* --- attributes and items ---------------------------------------------------------------------------------------- */

static struct jinja_value loop_attribute(const struct jinja_loop *loop, struct jinja_text name) {
    const size_t n = loop->items->n, i = loop->at;
    const struct {
        const char *name;
        struct jinja_value value;
    } all[] = {{"index", jinja_int((int64_t)i + 1)},
               {"index0", jinja_int((int64_t)i)},
               {"first", jinja_bool(i == 0)},
               {"last", jinja_bool(i + 1 == n)},
               {"length", jinja_int((int64_t)n)},
               {"revindex", jinja_int((int64_t)(n - i))},
               {"revindex0", jinja_int((int64_t)(n - i) - 1)},
               {"depth", jinja_int(1)}, /* of recursive loops alone */
               {"depth0", jinja_int(0)},
               {"previtem", i > 0 ? loop->items->items[i - 1] : jinja_undefined(name)},
               {"nextitem", i + 1 < n ? loop->items->items[i + 1] : jinja_undefined(name)}};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (jinja_is(name, all[k].name)) return all[k].value;
    return jinja_undefined(name);
}

static int attribute(struct jinja_run *run, struct jinja_value of, struct jinja_text name, struct jinja_value *out) {
    const struct jinja_value *found = NULL;
    if (of.type == JINJA_UNDEFINED) return jinja_wrong("", of);
    const struct jinja_function *function = jinja_method_find(of.type, name);
    *out = jinja_undefined(name);
    if (function) {
        struct jinja_method *method = jinja_alloc(&run->arena, sizeof *method);
        *method = (struct jinja_method){of, function};
        *out = (struct jinja_value){.type = JINJA_METHOD, .method = method};
    } else if (of.type == JINJA_DICT || of.type == JINJA_NAMESPACE) {
        found = jinja_get_named(of.dict, name);
    }
    if (found) *out = *found;
    if (of.type == JINJA_LOOP) *out = loop_attribute(of.loop, name);
    return 0;
}

/* A place of n, from the end if it is negative. */
static bool place_of(int64_t at, size_t n, size_t *out) {
    if (at < 0) at += (int64_t)n;
    *out = (size_t)at;
    return at >= 0 && at < (int64_t)n;
}

int jinja_item(struct jinja_run *run, struct jinja_value of, struct jinja_value key, struct jinja_value *out) {
    size_t at;
    if (of.type == JINJA_UNDEFINED) return jinja_wrong("", of);
    *out = jinja_undefined(key.type == JINJA_TEXT ? key.text : jinja_literal("an item"));
    if (of.type == JINJA_DICT) {
        const struct jinja_value *found = jinja_get(of.dict, key);
        if (found) *out = *found;
        if (found || key.type != JINJA_TEXT) return 0;
    }
    if (key.type == JINJA_TEXT) return attribute(run, of, key.text, out);
    if (key.type != JINJA_INT && key.type != JINJA_BOOL) return 0;
    const int64_t index = key.type == JINJA_INT ? key.integer : (int64_t)key.yes;
    if (jinja_is_list(of) && place_of(index, of.list->n, &at)) *out = of.list->items[at];
    if (of.type == JINJA_TEXT) jinja_scan(run, of.text.n);
    if (of.type == JINJA_TEXT && place_of(index, jinja_characters(of.text), &at)) {
        const size_t from = jinja_offset(of.text, at);
        *out = jinja_string(jinja_part(of.text, from, jinja_character(of.text, from)));
    }
    return 0;
}

/* --- slices ------------------------------------------------------------------------------------------------------ */

/* A bound of a slice of n items, as Python takes it: within [low, high]. */
static int bound_of(struct jinja_run *run, const struct jinja_node *node, int64_t n, int64_t otherwise, bool is_back,
                    int64_t *out) {
    struct jinja_value v = jinja_none();
    if (node) TRY(jinja_eval(run, node, &v));
    *out = otherwise;
    if (v.type == JINJA_NONE) return 0;
    if (v.type != JINJA_INT) return jinja_wrong("is no bound of a slice", v);
    const int64_t low = is_back ? -1 : 0, high = is_back ? n - 1 : n;
    int64_t at = v.integer < 0 ? v.integer + n : v.integer;
    *out = at < low ? low : at > high ? high : at;
    return 0;
}

/* Of a text its characters. */
static int take(struct jinja_run *run, struct jinja_value of, int64_t begin, int64_t end, int64_t step,
                struct jinja_value *out) {
    const bool is_text = of.type == JINJA_TEXT;
    struct jinja_out text = {.arena = &run->arena};
    struct jinja_list *items;
    if (is_text && step == 1) {
        const size_t from = jinja_offset(of.text, (size_t)begin);
        const struct jinja_text rest = jinja_part(of.text, from, of.text.n - from);
        *out = jinja_string(jinja_part(rest, 0, end > begin ? jinja_offset(rest, (size_t)(end - begin)) : 0));
        return 0;
    }
    TRY(jinja_items(run, of, &items));
    if (!is_text) *out = jinja_new_list(&run->arena, of.type);
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
        if (is_text)
            jinja_add(&text, items->items[i].text);
        else
            jinja_push(&run->arena, out->list, items->items[i]);
    }
    if (is_text) *out = jinja_string(jinja_take(&text));
    return 0;
}

static int eval_slice(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    struct jinja_value of, by = jinja_int(1);
    int64_t begin, end;
    TRY(jinja_eval(run, node->a, &of));
    if (!jinja_is_list(of) && of.type != JINJA_TEXT) return jinja_wrong("cannot be sliced", of);
    if (node->d) TRY(jinja_eval(run, node->d, &by));
    if (by.type == JINJA_NONE) by = jinja_int(1);
    if (by.type != JINJA_INT || by.integer == 0) return jinja_wrong("is no step of a slice", by);
    const int64_t n = (int64_t)(of.type == JINJA_TEXT ? jinja_characters(of.text) : of.list->n);
    const bool is_back = by.integer < 0;
    /* A step past all items is one past all items: no sum of it and a place overflows. */
    const int64_t step = by.integer > n ? n + 1 : by.integer < -n ? -n - 1 : by.integer;
    TRY(bound_of(run, node->b, n, is_back ? n - 1 : 0, is_back, &begin));
    TRY(bound_of(run, node->c, n, is_back ? -1 : n, is_back, &end));
    if (of.type == JINJA_TEXT) jinja_scan(run, of.text.n);
    TRY(jinja_room(run, (size_t)n, sizeof of));
    return take(run, of, begin, end, step, out);
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

/* The values of a call's kids, and the named ones. */
static int eval_arguments(struct jinja_run *run, const struct jinja_node *call, struct jinja_list *at,
                          struct jinja_dict *named) {
    for (size_t i = 0; i < call->n; i++) {
        const bool is_named = call->kids[i]->kind == NODE_KEYWORD;
        const bool is_spread = call->kids[i]->kind == NODE_SPREAD;
        struct jinja_value v;
        struct jinja_list one = {&v, 1, 1}, *items = &one;
        TRY(jinja_eval(run, is_named || is_spread ? call->kids[i]->a : call->kids[i], &v));
        if (is_spread) TRY(jinja_items(run, v, &items));
        if (is_named) jinja_put(&run->arena, named, call->kids[i]->value, v);
        for (size_t k = 0; k < items->n && !is_named; k++) jinja_push(&run->arena, at, items->items[k]);
    }
    return 0;
}

static int eval_call(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    struct jinja_value callee;
    struct jinja_list at = {0};
    struct jinja_dict named = {0};
    TRY(jinja_eval(run, node->a, &callee));
    TRY(eval_arguments(run, node, &at, &named));
    switch (callee.type) {
    case JINJA_MACRO:
        return jinja_call_macro(run, callee.macro, at.items, at.n, &named, out);
    case JINJA_METHOD:
        return jinja_call(run, callee.method->function, callee.method->self, at.items, at.n, &named, out);
    case JINJA_GLOBAL:
        return jinja_call(run, callee.function, jinja_none(), at.items, at.n, &named, out);
    default:
        return jinja_wrong("cannot be called", callee);
    }
}

/* A filter or test that is not there fails where it is asked, as others' renderers have it. */
static int missing(const char *what, struct jinja_text name) {
    return err_set(ERR_UNSUPPORTED, "there is no %s '%.*s'", what, name.n > 60 ? 60 : (int)name.n, name.bytes);
}

static int eval_filter(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    struct jinja_value v;
    if (!node->function) return missing("filter", node->value.text);
    struct jinja_list at = {0};
    struct jinja_dict named = {0};
    TRY(jinja_eval(run, node->a, &v));
    TRY(eval_arguments(run, node, &at, &named));
    return jinja_call(run, node->function, v, at.items, at.n, &named, out);
}

static int eval_test(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    struct jinja_value v, argument = jinja_none();
    bool is_so;
    if (!node->test) return missing("test", node->value.text);
    TRY(jinja_eval(run, node->a, &v));
    if (node->n > 0) TRY(jinja_eval(run, node->kids[0], &argument));
    TRY(node->test->run(run, v, argument, &is_so));
    *out = jinja_bool(is_so);
    return 0;
}

/* --- all --------------------------------------------------------------------------------------------------------- */

static int eval_name(struct jinja_run *run, struct jinja_text name, struct jinja_value *out) {
    for (const struct jinja_frame *f = run->frame; f; f = f->parent) {
        const struct jinja_value *found = jinja_get_named(&f->names, name);
        if (found) {
            *out = *found;
            return 0;
        }
    }
    const struct jinja_function *function =
        run->now || !jinja_is(name, "strftime_now") ? jinja_global_find(name) : NULL;
    *out = function ? (struct jinja_value){.type = JINJA_GLOBAL, .function = function} : jinja_undefined(name);
    return 0;
}

static int eval_list(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    *out = jinja_new_list(&run->arena, node->kind == NODE_LIST ? JINJA_LIST : JINJA_TUPLE);
    for (size_t i = 0; i < node->n; i++) {
        struct jinja_value v;
        TRY(jinja_eval(run, node->kids[i], &v));
        jinja_push(&run->arena, out->list, v);
    }
    return 0;
}

static int eval_dict(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    *out = jinja_new_dict(&run->arena, JINJA_DICT);
    for (size_t i = 0; i < node->n; i += 2) {
        struct jinja_value key, value;
        TRY(jinja_eval(run, node->kids[i], &key));
        TRY(jinja_eval(run, node->kids[i + 1], &value));
        if (!jinja_is_key(key)) return jinja_wrong("is no key", key);
        jinja_put(&run->arena, out->dict, key, value);
    }
    return 0;
}

/* "and", "or": the value that decides. */
static int eval_logic(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    TRY(jinja_eval(run, node->a, out));
    return jinja_true(*out) == (node->kind == NODE_AND) ? jinja_eval(run, node->b, out) : 0;
}

static int eval_choice(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    struct jinja_value condition;
    TRY(jinja_eval(run, node->b, &condition));
    if (jinja_true(condition)) return jinja_eval(run, node->a, out);
    *out = jinja_undefined(jinja_literal("what has no 'else'"));
    return node->c ? jinja_eval(run, node->c, out) : 0;
}

static int eval_of(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    struct jinja_value a, b;
    switch (node->kind) {
    case NODE_VALUE:
        *out = node->value;
        return 0;
    case NODE_CAPTURED:
        *out = run->captured;
        return 0;
    case NODE_NAME:
        return eval_name(run, node->value.text, out);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_list(run, node, out);
    case NODE_DICT:
        return eval_dict(run, node, out);
    case NODE_ATTRIBUTE:
        TRY(jinja_eval(run, node->a, &a));
        return attribute(run, a, node->value.text, out);
    case NODE_ITEM:
        TRY(jinja_eval(run, node->a, &a));
        TRY(jinja_eval(run, node->b, &b));
        return jinja_item(run, a, b, out);
    case NODE_SLICE:
        return eval_slice(run, node, out);
    case NODE_CALL:
        return eval_call(run, node, out);
    case NODE_FILTER:
        return eval_filter(run, node, out);
    case NODE_TEST:
        return eval_test(run, node, out);
    case NODE_SIGN:
        return jinja_eval_sign(run, node, out);
    case NODE_ARITHMETIC:
        return jinja_eval_arithmetic(run, node, out);
    case NODE_COMPARE:
        return jinja_eval_compare(run, node, out);
    case NODE_AND:
    case NODE_OR:
        return eval_logic(run, node, out);
    case NODE_CHOICE:
        return eval_choice(run, node, out);
    default:
        return err_set(ERR_INTERNAL, "a statement where an expression stands");
    }
}

int jinja_eval(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    TRY(jinja_step(run));
    if (++run->depth > DEPTH_MAX) return err_set(ERR_LIMIT, "nested too deeply");
    const int rc = eval_of(run, node, out);
    run->depth--;
    return rc;
}
