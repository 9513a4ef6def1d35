/* Filters of lists. */
#include <string.h>

#include "model/jinja/internal.h"

/* --- attributes by a path ---------------------------------------------------------------------------------------- */

/* Digits, few enough for a place in a list. */
static bool is_number(struct jinja_text t, int64_t *out) {
    *out = 0;
    for (size_t i = 0; i < t.n; i++) {
        if (t.bytes[i] < '0' || t.bytes[i] > '9') return false;
        *out = *out * 10 + (t.bytes[i] - '0');
    }
    return t.n > 0 && t.n < 10;
}

/* "a.b.0" of a value; or an item by its number. */
static int by_path(struct jinja_run *run, struct jinja_value v, struct jinja_value path, struct jinja_value *out) {
    *out = v;
    if (path.type == JINJA_INT) return jinja_item(run, v, path, out);
    if (path.type != JINJA_TEXT) return err_set(ERR_FORMAT, "%s names no attribute", jinja_type_name(path));
    struct jinja_text rest = path.text;
    for (bool has_more = true; has_more;) {
        size_t end;
        has_more = jinja_find(rest, jinja_literal("."), 0, &end);
        const struct jinja_text name = jinja_part(rest, 0, has_more ? end : rest.n);
        int64_t number;
        TRY(jinja_item(run, *out, is_number(name, &number) ? jinja_int(number) : jinja_string(name), out));
        if (has_more) rest = jinja_part(rest, end + 1, rest.n - end - 1);
    }
    return 0;
}

/* An item itself where no path is given. */
static int part_of(struct jinja_run *run, struct jinja_value item, const struct jinja_call *c, int path,
                   struct jinja_value *out) {
    *out = item;
    return c->given[path] && c->at[path].type != JINJA_NONE ? by_path(run, item, c->at[path], out) : 0;
}

/* --- one of all -------------------------------------------------------------------------------------------------- */

static int run_length(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_list *items;
    if (c->self.type == JINJA_TEXT) {
        *out = jinja_int((int64_t)jinja_characters(c->self.text));
        return 0;
    }
    TRY(jinja_items(run, c->self, &items));
    *out = jinja_int((int64_t)items->n);
    return 0;
}

static int end_of(struct jinja_run *run, const struct jinja_call *c, bool is_last, struct jinja_value *out) {
    struct jinja_list *items;
    TRY(jinja_items(run, c->self, &items));
    *out =
        items->n > 0 ? items->items[is_last ? items->n - 1 : 0] : jinja_undefined(jinja_literal("an item of nothing"));
    return 0;
}
static int run_first(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return end_of(run, c, false, out);
}
static int run_last(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return end_of(run, c, true, out);
}

static int extreme(struct jinja_run *run, const struct jinja_call *c, int sign, struct jinja_value *out) {
    struct jinja_list *items;
    TRY(jinja_items(run, c->self, &items));
    *out = jinja_undefined(jinja_literal("an item of nothing"));
    for (size_t i = 0; i < items->n; i++) {
        int order = 1;
        if (i > 0) TRY(jinja_order(items->items[i], *out, &order));
        if (i == 0 || order * sign > 0) *out = items->items[i];
    }
    return 0;
}
static int run_max(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return extreme(run, c, 1, out);
}
static int run_min(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return extreme(run, c, -1, out);
}

static int run_sum(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_list *items;
    TRY(jinja_items(run, c->self, &items));
    *out = c->given[1] ? c->at[1] : jinja_int(0);
    for (size_t i = 0; i < items->n; i++) {
        struct jinja_value v;
        TRY(part_of(run, items->items[i], c, 0, &v));
        TRY(jinja_add_values(run, *out, v, out));
    }
    return 0;
}

static int run_join(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_out text = {.arena = &run->arena};
    struct jinja_list *items;
    const struct jinja_text between = c->given[0] ? jinja_text_of(run, c->at[0]) : jinja_literal("");
    TRY(jinja_items(run, c->self, &items));
    TRY(jinja_room(run, items->n, between.n + 1));
    for (size_t i = 0; i < items->n; i++) {
        struct jinja_value v;
        TRY(jinja_step(run));
        TRY(part_of(run, items->items[i], c, 1, &v));
        if (i > 0) jinja_add(&text, between);
        jinja_print(&text, v);
    }
    *out = jinja_string(jinja_take(&text));
    return 0;
}

