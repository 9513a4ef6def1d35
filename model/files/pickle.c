/* The machine that runs a pickle has a stack of values and a memo of them. Of the protocols' instructions (Python's pickletools lists
 * them all) here are those that torch.save writes. */
#include "model/files/pickle.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum value_kind {
    VALUE_OTHER, /* None, a float, a list: what no tensor is made of */
    VALUE_MARK,
    VALUE_NUMBER,
    VALUE_TEXT,
    VALUE_CLASS,   /* index: of classes[] */
    VALUE_TUPLE,   /* index, count: of items[] */
    VALUE_STORAGE, /* index: of tensors[], of which it is all but the name and the shape */
    VALUE_TENSOR,  /* index: of tensors[] */
    VALUE_DICT,    /* index: its number */
};

struct value {
    enum value_kind kind;
    int index, count;
    int64_t number;
    struct pickle_text text;
};

enum class_kind { CLASS_DICT, CLASS_TENSOR, CLASS_PARAMETER, CLASS_STORAGE };

static const struct {
    const char *module, *name;
    enum class_kind kind;
    const char *dtype; /* of a storage */
} classes[] = {
    {"collections", "OrderedDict", CLASS_DICT, NULL},
    {"torch._utils", "_rebuild_tensor_v2", CLASS_TENSOR, NULL},
    {"torch._utils", "_rebuild_parameter", CLASS_PARAMETER, NULL},
    {"torch", "BFloat16Storage", CLASS_STORAGE, "BF16"},
    {"torch", "HalfStorage", CLASS_STORAGE, "F16"},
    {"torch", "FloatStorage", CLASS_STORAGE, "F32"},
    {"torch", "DoubleStorage", CLASS_STORAGE, "F64"},
    {"torch", "ComplexFloatStorage", CLASS_STORAGE, "C64"},
    {"torch", "CharStorage", CLASS_STORAGE, "I8"},
    {"torch", "ShortStorage", CLASS_STORAGE, "I16"},
    {"torch", "IntStorage", CLASS_STORAGE, "I32"},
    {"torch", "LongStorage", CLASS_STORAGE, "I64"},
    {"torch", "ByteStorage", CLASS_STORAGE, "U8"},
    {"torch", "BoolStorage", CLASS_STORAGE, "BOOL"},
};

/* What a list of values or tensors grows by is what is there: [count] of [room]. */
struct list {
    void *data;
    size_t count, room;
};

struct member {
    int dict;
    struct pickle_text name;
    int tensor;
};

struct machine {
    const unsigned char *bytes, *at, *end;
    struct list stack, memo, items; /* of struct value */
    struct list tensors;            /* of struct pickle_tensor; storages too */
    struct list members;            /* of struct member */
    int dicts;
};

/* --- lists ------------------------------------------------------------------------------------------------- */

/* A zeroed place more, or NULL. */
static void *list_add(struct list *l, size_t size) {
    if (l->count == INT_MAX) return NULL;
    if (l->count == l->room) {
        const size_t room = l->room > 0 ? 2 * l->room : 64;
        void *data = realloc(l->data, room * size);
        if (!data) return NULL;
        l->data = data, l->room = room;
    }
    return memset((char *)l->data + l->count++ * size, 0, size);
}

static int out_of_memory(void) {
    return err_set(ERR_MEMORY, "out of memory for what a pickle lists");
}

static struct value *values_of(const struct list *l) {
    return l->data;
}

static struct pickle_tensor *tensor_at(const struct machine *m, int index) {
    return (struct pickle_tensor *)m->tensors.data + index;
}

/* --- the stack --------------------------------------------------------------------------------------------- */

static int fail(const struct machine *m, const char *what) {
    return err_set(ERR_FORMAT, "byte %td of the pickle: %s", m->at - m->bytes, what);
}

static int push(struct machine *m, struct value v) {
    struct value *to = list_add(&m->stack, sizeof *to);
    if (!to) return out_of_memory();
    *to = v;
    return 0;
}

static int push_kind(struct machine *m, int kind) {
    return push(m, (struct value){.kind = (enum value_kind)kind});
}

static int push_number(struct machine *m, int64_t number) {
    return push(m, (struct value){.kind = VALUE_NUMBER, .number = number});
}

