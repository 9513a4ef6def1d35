/* From tokens to nodes: expressions, with the precedence of Jinja's own parser. Tags: parse_tags.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_number.h"
#include "model/jinja/internal.h"

enum { DEPTH_MAX = 200 };

/* --- what both files use ----------------------------------------------------------------------------------------- */

struct jinja_node *jinja_new_node(struct jinja_parser *p, enum jinja_node_kind kind) {
    struct jinja_node *node = jinja_alloc(p->arena, sizeof *node);
    node->kind = kind;
    node->line = p->token->line;
    return node;
}

void jinja_add_kid(struct jinja_parser *p, struct jinja_node *node, struct jinja_node *kid, size_t *cap) {
    if (node->n == *cap) {
        *cap = *cap ? 2 * *cap : 4;
        struct jinja_node **more = jinja_alloc(p->arena, *cap * sizeof *more);
        if (node->n > 0) memcpy(more, node->kids, node->n * sizeof *more);
        node->kids = more;
    }
    node->kids[node->n++] = kid;
}

bool jinja_next_is(const struct jinja_parser *p, enum jinja_token_kind kind, const char *text) {
    return p->token->kind == kind && (!text || jinja_is(p->token->text, text));
}

bool jinja_skip(struct jinja_parser *p, enum jinja_token_kind kind, const char *text) {
    if (!jinja_next_is(p, kind, text)) return false;
    p->token++;
    return true;
}

int jinja_unexpected(const struct jinja_parser *p) {
    if (p->token->kind == TOKEN_END) return err_set(ERR_FORMAT, "line %d: the template ends too early", p->token->line);
    return err_set(ERR_FORMAT, "line %d: '%.*s' is not expected here", p->token->line,
                   p->token->text.n > 60 ? 60 : (int)p->token->text.n, p->token->text.bytes);
}

int jinja_expect(struct jinja_parser *p, enum jinja_token_kind kind, const char *text) {
    return jinja_skip(p, kind, text) ? 0 : jinja_unexpected(p);
}

int jinja_enter(struct jinja_parser *p) {
    if (++p->depth > DEPTH_MAX) return err_set(ERR_LIMIT, "line %d: nested too deeply", p->token->line);
    return 0;
}

static bool is_sign(const struct jinja_parser *p, const char *text) {
    return jinja_next_is(p, TOKEN_SIGN, text);
}
static bool skip_sign(struct jinja_parser *p, const char *text) {
    return jinja_skip(p, TOKEN_SIGN, text);
}
static bool skip_word(struct jinja_parser *p, const char *text) {
    return jinja_skip(p, TOKEN_NAME, text);
}
static int expect_sign(struct jinja_parser *p, const char *text) {
    return jinja_expect(p, TOKEN_SIGN, text);
}

/* A node of `kind` around `a`. */
static struct jinja_node *around(struct jinja_parser *p, enum jinja_node_kind kind, int op, struct jinja_node *a) {
    struct jinja_node *node = jinja_new_node(p, kind);
    node->op = op;
    node->a = a;
    return node;
}

/* --- literals ---------------------------------------------------------------------------------------------------- */

static int parse_number(struct jinja_parser *p, struct jinja_node *node) {
    struct jinja_out digits = {.arena = p->arena};
    for (size_t i = 0; i < p->token->text.n; i++)
        if (p->token->text.bytes[i] != '_') jinja_add(&digits, jinja_part(p->token->text, i, 1));
    jinja_add(&digits, (struct jinja_text){"", NULL, 1}); /* its NUL */
    if (p->token->kind == TOKEN_FLOAT) {
        node->value = jinja_float(json_number_read(digits.bytes));
    } else {
        errno = 0;
        node->value = jinja_int(strtoll(digits.bytes, NULL, 10));
        if (errno != 0) return err_set(ERR_FORMAT, "line %d: %s is too large", p->token->line, digits.bytes);
    }
    p->token++;
    return 0;
}

/* Strings one behind the other are one. */
static void parse_strings(struct jinja_parser *p, struct jinja_node *node) {
    struct jinja_out all = {.arena = p->arena};
    while (p->token->kind == TOKEN_STRING) jinja_add(&all, (p->token++)->text);
    node->value = jinja_string(jinja_take(&all));
    node->value.text.plain = NULL;
}

static void parse_name(struct jinja_parser *p, struct jinja_node *node) {
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    const struct jinja_text name = p->token->text;
    p->token++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (jinja_is(name, words[i])) {
            node->value = i < 4 ? jinja_bool(i < 2) : jinja_none();
            return;
        }
    node->kind = NODE_NAME;
    node->value = jinja_string(name);
    jinja_push(p->arena, p->names, node->value);
}

