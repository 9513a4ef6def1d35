/* What the CUDA files here define, for a build without them: no stream is of such a device. */
#include "base/err.h"
#include "round/internal.h"

int round_load_pending_cuda(struct stream *stream, const struct round_load *op) {
    (void)stream, (void)op;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}

int round_load_masks_cuda(struct stream *stream, const struct round_load *op) {
    (void)stream, (void)op;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}

int round_load_block_cuda(struct stream *stream, const struct round_load *op) {
    (void)stream, (void)op;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}
