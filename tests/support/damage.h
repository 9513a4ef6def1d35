/* Damaged input, the same in every run, for parsers of files. */
#ifndef DUET_TESTS_DAMAGE_H
#define DUET_TESTS_DAMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct damage {
    uint64_t state; /* the seed */
};

uint32_t damage_below(struct damage *, uint32_t limit); /* 0 .. limit - 1, limit >= 1 */

/* Changes `text` in one to four places: bits, bytes, ranges deleted or repeated, numbers replaced, the end cut. Never
 * leaves a NUL byte. */
void damage_text(struct damage *, struct buf *text);

void damage_write_file(const char *path, const void *bytes, size_t n);
void damage_write_text(const char *path, const char *text);

/* err_message is one non-empty line of valid UTF-8 without control characters. */
void check_sentence(void);

#endif
