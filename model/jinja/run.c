/* Statements, executed; reading and rendering a template as a whole. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/jinja/internal.h"

struct jinja {
    struct jinja_arena arena;
    struct jinja_node *all;
    struct jinja_token *tokens;
    size_t token_count;
    struct jinja_list names;
};

static int exec(struct jinja_run *run, const struct jinja_node *node);

/* --- scopes and targets ------------------------------------------------------------------------------------------ */

static struct jinja_frame *new_frame(struct jinja_run *run, struct jinja_frame *parent) {
    struct jinja_frame *frame = jinja_alloc(&run->arena, sizeof *frame);
    frame->parent = parent;
    return frame;
}

static int assign_attribute(struct jinja_run *run, const struct jinja_node *target, struct jinja_value v) {
    struct jinja_value of;
    TRY(jinja_eval(run, target->a, &of));
    if (of.type != JINJA_NAMESPACE)
        return err_set(ERR_FORMAT, "an attribute is set of %s, which is no namespace", jinja_type_name(of));
    jinja_put(&run->arena, of.dict, target->value, v);
    return 0;
}

static int assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value v) {
    struct jinja_list *items;
    if (target->kind == NODE_ATTRIBUTE) return assign_attribute(run, target, v);
    if (target->kind == NODE_NAME) {
        jinja_put(&run->arena, &run->frame->names, target->value, v);
        return 0;
    }
    TRY(jinja_items(run, v, &items));
    if (items->n != target->n) return err_set(ERR_FORMAT, "%zu values for %zu names", items->n, target->n);
    for (size_t i = 0; i < target->n; i++) TRY(assign(run, target->kids[i], items->items[i]));
    return 0;
}

/* --- loops ------------------------------------------------------------------------------------------------------- */

int jinja_items(struct jinja_run *run, struct jinja_value of, struct jinja_list **out) {
    if (jinja_is_list(of)) {
        *out = of.list;
        return 0;
    }
    struct jinja_list *list = *out = jinja_alloc(&run->arena, sizeof *list);
    switch (of.type) {
    case JINJA_UNDEFINED:
        return 0;
    case JINJA_DICT:
        for (size_t i = 0; i < of.dict->n; i++) jinja_push(&run->arena, list, of.dict->pairs[i].key);
        return 0;
    case JINJA_TEXT:
        TRY(jinja_room(run, of.text.n, 2 * sizeof of));
        for (size_t at = 0, length; at < of.text.n; at += length) {
            length = jinja_character(of.text, at);
            jinja_push(&run->arena, list, jinja_string(jinja_part(of.text, at, length)));
        }
        return 0;
    default:
        return err_set(ERR_FORMAT, "%s has no items", jinja_type_name(of));
    }
}

/* The items that a loop's condition lets pass. */
static int filter_items(struct jinja_run *run, const struct jinja_node *node, struct jinja_list **items) {
    struct jinja_frame *outer = run->frame;
    struct jinja_list *some = jinja_alloc(&run->arena, sizeof *some);
    for (size_t i = 0; i < (*items)->n; i++) {
        struct jinja_value condition;
        run->frame = new_frame(run, outer);
        TRY(assign(run, node->a, (*items)->items[i]));
        TRY(jinja_eval(run, node->d, &condition));
        if (jinja_true(condition)) jinja_push(&run->arena, some, (*items)->items[i]);
    }
    run->frame = outer;
    *items = some;
    return 0;
}

