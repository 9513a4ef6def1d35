/* What the CUDA files here define, for a build without them: no stream is of such a device. */
#include "base/err.h"
#include "draft/ngram_internal.h"

int ngram_search_cuda(struct stream *stream, const struct ngram_search *op) {
    (void)stream, (void)op;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}

int history_append_cuda(struct stream *stream, const struct history_rows *op) {
    (void)stream, (void)op;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}

int history_load_cuda(struct stream *stream, const struct history_rows *op) {
    (void)stream, (void)op;
    return err_set(ERR_INTERNAL, "no CUDA device in this build");
}
