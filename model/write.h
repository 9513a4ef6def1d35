/* A shape as a checkpoint on disk: config.json and random weights in safetensors, for measurements that want files. */
#ifndef DUET_MODEL_WRITE_H
#define DUET_MODEL_WRITE_H

#include "base/progress.h"
#include "model/model.h"

enum { WRITE_SHARD_BYTES = 2000000000 }; /* more weights lie in several files, and an index names them */

struct written {
    int files; /* of weights */
    int64_t bytes;
};

/* Makes the directory, or takes an empty one; writes over nothing. The weights are those that the shape has without files, but for
 * experts that lie in one tensor. config.json comes last, so that a part is no checkpoint. ERR_IO where there is something already, no
 * room on the disk, or a write that fails; then nothing is left. ERR_USAGE for a model that has files. Allocates. */
int model_write(const struct model *, const char *dir, int64_t shard_bytes, const struct progress *,
                struct written *out);

#endif
