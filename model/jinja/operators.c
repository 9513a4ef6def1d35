/* Operators: sums, signs, comparisons. */
#include <math.h>
#include <string.h>

#include "model/jinja/internal.h"

/* --- arithmetic -------------------------------------------------------------------------------------------------- */

static int integers(int op, int64_t a, int64_t b, struct jinja_value *out) {
    int64_t r = 0;
    bool overflows = false;
    switch (op) {
    case '+':
        overflows = __builtin_add_overflow(a, b, &r);
        break;
    case '-':
        overflows = __builtin_sub_overflow(a, b, &r);
        break;
    case '*':
        overflows = __builtin_mul_overflow(a, b, &r);
        break;
    case 'p':
        for (r = 1; b > 0 && !overflows && r != 0 && a != 1; b--)
            overflows = __builtin_mul_overflow(r, a, &r) || b > 1000;
        break;
    default: /* // and %, which round down */
        if (b == 0) return err_set(ERR_FORMAT, "a division by zero");
        if (b == -1) return integers(op == 'd' ? '*' : '-', op == 'd' ? a : 0, op == 'd' ? -1 : 0, out);
        r = op == 'd' ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    }
    if (overflows) return err_set(ERR_LIMIT, "an integer of more than 64 bits");
    *out = jinja_int(r);
    return 0;
}

static int floats(int op, double a, double b, struct jinja_value *out) {
    if (b == 0 && (op == '/' || op == 'd' || op == '%')) return err_set(ERR_FORMAT, "a division by zero");
    const double down = floor(a / b);
    *out = jinja_float(op == '+'   ? a + b
                       : op == '-' ? a - b
                       : op == '*' ? a * b
                       : op == '/' ? a / b
                       : op == 'd' ? down
                       : op == '%' ? a - down * b
                                   : pow(a, b));
    return 0;
}

int jinja_add_values(struct jinja_run *run, struct jinja_value a, struct jinja_value b, struct jinja_value *out) {
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.type == JINJA_FLOAT || b.type == JINJA_FLOAT) return floats('+', jinja_number(a), jinja_number(b), out);
        return integers('+', (int64_t)jinja_number(a), (int64_t)jinja_number(b), out);
    }
    if (a.type == JINJA_TEXT && b.type == JINJA_TEXT) {
        struct jinja_out text = {.arena = &run->arena};
        jinja_add(&text, a.text);
        jinja_add(&text, b.text);
        *out = jinja_string(jinja_take(&text));
        return 0;
    }
    if (jinja_is_list(a) && a.type == b.type) {
        *out = jinja_new_list(&run->arena, a.type);
        for (size_t i = 0; i < a.list->n; i++) jinja_push(&run->arena, out->list, a.list->items[i]);
        for (size_t i = 0; i < b.list->n; i++) jinja_push(&run->arena, out->list, b.list->items[i]);
        return 0;
    }
    if (a.type == JINJA_UNDEFINED) return jinja_wrong("", a);
    if (b.type == JINJA_UNDEFINED) return jinja_wrong("", b);
    return err_set(ERR_FORMAT, "%s and %s cannot be added", jinja_type_name(a), jinja_type_name(b));
}

/* A text or a list, so many times. */
static int repeat(struct jinja_run *run, struct jinja_value v, int64_t times, struct jinja_value *out) {
    const bool is_text = v.type == JINJA_TEXT;
    if (times < 0) times = 0;
    TRY(jinja_room(run, (size_t)times, is_text ? v.text.n : v.list->n * sizeof v));
    struct jinja_out text = {.arena = &run->arena};
    *out = is_text ? v : jinja_new_list(&run->arena, v.type);
    if (is_text && v.text.n == 0) return 0;
    for (; times > 0; times--) {
        if (is_text) jinja_add(&text, v.text);
        for (size_t i = 0; !is_text && i < v.list->n; i++) jinja_push(&run->arena, out->list, v.list->items[i]);
        if (!is_text && v.list->n == 0) break;
    }
    if (is_text) *out = jinja_string(jinja_take(&text));
    return 0;
}

static bool is_repeated(struct jinja_value v) {
    return v.type == JINJA_TEXT || jinja_is_list(v);
}

static int64_t whole(struct jinja_value v) {
    return v.type == JINJA_BOOL ? (int64_t)v.yes : v.integer;
}

