/* From messages to ids: rendered and encoded in one step, so that what users and models wrote gives no special tokens and what
 * the template says does. The one way to encode a chat. */
#ifndef DUET_MODEL_TEXT_CHAT_ENCODE_H
#define DUET_MODEL_TEXT_CHAT_ENCODE_H

#include "model/text/chat_template.h"

struct chat_encoding {
    const struct tokenizer *tokenizer;
    const struct chat_template *chat_template; /* NULL: completion mode, a text is continued as it stands */
    bool think;                                /* where the template can say so */
    bool parse_special; /* special tokens in messages are control tokens all the same, as templates of others have it */
    const struct interrupt *interrupt; /* encode_options */
};

/* These append to `out`. Errors, with nothing appended, are those of chat_template_render and tokenizer_encode. */

/* A conversation with the generation prompt. In completion mode: the last message, behind what the post_processor adds. */
int chat_encode(const struct chat_encoding *, const struct chat_message *messages, int count, struct ids *out);
/* What follows an answer (chat_template_next): the ids that the whole conversation has there, up to how an answer was tokenised. In
 * completion mode: the message. */
int chat_encode_next(const struct chat_encoding *, const struct chat_message *user, bool answer_was_cut,
                     struct ids *out);
/* An answer that was not generated here, without its end of turn. In completion mode: so that it decodes, behind other text, to
 * the same, if that can be had. */
int chat_encode_answer(const struct chat_encoding *, const struct chat_message *answer, struct ids *out);
/* The template's end of turn; nothing in completion mode. */
int chat_encode_end_of_turn(const struct chat_encoding *, struct ids *out);

#endif
