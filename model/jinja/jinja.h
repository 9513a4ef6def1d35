/* An interpreter of Jinja as chat templates use it: what transformers' renderer gives (trim_blocks, lstrip_blocks, break and
 * continue, tojson that escapes nothing, raise_exception, strftime_now, generation blocks), without what reaches outside of a
 * text: no import, include, extends or call blocks.
 *
 * Texts know where they come from: of each byte that a render gives it is told whether a caller's plain text brought it, through
 * trimming, slicing, joining and whatever else a template does, so that a special token that a user types stays text.
 *
 * A template is read once, and is immutable then: any number of threads may render it. Untrusted: a render that takes more than
 * some millions of steps or 64 MB, and what its messages ask for beyond, is an error. Semantics: jinja.palletsprojects.com/en/stable/templates. */
#ifndef DUET_MODEL_JINJA_JINJA_H
#define DUET_MODEL_JINJA_JINJA_H

#include <stdbool.h>
#include <time.h>

#include "base/buf.h"

struct jinja; /* a template */

/* ERR_FORMAT, with the line and what is wrong there; ERR_UNSUPPORTED for a tag that is not known. Allocates. */
int jinja_read(struct jinja **out, const char *source, size_t n);
void jinja_free(struct jinja *);

/* Does the template speak of a variable or a function of this name? */
bool jinja_names(const struct jinja *, const char *name);
/* Does any of its text or literals hold this? */
bool jinja_says(const struct jinja *, const char *text);

/* What a template is rendered with. */
struct jinja_message {
    const char *role, *content;
    size_t len; /* of the content, which is plain: its bytes may be anything */
};
struct jinja_variable {
    const char *name;
    enum { JINJA_IS_NONE, JINJA_IS_FALSE, JINJA_IS_TRUE, JINJA_IS_TEXT, JINJA_IS_NUMBER } kind;
    const char *text; /* not plain; the digits of a number, an int where it is whole */
};
struct jinja_input {
    const struct jinja_message *messages; /* "messages" */
    int count;
    bool content_in_parts; /* as [{"type": "text", "text": content}] */
    const struct jinja_variable *variables;
    int variable_count;
    bool has_now; /* is there a strftime_now? */
    struct tm now;
};

/* Appends to both, of one length: the text, and 1 for each byte that is plain, 0 for others. ERR_USAGE with the template's own
 * sentence where it raises one; ERR_FORMAT and ERR_UNSUPPORTED, with the line, for what it cannot do; ERR_LIMIT. With an error
 * nothing is appended. */
int jinja_render(const struct jinja *, const struct jinja_input *, struct buf *text, struct buf *plain);

#endif
