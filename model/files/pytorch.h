/* Files of torch.save (pytorch_model.bin): a ZIP archive, in which one entry is the pickle that lists the tensors and the others are
 * their storages, uncompressed, so that numbers are read where they lie. */
#ifndef DUET_MODEL_FILES_PYTORCH_H
#define DUET_MODEL_FILES_PYTORCH_H

#include "model/files/safetensors_shard.h"

/* By its first bytes: such a file, or one of an older version of torch.save. */
bool pytorch_is_file(const struct mapping *);

/* Lists the tensors of the shard's mapping. ERR_FORMAT, ERR_UNSUPPORTED, ERR_MEMORY. Allocates. */
int pytorch_read(struct shard *);

#endif
