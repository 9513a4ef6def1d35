/* From tokens to nodes: tags, and the whole of a template. */
#include <string.h>

#include "model/jinja/internal.h"

static int parse_until(struct jinja_parser *p, const char *const *ends, struct jinja_node **out);

static int end_tag(struct jinja_parser *p) {
    return jinja_expect(p, TOKEN_TAG_END, NULL);
}

/* Up to a tag of this name, which is taken whole. */
static int parse_body(struct jinja_parser *p, const char *end, struct jinja_node **out) {
    const char *const ends[] = {end, NULL};
    TRY(end_tag(p));
    TRY(parse_until(p, ends, out));
    p->token++;
    return 0;
}

/* --- targets ----------------------------------------------------------------------------------------------------- */

static int parse_target_name(struct jinja_parser *p, struct jinja_node **out) {
    if (p->token->kind != TOKEN_NAME) return jinja_unexpected(p);
    *out = jinja_new_node(p, NODE_NAME);
    (*out)->value = jinja_string((p->token++)->text);
    if (!jinja_skip(p, TOKEN_SIGN, ".")) return 0;
    if (p->token->kind != TOKEN_NAME) return jinja_unexpected(p);
    struct jinja_node *attribute = jinja_new_node(p, NODE_ATTRIBUTE);
    attribute->a = *out;
    attribute->value = jinja_string((p->token++)->text);
    *out = attribute;
    return 0;
}

/* A name, an attribute of one, or several with commas, which may stand in brackets. */
static int parse_target(struct jinja_parser *p, struct jinja_node **out) {
    const bool is_open = jinja_skip(p, TOKEN_SIGN, "(");
    TRY(parse_target_name(p, out));
    if (jinja_next_is(p, TOKEN_SIGN, ",")) {
        struct jinja_node *tuple = jinja_new_node(p, NODE_TUPLE);
        size_t cap = 0;
        jinja_add_kid(p, tuple, *out, &cap);
        while (jinja_skip(p, TOKEN_SIGN, ",") && p->token->kind == TOKEN_NAME) {
            TRY(parse_target_name(p, out));
            jinja_add_kid(p, tuple, *out, &cap);
        }
        *out = tuple;
    }
    return is_open ? jinja_expect(p, TOKEN_SIGN, ")") : 0;
}

/* --- tags, behind their names ------------------------------------------------------------------------------------ */

static int parse_if(struct jinja_parser *p, struct jinja_node **out) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jinja_node *node = jinja_new_node(p, NODE_IF);
    *out = node;
    TRY(jinja_enter(p));
    TRY(jinja_parse_tuple(p, false, &node->a));
    TRY(end_tag(p));
    TRY(parse_until(p, ends, &node->b));
    if (jinja_skip(p, TOKEN_NAME, "elif")) {
        TRY(parse_if(p, &node->c));
        p->depth--;
        return 0;
    }
    if (jinja_skip(p, TOKEN_NAME, "else"))
        TRY(parse_body(p, "endif", &node->c));
    else
        p->token++;
    p->depth--;
    return 0;
}

static int parse_for(struct jinja_parser *p, struct jinja_node **out) {
    static const char *const ends[] = {"else", "endfor", NULL};
    struct jinja_node *node = jinja_new_node(p, NODE_FOR), *body;
    size_t cap = 0;
    *out = node;
    TRY(parse_target(p, &node->a));
    TRY(jinja_expect(p, TOKEN_NAME, "in"));
    TRY(jinja_parse_tuple(p, false, &node->b));
    if (jinja_skip(p, TOKEN_NAME, "if")) TRY(jinja_parse_expression(p, &node->d));
    if (jinja_next_is(p, TOKEN_NAME, "recursive"))
        return err_set(ERR_UNSUPPORTED, "line %d: duet knows no recursive loops", p->token->line);
    TRY(end_tag(p));
    p->loops++;
    TRY(parse_until(p, ends, &body));
    p->loops--;
    jinja_add_kid(p, node, body, &cap);
    if (jinja_skip(p, TOKEN_NAME, "else")) return parse_body(p, "endfor", &node->c);
    p->token++;
    return 0;
}

/* Filters of what a block says. */
static int parse_block_filters(struct jinja_parser *p, struct jinja_node **out) {
    *out = jinja_new_node(p, NODE_CAPTURED);
    TRY(jinja_parse_filter(p, out));
    return jinja_parse_filters(p, out);
}

static int parse_set(struct jinja_parser *p, struct jinja_node **out) {
    struct jinja_node *node = jinja_new_node(p, NODE_SET);
    *out = node;
    TRY(parse_target(p, &node->a));
    if (jinja_skip(p, TOKEN_SIGN, "=")) return jinja_parse_tuple(p, true, &node->b);
    node->kind = NODE_SET_BLOCK;
    if (jinja_skip(p, TOKEN_SIGN, "|")) TRY(parse_block_filters(p, &node->d));
    return parse_body(p, "endset", &node->b);
}

static int parse_filter_block(struct jinja_parser *p, struct jinja_node **out) {
    *out = jinja_new_node(p, NODE_FILTER_BLOCK);
    TRY(parse_block_filters(p, &(*out)->d));
    return parse_body(p, "endfilter", &(*out)->b);
}

