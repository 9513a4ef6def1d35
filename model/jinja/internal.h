/* Shared by the files of this folder alone. */
#ifndef DUET_MODEL_JINJA_INTERNAL_H
#define DUET_MODEL_JINJA_INTERNAL_H

#include "base/err.h"
#include "model/jinja/jinja.h"

/* --- memory: given back all at once ----------------------------------------------------------------------------- */

struct jinja_arena {
    struct jinja_chunk *last;
    size_t bytes, most; /* asked for so far; more than so many is too much */
};
void *jinja_alloc(struct jinja_arena *, size_t bytes); /* zeroed; never NULL */
void jinja_arena_free(struct jinja_arena *);

/* --- values (value.c) ------------------------------------------------------------------------------------- */

enum jinja_type {
    JINJA_UNDEFINED, /* .text: its name */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD, /* of a value */
    JINJA_GLOBAL, /* a function of the language */
};

struct jinja_text {
    const char *bytes, *plain; /* plain: one of each byte; NULL: none is */
    size_t n;
};
struct jinja_list;
struct jinja_dict;
struct jinja_loop;
struct jinja_macro;
struct jinja_method;
struct jinja_value {
    enum jinja_type type;
    union {
        bool yes;
        int64_t integer;
        double number;
        struct jinja_text text;
        struct jinja_list *list; /* and tuple */
        struct jinja_dict *dict; /* and namespace */
        struct jinja_loop *loop;
        const struct jinja_macro *macro;
        const struct jinja_method *method;
        const struct jinja_function *function;
    };
};
struct jinja_list {
    struct jinja_value *items;
    size_t n, cap;
};
struct jinja_pair {
    struct jinja_value key, value;
};
struct jinja_dict { /* in the order of insertion */
    struct jinja_pair *pairs;
    size_t n, cap;
};

struct jinja_text jinja_literal(const char *text); /* of the caller's */
struct jinja_text jinja_part(struct jinja_text, size_t at, size_t n);
bool jinja_is(struct jinja_text, const char *text);
bool jinja_same_text(struct jinja_text, struct jinja_text);
bool jinja_find(struct jinja_text, struct jinja_text word, size_t from, size_t *at);
size_t jinja_characters(struct jinja_text);
size_t jinja_character(struct jinja_text, size_t at); /* bytes of the one that begins there: 1 for what is no UTF-8 */
size_t jinja_offset(struct jinja_text, size_t characters); /* bytes of so many */

struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(bool);
struct jinja_value jinja_int(int64_t);
struct jinja_value jinja_float(double);
struct jinja_value jinja_string(struct jinja_text);
struct jinja_value jinja_undefined(struct jinja_text name);
struct jinja_value jinja_new_list(struct jinja_arena *, enum jinja_type);
struct jinja_value jinja_new_dict(struct jinja_arena *, enum jinja_type);
void jinja_push(struct jinja_arena *, struct jinja_list *, struct jinja_value);
void jinja_put(struct jinja_arena *, struct jinja_dict *, struct jinja_value key, struct jinja_value);
const struct jinja_value *jinja_get(const struct jinja_dict *, struct jinja_value key); /* NULL: not there */
bool jinja_is_key(struct jinja_value);                                                  /* may it be one? */
const struct jinja_value *jinja_get_named(const struct jinja_dict *, struct jinja_text name);

bool jinja_true(struct jinja_value);
bool jinja_equal(struct jinja_value, struct jinja_value,
                 int64_t *steps_left); /* each part takes one; none left: false */
bool jinja_is_list(struct jinja_value);
bool jinja_is_dict(struct jinja_value);
bool jinja_is_number(struct jinja_value); /* and bool */
double jinja_number(struct jinja_value);
const char *jinja_type_name(struct jinja_value);

/* What is nested more deeply is equal to nothing, and printed as "...". */
enum { JINJA_NESTED_MAX = 100 };

/* A text that grows. */
struct jinja_out {
    struct jinja_arena *arena;
    char *bytes, *plain;
    size_t n, cap;
    int depth; /* of what is printed */
};
void jinja_add(struct jinja_out *, struct jinja_text);
void jinja_say(struct jinja_out *, const char *text); /* not plain */
struct jinja_text jinja_take(const struct jinja_out *);

/* As Python prints it (str); as JSON. */
void jinja_print(struct jinja_out *, struct jinja_value);
struct jinja_json {
    int indent; /* spaces; -1: one line */
    bool is_ascii;
};
int jinja_print_json(struct jinja_out *, struct jinja_value, const struct jinja_json *, int depth);