static int exec_for(struct jinja_run *run, const struct jinja_node *node) {
    struct jinja_value of;
    struct jinja_loop *loop = jinja_alloc(&run->arena, sizeof *loop);
    struct jinja_list *items;
    struct jinja_frame *outer = run->frame;
    TRY(jinja_eval(run, node->b, &of));
    TRY(jinja_items(run, of, &items));
    if (node->d) TRY(filter_items(run, node, &items));
    loop->items = items;
    for (; loop->at < items->n && run->loop != JINJA_BREAKS; loop->at++) {
        TRY(jinja_step(run));
        run->loop = JINJA_GOES_ON;
        run->frame = new_frame(run, outer);
        jinja_put(&run->arena, &run->frame->names, jinja_string(jinja_literal("loop")),
                  (struct jinja_value){.type = JINJA_LOOP, .loop = loop});
        TRY(assign(run, node->a, items->items[loop->at]));
        TRY(exec(run, node->kids[0]));
    }
    run->frame = outer;
    run->loop = JINJA_GOES_ON;
    return items->n == 0 && node->c ? exec(run, node->c) : 0;
}

/* --- blocks whose text is taken ---------------------------------------------------------------------------------- */

/* What a block says, in a scope of its own. */
static int capture(struct jinja_run *run, const struct jinja_node *block, struct jinja_frame *frame,
                   struct jinja_text *out) {
    struct jinja_out text = {.arena = &run->arena}, *outer = run->out;
    struct jinja_frame *outer_frame = run->frame;
    run->out = &text;
    run->frame = frame;
    TRY(exec(run, block));
    run->out = outer;
    run->frame = outer_frame;
    *out = jinja_take(&text);
    return 0;
}

static int exec_captured(struct jinja_run *run, const struct jinja_node *node) {
    const struct jinja_value outer = run->captured;
    struct jinja_text text;
    TRY(capture(run, node->b, new_frame(run, run->frame), &text));
    struct jinja_value v = run->captured = jinja_string(text);
    if (node->d) TRY(jinja_eval(run, node->d, &v));
    run->captured = outer;
    if (node->kind == NODE_SET_BLOCK) return assign(run, node->a, v);
    jinja_print(run->out, v);
    return 0;
}

/* Of values by place, then by name, then by default. */
static int bind(struct jinja_run *run, const struct jinja_macro *macro, const struct jinja_value *at, size_t n,
                const struct jinja_dict *named, struct jinja_frame *frame) {
    const struct jinja_node *node = macro->node;
    size_t taken = 0;
    if (n > node->n)
        return err_set(ERR_FORMAT, "the macro '%.*s' takes %zu values, not %zu", (int)node->value.text.n,
                       node->value.text.bytes, node->n, n);
    for (size_t i = 0; i < node->n; i++) {
        const struct jinja_node *parameter = node->kids[i];
        const struct jinja_value *found = jinja_get(named, parameter->value);
        struct jinja_value v = jinja_undefined(parameter->value.text);
        if (i < n) {
            v = at[i];
        } else if (found) {
            v = *found;
            taken++;
        } else if (parameter->kind == NODE_KEYWORD) {
            struct jinja_frame *outer = run->frame;
            run->frame = frame;
            TRY(jinja_eval(run, parameter->a, &v));
            run->frame = outer;
        }
        jinja_put(&run->arena, &frame->names, parameter->value, v);
    }
    if (taken == named->n) return 0;
    return err_set(ERR_FORMAT, "the macro '%.*s' does not know a name that it is called with", (int)node->value.text.n,
                   node->value.text.bytes);
}

int jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro, const struct jinja_value *at, size_t n,
                     const struct jinja_dict *named, struct jinja_value *out) {
    struct jinja_frame *frame = new_frame(run, macro->frame);
    struct jinja_text text;
    TRY(bind(run, macro, at, n, named, frame));
    TRY(capture(run, macro->node->b, frame, &text));
    *out = jinja_string(text);
    return 0;
}

/* --- statements -------------------------------------------------------------------------------------------------- */

static int exec_block(struct jinja_run *run, const struct jinja_node *node) {
    for (size_t i = 0; i < node->n && run->loop == JINJA_GOES_ON; i++) TRY(exec(run, node->kids[i]));
    return 0;
}

static int exec_if(struct jinja_run *run, const struct jinja_node *node) {
    struct jinja_value condition;
    TRY(jinja_eval(run, node->a, &condition));
    if (jinja_true(condition)) return exec(run, node->b);
    return node->c ? exec(run, node->c) : 0;
}