static int parse_parameters(struct jinja_parser *p, struct jinja_node *macro) {
    size_t cap = 0;
    TRY(jinja_expect(p, TOKEN_SIGN, "("));
    while (!jinja_next_is(p, TOKEN_SIGN, ")")) {
        struct jinja_node *name = jinja_new_node(p, NODE_NAME);
        if (p->token->kind != TOKEN_NAME) return jinja_unexpected(p);
        name->value = jinja_string((p->token++)->text);
        if (jinja_skip(p, TOKEN_SIGN, "=")) {
            name->kind = NODE_KEYWORD;
            TRY(jinja_parse_expression(p, &name->a));
        }
        jinja_add_kid(p, macro, name, &cap);
        if (!jinja_skip(p, TOKEN_SIGN, ",")) break;
    }
    return jinja_expect(p, TOKEN_SIGN, ")");
}

static int parse_macro(struct jinja_parser *p, struct jinja_node **out) {
    const int loops = p->loops;
    *out = jinja_new_node(p, NODE_MACRO);
    if (p->token->kind != TOKEN_NAME) return jinja_unexpected(p);
    (*out)->value = jinja_string((p->token++)->text);
    TRY(parse_parameters(p, *out));
    p->loops = 0;
    TRY(parse_body(p, "endmacro", &(*out)->b));
    p->loops = loops;
    jinja_skip(p, TOKEN_NAME, NULL); /* its name again */
    return 0;
}

static int parse_with(struct jinja_parser *p, struct jinja_node **out) {
    struct jinja_node *with = jinja_new_node(p, NODE_WITH);
    size_t cap = 0;
    *out = with;
    while (p->token->kind != TOKEN_TAG_END) {
        struct jinja_node *set = jinja_new_node(p, NODE_SET);
        TRY(parse_target_name(p, &set->a));
        TRY(jinja_expect(p, TOKEN_SIGN, "="));
        TRY(jinja_parse_expression(p, &set->b));
        jinja_add_kid(p, with, set, &cap);
        if (!jinja_skip(p, TOKEN_SIGN, ",")) break;
    }
    return parse_body(p, "endwith", &with->b);
}

/* What transformers' renderer marks for training; here it says what stands in it. */
static int parse_generation(struct jinja_parser *p, struct jinja_node **out) {
    return parse_body(p, "endgeneration", out);
}

static int parse_jump(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **out) {
    *out = jinja_new_node(p, kind);
    if (p->loops > 0) return 0;
    return err_set(ERR_FORMAT, "line %d: 'break' or 'continue' outside of a loop", p->token->line);
}
static int parse_break(struct jinja_parser *p, struct jinja_node **out) {
    return parse_jump(p, NODE_BREAK, out);
}
static int parse_continue(struct jinja_parser *p, struct jinja_node **out) {
    return parse_jump(p, NODE_CONTINUE, out);
}

/* A tag, from its name on to behind its end (and that of what it opens). */
static int parse_tag(struct jinja_parser *p, struct jinja_node **out) {
    static const struct {
        const char *name;
        int (*parse)(struct jinja_parser *, struct jinja_node **);
    } tags[] = {{"if", parse_if},
                {"for", parse_for},
                {"set", parse_set},
                {"macro", parse_macro},
                {"filter", parse_filter_block},
                {"with", parse_with},
                {"generation", parse_generation},
                {"break", parse_break},
                {"continue", parse_continue}};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (jinja_skip(p, TOKEN_NAME, tags[i].name)) {
            TRY(jinja_enter(p));
            TRY(tags[i].parse(p, out));
            p->depth--;
            return end_tag(p);
        }
    if (p->token->kind != TOKEN_NAME) return jinja_unexpected(p);
    return err_set(ERR_UNSUPPORTED, "line %d: there is no tag '%.*s'", p->token->line, (int)p->token->text.n,
                   p->token->text.bytes);
}

/* Is the tag that is next one of these? */
static bool is_end(const struct jinja_parser *p, const char *const *ends) {
    for (; *ends; ends++)
        if (p->token[1].kind == TOKEN_NAME && jinja_is(p->token[1].text, *ends)) return true;
    return false;
}

static int parse_one(struct jinja_parser *p, struct jinja_node **out) {
    if (jinja_skip(p, TOKEN_TAG, NULL)) return parse_tag(p, out);
    *out = jinja_new_node(p, NODE_DATA);
    if (p->token->kind == TOKEN_DATA) {
        (*out)->value = jinja_string((p->token++)->text);
        return 0;
    }
    TRY(jinja_expect(p, TOKEN_OUTPUT, NULL));
    (*out)->kind = NODE_PRINT;
    TRY(jinja_parse_tuple(p, true, &(*out)->a));
    return jinja_expect(p, TOKEN_OUTPUT_END, NULL);
}

/* Up to one of the names, at which it stops, or without any to the end. */
static int parse_until(struct jinja_parser *p, const char *const *ends, struct jinja_node **out) {
    size_t cap = 0;
    *out = jinja_new_node(p, NODE_BLOCK);
    while (p->token->kind != TOKEN_END) {
        struct jinja_node *kid;
        if (p->token->kind == TOKEN_TAG && is_end(p, ends)) {
            p->token++;
            return 0;
        }
        TRY(parse_one(p, &kid));
        jinja_add_kid(p, *out, kid, &cap);
    }
    while (*ends && ends[1]) ends++;
    return *ends ? err_set(ERR_FORMAT, "line %d: '%s' is missing", (*out)->line, *ends) : 0;
}

int jinja_parse_tags(struct jinja_parser *p, struct jinja_node **out) {
    static const char *const none[] = {NULL};
    return parse_until(p, none, out);
}
