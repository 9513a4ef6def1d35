/* GGUF, the file of llama.cpp: metadata by key and tensors by name, mapped read-only and checked before use.
 *
 * Versions 2 and 3, little-endian. Of a model in several files (NAME-00001-of-00003.gguf) the first is opened, which names the
 * others. Checked on open: counts and lengths against the bytes that are there, types, keys and names that are there twice, every
 * tensor's size by shape and type, its alignment, that it ends within the file and overlaps no other. Keys and texts point into the
 * mapping. Errors name the file and the key or tensor. */
#ifndef DUET_MODEL_FILES_GGUF_H
#define DUET_MODEL_FILES_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
};

struct gguf_text {
    const char *bytes; /* [n], not NUL-terminated */
    size_t n;
};

/* One value of the metadata. */
struct gguf_value {
    struct gguf_text key;
    enum gguf_type type; /* of an array: of its elements, which nobody reads if they are arrays */
    bool is_array;
    uint64_t count; /* of elements; 1 of what is no array */
    const unsigned char *data;
};

enum { GGUF_DIMS_MAX = 4 };

struct gguf_tensor {
    char *name;        /* as the file has it: "blk.0.attn_q.weight" */
    const char *file;  /* path, for messages */
    const char *dtype; /* "F32", "Q4_K", ... */
    int dims;
    int64_t shape[GGUF_DIMS_MAX]; /* rows first, as safetensors have them: the file's order turned round */
    const void *data;
    size_t bytes;
};

struct gguf;

int gguf_open(struct gguf **out, const char *path); /* allocates (heap) */
void gguf_close(struct gguf *);
const char *gguf_path(const struct gguf *);

int gguf_count(const struct gguf *);                                        /* of tensors */
const struct gguf_tensor *gguf_at(const struct gguf *, int index);          /* sorted by name */
const struct gguf_tensor *gguf_find(const struct gguf *, const char *name); /* NULL if absent */

const struct gguf_value *gguf_value(const struct gguf *, const char *key); /* NULL if absent */
/* Typed values with a default where the key is absent; ERR_FORMAT with file and key if it has another type, lies outside
 * [min, max] or is not finite. An integer may be of any width; a number may be an integer. */
int gguf_get_int(const struct gguf *, const char *key, int64_t def, int64_t min, int64_t max, int64_t *out);
int gguf_get_number(const struct gguf *, const char *key, double def, double *out);
int gguf_get_bool(const struct gguf *, const char *key, bool def, bool *out);
/* Empty (bytes NULL) where it is absent; ERR_FORMAT if it is not valid UTF-8. */
int gguf_get_text(const struct gguf *, const char *key, struct gguf_text *out);
/* An array of elements of this type; NULL where it is absent. */
int gguf_get_array(const struct gguf *, const char *key, enum gguf_type type, const struct gguf_value **out);
bool gguf_is_text(struct gguf_text, const char *text);

/* Elements of an array of numbers. */
int64_t gguf_int_at(const struct gguf_value *, uint64_t index);
double gguf_number_at(const struct gguf_value *, uint64_t index);
/* Texts of an array, in order: *at begins as the value's data. */
struct gguf_text gguf_next_text(const unsigned char **at);

#endif
