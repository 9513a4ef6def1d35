/* The format: "GGUF", u32 version, u64 tensors, u64 values; each value: key, u32 type, what the type says; each tensor: name, u32
 * dimensions, u64 each (the fastest first), u32 type, u64 offset; then, at the next multiple of the alignment, the data, to which
 * offsets are relative. A text is a u64 length and bytes, an array a u32 type, a u64 count and elements. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"
#include "model/files/gguf_internal.h"

enum {
    HEADER_BYTES = 24,
    VERSION_MIN = 2,
    VERSION_MAX = 3,
    NAME_MAX_BYTES = 127,
    ALIGNMENT = 32,
    ALIGNMENT_MAX = 1 << 20,
    NESTING_MAX = 8 /* arrays in arrays */
};
enum { VALUE_BYTES_MIN = 8 + 4 + 1, TEXT_BYTES_MIN = 8, ARRAY_BYTES_MIN = 4 + 8, TENSOR_BYTES_MIN = 8 + 4 + 8 + 4 + 8 };

/* What a tensor may be made of: `block` elements in `bytes`. bytes 0: known by name, and not read. */
static const struct element {
    const char *name;
    int number, block, bytes;
} elements[] = {
    {"F32", 0, 1, 4},        {"F16", 1, 1, 2},         {"Q4_0", 2, 32, 18},     {"Q4_1", 3, 32, 20},
    {"Q5_0", 6, 32, 22},     {"Q5_1", 7, 32, 24},      {"Q8_0", 8, 32, 34},     {"Q8_1", 9, 32, 0},
    {"Q2_K", 10, 256, 84},   {"Q3_K", 11, 256, 110},   {"Q4_K", 12, 256, 144},  {"Q5_K", 13, 256, 176},
    {"Q6_K", 14, 256, 210},  {"Q8_K", 15, 256, 0},     {"IQ2_XXS", 16, 256, 0}, {"IQ2_XS", 17, 256, 0},
    {"IQ3_XXS", 18, 256, 0}, {"IQ1_S", 19, 256, 0},    {"IQ4_NL", 20, 32, 18},  {"IQ3_S", 21, 256, 0},
    {"IQ2_S", 22, 256, 0},   {"IQ4_XS", 23, 256, 136}, {"I8", 24, 1, 0},        {"I16", 25, 1, 0},
    {"I32", 26, 1, 0},       {"I64", 27, 1, 0},        {"F64", 28, 1, 0},       {"IQ1_M", 29, 256, 0},
    {"BF16", 30, 1, 2},      {"TQ1_0", 34, 256, 0},    {"TQ2_0", 35, 256, 0},   {"MXFP4", 39, 32, 17},
};

/* --- bytes ------------------------------------------------------------------------------------------------------ */

/* What is left of a file's header. */
struct cursor {
    const unsigned char *at;
    size_t left;
};