/* Expressions with commas between them, up to `end`, which is taken. */
static int parse_list(struct jinja_parser *p, struct jinja_node *node, const char *end) {
    size_t cap = node->n;
    while (!is_sign(p, end)) {
        struct jinja_node *item;
        TRY(jinja_parse_expression(p, &item));
        jinja_add_kid(p, node, item, &cap);
        if (!skip_sign(p, ",")) break;
    }
    return expect_sign(p, end);
}

static int parse_dict(struct jinja_parser *p, struct jinja_node *node) {
    size_t cap = 0;
    while (!is_sign(p, "}")) {
        struct jinja_node *key, *value;
        TRY(jinja_parse_expression(p, &key));
        TRY(expect_sign(p, ":"));
        TRY(jinja_parse_expression(p, &value));
        jinja_add_kid(p, node, key, &cap);
        jinja_add_kid(p, node, value, &cap);
        if (!skip_sign(p, ",")) break;
    }
    return expect_sign(p, "}");
}

/* Behind "(": a tuple, or an expression in brackets. */
static int parse_brackets(struct jinja_parser *p, struct jinja_node **out) {
    if (skip_sign(p, ")")) {
        *out = jinja_new_node(p, NODE_TUPLE);
        return 0;
    }
    TRY(jinja_parse_tuple(p, true, out));
    return expect_sign(p, ")");
}

static int parse_primary(struct jinja_parser *p, struct jinja_node **out) {
    struct jinja_node *node = jinja_new_node(p, NODE_VALUE);
    *out = node;
    switch (p->token->kind) {
    case TOKEN_NAME:
        parse_name(p, node);
        return 0;
    case TOKEN_STRING:
        parse_strings(p, node);
        return 0;
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return parse_number(p, node);
    default:
        break;
    }
    if (skip_sign(p, "(")) return parse_brackets(p, out);
    node->kind = is_sign(p, "[") ? NODE_LIST : NODE_DICT;
    if (skip_sign(p, "[")) return parse_list(p, node, "]");
    if (skip_sign(p, "{")) return parse_dict(p, node);
    return jinja_unexpected(p);
}

/* --- what follows a primary -------------------------------------------------------------------------------------- */

/* Behind "(": values, then names with values. */
static int parse_arguments(struct jinja_parser *p, struct jinja_node *call) {
    size_t cap = 0;
    bool is_named = false;
    while (!is_sign(p, ")")) {
        struct jinja_node *value, *kid = NULL;
        if (p->token->kind == TOKEN_NAME && p->token[1].kind == TOKEN_SIGN && jinja_is(p->token[1].text, "=")) {
            kid = jinja_new_node(p, NODE_KEYWORD);
            kid->value = jinja_string(p->token->text);
            p->token += 2;
        }
        if (!kid && is_named) return jinja_unexpected(p);
        is_named = kid != NULL;
        if (!kid && skip_sign(p, "*")) kid = jinja_new_node(p, NODE_SPREAD);
        TRY(jinja_parse_expression(p, &value));
        if (kid) kid->a = value;
        jinja_add_kid(p, call, kid ? kid : value, &cap);
        if (!skip_sign(p, ",")) break;
    }
    return expect_sign(p, ")");
}

static int parse_call(struct jinja_parser *p, struct jinja_node **node) {
    *node = around(p, NODE_CALL, 0, *node);
    return parse_arguments(p, *node);
}

/* A bound of a slice, if there is one. */
static int parse_bound(struct jinja_parser *p, struct jinja_node **out) {
    *out = NULL;
    return is_sign(p, ":") || is_sign(p, "]") ? 0 : jinja_parse_expression(p, out);
}

/* Behind "[". */
static int parse_subscript(struct jinja_parser *p, struct jinja_node **node) {
    struct jinja_node *item = around(p, NODE_ITEM, 0, *node);
    *node = item;
    TRY(parse_bound(p, &item->b));
    if (skip_sign(p, ":")) {
        item->kind = NODE_SLICE;
        TRY(parse_bound(p, &item->c));
        if (skip_sign(p, ":")) TRY(parse_bound(p, &item->d));
    } else if (!item->b) {
        return jinja_unexpected(p);
    }
    return expect_sign(p, "]");
}

