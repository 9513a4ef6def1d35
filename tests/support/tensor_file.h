/* A safetensors file, made tensor by tensor. */
#ifndef DUET_TESTS_TENSOR_FILE_H
#define DUET_TESTS_TENSOR_FILE_H

#include "base/buf.h"
#include "base/json.h"

struct tensor_file { /* begins as zeros */
    cJSON *header;
    struct buf data;
};

/* `dtype` as such files have it ("BF16"). Copies `data`. */
void tensor_file_add(struct tensor_file *, const char *name, const char *dtype, int dims, const int64_t *shape,
                     const void *data, size_t bytes);
/* Writes what was added, and is zeros again. */
void tensor_file_write(struct tensor_file *, const char *path);

#endif