static int exec_print(struct jinja_run *run, const struct jinja_node *node) {
    struct jinja_value v;
    TRY(jinja_eval(run, node->a, &v));
    jinja_print(run->out, v);
    return 0;
}

static int exec_set(struct jinja_run *run, const struct jinja_node *node) {
    struct jinja_value v;
    TRY(jinja_eval(run, node->b, &v));
    return assign(run, node->a, v);
}

static int exec_with(struct jinja_run *run, const struct jinja_node *node) {
    struct jinja_frame *outer = run->frame, *inner = new_frame(run, outer);
    for (size_t i = 0; i < node->n; i++) {
        struct jinja_value v;
        TRY(jinja_eval(run, node->kids[i]->b, &v));
        jinja_put(&run->arena, &inner->names, node->kids[i]->a->value, v);
    }
    run->frame = inner;
    TRY(exec(run, node->b));
    run->frame = outer;
    return 0;
}

static void exec_macro(struct jinja_run *run, const struct jinja_node *node) {
    struct jinja_macro *macro = jinja_alloc(&run->arena, sizeof *macro);
    *macro = (struct jinja_macro){node, run->frame};
    jinja_put(&run->arena, &run->frame->names, node->value, (struct jinja_value){.type = JINJA_MACRO, .macro = macro});
}

static int exec_of(struct jinja_run *run, const struct jinja_node *node) {
    switch (node->kind) {
    case NODE_BLOCK:
        return exec_block(run, node);
    case NODE_DATA:
        jinja_add(run->out, node->value.text);
        return 0;
    case NODE_PRINT:
        return exec_print(run, node);
    case NODE_IF:
        return exec_if(run, node);
    case NODE_FOR:
        return exec_for(run, node);
    case NODE_SET:
        return exec_set(run, node);
    case NODE_SET_BLOCK:
    case NODE_FILTER_BLOCK:
        return exec_captured(run, node);
    case NODE_WITH:
        return exec_with(run, node);
    case NODE_MACRO:
        exec_macro(run, node);
        return 0;
    case NODE_BREAK:
    case NODE_CONTINUE:
        run->loop = node->kind == NODE_BREAK ? JINJA_BREAKS : JINJA_CONTINUES;
        return 0;
    default:
        return err_set(ERR_INTERNAL, "an expression where a statement stands");
    }
}

static int exec(struct jinja_run *run, const struct jinja_node *node) {
    if (node->kind != NODE_BLOCK) run->line = node->line;
    TRY(jinja_step(run));
    return exec_of(run, node);
}

/* --- a template -------------------------------------------------------------------------------------------------- */

int jinja_read(struct jinja **out, const char *source, size_t n) {
    struct jinja *j = memory_resize(NULL, sizeof *j);
    *j = (struct jinja){0};
    *out = NULL;
    int rc = jinja_lex(&j->arena, source, n, &j->tokens, &j->token_count);
    if (rc == 0) {
        struct jinja_parser p = {.arena = &j->arena, .token = j->tokens, .names = &j->names};
        rc = jinja_parse_tags(&p, &j->all);
    }
    if (rc == 0)
        *out = j;
    else
        jinja_free(j);
    return rc;
}

void jinja_free(struct jinja *j) {
    if (!j) return;
    jinja_arena_free(&j->arena);
    free(j);
}

bool jinja_names(const struct jinja *j, const char *name) {
    for (size_t i = 0; i < j->names.n; i++)
        if (jinja_is(j->names.items[i].text, name)) return true;
    return false;
}

bool jinja_says(const struct jinja *j, const char *text) {
    size_t at;
    for (size_t i = 0; i < j->token_count; i++)
        if ((j->tokens[i].kind == TOKEN_DATA || j->tokens[i].kind == TOKEN_STRING) &&
            jinja_find(j->tokens[i].text, jinja_literal(text), 0, &at))
            return true;
    return false;
}

