/* safetensors: one file or indexed shards, mapped read-only and validated before use.
 *
 * Checked on open: header length, JSON, dtype names, every offset pair (begin <= end <= size of the data, end -
 * begin == product(shape) * dtype size, no overflow, no overlap), duplicate names, the index's shard names (no
 * path outside the directory). Look-up by name is a hash table or binary search, not linear. */
#ifndef DUET_MODEL_FILES_SAFETENSORS_H
#define DUET_MODEL_FILES_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "model/dtype.h"

enum { TENSOR_DIMS_MAX = 8 };

struct tensor {
    const char *name;
    const char *in_file; /* its name there, where that is another (GGUF); NULL: `name` */
    const char *file;    /* path of the shard, for messages */
    const char *dtype;   /* as the file says: "BF16", "F16", "F32", "I64", ... */
    int dims;
    int64_t shape[TENSOR_DIMS_MAX];
    const void *data; /* in the mapping; aligned to the element size or copied so that it is */
    size_t bytes;
};

struct safetensors;

/* Opens one file, or with a path that ends with .index.json the shards that this index names, beside it. Which tensors there are, the
 * shards say; what the index places elsewhere is not held against it. Allocates (heap). */
int safetensors_open(struct safetensors **out, const char *path);
void safetensors_close(struct safetensors *);
int safetensors_count(const struct safetensors *);
const struct tensor *safetensors_at(const struct safetensors *, int index);          /* sorted by name */
const struct tensor *safetensors_find(const struct safetensors *, const char *name); /* NULL if absent */

/* Tensors of files of another kind in such a list. Takes `tensors` [count], whose names are owned (both of malloc), and `owner` of what
 * they point into, which `release` frees; also after an error. */
int safetensors_of_tensors(struct safetensors **out, const char *source, struct tensor *tensors, int count, void *owner,
                           void (*release)(void *owner));

const char *safetensors_source(const struct safetensors *); /* the path of the one file or of the index, for messages */

/* A tensor by name with exactly this shape and BF16, F16 or F32 numbers, or GGUF's blocks. ERR_FORMAT: "FILE: tensor 'NAME' is [2, 3] F32, expected
 * [4, 3]", or missing. */
int safetensors_expect(const struct safetensors *, const char *name, const int64_t *shape, int dims,
                       const struct tensor **out, enum dtype *format);

/* The same for one of `types`, as a sentence lists them ("F16, BF16 or F32"). */
int safetensors_expect_type(const struct safetensors *, const char *name, const char *types, const int64_t *shape,
                            int dims, const struct tensor **out);

#endif
