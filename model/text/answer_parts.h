/* What each id of a chat's answer is: text, part of a thought, or a mark between parts that is neither.
 *
 * Two forms. A thought stands between <think> and </think>, both of which are text of it. Or an answer is a row of messages, each in a channel
 * (gpt-oss), all of it behind the generation prompt "<|start|>assistant":
 *
 *   <|channel|>analysis<|message|>a thought<|end|><|start|>assistant<|channel|>final<|message|>the text
 *
 * where what stands between an end and the next "<|message|>" are marks. */
#ifndef DUET_MODEL_TEXT_ANSWER_PARTS_H
#define DUET_MODEL_TEXT_ANSWER_PARTS_H

#include "model/text/chat_template.h"

enum answer_part { ANSWER_TEXT, ANSWER_THOUGHT, ANSWER_MARK };

enum { CHANNEL_NAME_MAX = 16 };
struct answer_parts {
    const struct tokenizer *tokenizer;
    int32_t think, end_think;             /* -1: none */
    int32_t channel, message, start, end; /* -1: no channels */
    enum answer_part part;                /* of the next id, unless it is one of these */
    bool names;                           /* the channel is being named: by what is in `name` so far */
    char name[CHANNEL_NAME_MAX];
    size_t name_length;
};

/* At the beginning of an answer. NULL: no template, and all is text. The tokenizer is borrowed. */
void answer_parts_begin(struct answer_parts *, const struct tokenizer *, const struct chat_template *, bool think);
enum answer_part answer_parts_take(struct answer_parts *, int32_t id);
/* Are thoughts messages of their own, which the text does not have? */
bool answer_parts_in_channels(const struct answer_parts *);

#endif