/* Behind ".": a name, or the number of an item. */
static int parse_attribute(struct jinja_parser *p, struct jinja_node **node) {
    if (p->token->kind == TOKEN_INTEGER) {
        *node = around(p, NODE_ITEM, 0, *node);
        (*node)->b = jinja_new_node(p, NODE_VALUE);
        return parse_number(p, (*node)->b);
    }
    if (p->token->kind != TOKEN_NAME) return jinja_unexpected(p);
    *node = around(p, NODE_ATTRIBUTE, 0, *node);
    (*node)->value = jinja_string((p->token++)->text);
    return 0;
}

static int parse_postfix(struct jinja_parser *p, struct jinja_node **node) {
    for (;;) {
        if (skip_sign(p, "."))
            TRY(parse_attribute(p, node));
        else if (skip_sign(p, "["))
            TRY(parse_subscript(p, node));
        else if (skip_sign(p, "("))
            TRY(parse_call(p, node));
        else
            return 0;
    }
}

int jinja_parse_filter(struct jinja_parser *p, struct jinja_node **node) {
    struct jinja_node *filter = around(p, NODE_FILTER, 0, *node);
    if (p->token->kind != TOKEN_NAME) return jinja_unexpected(p);
    filter->value = jinja_string((p->token++)->text);
    filter->function = jinja_filter_find(filter->value.text);
    *node = filter;
    return skip_sign(p, "(") ? parse_arguments(p, filter) : 0;
}

int jinja_parse_filters(struct jinja_parser *p, struct jinja_node **node) {
    while (skip_sign(p, "|")) TRY(jinja_parse_filter(p, node));
    return 0;
}

/* A test's argument without brackets. */
static bool begins_argument(const struct jinja_parser *p) {
    switch (p->token->kind) {
    case TOKEN_NAME:
        return !jinja_is(p->token->text, "else") && !jinja_is(p->token->text, "or") &&
               !jinja_is(p->token->text, "and") && !jinja_is(p->token->text, "is") && !jinja_is(p->token->text, "if");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return true;
    default:
        return is_sign(p, "(") || is_sign(p, "[") || is_sign(p, "{");
    }
}

/* Behind "is". */
static int parse_test(struct jinja_parser *p, struct jinja_node **node) {
    const bool is_not = skip_word(p, "not");
    struct jinja_node *test = around(p, NODE_TEST, 0, *node), *argument;
    if (p->token->kind != TOKEN_NAME) return jinja_unexpected(p);
    test->value = jinja_string((p->token++)->text);
    test->test = jinja_test_find(test->value.text);
    if (skip_sign(p, "(")) {
        TRY(parse_arguments(p, test));
    } else if (begins_argument(p)) {
        size_t cap = 0;
        TRY(parse_primary(p, &argument));
        TRY(parse_postfix(p, &argument));
        jinja_add_kid(p, test, argument, &cap);
    }
    if (test->test && test->n != (test->test->takes_argument ? 1 : 0))
        return err_set(ERR_FORMAT, "line %d: the test '%s' takes %s argument", test->line, test->test->name,
                       test->test->takes_argument ? "one" : "no");
    *node = is_not ? around(p, NODE_SIGN, 'n', test) : test;
    return 0;
}

/* Filters, tests and calls, which follow a sign. */
static int parse_behind(struct jinja_parser *p, struct jinja_node **node) {
    for (;;) {
        if (skip_sign(p, "|"))
            TRY(jinja_parse_filter(p, node));
        else if (skip_word(p, "is"))
            TRY(parse_test(p, node));
        else if (skip_sign(p, "("))
            TRY(parse_call(p, node));
        else
            return 0;
    }
}

/* --- operators --------------------------------------------------------------------------------------------------- */

static int parse_signed(struct jinja_parser *p, bool with_filters, struct jinja_node **out) {
    const bool is_minus = is_sign(p, "-");
    if (is_minus || is_sign(p, "+")) {
        p->token++;
        TRY(jinja_enter(p));
        TRY(parse_signed(p, false, out));
        p->depth--;
        *out = around(p, NODE_SIGN, is_minus ? '-' : '+', *out);
    } else {
        TRY(parse_primary(p, out));
        TRY(parse_postfix(p, out));
    }
    return with_filters ? parse_behind(p, out) : 0;
}

struct operator{
    const char *sign;
    int op;
};

static const struct operator* find_operator(const struct jinja_parser *p, const struct operator* all, int count) {
    for (int i = 0; i < count; i++)
        if (is_sign(p, all[i].sign)) return &all[i];
    return NULL;
}

