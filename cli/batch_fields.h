/* The members of a line of batch input, by name. */
#ifndef DUET_CLI_BATCH_FIELDS_H
#define DUET_CLI_BATCH_FIELDS_H

#include <cjson/cJSON.h>

#include "base/buf.h"

/* Names that meant nothing, each once, in the order in which they came. */
enum { IGNORED_MAX = 64 };
struct ignored_fields {
    char *names[IGNORED_MAX];
    int count;
    bool more; /* than there is room for */
};
void ignored_fields_free(struct ignored_fields *);
void ignored_fields_list(const struct ignored_fields *, struct buf *out); /* "'category', 'source'" */

/* Whose members: a line; a line for --format spec-bench; the outside of a line in OpenAI's form, and its body. */
enum fields_of { FIELDS_OF_LINE, FIELDS_OF_QUESTION, FIELDS_OF_ENVELOPE, FIELDS_OF_BODY };

/* Checks the names of the members of an object, whatever their order; members that are null are absent. ERR_FORMAT for one that
 * is nearly a known one, ERR_UNSUPPORTED for an option that other engines have and duet lacks, since the text would not be what
 * was asked for, unless its value asks for nothing ("n": 1). Other names are what data sets carry: added to `ignored` (NULL: not
 * wanted), or with `strict` refused. */
int fields_check(const cJSON *object, enum fields_of, bool strict, struct ignored_fields *ignored);

#endif