/* The topmost value, which is no mark. */
static int pop(struct machine *m, struct value *out) {
    if (m->stack.count == 0) return fail(m, "nothing is left on the stack");
    *out = values_of(&m->stack)[--m->stack.count];
    return out->kind == VALUE_MARK ? fail(m, "a mark stands where a value belongs") : 0;
}

static int peek(const struct machine *m, struct value *out) {
    struct machine copy = *m;
    return pop(&copy, out);
}

/* The place behind the topmost mark. */
static int find_mark(const struct machine *m, size_t *out) {
    for (size_t i = m->stack.count; i > 0; i--) {
        if (values_of(&m->stack)[i - 1].kind != VALUE_MARK) continue;
        *out = i;
        return 0;
    }
    return fail(m, "no mark is left on the stack");
}

/* What lies from `first` on becomes a tuple, which takes the place `to` of the stack. */
static int make_tuple(struct machine *m, size_t first, size_t to) {
    struct value tuple = {.kind = VALUE_TUPLE, .index = (int)m->items.count, .count = (int)(m->stack.count - first)};
    for (size_t i = first; i < m->stack.count; i++) {
        struct value *item = list_add(&m->items, sizeof *item);
        if (!item) return out_of_memory();
        *item = values_of(&m->stack)[i];
        if (item->kind == VALUE_MARK) return fail(m, "a mark stands where a value belongs");
    }
    m->stack.count = to;
    return push(m, tuple);
}

static int make_tuple_of(struct machine *m, int items) {
    const size_t count = (size_t)items;
    if (m->stack.count < count) return fail(m, "nothing is left on the stack");
    return make_tuple(m, m->stack.count - count, m->stack.count - count);
}

static int make_tuple_of_marked(struct machine *m) {
    size_t first = 0;
    TRY(find_mark(m, &first));
    return make_tuple(m, first, first - 1);
}

static int drop_marked(struct machine *m) {
    size_t first = 0;
    TRY(find_mark(m, &first));
    m->stack.count = first - 1;
    return 0;
}

/* --- operands ---------------------------------------------------------------------------------------------- */

static int take(struct machine *m, size_t bytes, const unsigned char **out) {
    if ((size_t)(m->end - m->at) < bytes) return fail(m, "it ends here: is the file truncated?");
    *out = m->at;
    m->at += bytes;
    return 0;
}

/* Little-endian, unsigned; at most 4 bytes. */
static int take_size(struct machine *m, int bytes, uint32_t *out) {
    const unsigned char *at = NULL;
    TRY(take(m, (size_t)bytes, &at));
    *out = 0;
    for (int i = 0; i < bytes; i++) *out |= (uint32_t)at[i] << 8 * i;
    return 0;
}

static int push_truth(struct machine *m, int truth) {
    return push_number(m, truth);
}

static int push_unsigned(struct machine *m, int bytes) {
    uint32_t number = 0;
    TRY(take_size(m, bytes, &number));
    return push_number(m, number);
}

static int push_int32(struct machine *m) {
    uint32_t number = 0;
    TRY(take_size(m, 4, &number));
    return push_number(m, (int32_t)number);
}

/* A number of so many bytes as the one before says, two's complement. */
static int push_long(struct machine *m) {
    uint32_t bytes = 0;
    const unsigned char *at = NULL;
    TRY(take_size(m, 1, &bytes));
    if (bytes > 8) return fail(m, "a number of more than 64 bits");
    TRY(take(m, bytes, &at));
    uint64_t number = bytes > 0 && at[bytes - 1] & 0x80 ? UINT64_MAX : 0;
    for (uint32_t i = bytes; i > 0; i--) number = number << 8 | at[i - 1];
    return push_number(m, (int64_t)number);
}

static int push_text(struct machine *m) {
    uint32_t length = 0;
    const unsigned char *at = NULL;
    TRY(take_size(m, 4, &length));
    TRY(take(m, length, &at));
    return push(m, (struct value){.kind = VALUE_TEXT, .text = {(const char *)at, length}});
}