/* --- from source to nodes (lex.c, parse.c, parse_tags.c) -------------------------------------- */

enum jinja_token_kind {
    TOKEN_DATA,
    TOKEN_TAG, /* {% */
    TOKEN_TAG_END,
    TOKEN_OUTPUT, /* {{ */
    TOKEN_OUTPUT_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_SIGN,
    TOKEN_END,
};
struct jinja_token {
    enum jinja_token_kind kind;
    int line;
    struct jinja_text text; /* of a string: what it means */
};
int jinja_lex(struct jinja_arena *, const char *source, size_t n, struct jinja_token **out, size_t *count);

enum jinja_node_kind {
    /* expressions */
    NODE_VALUE,      /* value */
    NODE_NAME,       /* value */
    NODE_LIST,       /* kids; as a target, tuples are lists of targets */
    NODE_TUPLE,      /* kids */
    NODE_DICT,       /* kids: key, value, ... */
    NODE_ATTRIBUTE,  /* a . value */
    NODE_ITEM,       /* a [b] */
    NODE_SLICE,      /* a [b : c : d] */
    NODE_CALL,       /* a (kids) */
    NODE_FILTER,     /* a | function (kids) */
    NODE_TEST,       /* a is test (kids) */
    NODE_KEYWORD,    /* of kids of a call, behind all others: value = a */
    NODE_SPREAD,     /* of kids of a call: the items of a */
    NODE_SIGN,       /* op: '-', '+' or 'n' (not) a */
    NODE_ARITHMETIC, /* a op b; op: '+', '-', '*', '/', 'd' (//), '%', 'p' (**), '~' */
    NODE_COMPARE, /* a, then kids, each NODE_COMPARED: op '=', '!', '<', 'l' (<=), '>', 'g' (>=), 'i' (in), 'o' (not in) and a */
    NODE_COMPARED,
    NODE_AND,
    NODE_OR,
    NODE_CHOICE,   /* a if b else c (NULL: undefined) */
    NODE_CAPTURED, /* the text of the block whose filters these are */
    /* statements */
    NODE_BLOCK,        /* kids */
    NODE_DATA,         /* value */
    NODE_PRINT,        /* a */
    NODE_IF,           /* if a: b else c (NULL) */
    NODE_FOR,          /* for a in b if d: kids[0] else c (NULL) */
    NODE_SET,          /* a = b */
    NODE_SET_BLOCK,    /* a = the text of b, by the filters d (of NODE_CAPTURED) or NULL */
    NODE_FILTER_BLOCK, /* the text of b by the filters d */
    NODE_MACRO,        /* value (kids: names, NODE_KEYWORD where they have a default): b */
    NODE_WITH,         /* kids: NODE_SET, then b */
    NODE_BREAK,
    NODE_CONTINUE,
};
struct jinja_node {
    enum jinja_node_kind kind;
    int op, line;
    struct jinja_value value;
    const struct jinja_function *function; /* a filter */
    const struct jinja_test *test;
    struct jinja_node *a, *b, *c, *d, **kids;
    size_t n;
};

struct jinja_parser {
    struct jinja_arena *arena;
    const struct jinja_token *token; /* the next one */
    struct jinja_list *names;        /* all that are spoken of */
    int depth, loops;
};
struct jinja_node *jinja_new_node(struct jinja_parser *, enum jinja_node_kind);
void jinja_add_kid(struct jinja_parser *, struct jinja_node *, struct jinja_node *kid, size_t *cap);
bool jinja_next_is(const struct jinja_parser *, enum jinja_token_kind, const char *text); /* NULL: any */
bool jinja_skip(struct jinja_parser *, enum jinja_token_kind, const char *text);          /* if it is next */
int jinja_expect(struct jinja_parser *, enum jinja_token_kind, const char *text);
int jinja_unexpected(const struct jinja_parser *); /* the next token */
int jinja_enter(struct jinja_parser *);            /* one level deeper, until depth-- */
int jinja_parse_expression(struct jinja_parser *, struct jinja_node **out);
int jinja_parse_tuple(struct jinja_parser *, bool may_choose, struct jinja_node **out); /* commas make one */
int jinja_parse_filters(struct jinja_parser *, struct jinja_node **node);               /* "| name ..." behind it */
int jinja_parse_filter(struct jinja_parser *, struct jinja_node **node);                /* "name ..." */
int jinja_parse_tags(struct jinja_parser *, struct jinja_node **out);                   /* all of a template */

