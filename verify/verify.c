#include "verify/verify.h"

int verify_score(struct target *t, struct stream *stream, int batch, int k) {
    return graph_set_launch(t->graphs, (struct graph_key){TARGET_VERIFY, batch, k + 1}, stream);
}

int verify_accept(struct target *t, struct stream *stream, int batch, int k) {
    return t->sampler->accept(stream, &(struct sampler_accept){*t->buffers, batch, k});
}
