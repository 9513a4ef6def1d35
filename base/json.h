/* JSON in cJSON's tree, with a strict parser of its own: exact integers, case-sensitive look-ups, a depth limit,
 * and strings that hold U+0000.
 *
 * U+0000 stands in the tree's strings as the two bytes C0 80, which valid UTF-8 never contains; json_string turns
 * them back, and json_print writes them as \u0000. So use these functions for every string. An integer above 2^53
 * and a number past a double's range keep their digits in `valuestring`, so that json_print repeats them exactly. Fractions
 * have a point, whatever the locale. */
#ifndef DUET_BASE_JSON_H
#define DUET_BASE_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { JSON_DEPTH_MAX = 64 };

/* Parses exactly one JSON value from [text, text+n) (white space around it allowed). ERR_FORMAT with
 * "malformed JSON at byte N" style reasons (line and column for multi-line text), "nested too deeply",
 * "not valid UTF-8", "lone surrogate". *out is freed with cJSON_Delete. */
int json_parse(cJSON **out, const char *text, size_t n);

/* Reads and parses a whole file (at most 1 GiB), in which NaN, Infinity and -Infinity may stand where numbers do, as Python writes them:
 * numbers that are not finite, which no typed member takes. Errors begin with the path. */
int json_parse_file(cJSON **out, const char *path);

/* Member of an object by its exact name, the last one where the name is repeated; NULL if `object` is no object or
 * has no such member, or the member is JSON null. Linear: walk child->next for large objects. */
const cJSON *json_get(const cJSON *object, const char *name);

/* The string's bytes appended to `out` (U+0000 restored); false if `item` is no string. */
bool json_string(const cJSON *item, struct buf *out);

/* Exact integers only: no fraction, |value| <= 2^53. false otherwise. */
bool json_int(const cJSON *item, int64_t *out);
bool json_number(const cJSON *item, double *out); /* finite numbers only */
bool json_bool(const cJSON *item, bool *out);

/* Typed members with a default when absent; ERR_FORMAT naming the member if it has another type or lies
 * outside [min, max]. */
int json_get_int(const cJSON *object, const char *name, int64_t def, int64_t min, int64_t max, int64_t *out);
int json_get_number(const cJSON *object, const char *name, double def, double *out);
int json_get_bool(const cJSON *object, const char *name, bool def, bool *out);

/* Prints on one line, without a newline at the end. */
void json_print(const cJSON *item, struct buf *out);

/* Writing without a tree: what has no error has none to lose. Braces and brackets are the caller's (buf_putc);
 * json_put_name and json_put_element put the comma that is due before the next member or element. */
void json_put_name(struct buf *, const char *name); /* "name": */
void json_put_element(struct buf *);
void json_put_string(struct buf *, const char *bytes, size_t n); /* may hold NUL; invalid UTF-8 becomes U+FFFD */
void json_put_number(struct buf *, double);                      /* the shortest that reads back; null if not finite */

#endif
