/* Shared by the files model/text/chat_template*.c alone. */
#ifndef DUET_MODEL_TEXT_CHAT_TEMPLATE_INTERNAL_H
#define DUET_MODEL_TEXT_CHAT_TEMPLATE_INTERNAL_H

#include "base/err.h"
#include "model/jinja/jinja.h"
#include "model/text/chat_template.h"

#define DATE_FORMAT "%Y-%m-%d"

/* A special token by the name that templates have for it; or a default system prompt, by "default_system". */
struct chat_token {
    const char *name;
    struct buf text;
};

struct chat_template {
    struct jinja *jinja;
    const struct chat_template *told_over; /* another, whose jinja and tokens it has; NULL: they are its own */
    struct jinja_variable *told;           /* [told_count]: with names and texts of its own */
    int told_count;
    const char *name; /* one of the names, or NULL: of a file */
    struct chat_token tokens[8];
    int token_count;
    char date[sizeof "2026-11-30"];
    enum chat_effort effort;
    bool has_date, has_effort, asks_for_thoughts; /* these were set */

    /* Found out by rendering (chat_template_probe.c). */
    bool needs_date, needs_system; /* there is no text without */
    bool wants_parts;              /* content is a list of one text */
    bool has_channels, opens_thoughts[2] /* by `think` */;
    enum chat_thoughts thoughts;
    struct buf end_of_turn;
};

const char *chat_template_token(const struct chat_template *, const char *name); /* "" where there is none */

/* Templates that have names (chat_template_named.c). */
struct named_template {
    const char *name;
    const char *bos, *eos; /* where the files name none */
    const char *jinja;
};
const struct named_template *named_template_find(const char *name); /* NULL: there is none */
const struct named_template *named_template_at(int index);          /* NULL: past the last one */

struct chat_message chat_say_as(const char *role, const char *content);

/* A conversation, with or without the generation prompt; what is in `out` goes. Errors are those of jinja_render. */
int chat_template_run(const struct chat_template *, const struct chat_message *, int count, bool prompts, bool think,
                      struct chat_text *out);
/* A question, an answer and `next` (NULL: none), behind a system prompt where there has to be one. */
int chat_template_run_answered(const struct chat_template *, const struct chat_message *next, bool think,
                               struct chat_text *out);
/* A question alone, likewise. */
int chat_template_run_question(const struct chat_template *, bool think, struct chat_text *out);
bool chat_template_says_question(const struct chat_text *);
const char *chat_template_question(void);
/* Where the text behind the answer begins; false if the template does not say it. */
bool chat_template_find_answered(const struct chat_text *, size_t *at);
size_t chat_template_blanks(const char *text); /* at its beginning */

/* What kind of template it is: all that is found out. */
int chat_template_probe(struct chat_template *);
void chat_template_probe_thoughts(struct chat_template *);

#endif
