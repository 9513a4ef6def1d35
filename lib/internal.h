/* What an opened pair and its answers share. */
#ifndef DUET_LIB_INTERNAL_H
#define DUET_LIB_INTERNAL_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/text.h"
#include "lib/duet.h"
#include "model/text/chat_encode.h"

struct duet {
    struct checkpoint *target, *draft; /* draft NULL: none */
    struct engine *engine;
    struct chat_template *chat_template; /* NULL: completion mode, or template_error */
    char *template_error;                /* why there is none although the files have one; NULL: they have none */
    struct duet_answer *first;           /* that run, or have ended inside this step */
    bool is_stepping;                    /* callbacks may run */
    struct acceptance stats;             /* of answers that have finished */
    int64_t prompt_tokens, completion_tokens;
};

struct duet_answer {
    struct duet *pair;          /* NULL: it has finished, and is plain memory */
    struct duet_answer *next;   /* of the pair */
    struct sequence *sequence;  /* NULL: finished */
    struct text_stream *stream; /* NULL: no tokenizer, or finished */
    duet_token_fn on_token;
    void *user;
    _Atomic bool is_cancelled;       /* wished for */
    bool is_abandoned;               /* freed by its owner: nobody reads it when it has finished */
    bool is_held;                    /* duet_generate reads it, and destroys it then if it is abandoned */
    enum duet_finish finish, ending; /* ending: what it will be, once the engine has let go of it */
    int rc;                          /* an error inside the engine's callback */
    char *error;
    struct buf text;
    struct ids ids; /* without the end id */
    struct duet_stats stats;
    int64_t start_us;
};

/* Ends a running answer now, as `finish` says: gives its sequence back and takes it out of the pair. */
void answer_settle(struct duet_answer *, enum duet_finish finish);

/* Copies the first min(size, from_size) bytes; what `out` has beyond becomes 0. */
void copy_sized(void *out, size_t size, const void *from, size_t from_size);
/* Fills `out` [full] with the defaults that are in it and the first `size` bytes of `given`. ERR_USAGE for a size that no version
 * up to this one has. */
int take_sized(void *out, size_t full, const void *given, size_t size, const char *what);

void stats_set(struct duet_stats *out, const struct acceptance *from);

#endif