static uint64_t number_at(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static int fail_short(void) {
    return err_set(ERR_FORMAT, "the header goes on past the end of the file: is it truncated?");
}

static int read_number(struct cursor *c, int bytes, uint64_t *out) {
    *out = 0;
    if (c->left < (size_t)bytes) return fail_short();
    *out = number_at(c->at, bytes);
    c->at += bytes, c->left -= (size_t)bytes;
    return 0;
}

static int read_text(struct cursor *c, struct gguf_text *out) {
    uint64_t n;
    TRY(read_number(c, 8, &n));
    if (n > c->left) return fail_short();
    *out = (struct gguf_text){(const char *)c->at, n};
    c->at += n, c->left -= n;
    return 0;
}

int gguf_element_bytes(enum gguf_type type) {
    static const int bytes[GGUF_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_BOOL] = 1, [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4,
        [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_U64] = 8,  [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return bytes[type];
}

bool gguf_read_int(enum gguf_type type, const unsigned char *at, int64_t *out) {
    const int bits = 8 * gguf_element_bytes(type);
    const bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    if (bits == 0 || type == GGUF_F32 || type == GGUF_F64 || type == GGUF_BOOL) return false;
    uint64_t value = number_at(at, bits / 8);
    if (is_signed && bits < 64 && value >> (bits - 1)) value |= ~(uint64_t)0 << bits;
    if (!is_signed && value > INT64_MAX) return false;
    memcpy(out, &value, sizeof *out);
    return true;
}

struct gguf_text gguf_next_text(const unsigned char **at) {
    struct gguf_text text = {(const char *)*at + 8, number_at(*at, 8)};
    *at += 8 + text.n;
    return text;
}

/* --- metadata --------------------------------------------------------------------------------------------------- */

static int read_type(struct cursor *c, enum gguf_type *out) {
    uint64_t type;
    TRY(read_number(c, 4, &type));
    if (type >= GGUF_TYPES) return err_set(ERR_UNSUPPORTED, "has a value of type %llu", (unsigned long long)type);
    *out = (enum gguf_type)type;
    return 0;
}

static int skip_array(struct cursor *c, int depth);

/* `count` elements of the value's type, itself `depth` arrays deep. */
static int skip_elements(struct cursor *c, const struct gguf_value *v, int depth) {
    const bool are_arrays = v->type == GGUF_ARRAY;
    const uint64_t bytes = (uint64_t)gguf_element_bytes(v->type);
    struct gguf_text text;
    if (v->count > c->left / (bytes > 0 ? bytes : are_arrays ? ARRAY_BYTES_MIN : TEXT_BYTES_MIN)) return fail_short();
    if (bytes > 0) {
        c->at += v->count * bytes, c->left -= v->count * bytes;
        return 0;
    }
    if (are_arrays && depth == NESTING_MAX)
        return err_set(ERR_UNSUPPORTED, "holds arrays of arrays in more than %d levels", NESTING_MAX);
    for (uint64_t i = 0; i < v->count; i++) TRY(are_arrays ? skip_array(c, depth + 1) : read_text(c, &text));
    return 0;
}

/* What an array begins with. */
static int read_array(struct cursor *c, struct gguf_value *v) {
    TRY(read_type(c, &v->type));
    return read_number(c, 8, &v->count);
}

static int skip_array(struct cursor *c, int depth) {
    struct gguf_value v;
    TRY(read_array(c, &v));
    return skip_elements(c, &v, depth);
}

static int read_value(struct cursor *c, struct gguf_value *v) {
    TRY(read_type(c, &v->type));
    v->count = 1;
    v->is_array = v->type == GGUF_ARRAY;
    if (v->is_array) TRY(read_array(c, v));
    v->data = c->at;
    return skip_elements(c, v, 1);
}

static int compare_texts(struct gguf_text a, struct gguf_text b) {
    int order = memcmp(a.bytes, b.bytes, a.n < b.n ? a.n : b.n);
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

static int compare_keys(const void *a, const void *b) {
    return compare_texts(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

static int shown(struct gguf_text text) {
    return text.n < 80 ? (int)text.n : 80;
}

static int read_values(struct gguf_file *f, struct cursor *c, uint64_t count) {
    if (count > c->left / VALUE_BYTES_MIN) return fail_short();
    if (count > INT_MAX) return err_set(ERR_LIMIT, "%llu values are too many", (unsigned long long)count);
    f->values = calloc(count + 1, sizeof *f->values);
    if (!f->values) return err_set(ERR_MEMORY, "out of memory for %d values", (int)count);
    for (; f->value_count < (int)count; f->value_count++) {
        struct gguf_value *v = &f->values[f->value_count];
        TRY(read_text(c, &v->key));
        int rc = read_value(c, v);
        if (rc != 0) return err_prefix(rc, "key '%.*s'", shown(v->key), v->key.bytes);
    }
    qsort(f->values, count, sizeof *f->values, compare_keys);
    for (uint64_t i = 1; i < count; i++)
        if (compare_keys(&f->values[i - 1], &f->values[i]) == 0)
            return err_set(ERR_FORMAT, "key '%.*s' is there twice", shown(f->values[i].key), f->values[i].key.bytes);
    return 0;
}

const struct gguf_value *gguf_file_value(const struct gguf_file *f, const char *key) {
    const struct gguf_value wanted = {.key = {key, strlen(key)}};
    if (f->value_count == 0) return NULL;
    return bsearch(&wanted, f->values, (size_t)f->value_count, sizeof wanted, compare_keys);
}

/* --- tensors ---------------------------------------------------------------------------------------------------- */

static const struct element *find_element(uint64_t number) {
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        if ((uint64_t)elements[i].number == number) return &elements[i];
    return NULL;
}

static int read_name(struct cursor *c, struct gguf_tensor *t) {
    struct gguf_text text;
    TRY(read_text(c, &text));
    if (text.n == 0 || text.n > NAME_MAX_BYTES || memchr(text.bytes, '\0', text.n))
        return err_set(ERR_FORMAT, "a tensor has a name of %zu bytes: '%.*s'", text.n, shown(text), text.bytes);
    t->name = memory_resize(NULL, text.n + 1);
    memcpy(t->name, text.bytes, text.n);
    t->name[text.n] = '\0';
    return 0;
}

static int read_shape(struct cursor *c, struct gguf_tensor *t) {
    uint64_t dims;
    TRY(read_number(c, 4, &dims));
    if (dims < 1 || dims > GGUF_DIMS_MAX)
        return err_set(ERR_UNSUPPORTED, "has %llu dimensions, expected 1 to %d", (unsigned long long)dims,
                       GGUF_DIMS_MAX);
    t->dims = (int)dims;
    for (int i = t->dims - 1; i >= 0; i--) {
        uint64_t size;
        TRY(read_number(c, 8, &size));
        if (size < 1 || size > INT64_MAX)
            return err_set(ERR_FORMAT, "has a dimension of %llu", (unsigned long long)size);
        t->shape[i] = (int64_t)size;
    }
    return 0;
}

static int read_element(struct cursor *c, struct gguf_tensor *t) {
    uint64_t number;
    TRY(read_number(c, 4, &number));
    const struct element *e = find_element(number);
    if (!e || e->bytes == 0)
        return err_set(ERR_UNSUPPORTED, "has numbers of type %llu%s%s, which duet does not read",
                       (unsigned long long)number, e ? ", " : "", e ? e->name : "");
    int64_t cols = t->shape[t->dims - 1], bytes = cols / e->block;
    if (cols % e->block != 0)
        return err_set(ERR_FORMAT, "has rows of %lld numbers, and %s comes in blocks of %d", (long long)cols, e->name,
                       e->block);
    bool overflow = __builtin_mul_overflow(bytes, (int64_t)e->bytes, &bytes);
    for (int i = 0; i < t->dims - 1; i++) overflow |= __builtin_mul_overflow(bytes, t->shape[i], &bytes);
    if (overflow) return err_set(ERR_FORMAT, "has a shape whose size in bytes is no integer below 2^63");
    t->dtype = e->name;
    t->bytes = (size_t)bytes;
    return 0;
}

/* A tensor's place in the data section, before that is known. */
struct span {
    uint64_t begin;
    const struct gguf_tensor *tensor;
};

static int read_tensor(struct cursor *c, struct gguf_tensor *t, struct span *span) {
    TRY(read_name(c, t));
    int rc = read_shape(c, t);
    if (rc == 0) rc = read_element(c, t);
    if (rc == 0) rc = read_number(c, 8, &span->begin);
    span->tensor = t;
    return rc == 0 ? 0 : err_prefix(rc, "tensor '%s'", t->name);
}

static int compare_spans(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Sets where the tensors' data lie: `data` [bytes] is what follows the header. */
static int place_tensors(struct gguf_file *f, struct span *spans, const unsigned char *data, size_t bytes,
                         uint64_t alignment) {
    for (int i = 0; i < f->tensor_count; i++) {
        struct gguf_tensor *t = &f->tensors[i];
        const uint64_t begin = spans[i].begin;
        if (begin % alignment != 0)
            return err_set(ERR_FORMAT, "tensor '%s' begins at byte %llu of the data, which is no multiple of %llu",
                           t->name, (unsigned long long)begin, (unsigned long long)alignment);
        if (begin > bytes || t->bytes > bytes - begin)
            return err_set(ERR_FORMAT,
                           "tensor '%s' needs %zu bytes at byte %llu of the data, which has %zu: is it truncated?",
                           t->name, t->bytes, (unsigned long long)begin, bytes);
        t->data = data + begin;
        t->file = f->path;
    }
    qsort(spans, (size_t)f->tensor_count, sizeof *spans, compare_spans);
    for (int i = 1; i < f->tensor_count; i++)
        if (spans[i].begin < spans[i - 1].begin + spans[i - 1].tensor->bytes)
            return err_set(ERR_FORMAT, "tensors '%s' and '%s' overlap", spans[i - 1].tensor->name,
                           spans[i].tensor->name);
    return 0;
}

static int read_alignment(const struct gguf_file *f, uint64_t *out) {
    *out = ALIGNMENT;
    const struct gguf_value *v = gguf_file_value(f, "general.alignment");
    int64_t alignment = ALIGNMENT;
    if (v && (v->is_array || !gguf_read_int(v->type, v->data, &alignment) || alignment < 8 ||
              alignment > ALIGNMENT_MAX || (alignment & (alignment - 1)) != 0))
        return err_set(ERR_FORMAT, "key 'general.alignment': expected a power of two from 8 to %d", ALIGNMENT_MAX);
    *out = (uint64_t)alignment;
    return 0;
}

static int read_tensors(struct gguf_file *f, struct cursor *c, struct span *spans, uint64_t count) {
    uint64_t alignment;
    for (uint64_t i = 0; i < count; i++) {
        f->tensor_count++; /* what it owns is freed after an error too */
        TRY(read_tensor(c, &f->tensors[i], &spans[i]));
    }
    TRY(read_alignment(f, &alignment));
    size_t used = (size_t)(c->at - (const unsigned char *)f->map.data), padding = (size_t)(-used & (alignment - 1));
    if (count > 0 && padding > c->left) return fail_short();
    if (padding > c->left) padding = c->left;
    return place_tensors(f, spans, c->at + padding, c->left - padding, alignment);
}

/* --- the file --------------------------------------------------------------------------------------------------- */

static int read_counts(struct cursor *c, uint64_t *tensors, uint64_t *values) {
    uint64_t version;
    *tensors = *values = 0;
    if (memcmp(c->at, "GGUF", 4) != 0) return err_set(ERR_FORMAT, "is no GGUF file: it does not begin with 'GGUF'");
    c->at += 4, c->left -= 4;
    TRY(read_number(c, 4, &version));
    if (version >= 1 << 16)
        return err_set(ERR_UNSUPPORTED, "is a GGUF file of big-endian numbers, only little-endian ones are read");
    if (version < VERSION_MIN || version > VERSION_MAX)
        return err_set(ERR_UNSUPPORTED, "is GGUF of version %d, only %d and %d are read", (int)version, VERSION_MIN,
                       VERSION_MAX);
    TRY(read_number(c, 8, tensors));
    return read_number(c, 8, values);
}

static int read_file(struct gguf_file *f) {
    struct cursor c = {(const unsigned char *)f->map.data, f->map.bytes};
    uint64_t tensors, values;
    TRY(read_counts(&c, &tensors, &values));
    TRY(read_values(f, &c, values));
    if (tensors > c.left / TENSOR_BYTES_MIN) return fail_short();
    if (tensors > INT_MAX) return err_set(ERR_LIMIT, "%llu tensors are too many", (unsigned long long)tensors);
    struct span *spans = calloc(tensors + 1, sizeof *spans);
    f->tensors = calloc(tensors + 1, sizeof *f->tensors);
    int rc = spans && f->tensors ? read_tensors(f, &c, spans, tensors)
                                 : err_set(ERR_MEMORY, "out of memory for %d tensors", (int)tensors);
    free(spans);
    return rc;
}

int gguf_file_open(struct gguf_file *f, const char *path) {
    f->path = memory_copy_text(path);
    TRY(mapping_open(&f->map, path, HEADER_BYTES));
    int rc = read_file(f);
    return rc == 0 ? 0 : err_prefix(rc, "%s", path);
}

void gguf_file_close(struct gguf_file *f) {
    for (int i = 0; i < f->tensor_count; i++) free(f->tensors[i].name);
    free(f->tensors);
    free(f->values);
    mapping_close(&f->map);
    free(f->path);
    *f = (struct gguf_file){0};
}