static void put_named(struct jinja_run *run, struct jinja_value dict, const char *name, struct jinja_value v) {
    jinja_put(&run->arena, dict.dict, jinja_string(jinja_literal(name)), v);
}

static struct jinja_value content_value(struct jinja_run *run, const struct jinja_message *m, bool in_parts) {
    char *plain = jinja_alloc(&run->arena, m->len + 1);
    memset(plain, 1, m->len);
    const struct jinja_value text = jinja_string((struct jinja_text){m->content, plain, m->len});
    if (!in_parts) return text;
    struct jinja_value part = jinja_new_dict(&run->arena, JINJA_DICT), list = jinja_new_list(&run->arena, JINJA_LIST);
    put_named(run, part, "type", jinja_string(jinja_literal("text")));
    put_named(run, part, "text", text);
    jinja_push(&run->arena, list.list, part);
    return list;
}

static struct jinja_value message_value(struct jinja_run *run, const struct jinja_message *m, bool in_parts) {
    struct jinja_value dict = jinja_new_dict(&run->arena, JINJA_DICT);
    put_named(run, dict, "role", jinja_string(jinja_literal(m->role)));
    put_named(run, dict, "content", content_value(run, m, in_parts));
    return dict;
}

static struct jinja_value variable_value(const struct jinja_variable *v) {
    const double number = v->kind == JINJA_IS_NUMBER ? strtod(v->text, NULL) : 0;
    if (v->kind == JINJA_IS_TEXT) return jinja_string(jinja_literal(v->text));
    if (v->kind == JINJA_IS_NUMBER)
        return number == floor(number) && fabs(number) < 0x1p53 ? jinja_int((int64_t)number) : jinja_float(number);
    return v->kind == JINJA_IS_NONE ? jinja_none() : jinja_bool(v->kind == JINJA_IS_TRUE);
}

static void set_input(struct jinja_run *run, const struct jinja_input *input) {
    struct jinja_value messages = jinja_new_list(&run->arena, JINJA_LIST);
    run->frame = new_frame(run, NULL);
    for (int i = 0; i < input->count; i++)
        jinja_push(&run->arena, messages.list, message_value(run, &input->messages[i], input->content_in_parts));
    const struct jinja_value names = {.type = JINJA_DICT, .dict = &run->frame->names};
    put_named(run, names, "messages", messages);
    for (int i = 0; i < input->variable_count; i++)
        put_named(run, names, input->variables[i].name, variable_value(&input->variables[i]));
}

/* Some millions of steps and 64 MB, and more for what has to be said: templates copy it a dozen times or two. */
static void set_limits(struct jinja_run *run, const struct jinja_input *input) {
    enum { STEPS = 20 * 1000 * 1000, BYTES = 64 << 20, A_MESSAGE = 10 * 1000, A_BYTE = 64 };
    size_t said = 0;
    for (int i = 0; i < input->count; i++) said += input->messages[i].len;
    run->steps_left = STEPS + (int64_t)input->count * A_MESSAGE + (int64_t)said;
    run->arena.most = BYTES + (size_t)input->count * A_MESSAGE + said * A_BYTE;
}

int jinja_render(const struct jinja *j, const struct jinja_input *input, struct buf *text, struct buf *plain) {
    struct jinja_run run = {.now = input->has_now ? &input->now : NULL};
    struct jinja_out out = {.arena = &run.arena};
    set_limits(&run, input);
    set_input(&run, input);
    run.frame = new_frame(&run, run.frame);
    run.out = &out;
    int rc = exec(&run, j->all);
    if (rc == 0) rc = jinja_step(&run); /* the last one may have been too much */
    if (rc != 0 && !run.has_raised) err_prefix(rc, "line %d", run.line);
    if (rc == 0 && out.n > 0) {
        buf_append(text, out.bytes, out.n);
        buf_append(plain, out.plain, out.n);
    }
    jinja_arena_free(&run.arena);
    return rc;
}
