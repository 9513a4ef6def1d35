/* Conversations in tests: an engine with a draft, and beside it one without that gives the reference.
 *
 * Whatever happened before, an answer must be the one that the plain engine gives to the same ids in a fresh sequence:
 * talk_say checks that for every answer. */
#ifndef DUET_TESTS_TALK_H
#define DUET_TESTS_TALK_H

#include "engine/conversation.h"

enum { ANSWER = 20 };

struct talk {
    struct engine *engine, *plain; /* plain: K = 0, the reference */
    struct chat_template *chat_template;
    struct conversation *conversation;
};

struct talk_listener {
    struct ids ids;
    int cut_at; /* keep so many tokens; -1: all */
    bool ended, done;
};

extern const char *const talk_questions[3];

/* Over the embedded pair; over another target with the embedded draft. */
struct talk talk_open(int k, int context, bool with_template);
struct talk talk_open_target(const char *target, int k, int context, bool with_template);
void talk_close(struct talk *);

struct generation talk_greedy(struct talk_listener *, int max_tokens);
/* Steps to the end of the answer. */
void talk_run(struct engine *, struct sequence *);
/* `answer` is what the plain engine answers to `history`. */
void talk_expect_plain(struct engine *plain, const struct ids *history, const struct ids *answer);
/* Hands what the listener kept to conversation_answered. */
void talk_store(struct talk *, const struct talk_listener *);
/* Asks, keeps `cut_at` tokens (-1: all), checks against the plain engine. Returns the number of dropped turns. */
int talk_say_cut(struct talk *, const char *text, int cut_at, int max_tokens);
int talk_say(struct talk *, const char *text); /* up to ANSWER tokens */

struct ids talk_history(const struct talk *);
/* The conversation so far and one more question, through the template as a whole. */
struct ids talk_rendered(const struct talk *, const char *question);
/* The history once `question` is asked; it is taken back before it is answered. */
struct ids talk_asked(struct talk *, const char *question);
void must_equal_ids(const struct ids *got, const struct ids *expected, const char *what);

#endif
