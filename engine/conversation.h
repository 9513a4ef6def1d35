/* A conversation over one sequence: history as ids, turns that can be undone, and a context that never overflows.
 *
 * Chat history is never retokenised: generated ids stay; a cut answer gets the template's end of turn; then come the ids of
 * the new turn. With a template turns are messages; without one (completion mode) each turn's text is appended as it is. */
#ifndef DUET_ENGINE_CONVERSATION_H
#define DUET_ENGINE_CONVERSATION_H

#include "engine/engine.h"
#include "model/text/chat_encode.h"

struct conversation;

struct conversation_options {
    struct engine *engine;
    const struct chat_template *chat_template; /* NULL: completion mode */
    bool think;                                /* where the template can say so */
    bool parse_special;                        /* special tokens in questions are control tokens (chat_encoding) */
    const struct interrupt *interrupt;         /* of encoding questions; outlives the conversation; NULL: never */
    int reserve_tok;                           /* engine_open; 0: the whole context */
};

/* Opens a sequence. Allocates. */
int conversation_create(struct conversation **out, const struct conversation_options *);
void conversation_free(struct conversation *);
struct sequence *conversation_sequence(struct conversation *);

/* The system prompt of the next first turn; NULL: the template's default. Starts over if there are turns: the caller
 * resets first. */
int conversation_set_system(struct conversation *, const char *text, size_t n);
void conversation_reset(struct conversation *); /* drops all turns, keeps the system prompt */

/* Starts the answer to a user turn; the caller steps the engine. `g->on_tokens` sees the blocks. *dropped = oldest
 * question-and-answer pairs that had to go so that the turn and at least min(max_tokens, an eighth of the context) fit
 * (0 mostly; pass NULL to refuse instead of dropping). ERR_LIMIT, with nothing changed, if the message cannot fit at all, and
 * ERR_INTERRUPTED likewise (conversation_options.interrupt). */
int conversation_ask(struct conversation *, const char *user, size_t n, const struct generation *g, int *dropped);
/* After the answer ended: stores its text (for save and re-dropping) and whether it was cut. ERR_USAGE if it was stopped before it
 * began: then conversation_undo takes the question back. */
int conversation_answered(struct conversation *, const char *text, size_t n, bool cut);

int conversation_turns(const struct conversation *);
/* Turns before these, which were dropped: their texts are kept. */
int conversation_dropped(const struct conversation *);
/* The i-th question and answer; i below 0, down to -conversation_dropped: of a dropped turn. */
void conversation_turn(const struct conversation *, int i, const struct buf **question, const struct buf **answer);
const char *conversation_system(const struct conversation *, size_t *n); /* NULL: default */

/* Drops the last question and answer (a length rollback). ERR_USAGE if there is none. */
int conversation_undo(struct conversation *);
/* Puts back the answered turn that was dropped last; the next ask ingests it. ERR_USAGE if there is none, or another was
 * answered or all were replaced since, or a question is open. */
int conversation_redo(struct conversation *);

/* Replaces the turns by given messages (load): [system,] then user/assistant alternating, ending with assistant. The next ask
 * ingests them. */
int conversation_load(struct conversation *, const struct chat_message *messages, int count);

#endif