/* Up to the next line feed. */
static int take_line(struct machine *m, struct pickle_text *out) {
    const unsigned char *end = memchr(m->at, '\n', (size_t)(m->end - m->at));
    if (!end) return fail(m, "a name without an end");
    *out = (struct pickle_text){(const char *)m->at, (size_t)(end - m->at)};
    m->at = end + 1;
    return 0;
}

static bool is_text(const struct pickle_text *text, const char *word) {
    return text->length == strlen(word) && memcmp(text->at, word, text->length) == 0;
}

static int push_class(struct machine *m) {
    struct pickle_text module = {0}, name = {0};
    TRY(take_line(m, &module));
    TRY(take_line(m, &name));
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (is_text(&module, classes[i].module) && is_text(&name, classes[i].name))
            return push(m, (struct value){.kind = VALUE_CLASS, .index = (int)i});
    const int most = 100;
    return err_set(ERR_UNSUPPORTED, "the pickle asks for %.*s.%.*s, which no list of tensors needs",
                   module.length < (size_t)most ? (int)module.length : most, module.at,
                   name.length < (size_t)most ? (int)name.length : most, name.at);
}

/* --- the memo: pickles number it from 0 on ----------------------------------------------------------------- */

static int put_in_memo(struct machine *m, int bytes) {
    uint32_t index = 0;
    struct value top = {0}, *to;
    TRY(take_size(m, bytes, &index));
    TRY(peek(m, &top));
    if (index > m->memo.count) return fail(m, "a place of the memo is left out");
    to = index < m->memo.count ? values_of(&m->memo) + index : list_add(&m->memo, sizeof *to);
    if (!to) return out_of_memory();
    *to = top;
    return 0;
}

static int get_from_memo(struct machine *m, int bytes) {
    uint32_t index = 0;
    TRY(take_size(m, bytes, &index));
    if (index >= m->memo.count) return fail(m, "the memo has no such place");
    return push(m, values_of(&m->memo)[index]);
}

/* --- dictionaries ------------------------------------------------------------------------------------------ */

static int push_dict(struct machine *m) {
    if (m->dicts == INT_MAX) return out_of_memory();
    return push(m, (struct value){.kind = VALUE_DICT, .index = m->dicts++});
}

static int set_member(struct machine *m, const struct value *dict, const struct value *key, const struct value *value) {
    if (dict->kind != VALUE_DICT) return fail(m, "a member of what is no dictionary");
    if (key->kind != VALUE_TEXT || value->kind != VALUE_TENSOR) return 0;
    struct member *member = list_add(&m->members, sizeof *member);
    if (!member) return out_of_memory();
    *member = (struct member){dict->index, key->text, value->index};
    return 0;
}

/* Pairs from `first` on, and the dictionary below `to`. */
static int set_members(struct machine *m, size_t first, size_t to) {
    const struct value *stack = values_of(&m->stack);
    if (to == 0 || (m->stack.count - first) % 2 != 0) return fail(m, "members that are no pairs of a dictionary");
    for (size_t i = first; i < m->stack.count; i += 2) TRY(set_member(m, &stack[to - 1], &stack[i], &stack[i + 1]));
    m->stack.count = to;
    return 0;
}

static int set_marked_members(struct machine *m) {
    size_t first = 0;
    TRY(find_mark(m, &first));
    return set_members(m, first, first - 1);
}

static int set_one_member(struct machine *m) {
    if (m->stack.count < 3) return fail(m, "nothing is left on the stack");
    return set_members(m, m->stack.count - 2, m->stack.count - 2);
}

/* --- tensors ----------------------------------------------------------------------------------------------- */

/* Item `i` of a tuple, where it has this kind. */
static const struct value *item_of(const struct machine *m, const struct value *tuple, int i, enum value_kind kind) {
    if (tuple->kind != VALUE_TUPLE || i >= tuple->count) return NULL;
    const struct value *item = values_of(&m->items) + tuple->index + i;
    return item->kind == kind ? item : NULL;
}

