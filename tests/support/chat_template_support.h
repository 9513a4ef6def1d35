/* What the chat template's suites share. */
#ifndef DUET_TESTS_CHAT_TEMPLATE_SUPPORT_H
#define DUET_TESTS_CHAT_TEMPLATE_SUPPORT_H

#include "base/json.h"
#include "model/text/chat_template.h"
#include "tests/support/support.h"

/* Parts of ChatML, as templates write it; the text of the question "hi". */
#define CHATML_BODY "'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'"
#define CHATML_TAIL "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define CHATML      "{% for message in messages %}{{" CHATML_BODY "}}" CHATML_TAIL
#define CHATML_HI   "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"

/* tokenizer_config.json of the temporary directory, whole or with a template and two tokens. */
void template_write_config(const char *json);
void template_write(const char *jinja);
struct chat_template *template_open(const char *dir); /* the directory has a template that is recognised */
struct chat_template *template_named(const char *name);
struct chat_template *template_released(const char *dir, const char *name); /* of DIR/NAME.jinja; NULL: there is none */
/* The one of that name is checked. */
void template_check_named(const char *name, int index, void (*check)(const struct chat_template *, int));
/* Those of `count` names that $DUET_TEMPLATES has are recognised, and checked. */
void template_check_released(int count, const char *(*name_of)(int), void (*check)(const struct chat_template *, int));
struct buf template_render(const struct chat_template *, const struct chat_message *, int count, bool think);
struct buf template_next(const struct chat_template *, const struct chat_message *user, bool cut, bool think);
void template_check_text(const struct buf *got, const char *want, size_t n);
/* The question "hi", by the template of the temporary directory. */
void template_check_hi(const char *kind, const char *expected);
void template_check(const struct chat_template *, const struct chat_message *, int count, const char *want);
void template_check_refused(const struct chat_template *, const struct chat_message *, int count, const char *sentence);
/* The last question behind the text of what is before it, whose answer ended or was cut short: want, either way. */
void template_check_pieces(const struct chat_template *, const struct chat_message *, int count, const char *want);

#endif
