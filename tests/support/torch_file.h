/* Files as torch.save writes them. */
#ifndef DUET_TESTS_TORCH_FILE_H
#define DUET_TESTS_TORCH_FILE_H

#include "tests/support/tensor_file.h"

/* A pickle of what was added. */
void torch_pickle(const struct tensor_file *, struct buf *out);
/* The archive of a pickle and of what was added as its storages. */
void torch_archive(const struct tensor_file *, const struct buf *pickle, struct buf *out);
/* Both, as a file; what was added is gone. */
void torch_file_write(struct tensor_file *, const char *path);

#endif
