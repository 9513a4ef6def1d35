/* What the CUDA files here define, for a build without them: no stream is of such a device. */
#include "base/err.h"
#include "verify/internal.h"

int verify_accept_cuda(struct stream *stream, const struct verify_accept *op) {
    (void)stream, (void)op;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}

int verify_logprobs_cuda(struct stream *stream, const struct verify_accept *op) {
    (void)stream, (void)op;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}
