/* Templates that are a row of turns, each a role's name between two marks, the content, an end of turn and a separator. */
#include <string.h>

#include "model/text/chat_template_internal.h"

#define CHANNEL_TAGS                                                                                                 \
    "You have passed a message containing <|channel|> tags in the content field. Instead of doing this, you should " \
    "pass analysis messages (the string between '<|message|>' and '<|end|>') in the 'thinking' field, and final "    \
    "messages (the string between '<|message|>' and '<|end|>') in the 'content' field."

static void say_role(const struct chat_template *t, struct chat_text *out, const char *role) {
    chat_say(out, t->kind->turns->before);
    chat_say(out, role);
    chat_say(out, t->kind->turns->after);
}

static void say_end(const struct chat_template *t, struct chat_text *out) {
    chat_say(out, chat_template_end_of_turn(t));
    chat_say(out, t->kind->turns->separator);
}

static bool is_skipped(int options, const struct chat_message *m, int index) {
    if (!chat_is_role(m, "system")) return false;
    return options & SKIPS_SYSTEM || (options & SKIPS_EMPTY_SYSTEM && m->len == 0) ||
           (options & SKIPS_LATER_SYSTEM && index > 0);
}

static void render_turns(const struct chat_template *t, const struct chat_message *m, int count,
                         struct chat_text *out) {
    const bool opens_answers = t->kind->options & OPENS_ANSWERS;
    const bool is_answered = !(t->kind->options & STATES_DATE) || count > 1;
    for (int i = 0; i < count; i++) {
        if (is_skipped(t->kind->options, &m[i], i)) continue;
        if (!opens_answers || !chat_is_role(&m[i], "assistant")) say_role(t, out, m[i].role);
        chat_put(out, chat_content(&m[i]));
        say_end(t, out);
        if (opens_answers && chat_is_role(&m[i], "user")) say_role(t, out, "assistant");
    }
    if (!opens_answers && is_answered) say_role(t, out, "assistant");
}

/* Questions have no end of turn, and nothing parts a last answer from the generation prompt. */
static void render_olmo2(const struct chat_template *t, const struct chat_message *m, int count,
                         struct chat_text *out) {
    chat_say_buf(out, &t->bos);
    for (int i = 0; i < count; i++) {
        bool is_answer = chat_is_role(&m[i], "assistant");
        say_role(t, out, m[i].role);
        chat_put(out, chat_content(&m[i]));
        if (is_answer) chat_say_buf(out, &t->eos);
        if (!is_answer || i < count - 1) chat_say(out, t->kind->turns->separator);
    }
    say_role(t, out, "assistant");
}

/* Gemma 3 puts the system prompt in front of the first message. */
static int render_gemma(const struct chat_template *t, const struct chat_message *m, int count, struct chat_text *out) {
    const struct chat_message *system = chat_is_role(&m[0], "system") ? m : NULL;
    if (system && t->kind->family == FAMILY_GEMMA2) return err_set(ERR_USAGE, NO_SYSTEM);
    if (system) m++, count--;
    chat_say_buf(out, &t->bos);
    for (int i = 0; i < count; i++) {
        TRY(chat_check_turn(m, i, ALTERNATE));
        say_role(t, out, chat_is_role(&m[i], "assistant") ? "model" : m[i].role);
        if (system && i == 0) {
            chat_put(out, chat_content(system));
            chat_say(out, "\n\n");
        }
        chat_put(out, chat_trim(chat_content(&m[i])));
        say_end(t, out);
    }
    say_role(t, out, "model");
    return 0;
}

/* --- gpt-oss --------------------------------------------------------------------------------------------------- */

static void say_head(const struct chat_template *t, struct chat_text *out) {
    static const char *const efforts[] = {[EFFORT_LOW] = "low", [EFFORT_MEDIUM] = "medium", [EFFORT_HIGH] = "high"};
    say_role(t, out, "system");
    chat_say(out,
             "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: ");
    chat_say(out, t->date);
    chat_say(out, "\n\nReasoning: ");
    chat_say(out, efforts[t->effort]);
    chat_say(out, "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.");
    if (t->kind->options & SAYS_CALLS)
        chat_say(out, "\nCalls to these tools must go to the commentary channel: 'functions'.");
    say_end(t, out);
}

static void put_instructions(const struct chat_template *t, struct slice text, struct chat_text *out) {
    if (text.n == 0) return;
    say_role(t, out, "developer");
    chat_say(out, "# Instructions\n\n");
    chat_put(out, text);
    if (!(t->kind->options & SAYS_CALLS)) chat_say(out, "\n\n");
    say_end(t, out);
}

static bool has(struct slice content, const char *mark) {
    return memmem(content.text, content.n, mark, strlen(mark)) != NULL;
}

/* The generation prompt is the beginning of an answer, without its channel. */
static void say_gpt_oss_prompt(const struct chat_template *t, struct chat_text *out) {
    chat_say(out, t->kind->turns->before);
    chat_say(out, "assistant");
}

/* A system prompt is the developer's instructions; a later one is not rendered at all. */
static int render_gpt_oss(const struct chat_template *t, const struct chat_message *m, int count,
                          struct chat_text *out) {
    const int first = chat_is_role(&m[0], "system") ? 1 : 0;
    say_head(t, out);
    if (first) put_instructions(t, chat_content(&m[0]), out);
    for (int i = first; i < count; i++) {
        const struct slice content = chat_content(&m[i]);
        if (chat_is_role(&m[i], "user")) {
            say_role(t, out, "user");
            chat_put(out, content);
            say_end(t, out);
        } else if (chat_is_role(&m[i], "assistant")) {
            if (has(content, THOUGHT_CHANNEL) || has(content, FINAL)) return err_set(ERR_USAGE, "%s", CHANNEL_TAGS);
            say_gpt_oss_prompt(t, out);
            chat_say(out, FINAL);
            chat_put(out, content);
            say_end(t, out);
        }
    }
    say_gpt_oss_prompt(t, out);
    return 0;
}

int turns_render(const struct chat_template *t, const struct chat_message *m, int count, struct chat_text *out) {
    if (t->kind->family == FAMILY_GEMMA2 || t->kind->family == FAMILY_GEMMA3) return render_gemma(t, m, count, out);
    if (t->kind->family == FAMILY_GPT_OSS) return render_gpt_oss(t, m, count, out);
    if (t->kind->family == FAMILY_OLMO2)
        render_olmo2(t, m, count, out);
    else
        render_turns(t, m, count, out);
    return 0;
}

void turns_next(const struct chat_template *t, struct slice question, struct chat_text *out) {
    bool is_gemma = t->kind->family == FAMILY_GEMMA2 || t->kind->family == FAMILY_GEMMA3;
    chat_say(out, t->kind->turns->separator);
    say_role(t, out, "user");
    chat_put(out, is_gemma ? chat_trim(question) : question);
    if (t->kind->family == FAMILY_OLMO2)
        chat_say(out, t->kind->turns->separator);
    else
        say_end(t, out);
    if (t->kind->family == FAMILY_GPT_OSS)
        say_gpt_oss_prompt(t, out);
    else
        say_role(t, out, is_gemma ? "model" : "assistant");
}