/* --- in another order -------------------------------------------------------------------------------------------- */

static int run_list(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_list *items;
    TRY(jinja_items(run, c->self, &items));
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    for (size_t i = 0; i < items->n; i++) jinja_push(&run->arena, out->list, items->items[i]);
    return 0;
}

static int run_reverse(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_list *items;
    TRY(jinja_items(run, c->self, &items));
    if (c->self.type == JINJA_TEXT) {
        struct jinja_out text = {.arena = &run->arena};
        for (size_t i = items->n; i-- > 0;) jinja_add(&text, items->items[i].text);
        *out = jinja_string(jinja_take(&text));
        return 0;
    }
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    for (size_t i = items->n; i-- > 0;) jinja_push(&run->arena, out->list, items->items[i]);
    return 0;
}

/* What is sorted by, and where it stood. */
struct keyed {
    struct jinja_value key, item;
};

static int key_of(struct jinja_run *run, struct jinja_value v, bool minds_case, struct jinja_value *out) {
    *out = v;
    if (minds_case || v.type != JINJA_TEXT) return 0;
    const struct jinja_call none = {.self = v};
    return jinja_method_find(JINJA_TEXT, jinja_literal("lower"))->run(run, &none, out);
}

/* Merge sort, which keeps the order of equals. */
static int sort_keyed(struct jinja_run *run, struct keyed *all, struct keyed *spare, size_t n, bool is_reversed) {
    if (n < 2) return 0;
    const size_t half = n / 2;
    TRY(sort_keyed(run, all, spare, half, is_reversed));
    TRY(sort_keyed(run, all + half, spare, n - half, is_reversed));
    for (size_t i = 0, a = 0, b = half; i < n; i++) {
        int order = a < half ? -1 : 1;
        if (a < half && b < n) {
            TRY(jinja_order(all[a].key, all[b].key, &order));
            if (is_reversed) order = -order;
        }
        spare[i] = order <= 0 ? all[a++] : all[b++];
    }
    memcpy(all, spare, n * sizeof *all);
    return jinja_step(run);
}

static int sort_items(struct jinja_run *run, struct keyed *all, size_t n, bool is_reversed, struct jinja_value *out) {
    struct keyed *spare = jinja_alloc(&run->arena, (n + 1) * sizeof *spare);
    TRY(sort_keyed(run, all, spare, n, is_reversed));
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    for (size_t i = 0; i < n; i++) jinja_push(&run->arena, out->list, all[i].item);
    return 0;
}

static int run_sort(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_list *items;
    TRY(jinja_items(run, c->self, &items));
    struct keyed *all = jinja_alloc(&run->arena, (items->n + 1) * sizeof *all);
    for (size_t i = 0; i < items->n; i++) {
        all[i].item = items->items[i];
        TRY(part_of(run, items->items[i], c, 2, &all[i].key));
        TRY(key_of(run, all[i].key, jinja_true(c->at[1]), &all[i].key));
    }
    return sort_items(run, all, items->n, jinja_true(c->at[0]), out);
}

static int run_dictsort(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    const bool by_value = c->at[1].type == JINJA_TEXT && jinja_is(c->at[1].text, "value");
    struct jinja_value pairs;
    if (c->self.type != JINJA_DICT) return err_set(ERR_FORMAT, "%s is no mapping", jinja_type_name(c->self));
    TRY(jinja_method_find(JINJA_DICT, jinja_literal("items"))->run(run, c, &pairs));
    struct keyed *all = jinja_alloc(&run->arena, (pairs.list->n + 1) * sizeof *all);
    for (size_t i = 0; i < pairs.list->n; i++) {
        all[i].item = pairs.list->items[i];
        TRY(key_of(run, all[i].item.list->items[by_value ? 1 : 0], jinja_true(c->at[0]), &all[i].key));
    }
    return sort_items(run, all, pairs.list->n, jinja_true(c->at[2]), out);
}

