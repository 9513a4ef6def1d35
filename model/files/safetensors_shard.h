/* One safetensors file: mapped, its header read and checked. Private to model/files/safetensors*.c. */
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
    struct shard_tensor *tensors; /* in the header's order */
    int count;
};

/* `shard` must be zeroed; closed by shard_close also after an error. */
int shard_open(struct shard *shard, const char *path);
void shard_close(struct shard *);

#endif
