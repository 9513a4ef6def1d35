/* The launches of either device. */
#ifndef DUET_ROUND_INTERNAL_H
#define DUET_ROUND_INTERNAL_H

#include "round/state.h"

int round_load_pending_host(struct stream *, const struct round_load *);
int round_load_masks_host(struct stream *, const struct round_load *);
int round_load_masks_cuda(struct stream *, const struct round_load *);
int round_load_block_host(struct stream *, const struct round_load *);
int round_load_pending_cuda(struct stream *, const struct round_load *);
int round_load_block_cuda(struct stream *, const struct round_load *);

#endif
