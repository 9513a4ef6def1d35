/* Token ids to shown text, as they come: streaming detokenisation, stop strings, hold-back, thoughts.
 *
 * Text is held back while it may begin a stop string or is half a UTF-8 character. When a stop string is found the text
 * ends before it, and `text_stream_push` says how many ids of the block belong to the answer (up to and with the one that
 * completed the stop string). Not thread-safe. */
#ifndef DUET_ENGINE_TEXT_H
#define DUET_ENGINE_TEXT_H

#include "base/buf.h"
#include "model/text/answer_parts.h"

struct text_stream;

/* `stops` [count] are copied; empty strings are ignored. skip_special as in tokenizer_decode. Allocates. */
int text_stream_create(const struct tokenizer *, const char *const *stops, const size_t *stop_lens, int count,
                       struct text_stream **out);
void text_stream_free(struct text_stream *);

/* Before the first push: the text goes on behind that of ids [n] (detokenizer_follow), as in raw continuation. */
int text_stream_follow(struct text_stream *, const int32_t *ids, size_t n);
/* Before the first push: the ids are an answer to a chat by the template (NULL: they are not). Thoughts in a channel of their own are no
 * part of the text then, so no stop string ends them. Allocates. */
int text_stream_answers(struct text_stream *, const struct chat_template *, bool think);
/* Feeds one id; appends what may be shown to `out`; *stopped = a stop string is complete, if the text ends here (no more pushes
 * then). */
int text_stream_push(struct text_stream *, int32_t id, struct buf *out, bool *stopped);
/* End of the answer: appends what was held back. *stopped as before, or by what is known in the end alone, such as half a character
 * (U+FFFD): the answer ended with a stop string all the same. */
int text_stream_finish(struct text_stream *, struct buf *out, bool *stopped);

/* What the id that was pushed last is, and what a thought in a channel has gained by it, until the next push. */
enum answer_part text_stream_part(const struct text_stream *);
const struct buf *text_stream_thought(const struct text_stream *);

#endif
