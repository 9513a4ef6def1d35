/* One file of tensors: mapped, its list of them read and checked. Private to model/files/safetensors*.c and pytorch.c. */
#ifndef DUET_MODEL_FILES_SAFETENSORS_SHARD_H
#define DUET_MODEL_FILES_SAFETENSORS_SHARD_H

#include "base/file.h"
#include "model/files/safetensors.h"

struct shard_tensor {
    struct tensor tensor; /* `name` is owned */
    void *copy;           /* owned: the data where the file has them misaligned, else NULL */
};

struct shard {
    char *path;
    struct mapping map;
    struct shard_tensor *tensors; /* in the file's order */
    int count;
};

/* A safetensors file, or one of torch.save (pytorch.h). `shard` must be zeroed; closed by shard_close also after an error. */
int shard_open(struct shard *shard, const char *path);
void shard_close(struct shard *);

/* The type of that name, and the bits of an element; NULL: there is none. */
const char *shard_type(const char *name, int *bits);
/* Points to the data of `bytes`, or to a copy where an element would be misaligned. */
int shard_place(struct shard_tensor *, int bits, const char *data);

#endif
