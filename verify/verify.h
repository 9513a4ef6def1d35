/* Verification: the target scores all K+1 positions of a round in one replay, then the rule accepts a prefix.
 *
 * Rollback is the slot's length: rejected positions stay in both caches past it and are overwritten by the next round,
 * which starts at n-1. */
#ifndef DUET_VERIFY_VERIFY_H
#define DUET_VERIFY_VERIFY_H

#include "target/target.h"

/* Enqueues VERIFY [batch, K+1]: rows (t[n-1], d_1..d_K) at n-1..n+K-1 -> target_logits [batch, K+1, V]. */
int verify_score(struct target *t, struct stream *stream, int batch, int k);
/* Enqueues acceptance (k = 0: a plain draw): new slot states and records [batch]. */
int verify_accept(struct target *t, struct stream *stream, int batch, int k);

#endif