/* Operators that bind from the left, the loosest first. */
static int parse_level(struct jinja_parser *p, int level, struct jinja_node **out) {
    static const struct {
        struct operator all[4];
        int count;
    } levels[] = {{{{"+", '+'}, {"-", '-'}}, 2},
                  {{{"~", '~'}}, 1},
                  {{{"*", '*'}, {"/", '/'}, {"//", 'd'}, {"%", '%'}}, 4},
                  {{{"**", 'p'}}, 1}};
    const struct operator* found;
    if (level == (int)(sizeof levels / sizeof *levels)) return parse_signed(p, true, out);
    TRY(parse_level(p, level + 1, out));
    while ((found = find_operator(p, levels[level].all, levels[level].count))) {
        struct jinja_node *node = around(p, NODE_ARITHMETIC, found->op, *out);
        p->token++;
        TRY(parse_level(p, level + 1, &node->b));
        *out = node;
    }
    return 0;
}

/* The operator that is next, taken; 0: none. */
static int take_comparison(struct jinja_parser *p) {
    static const struct operator all[] = {{"==", '='}, {"!=", '!'}, {"<", '<'}, {"<=", 'l'}, {">", '>'}, {">=", 'g'}};
    const struct operator* found = find_operator(p, all, sizeof all / sizeof *all);
    if (found) p->token++;
    if (found) return found->op;
    if (skip_word(p, "in")) return 'i';
    if (!jinja_next_is(p, TOKEN_NAME, "not") || p->token[1].kind != TOKEN_NAME || !jinja_is(p->token[1].text, "in"))
        return 0;
    p->token += 2;
    return 'o';
}

static int parse_comparison(struct jinja_parser *p, struct jinja_node **out) {
    struct jinja_node *all = NULL;
    size_t cap = 0;
    TRY(parse_level(p, 0, out));
    for (int op; (op = take_comparison(p)) != 0;) {
        struct jinja_node *compared = around(p, NODE_COMPARED, op, NULL);
        if (!all) all = around(p, NODE_COMPARE, 0, *out);
        TRY(parse_level(p, 0, &compared->a));
        jinja_add_kid(p, all, compared, &cap);
    }
    if (all) *out = all;
    return 0;
}

static int parse_not(struct jinja_parser *p, struct jinja_node **out) {
    if (!skip_word(p, "not")) return parse_comparison(p, out);
    TRY(jinja_enter(p));
    TRY(parse_not(p, out));
    p->depth--;
    *out = around(p, NODE_SIGN, 'n', *out);
    return 0;
}

static int parse_and(struct jinja_parser *p, struct jinja_node **out) {
    TRY(parse_not(p, out));
    while (skip_word(p, "and")) {
        *out = around(p, NODE_AND, 0, *out);
        TRY(parse_not(p, &(*out)->b));
    }
    return 0;
}

static int parse_unchosen(struct jinja_parser *p, struct jinja_node **out) {
    TRY(jinja_enter(p));
    TRY(parse_and(p, out));
    while (skip_word(p, "or")) {
        *out = around(p, NODE_OR, 0, *out);
        TRY(parse_and(p, &(*out)->b));
    }
    p->depth--;
    return 0;
}

int jinja_parse_expression(struct jinja_parser *p, struct jinja_node **out) {
    TRY(jinja_enter(p));
    TRY(parse_unchosen(p, out));
    while (skip_word(p, "if")) {
        struct jinja_node *choice = around(p, NODE_CHOICE, 0, *out);
        TRY(parse_unchosen(p, &choice->b));
        if (skip_word(p, "else")) TRY(jinja_parse_expression(p, &choice->c));
        *out = choice;
    }
    p->depth--;
    return 0;
}

int jinja_parse_tuple(struct jinja_parser *p, bool may_choose, struct jinja_node **out) {
    TRY(may_choose ? jinja_parse_expression(p, out) : parse_unchosen(p, out));
    if (!is_sign(p, ",")) return 0;
    struct jinja_node *tuple = jinja_new_node(p, NODE_TUPLE);
    size_t cap = 0;
    jinja_add_kid(p, tuple, *out, &cap);
    while (skip_sign(p, ",")) {
        struct jinja_node *item;
        if (is_sign(p, ")") || is_sign(p, "=") || p->token->kind == TOKEN_TAG_END || p->token->kind == TOKEN_OUTPUT_END)
            break;
        TRY(may_choose ? jinja_parse_expression(p, &item) : parse_unchosen(p, &item));
        jinja_add_kid(p, tuple, item, &cap);
    }
    *out = tuple;
    return 0;
}
