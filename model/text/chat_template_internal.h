/* Shared by the files model/text/chat_template*.c alone. */
#ifndef DUET_MODEL_TEXT_CHAT_TEMPLATE_INTERNAL_H
#define DUET_MODEL_TEXT_CHAT_TEMPLATE_INTERNAL_H

#include "base/err.h"
#include "model/text/chat_template.h"

#define IM_START   "<|im_start|>"
#define IM_END     "<|im_end|>"
#define ASSISTANT  IM_START "assistant\n"
#define NO_THOUGHT "<think>\n\n</think>\n\n"

#define ALTERNATE "Conversation roles must alternate user/assistant/user/assistant/..."
#define ALTERNATE_NEMO \
    "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
#define ONLY_TWO "Only user and assistant roles are supported!"
#define ONLY_TWO_NEMO \
    "Only user and assistant roles are supported, with the exception of an initial optional system message!"

enum template_family {
    FAMILY_CHATML,
    FAMILY_QWEN3,
    FAMILY_LLAMA2,
    FAMILY_LLAMA3,
    FAMILY_LLAMA31, /* a preamble with dates in the system turn */
    FAMILY_MISTRAL,
    FAMILY_NEMO
};

struct template_kind {
    const char *name;
    enum template_family family;
    const char *end_of_turn; /* NULL: eos_token */
    const char *bos, *eos;   /* where tokenizer_config.json names none */
};

struct chat_template {
    const struct template_kind *kind;
    struct buf bos, eos;
    struct buf default_system; /* what the template says where the conversation has no system message */
    bool has_default_system;
    bool bos_first; /* ChatML that begins with bos_token */
};

/* What a Jinja template says (chat_template_scan.c). */
struct template_words {
    struct buf said;  /* text and string literals in order, but for the role words */
    struct buf code;  /* the rest inside the tags, without white space; a role word as 'word', other literals as '' */
    struct buf exact; /* all of it in order: text and literals between the bytes ff and fe, code as above */
};
bool template_scan(const char *source, size_t n, struct template_words *out); /* false: not well formed */
void template_words_free(struct template_words *);

/* Finds the kind of a template and what belongs to it (chat_template_match.c); false if it is none that duet knows. */
bool template_match(const char *source, size_t n, struct chat_template *out);
/* The default system prompt of a ChatML template with tools, if it has one. */
void template_read_default_system(const char *source, size_t n, struct chat_template *out);
const struct template_kind *template_kind_find(const char *name); /* NULL if unknown */
const char *template_kind_names(void);

#endif