/* ('storage', CLASS, NAME, DEVICE, ELEMENTS) */
static int push_storage(struct machine *m) {
    struct value id = {0};
    TRY(pop(m, &id));
    const struct value *class = item_of(m, &id, 1, VALUE_CLASS), *name = item_of(m, &id, 2, VALUE_TEXT),
                       *elements = item_of(m, &id, 4, VALUE_NUMBER);
    if (!class || classes[class->index].kind != CLASS_STORAGE || !name || !elements || elements->number < 0)
        return fail(m, "what is kept elsewhere is no storage of numbers");
    struct pickle_tensor *storage = list_add(&m->tensors, sizeof *storage);
    if (!storage) return out_of_memory();
    storage->dtype = classes[class->index].dtype, storage->storage = name->text, storage->elements = elements->number;
    return push(m, (struct value){.kind = VALUE_STORAGE, .index = (int)m->tensors.count - 1});
}

static int take_shape(const struct machine *m, struct pickle_tensor *t, const struct value *sizes,
                      const struct value *strides) {
    int64_t dense = 1;
    bool is_dense = true, is_empty = false;
    if (sizes->count > TENSOR_DIMS_MAX || strides->count != sizes->count)
        return fail(m, "a tensor of too many dimensions, or of as many sizes as it has no strides");
    for (int i = sizes->count - 1; i >= 0; i--) {
        const struct value *size = item_of(m, sizes, i, VALUE_NUMBER), *stride = item_of(m, strides, i, VALUE_NUMBER);
        if (!size || !stride || size->number < 0 || stride->number < 0)
            return fail(m, "a tensor whose sizes are no sizes");
        t->shape[i] = size->number, t->strides[i] = stride->number;
        is_empty |= size->number == 0;
        is_dense &= size->number == 1 || stride->number == dense;
        if (__builtin_mul_overflow(dense, size->number, &dense)) return fail(m, "a tensor that is too large");
    }
    t->dims = sizes->count;
    t->is_dense = is_dense || is_empty;
    return 0;
}

/* (STORAGE, FIRST, SIZES, STRIDES, ...) */
static int make_tensor(struct machine *m, const struct value *args) {
    const struct value *storage = item_of(m, args, 0, VALUE_STORAGE), *first = item_of(m, args, 1, VALUE_NUMBER),
                       *sizes = item_of(m, args, 2, VALUE_TUPLE), *strides = item_of(m, args, 3, VALUE_TUPLE);
    if (!storage || !first || first->number < 0 || !sizes || !strides)
        return fail(m, "a tensor that is not made of a storage, a place, sizes and strides");
    struct pickle_tensor *t = list_add(&m->tensors, sizeof *t);
    if (!t) return out_of_memory();
    *t = *tensor_at(m, storage->index);
    t->first = first->number;
    TRY(take_shape(m, t, sizes, strides));
    return push(m, (struct value){.kind = VALUE_TENSOR, .index = (int)m->tensors.count - 1});
}

static int call(struct machine *m) {
    struct value args = {0}, class = {0};
    TRY(pop(m, &args));
    TRY(pop(m, &class));
    if (class.kind != VALUE_CLASS || args.kind != VALUE_TUPLE) return fail(m, "a call of what cannot be called");
    const struct value *made = item_of(m, &args, 0, VALUE_TENSOR);
    switch (classes[class.index].kind) {
    case CLASS_DICT:
        return args.count == 0 ? push_dict(m) : fail(m, "a dictionary that is made of something");
    case CLASS_TENSOR:
        return make_tensor(m, &args);
    case CLASS_PARAMETER:
        return made ? push(m, *made) : fail(m, "a parameter that is no tensor");
    case CLASS_STORAGE:
        break;
    }
    return fail(m, "a call of what cannot be called");
}

/* --- the program ------------------------------------------------------------------------------------------- */

/* An object's further state, such as versions of a module's layout. */
static int leave_out_state(struct machine *m) {
    struct value state, object;
    TRY(pop(m, &state));
    return peek(m, &object);
}

/* Onto a list, of which nothing is kept. */
static int leave_out_item(struct machine *m) {
    return leave_out_state(m);
}

static int push_float(struct machine *m) {
    const unsigned char *at = NULL;
    TRY(take(m, 8, &at));
    return push_kind(m, VALUE_OTHER);
}

static int check_protocol(struct machine *m) {
    uint32_t protocol = 0;
    TRY(take_size(m, 1, &protocol));
    return protocol == 2 ? 0 : err_set(ERR_UNSUPPORTED, "a pickle of protocol %u, only 2 is read", protocol);
}

