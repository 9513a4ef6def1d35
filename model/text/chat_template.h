/* Chat templates: Jinja, which a model's files bring or a name stands for, interpreted (jinja.h) as transformers does it.
 *
 * A template renders whole conversations. duet also needs pieces, because it keeps history as ids and never tokenises an
 * answer again: the first turn, the end of a cut answer, and a later turn.
 *
 *   render(first turn) + answer + next(question)  ==  render(whole conversation)
 *
 * Pieces are cut from renderings of conversations whose answer is known (chat_template_probe.c), with these rules for what stands in the
 * history:
 *  - An answer is what the model generates behind the generation prompt. What a template puts around an answer's text
 *    belongs to the answer: llama2's begin and end with a space (" 4. "), and a cut one gets none; those of mistral-v1 and v3 begin
 *    with one.
 *  - Its end of turn is in the history unless it was cut.
 *  - Whole renders trim (llama2, llama3*, gemma*, mistral-v3) or drop thoughts (qwen3*, qwq, deepseek-r1*) of earlier answers; the history keeps what
 *    was said, behind the generation prompt that it was said behind, which may begin a thought.
 *  - mistral-nemo and mistral-v3 put the system prompt into the last question of a whole render; piecewise it stays in the question
 *    that it was rendered with, the first.
 *  - Templates that can do without the day's date do, unless one is set: llama3.2 then says 26 Jul 2024. Others state the day on which they were loaded
 *    (gpt-oss; granite3.1 and mistral-small3.*, as files have them, where there is no system prompt, with which the names refuse).
 *  - gpt-oss ends answers with <|return|>, which stands in no history: there it is an end id that is not the template's, and
 *    <|end|> follows. */
#ifndef DUET_MODEL_TEXT_CHAT_TEMPLATE_H
#define DUET_MODEL_TEXT_CHAT_TEMPLATE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"
#include "model/text/tokenizer.h"

struct chat_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content; /* bytes, may hold NUL */
    size_t len;
};

/* A rendered conversation. `plain` marks the bytes that messages brought, as encode_options.plain wants them: a special token
 * that a user types is text. Encode it with model/text/chat_encode.h, which does not forget that. */
struct chat_text {
    struct buf text, plain; /* of one length */
};
void chat_text_put(struct chat_text *, const char *content, size_t n); /* appends what a message brings */
void chat_text_free(struct chat_text *);

struct chat_template; /* immutable */

/* Where the files speak of chats. */
struct chat_source {
    const char *config;      /* path of a tokenizer_config.json; NULL: none */
    const char *config_text; /* what it holds, where `config` is another file that says the same; NULL: read it */
    const char *jinja; /* path of a chat_template.jinja, which takes precedence over a template in there; NULL: none */
    const char *json;  /* path of a chat_template.json (older multimodal models'), where there is neither; NULL: none */
    const char *tokens; /* path of a special_tokens_map.json, for tokens that the config does not name; NULL: none */
};
/* The template of the files (of a list of named ones: "default"). *out = NULL without an error when there is none (completion
 * mode); ERR_IO for a file that is there and cannot be read; ERR_UNSUPPORTED for one that cannot be interpreted, or with which no chat can
 * be had, with the line or the reason and a hint (--template NAME and the names). Or, with a name, the template that duet knows by it:
 * "chatml", "llama2"..., see chat_template_names; or, with the name of a file that ends with ".jinja", what that holds. Special tokens come from the files, or are the name's where they name none. "chatml" has no default
 * system prompt; "qwen2.5" has the one that the files' own template has, if any. Allocates. */
int chat_template_load(struct chat_template **out, const char *name, const struct chat_source *);
const char *chat_template_names(void); /* "chatml, llama2, ..." */
void chat_template_free(struct chat_template *);
/* Its name, or that of a named one that tells turns in the same way, whatever its default system prompt; "own" where there is none. Renders
 * some conversations: about a millisecond. */
const char *chat_template_name(const struct chat_template *);
/* Think, in so many words (--think on): for templates by which models do not do so by themselves. */
void chat_template_ask_for_thoughts(struct chat_template *);
/* Does the generation prompt begin a thought? */
bool chat_template_opens_thought(const struct chat_template *, bool think);
/* Does an answer begin with a thought: not that the template says so; if `think`, as of Qwen 3; or always, as the generation prompt says
 * "<think>" itself or the model opens a channel for it? */
enum chat_thoughts { THOUGHTS_NONE, THOUGHTS_ASKED, THOUGHTS_ALWAYS };
enum chat_thoughts chat_template_thoughts(const struct chat_template *);
/* Are answers rows of messages in channels (answer_parts.h)? */
bool chat_template_has_channels(const struct chat_template *);

/* Does what it renders state the day's date? That is the day (local time) on which it was loaded, unless another is set: "2026-11-30";
 * ERR_USAGE for what is no day. */
bool chat_template_states_date(const struct chat_template *);
const char *chat_template_date(const struct chat_template *);
int chat_template_set_date(struct chat_template *, const char *date);

/* Does what it renders say how much the model shall think (gpt-oss)? What the template takes for granted, unless an effort is set. */
enum chat_effort { EFFORT_LOW, EFFORT_MEDIUM, EFFORT_HIGH };
bool chat_template_states_effort(const struct chat_template *);
void chat_template_set_effort(struct chat_template *, enum chat_effort);

/* Makes the same template that is told more, by names of its own: members of a JSON object, each a text, a number, true, false or null (what
 * requests of others call chat_template_kwargs); enable_thinking among them counts before what `think` says below. ERR_FORMAT for other
 * values, and errors of rendering. `base` must outlive it. Allocates; renders some conversations. */
int chat_template_tell(struct chat_template **out, const struct chat_template *base, const cJSON *members);

/* Appends `messages` as rendered, with the generation prompt. The text carries its own special tokens. ERR_USAGE with
 * the template's own sentence where it refuses the conversation (roles must alternate, ...). */
int chat_template_render(const struct chat_template *, const struct chat_message *messages, int count, bool think,
                         struct chat_text *out);

/* What follows an answer in the history before a new user turn: first, if the answer was cut (its last id is not
 * the template's end of turn), the end of turn; then the separator, the user turn and the generation prompt.
 * Behind the text of everything before, this makes that of the rendered conversation (chat_encode_next: the same of ids). */
int chat_template_next(const struct chat_template *, const struct chat_message *user, bool answer_was_cut, bool think,
                       struct chat_text *out);

/* An answer that was not generated, as the history has it, without its end of turn: behind the marks of its channel. */
void chat_template_answer(const struct chat_template *, const struct chat_message *answer, struct chat_text *out);

/* Tokens that part a thought from the rest of an answer: [NULL-terminated] what opens one and what ends it ("<think>", "</think>", or what else
 * the template says), those of channels, or none where it knows of no thoughts. */
const char *const *chat_template_marks(const struct chat_template *);
/* The end-of-turn text of an answer ("<|im_end|>"). */
const char *chat_template_end_of_turn(const struct chat_template *);

#endif
