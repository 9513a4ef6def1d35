/* What a checkpoint's model computes, for tests that compare it with something. */
#ifndef DUET_TESTS_LOGITS_H
#define DUET_TESTS_LOGITS_H

#include "base/buf.h"
#include "model/model.h"

/* Logits [vocab] of the last of `ids`, through one pass of the model over all of them, in a sequence of `length` positions. */
void compute_logits_with(enum kv_numbers kv, const char *dir, const struct ids *ids, int length, float *logits,
                         int vocab);

#endif
