/* duet inspect: what its files share, and duet models takes from it. */
#ifndef DUET_CLI_INSPECT_H
#define DUET_CLI_INSPECT_H

#include "cli/cli.h"

/* All that is known of one model, as lines and a table, or as a JSON object. `out` NULL: prints. */
int inspect_model(struct checkpoint *, const struct options *, struct buf *out);

/* The memory plan of a pair, likewise. ERR_MEMORY, after it was shown, where it does not fit. */
int inspect_memory(const struct models *, const struct options *, struct buf *out);
int inspect_plan(struct memory_plan *, const struct models *, const struct options *);

/* Of the head in its files that proposes tokens (--draft mtp): 0 where there is none. */
int inspect_find_head(const struct checkpoint *, int64_t *parameters);
/* Numbers and bytes of all tensors. */
uint64_t inspect_count(const struct safetensors *, uint64_t *bytes);

/* "1.50 GiB", "12.25 MiB", "640 bytes"; a static buffer, four in turn. */
const char *inspect_size(uint64_t bytes);
void inspect_put_text(struct buf *out, const char *name, const char *text); /* NULL: null */
void inspect_put_number(struct buf *out, const char *name, double value);

#endif
