/* What the CUDA files here define, for a build without them: no stream is of such a device. */
#include "base/err.h"
#include "sampler/internal.h"

int sampler_draw_cuda(struct stream *stream, const struct sampler_draw *op) {
    (void)stream, (void)op;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}

int sampler_penalise_cuda(struct stream *stream, const struct penalise *op, int rows) {
    (void)stream, (void)op, (void)rows;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}

int sampler_mark_seen_cuda(struct stream *stream, const struct mark_seen *op) {
    (void)stream, (void)op;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}