static int run_unique(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_list *items, seen = {0};
    TRY(jinja_items(run, c->self, &items));
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    for (size_t i = 0; i < items->n; i++) {
        struct jinja_value key;
        bool is_known = false;
        TRY(part_of(run, items->items[i], c, 1, &key));
        TRY(key_of(run, key, jinja_true(c->at[0]), &key));
        for (size_t k = 0; k < seen.n && !is_known; k++) is_known = jinja_equal(seen.items[k], key, &run->steps_left);
        TRY(jinja_step(run));
        if (is_known) continue;
        jinja_push(&run->arena, &seen, key);
        jinja_push(&run->arena, out->list, items->items[i]);
    }
    return 0;
}

/* --- of each item ------------------------------------------------------------------------------------------------ */

/* None at all of what is not true. */
static int some_items(struct jinja_run *run, struct jinja_value of, struct jinja_list **out) {
    *out = jinja_alloc(&run->arena, sizeof **out);
    return jinja_true(of) ? jinja_items(run, of, out) : 0;
}

/* By an attribute, or by a filter with what it is called with. */
static int run_map(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_list *items;
    const struct jinja_function *filter = NULL;
    const struct jinja_dict none = {0};
    size_t n = 0;
    TRY(some_items(run, c->self, &items));
    if (!c->given[4]) {
        if (c->at[0].type == JINJA_TEXT) filter = jinja_filter_find(c->at[0].text);
        if (!filter) return err_set(ERR_UNSUPPORTED, "'map' with a filter that is not known");
        while (n < 3 && c->given[n + 1]) n++;
    }
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    for (size_t i = 0; i < items->n; i++) {
        struct jinja_value v;
        TRY(filter ? jinja_call(run, filter, items->items[i], c->at + 1, n, &none, &v)
                   : by_path(run, items->items[i], c->at[4], &v));
        if (!filter && v.type == JINJA_UNDEFINED && c->given[5]) v = c->at[5];
        jinja_push(&run->arena, out->list, v);
    }
    return 0;
}

/* Those of which a test (none: truth) is as wanted. */
static int choose(struct jinja_run *run, const struct jinja_call *c, bool has_path, bool wants,
                  struct jinja_value *out) {
    const int at = has_path ? 1 : 0;
    const struct jinja_test *test = NULL;
    struct jinja_list *items;
    TRY(some_items(run, c->self, &items));
    if (c->given[at]) {
        if (c->at[at].type == JINJA_TEXT) test = jinja_test_find(c->at[at].text);
        if (!test) return err_set(ERR_UNSUPPORTED, "a choice by a test that is not known");
    }
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    for (size_t i = 0; i < items->n; i++) {
        struct jinja_value v = items->items[i];
        if (has_path) TRY(by_path(run, v, c->at[0], &v));
        bool is_so = jinja_true(v);
        if (test) TRY(test->run(run, v, c->at[at + 1], &is_so));
        TRY(jinja_step(run));
        if (is_so == wants) jinja_push(&run->arena, out->list, items->items[i]);
    }
    return 0;
}
static int run_select(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return choose(run, c, false, true, out);
}
static int run_reject(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return choose(run, c, false, false, out);
}
static int run_selectattr(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return choose(run, c, true, true, out);
}
static int run_rejectattr(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return choose(run, c, true, false, out);
}

const struct jinja_function *jinja_list_filter_find(struct jinja_text name) {
    static const struct jinja_function all[] = {{"length", "", run_length},
                                                {"count", "", run_length},
                                                {"first", "", run_first},
                                                {"last", "", run_last},
                                                {"max", "", run_max},
                                                {"min", "", run_min},
                                                {"sum", "attribute start", run_sum},
                                                {"join", "d attribute", run_join},
                                                {"list", "", run_list},
                                                {"reverse", "", run_reverse},
                                                {"sort", "reverse case_sensitive attribute", run_sort},
                                                {"dictsort", "case_sensitive by reverse", run_dictsort},
                                                {"unique", "case_sensitive attribute", run_unique},
                                                {"map", "1 2 3 4 attribute default", run_map},
                                                {"select", "1 2", run_select},
                                                {"reject", "1 2", run_reject},
                                                {"selectattr", "1 2 3", run_selectattr},
                                                {"rejectattr", "1 2 3", run_rejectattr}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (jinja_is(name, all[i].name)) return &all[i];
    return NULL;
}
