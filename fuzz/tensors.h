/* What must hold of an opened set of safetensors files; the directory is fuzz_dir(). */
#ifndef DUET_FUZZ_TENSORS_H
#define DUET_FUZZ_TENSORS_H

#include "fuzz/fuzz.h"
#include "model/files/safetensors.h"

/* The file that a shard was read from. */
struct shard_bytes {
    const char *name; /* in fuzz_dir() */
    const uint8_t *data;
    size_t n;
};

/* model.safetensors of a header, a NUL byte and the data: most changes of such an input leave the header's length right. */
void tensors_write(struct input *);
/* Opens fuzz_dir(); the result, or NULL after a refusal that names the directory. */
struct safetensors *tensors_open(void);
/* Names ascend and are found; every tensor has the shape, type and bytes that its file says. */
void claim_tensors(const struct safetensors *, const struct shard_bytes *shards, int count);
/* After the last safetensors_close: no file stays mapped. Looked at now and then, because it takes time. */
void claim_tensors_unmapped(void);

#endif