int jinja_eval_arithmetic(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    struct jinja_value a, b;
    TRY(jinja_eval(run, node->a, &a));
    TRY(jinja_eval(run, node->b, &b));
    const int op = node->op;
    if (op == '~')
        return jinja_add_values(run, jinja_string(jinja_text_of(run, a)), jinja_string(jinja_text_of(run, b)), out);
    if (jinja_is_number(a) && jinja_is_number(b)) {
        const bool is_float =
            a.type == JINJA_FLOAT || b.type == JINJA_FLOAT || op == '/' || (op == 'p' && whole(b) < 0);
        return is_float ? floats(op, jinja_number(a), jinja_number(b), out) : integers(op, whole(a), whole(b), out);
    }
    if (op == '+') return jinja_add_values(run, a, b, out);
    if (op == '*' && is_repeated(a) && b.type == JINJA_INT) return repeat(run, a, b.integer, out);
    if (op == '*' && a.type == JINJA_INT && is_repeated(b)) return repeat(run, b, a.integer, out);
    if (op == '%' && a.type == JINJA_TEXT) {
        const struct jinja_list one = {&b, 1, 1};
        return jinja_format_percent(run, a.text, b.type == JINJA_TUPLE ? b.list : &one, out);
    }
    return jinja_is_number(a) ? jinja_wrong("is no operand of this operator", b)
                              : jinja_wrong("is no operand of this operator", a);
}

int jinja_eval_sign(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    struct jinja_value v;
    TRY(jinja_eval(run, node->a, &v));
    if (node->op == 'n') {
        *out = jinja_bool(!jinja_true(v));
        return 0;
    }
    if (!jinja_is_number(v)) return jinja_wrong("has no sign", v);
    if (v.type == JINJA_FLOAT) return floats('*', v.number, node->op == '-' ? -1 : 1, out);
    return integers('*', whole(v), node->op == '-' ? -1 : 1, out);
}

/* --- comparisons ------------------------------------------------------------------------------------------------- */

int jinja_order(struct jinja_value a, struct jinja_value b, int *out) {
    if (jinja_is_number(a) && jinja_is_number(b)) {
        const double x = jinja_number(a), y = jinja_number(b);
        *out = (x > y) - (x < y);
        return 0;
    }
    if (a.type == JINJA_TEXT && b.type == JINJA_TEXT) {
        const size_t n = a.text.n < b.text.n ? a.text.n : b.text.n;
        const int order =
            n > 0 ? memcmp(a.text.bytes, b.text.bytes, n) : 0; /* UTF-8 has the order of its code points */
        *out = order != 0 ? order : (a.text.n > b.text.n) - (a.text.n < b.text.n);
        return 0;
    }
    if (a.type == JINJA_UNDEFINED) return jinja_wrong("", a);
    if (b.type == JINJA_UNDEFINED) return jinja_wrong("", b);
    return err_set(ERR_FORMAT, "%s and %s have no order", jinja_type_name(a), jinja_type_name(b));
}

int jinja_contains(struct jinja_run *run, struct jinja_value in, struct jinja_value what, bool *out) {
    size_t at;
    *out = false;
    if (in.type == JINJA_TEXT) {
        jinja_scan(run, in.text.n);
        if (what.type != JINJA_TEXT) return jinja_wrong("is looked for in a string", what);
        *out = jinja_find(in.text, what.text, 0, &at);
        return 0;
    }
    if (in.type == JINJA_DICT) {
        *out = jinja_get(in.dict, what) != NULL;
        return 0;
    }
    struct jinja_list *items;
    TRY(jinja_items(run, in, &items));
    for (size_t i = 0; i < items->n && !*out; i++) *out = jinja_equal(items->items[i], what, &run->steps_left);
    return 0;
}

static int compare(struct jinja_run *run, int op, struct jinja_value a, struct jinja_value b, bool *out) {
    int order;
    switch (op) {
    case '=':
    case '!':
        *out = jinja_equal(a, b, &run->steps_left) == (op == '=');
        return 0;
    case 'i':
    case 'o':
        TRY(jinja_contains(run, b, a, out));
        *out = *out == (op == 'i');
        return 0;
    }
    TRY(jinja_order(a, b, &order));
    *out = op == '<' ? order < 0 : op == 'l' ? order <= 0 : op == '>' ? order > 0 : order >= 0;
    return 0;
}

int jinja_eval_compare(struct jinja_run *run, const struct jinja_node *node, struct jinja_value *out) {
    struct jinja_value a, b;
    bool is_so = true;
    TRY(jinja_eval(run, node->a, &a));
    for (size_t i = 0; i < node->n && is_so; i++) {
        TRY(jinja_eval(run, node->kids[i]->a, &b));
        TRY(compare(run, node->kids[i]->op, a, b, &is_so));
        a = b;
    }
    *out = jinja_bool(is_so);
    return 0;
}