/* Of each instruction what runs it, with a number or without. */
static const struct instruction {
    int (*run)(struct machine *);
    int (*run_with)(struct machine *, int);
    int with;
} instructions[256] = {
    [0x80] = {.run = check_protocol},
    ['c'] = {.run = push_class},
    ['Q'] = {.run = push_storage},
    ['R'] = {.run = call},
    ['b'] = {.run = leave_out_state},
    /* numbers, texts and what is of no use */
    [0x88] = {.run_with = push_truth, 1}, /* true */
    [0x89] = {.run_with = push_truth, 0},
    ['K'] = {.run_with = push_unsigned, 1},
    ['M'] = {.run_with = push_unsigned, 2},
    ['J'] = {.run = push_int32},
    [0x8a] = {.run = push_long},
    ['X'] = {.run = push_text},
    ['G'] = {.run = push_float},
    ['N'] = {.run_with = push_kind, VALUE_OTHER},
    /* tuples, lists and dictionaries */
    ['('] = {.run_with = push_kind, VALUE_MARK},
    [')'] = {.run_with = make_tuple_of, 0},
    [0x85] = {.run_with = make_tuple_of, 1},
    [0x86] = {.run_with = make_tuple_of, 2},
    [0x87] = {.run_with = make_tuple_of, 3},
    ['t'] = {.run = make_tuple_of_marked},
    [']'] = {.run_with = push_kind, VALUE_OTHER},
    ['a'] = {.run = leave_out_item},
    ['e'] = {.run = drop_marked},
    ['}'] = {.run = push_dict},
    ['s'] = {.run = set_one_member},
    ['u'] = {.run = set_marked_members},
    /* the memo */
    ['q'] = {.run_with = put_in_memo, 1},
    ['r'] = {.run_with = put_in_memo, 4},
    ['h'] = {.run_with = get_from_memo, 1},
    ['j'] = {.run_with = get_from_memo, 4},
};

static int step(struct machine *m, unsigned char code) {
    const struct instruction *i = &instructions[code];
    if (i->run) return i->run(m);
    if (i->run_with) return i->run_with(m, i->with);
    return err_set(ERR_UNSUPPORTED, "byte %td of the pickle: instruction 0x%02x, which no list of tensors needs",
                   m->at - 1 - m->bytes, code);
}

static int run(struct machine *m) {
    for (;;) {
        const unsigned char *instruction = NULL;
        TRY(take(m, 1, &instruction));
        if (*instruction == '.') return 0;
        TRY(step(m, *instruction));
    }
}

/* The members of the dictionary that is left. */
static int collect(struct machine *m, struct pickle_tensor **out, int *count) {
    struct value root = {0};
    struct list found = {0};
    size_t names = 0;
    TRY(pop(m, &root));
    if (root.kind != VALUE_DICT) return err_set(ERR_UNSUPPORTED, "the pickle is no dictionary of tensors");
    for (size_t i = 0; i < m->members.count; i++) {
        const struct member *member = (struct member *)m->members.data + i;
        if (member->dict != root.index) continue;
        names += member->name.length;
        const bool is_repeated = names > (size_t)(m->end - m->bytes); /* each has its own bytes but for that */
        struct pickle_tensor *t = is_repeated ? NULL : list_add(&found, sizeof *t);
        if (!t) {
            free(found.data);
            return is_repeated ? fail(m, "names that are there twice") : out_of_memory();
        }
        *t = *tensor_at(m, member->tensor);
        t->name = member->name;
    }
    *out = found.data, *count = (int)found.count;
    return 0;
}

int pickle_tensors(struct pickle_tensor **out, int *count, const char *pickle, size_t bytes) {
    const unsigned char *at = (const unsigned char *)pickle;
    struct machine m = {.bytes = at, .at = at, .end = at + bytes};
    *out = NULL, *count = 0;
    int rc = run(&m);
    if (rc == 0) rc = collect(&m, out, count);
    free(m.stack.data);
    free(m.memo.data);
    free(m.items.data);
    free(m.tensors.data);
    free(m.members.data);
    return rc;
}
