/* Shared by the files model/text/chat_template*.c alone. */
#ifndef DUET_MODEL_TEXT_CHAT_TEMPLATE_INTERNAL_H
#define DUET_MODEL_TEXT_CHAT_TEMPLATE_INTERNAL_H

#include "base/err.h"
#include "model/text/chat_template.h"

#define IM_START   "<|im_start|>"
#define IM_END     "<|im_end|>"
#define ASSISTANT  IM_START "assistant\n"
#define THOUGHT    "<think>\n"
#define NO_THOUGHT THOUGHT "\n</think>\n\n"

#define R1_BOS "<｜begin▁of▁sentence｜>"
#define R1_EOS "<｜end▁of▁sentence｜>"

#define FINAL           "<|channel|>final<|message|>"
#define THOUGHT_CHANNEL "<|channel|>analysis<|message|>"

#define ALTERNATE "Conversation roles must alternate user/assistant/user/assistant/..."
#define ALTERNATE_NEMO \
    "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
#define ONLY_TWO  "Only user and assistant roles are supported!"
#define NO_SYSTEM "System role not supported"
#define ONLY_TWO_NEMO \
    "Only user and assistant roles are supported, with the exception of an initial optional system message!"

enum template_family {
    FAMILY_CHATML,
    FAMILY_QWEN3,
    FAMILY_DEEPSEEK_R1,
    FAMILY_LLAMA2,
    FAMILY_LLAMA3,
    FAMILY_LLAMA31, /* a preamble with dates in the system turn */
    FAMILY_MISTRAL,
    FAMILY_NEMO,
    FAMILY_SMALL,
    FAMILY_TURNS, /* turns of one form in a row */
    FAMILY_OLMO2,
    FAMILY_GPT_OSS, /* answers in channels */
    FAMILY_GEMMA2,
    FAMILY_GEMMA3
};

enum {
    SKIPS_SYSTEM = 1, /* it is not rendered */
    SKIPS_EMPTY_SYSTEM = 2,
    OPENS_ANSWERS = 4, /* a question brings the beginning of the next answer */
    SKIPS_LATER_SYSTEM = 8,
    STATES_DATE = 16,   /* the day's, without a system prompt; turns behind one alone have no generation prompt */
    ALTERNATES = 32,    /* questions and answers do, behind a system prompt */
    THINKS = 64,        /* an answer begins with a thought: the generation prompt says so, or its channel */
    SYSTEM_FIRST = 128, /* the system prompt stands in the first question, not in the last */
    TRIMS_ANSWERS = 256,
    SAYS_CALLS = 512 /* of tools, though there are none; and no blank line stands behind instructions */
};
struct turn_form {
    const char *before, *after; /* a role's name; of Mistral's templates a question */
    const char *separator;      /* behind an end of turn; of Mistral's before an answer */
};

struct template_kind {
    const char *name;
    enum template_family family;
    const char *end_of_turn;       /* NULL: eos_token */
    const char *bos, *eos;         /* where tokenizer_config.json names none */
    const struct turn_form *turns; /* NULL: of none of these forms */
    int options;
};

struct chat_template {
    const struct template_kind *kind;
    struct buf bos, eos;
    struct buf default_system; /* what the template says where the conversation has no system message */
    bool has_default_system;
    bool bos_first; /* ChatML that begins with bos_token */
    char date[sizeof "2026-11-30"];
    enum chat_effort effort;
};

/* --- rendering (chat_template_render.c) --------------------------------------------------------------------- */

struct slice {
    const char *text;
    size_t n;
};
struct slice chat_content(const struct chat_message *);
struct slice chat_trim(struct slice);
bool chat_is_role(const struct chat_message *, const char *role);
int chat_check_turn(const struct chat_message *, int index, const char *sentence); /* roles alternate, a user's first */
void chat_put(struct chat_text *, struct slice);                                   /* what a message brings */
void chat_say(struct chat_text *, const char *text);                               /* what the template says */
void chat_say_buf(struct chat_text *, const struct buf *text);

/* Turns in a row (chat_template_turns.c). */
int turns_render(const struct chat_template *, const struct chat_message *, int count, struct chat_text *);
void turns_next(const struct chat_template *, struct slice question, struct chat_text *);

/* --- recognising -------------------------------------------------------------------------------------------- */

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
