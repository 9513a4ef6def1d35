/* Shared by the files model/files/gguf.c and gguf_file.c alone. */
#ifndef DUET_MODEL_FILES_GGUF_INTERNAL_H
#define DUET_MODEL_FILES_GGUF_INTERNAL_H

#include "base/file.h"
#include "model/files/gguf.h"

/* One file: mapped, its header read and checked. */
struct gguf_file {
    char *path;
    struct mapping map;
    struct gguf_value *values;   /* [value_count] sorted by key */
    struct gguf_tensor *tensors; /* [tensor_count] in the file's order */
    int value_count, tensor_count;
};

/* `file` must be zeroed; closed by gguf_file_close also after an error. */
int gguf_file_open(struct gguf_file *, const char *path);
void gguf_file_close(struct gguf_file *);
const struct gguf_value *gguf_file_value(const struct gguf_file *, const char *key);

int gguf_element_bytes(enum gguf_type); /* 0: a text or an array, whose bytes vary */
/* The number of an integer type; false for others, and above INT64_MAX. */
bool gguf_read_int(enum gguf_type, const unsigned char *at, int64_t *out);

#endif