/* --- running (run.c, eval.c) ------------------------------------------------------------------------ */

struct jinja_frame {
    struct jinja_frame *parent;
    struct jinja_dict names;
};
struct jinja_loop {
    const struct jinja_list *items;
    size_t at;
};
struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_frame *frame; /* where it was defined */
};
struct jinja_method {
    struct jinja_value self;
    const struct jinja_function *function;
};
struct jinja_run {
    struct jinja_arena arena;
    struct jinja_frame *frame;
    struct jinja_out *out;
    const struct tm *now; /* NULL: there is no strftime_now */
    int64_t steps_left;
    struct jinja_value captured; /* of the block whose filters are asked */
    int depth, line;
    enum { JINJA_GOES_ON, JINJA_BREAKS, JINJA_CONTINUES } loop;
    bool has_raised;
};

int jinja_step(struct jinja_run *);                /* ERR_LIMIT */
void jinja_scan(struct jinja_run *, size_t bytes); /* steps for so many that are looked at; the next step is refused */
int jinja_room(struct jinja_run *, size_t a, size_t b); /* for a times b bytes: ERR_LIMIT */
int jinja_eval(struct jinja_run *, const struct jinja_node *, struct jinja_value *out);
int jinja_eval_sign(struct jinja_run *, const struct jinja_node *, struct jinja_value *out); /* operators.c */
int jinja_eval_arithmetic(struct jinja_run *, const struct jinja_node *, struct jinja_value *out);
int jinja_eval_compare(struct jinja_run *, const struct jinja_node *, struct jinja_value *out);
int jinja_wrong(const char *what, struct jinja_value); /* "a string WHAT", or that it is undefined */
int jinja_add_values(struct jinja_run *, struct jinja_value, struct jinja_value, struct jinja_value *out);
int jinja_call_macro(struct jinja_run *, const struct jinja_macro *, const struct jinja_value *at, size_t n,
                     const struct jinja_dict *named, struct jinja_value *out);
/* An item, or an attribute: undefined where there is none. */
int jinja_item(struct jinja_run *, struct jinja_value of, struct jinja_value key, struct jinja_value *out);
/* What a loop goes over: a list of it. */
int jinja_items(struct jinja_run *, struct jinja_value of, struct jinja_list **out);
int jinja_order(struct jinja_value, struct jinja_value, int *out); /* less than 0, 0, more than 0 */
int jinja_contains(struct jinja_run *, struct jinja_value in, struct jinja_value what, bool *out);

/* --- functions (filters.c, lists.c, methods.c) ------------------------------------------------ */

enum { JINJA_ARGUMENTS_MAX = 6 };
struct jinja_call {
    struct jinja_value self, at[JINJA_ARGUMENTS_MAX]; /* undefined: not given */
    bool given[JINJA_ARGUMENTS_MAX];
};
struct jinja_function {
    const char *name,
        *parameters; /* their names, a blank between two; NULL: any, in at[0] a list and in at[1] a dict of the named ones */
    int (*run)(struct jinja_run *, const struct jinja_call *, struct jinja_value *out);
};
struct jinja_test {
    const char *name;
    bool takes_argument;
    int (*run)(struct jinja_run *, struct jinja_value self, struct jinja_value argument, bool *out);
};
const struct jinja_function *jinja_filter_find(struct jinja_text name);
const struct jinja_function *jinja_list_filter_find(struct jinja_text name);
const struct jinja_function *jinja_method_find(enum jinja_type of, struct jinja_text name);
const struct jinja_function *jinja_global_find(struct jinja_text name);
const struct jinja_test *jinja_test_find(struct jinja_text name);
/* Arguments by their places and names. */
int jinja_call(struct jinja_run *, const struct jinja_function *, struct jinja_value self, const struct jinja_value *at,
               size_t n, const struct jinja_dict *named, struct jinja_value *out);

/* Texts with places for values (format.c). */
int jinja_format_percent(struct jinja_run *, struct jinja_text format, const struct jinja_list *values,
                         struct jinja_value *out);
int jinja_format_braces(struct jinja_run *, struct jinja_text format, const struct jinja_list *at,
                        const struct jinja_dict *named, struct jinja_value *out);

/* Python's strip: white space, or all characters of `set`. */
struct jinja_text jinja_strip(struct jinja_text, const struct jinja_text *set, bool left, bool right);
struct jinja_text jinja_text_of(struct jinja_run *, struct jinja_value); /* str() */
struct jinja_value jinja_title(struct jinja_run *, struct jinja_text);

#endif
