/* What each template renders, written out; those that are rows of turns: chat_template_turns.c. */
#include <string.h>

#include "model/text/chat_template_internal.h"

struct slice chat_content(const struct chat_message *m) {
    return (struct slice){m->content, m->len};
}

void chat_text_free(struct chat_text *t) {
    buf_free(&t->text);
    buf_free(&t->plain);
}

static void append(struct chat_text *out, const char *text, size_t n, char plain) {
    buf_append(&out->text, text, n);
    buf_reserve(&out->plain, n);
    memset(out->plain.data + out->plain.len, plain, n);
    out->plain.len += n;
}

void chat_text_put(struct chat_text *t, const char *content, size_t n) {
    append(t, content, n, 1);
}

void chat_put(struct chat_text *out, struct slice s) {
    chat_text_put(out, s.text, s.n);
}

void chat_say(struct chat_text *out, const char *text) {
    append(out, text, strlen(text), 0);
}

void chat_say_buf(struct chat_text *out, const struct buf *text) {
    append(out, buf_text(text), text->len, 0);
}

bool chat_is_role(const struct chat_message *m, const char *role) {
    return strcmp(m->role, role) == 0;
}

/* Jinja's trim and strip() are Python's: its white space, which has four separators more than Unicode's. */
static bool is_python_space(uint32_t c) {
    return (c >= 0x9 && c <= 0xd) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static struct slice trim_end(struct slice s) {
    uint32_t c = 0;
    while (s.n > 0) {
        size_t at = s.n - 1;
        while (at > 0 && ((unsigned char)s.text[at] & 0xc0) == 0x80) at--;
        if (utf8_decode(s.text + at, s.n - at, &c) == 0 || !is_python_space(c)) break;
        s.n = at;
    }
    return s;
}

struct slice chat_trim(struct slice s) {
    uint32_t c = 0;
    while (s.n > 0) {
        int length = utf8_decode(s.text, s.n, &c);
        if (length == 0 || !is_python_space(c)) break;
        s.text += length;
        s.n -= (size_t)length;
    }
    return trim_end(s);
}

static struct slice trim_newlines(struct slice s, bool left, bool right) {
    while (left && s.n > 0 && s.text[0] == '\n') s.text++, s.n--;
    while (right && s.n > 0 && s.text[s.n - 1] == '\n') s.n--;
    return s;
}

/* --- ChatML, Qwen 3 --------------------------------------------------------------------------------------- */

static void put_chatml_turn(struct chat_text *out, const char *role, struct slice content) {
    chat_say(out, IM_START);
    chat_say(out, role);
    chat_say(out, "\n");
    chat_put(out, content);
    chat_say(out, IM_END "\n");
}

static void say_chatml_prompt(const struct chat_template *t, bool think, struct chat_text *out) {
    chat_say(out, ASSISTANT);
    if (t->kind->options & THINKS)
        chat_say(out, THOUGHT);
    else if (t->kind->family == FAMILY_QWEN3 && !think)
        chat_say(out, NO_THOUGHT);
}

/* What stands behind the last end of a thought. */
static struct slice behind_thought(struct slice content) {
    static const char close[] = "</think>";
    const size_t n = sizeof close - 1;
    for (const char *at; (at = memmem(content.text, content.n, close, n));)
        content = (struct slice){at + n, content.n - (size_t)(at + n - content.text)};
    return content;
}

/* Where answers begin with a thought, those before the last message are rendered without. */
static int render_chatml(const struct chat_template *t, const struct chat_message *m, int count, bool think,
                         struct chat_text *out) {
    if (t->bos_first) chat_say_buf(out, &t->bos);
    if (t->has_default_system && !chat_is_role(&m[0], "system")) {
        chat_say(out, IM_START "system\n");
        chat_say_buf(out, &t->default_system);
        chat_say(out, IM_END "\n");
    }
    for (int i = 0; i < count; i++) {
        struct slice content = chat_content(&m[i]);
        if (t->kind->options & THINKS && chat_is_role(&m[i], "assistant") && i < count - 1)
            content = trim_newlines(behind_thought(content), true, false);
        put_chatml_turn(out, m[i].role, content);
    }
    say_chatml_prompt(t, think, out);
    return 0;
}

static bool is_tool_response(struct slice s) {
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    size_t a = sizeof open - 1, b = sizeof close - 1;
    return s.n >= b && memcmp(s.text, open, a) == 0 && memcmp(s.text + s.n - b, close, b) == 0;
}

/* Cuts "<think>thought</think>answer" apart; the thought is empty if there is none. */
static void split_thought(struct slice content, struct slice *thought, struct slice *answer) {
    static const char open[] = "<think>", close[] = "</think>";
    size_t a = sizeof open - 1;
    *answer = content;
    *thought = (struct slice){content.text, 0};
    const char *first = memmem(content.text, content.n, close, sizeof close - 1);
    if (!first) return;
    *answer = trim_newlines(behind_thought(content), true, false);
    struct slice before = trim_newlines((struct slice){content.text, (size_t)(first - content.text)}, false, true);
    for (const char *next; (next = memmem(before.text, before.n, open, a));)
        before = (struct slice){next + a, before.n - (size_t)(next + a - before.text)};
    *thought = trim_newlines(before, true, false);
}

/* Thoughts of answers before the last question are left out. */
static void put_qwen3_answer(struct chat_text *out, const struct chat_message *m, bool after_question, bool is_last) {
    struct slice thought, answer;
    split_thought(chat_content(m), &thought, &answer);
    chat_say(out, ASSISTANT);
    if (after_question && (is_last || thought.n > 0)) {
        chat_say(out, THOUGHT);
        chat_put(out, trim_newlines(thought, true, true));
        chat_say(out, "\n</think>\n\n");
        answer = trim_newlines(answer, true, false);
    }
    chat_put(out, answer);
    chat_say(out, IM_END "\n");
}

static int render_qwen3(const struct chat_template *t, const struct chat_message *m, int count, bool think,
                        struct chat_text *out) {
    int question = count - 1;
    for (int i = count - 1; i >= 0; i--)
        if (chat_is_role(&m[i], "user") && !is_tool_response(chat_content(&m[i]))) {
            question = i;
            break;
        }
    for (int i = 0; i < count; i++) {
        if (chat_is_role(&m[i], "assistant"))
            put_qwen3_answer(out, &m[i], i > question, i == count - 1);
        else
            put_chatml_turn(out, m[i].role, chat_content(&m[i]));
    }
    say_chatml_prompt(t, think, out);
    return 0;
}

/* --- DeepSeek R1, as its distilled models have it ----------------------------------------------------------- */

#define R1_ASSISTANT "<｜Assistant｜>"

static void put_r1_question(struct chat_text *out, struct slice content) {
    chat_say(out, "<｜User｜>");
    chat_put(out, content);
}

static void say_r1_prompt(const struct chat_template *t, struct chat_text *out) {
    chat_say(out, R1_ASSISTANT);
    if (t->kind->options & THINKS) chat_say(out, THOUGHT);
}

/* The last system prompt stands in front of everything, and answers without their thoughts. */
static int render_r1(const struct chat_template *t, const struct chat_message *m, int count, struct chat_text *out) {
    struct slice system = {"", 0};
    for (int i = 0; i < count; i++)
        if (chat_is_role(&m[i], "system")) system = chat_content(&m[i]);
    chat_say_buf(out, &t->bos);
    chat_put(out, system);
    for (int i = 0; i < count; i++) {
        if (chat_is_role(&m[i], "user")) {
            put_r1_question(out, chat_content(&m[i]));
        } else if (chat_is_role(&m[i], "assistant")) {
            chat_say(out, R1_ASSISTANT);
            chat_put(out, behind_thought(chat_content(&m[i])));
            chat_say(out, R1_EOS);
        }
    }
    say_r1_prompt(t, out);
    return 0;
}

/* --- Llama 3 ---------------------------------------------------------------------------------------------- */

static void put_llama3_turn(struct chat_text *out, const char *role, const char *preamble, struct slice content) {
    chat_say(out, "<|start_header_id|>");
    chat_say(out, role);
    chat_say(out, "<|end_header_id|>\n\n");
    chat_say(out, preamble);
    chat_put(out, chat_trim(content));
    chat_say(out, "<|eot_id|>");
}

static int render_llama3(const struct chat_template *t, const struct chat_message *m, int count,
                         struct chat_text *out) {
    int first = 0;
    chat_say_buf(out, &t->bos);
    if (t->kind->family == FAMILY_LLAMA31) {
        first = chat_is_role(&m[0], "system") ? 1 : 0;
        put_llama3_turn(out, "system", "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
                        first ? chat_content(&m[0]) : (struct slice){"", 0});
    }
    for (int i = first; i < count; i++) put_llama3_turn(out, m[i].role, "", chat_content(&m[i]));
    chat_say(out, "<|start_header_id|>assistant<|end_header_id|>\n\n");
    return 0;
}

/* --- Llama 2, Mistral ------------------------------------------------------------------------------------- */

int chat_check_turn(const struct chat_message *m, int index, const char *sentence) {
    return chat_is_role(&m[index], "user") == (index % 2 == 0) ? 0 : err_set(ERR_USAGE, "%s", sentence);
}

static void put_llama2_question(const struct chat_template *t, struct chat_text *out, struct slice content) {
    chat_say_buf(out, &t->bos);
    chat_say(out, "[INST] ");
    chat_put(out, chat_trim(content));
    chat_say(out, " [/INST]");
}

/* The template trims the whole of it, so that nothing but white space in the question takes the newlines before it along. */
static void put_llama2_head(const struct chat_template *t, struct chat_text *out, struct slice system,
                            struct slice content) {
    chat_say_buf(out, &t->bos);
    chat_say(out, "[INST] <<SYS>>\n");
    chat_put(out, system);
    content = trim_end(content);
    chat_say(out, content.n > 0 ? "\n<</SYS>>\n\n" : "\n<</SYS>>");
    chat_put(out, content);
    chat_say(out, " [/INST]");
}

/* The system prompt stands in front of the first question; a later system message is not rendered at all. */
static int render_llama2(const struct chat_template *t, const struct chat_message *m, int count,
                         struct chat_text *out) {
    const struct chat_message *system = chat_is_role(&m[0], "system") ? m : NULL;
    if (system) m++, count--;
    for (int i = 0; i < count; i++) {
        TRY(chat_check_turn(m, i, ALTERNATE));
        if (chat_is_role(&m[i], "user") && i == 0 && system) {
            put_llama2_head(t, out, chat_content(system), chat_content(&m[i]));
        } else if (chat_is_role(&m[i], "user")) {
            put_llama2_question(t, out, chat_content(&m[i]));
        } else if (chat_is_role(&m[i], "assistant")) {
            chat_say(out, " ");
            chat_put(out, chat_trim(chat_content(&m[i])));
            chat_say(out, " ");
            chat_say_buf(out, &t->eos);
        }
    }
    return 0;
}

static void put_mistral_question(const struct chat_template *t, struct chat_text *out, struct slice content) {
    chat_say(out, t->kind->turns->before);
    chat_put(out, content);
    chat_say(out, t->kind->turns->after);
}

static void put_mistral_answer(const struct chat_template *t, struct chat_text *out, struct slice content) {
    chat_say(out, t->kind->turns->separator);
    chat_put(out, t->kind->options & TRIMS_ANSWERS ? chat_trim(content) : content);
    chat_say_buf(out, &t->eos);
}

static int render_mistral(const struct chat_template *t, const struct chat_message *m, int count,
                          struct chat_text *out) {
    chat_say_buf(out, &t->bos);
    for (int i = 0; i < count; i++) {
        TRY(chat_check_turn(m, i, ALTERNATE));
        if (chat_is_role(&m[i], "user"))
            put_mistral_question(t, out, chat_content(&m[i]));
        else if (chat_is_role(&m[i], "assistant"))
            put_mistral_answer(t, out, chat_content(&m[i]));
        else
            return err_set(ERR_USAGE, ONLY_TWO);
    }
    return 0;
}

/* The system prompt stands in front of the last message, if that is a question, or of the first. */
static int render_nemo(const struct chat_template *t, const struct chat_message *m, int count, struct chat_text *out) {
    const struct chat_message *system = chat_is_role(&m[0], "system") ? m : NULL;
    if (system) m++, count--;
    for (int i = 0; i < count; i++) TRY(chat_check_turn(m, i, ALTERNATE_NEMO));
    chat_say_buf(out, &t->bos);
    const int with_system = t->kind->options & SYSTEM_FIRST ? 0 : count - 1;
    for (int i = 0; i < count; i++) {
        if (chat_is_role(&m[i], "user") && i == with_system && system) {
            chat_say(out, t->kind->turns->before);
            chat_put(out, chat_content(system));
            chat_say(out, "\n\n");
            chat_put(out, chat_content(&m[i]));
            chat_say(out, t->kind->turns->after);
        } else if (chat_is_role(&m[i], "user")) {
            put_mistral_question(t, out, chat_content(&m[i]));
        } else if (chat_is_role(&m[i], "assistant")) {
            put_mistral_answer(t, out, chat_content(&m[i]));
        } else {
            return err_set(ERR_USAGE, ONLY_TWO_NEMO);
        }
    }
    return 0;
}

/* A system prompt stands in front of what follows it. Where the rest alternates, a later one stands for an answer. */
static int render_small(const struct chat_template *t, const struct chat_message *m, int count, struct chat_text *out) {
    const int first = chat_is_role(&m[0], "system") ? 1 : 0;
    for (int i = 0; i < count - first && t->kind->options & ALTERNATES; i++)
        TRY(chat_check_turn(m + first, i, ALTERNATE_NEMO));
    chat_say_buf(out, &t->bos);
    for (int i = 0; i < count; i++) {
        if (chat_is_role(&m[i], "user")) {
            put_mistral_question(t, out, chat_content(&m[i]));
        } else if (chat_is_role(&m[i], "assistant")) {
            put_mistral_answer(t, out, chat_content(&m[i]));
        } else {
            chat_say(out, "[SYSTEM_PROMPT]");
            chat_put(out, chat_content(&m[i]));
            chat_say(out, "[/SYSTEM_PROMPT]");
        }
    }
    return 0;
}

/* --- all of them ------------------------------------------------------------------------------------------ */

static int render(const struct chat_template *t, const struct chat_message *m, int count, bool think,
                  struct chat_text *out) {
    switch (t->kind->family) {
    case FAMILY_CHATML:
        return render_chatml(t, m, count, think, out);
    case FAMILY_QWEN3:
        return render_qwen3(t, m, count, think, out);
    case FAMILY_DEEPSEEK_R1:
        return render_r1(t, m, count, out);
    case FAMILY_LLAMA2:
        return render_llama2(t, m, count, out);
    case FAMILY_LLAMA3:
    case FAMILY_LLAMA31:
        return render_llama3(t, m, count, out);
    case FAMILY_MISTRAL:
        return render_mistral(t, m, count, out);
    case FAMILY_NEMO:
        return render_nemo(t, m, count, out);
    case FAMILY_SMALL:
        return render_small(t, m, count, out);
    case FAMILY_TURNS:
    case FAMILY_OLMO2:
    case FAMILY_GPT_OSS:
    case FAMILY_GEMMA2:
    case FAMILY_GEMMA3:
        return turns_render(t, m, count, out);
    }
    return err_set(ERR_INTERNAL, "unknown chat template");
}

int chat_template_render(const struct chat_template *t, const struct chat_message *messages, int count, bool think,
                         struct chat_text *out) {
    if (count <= 0) return err_set(ERR_USAGE, "the conversation has no messages");
    for (int i = 0; i < count; i++)
        if (!chat_is_role(&messages[i], "system") && !chat_is_role(&messages[i], "user") &&
            !chat_is_role(&messages[i], "assistant"))
            return err_set(ERR_USAGE, "message %d has the role '%s', expected system, user or assistant", i + 1,
                           messages[i].role);
    if (t->kind->options & STATES_DATE && !chat_is_role(&messages[0], "system"))
        return err_set(ERR_USAGE,
                       "without a system prompt the chat template (%s) states the day's date, which duet does not; "
                       "hint: --system TEXT (/system TEXT in a chat), or a message with the role system",
                       t->kind->name);
    size_t before = out->text.len;
    int rc = render(t, messages, count, think, out);
    if (rc != 0) out->text.len = out->plain.len = before;
    return rc;
}

int chat_template_next(const struct chat_template *t, const struct chat_message *user, bool answer_was_cut, bool think,
                       struct chat_text *out) {
    if (!chat_is_role(user, "user"))
        return err_set(ERR_USAGE, "a later turn has the role '%s', expected user", user->role);
    struct slice content = chat_content(user);
    if (answer_was_cut) chat_say(out, chat_template_end_of_turn(t));
    switch (t->kind->family) {
    case FAMILY_CHATML:
    case FAMILY_QWEN3:
        chat_say(out, "\n");
        put_chatml_turn(out, "user", content);
        say_chatml_prompt(t, think, out);
        break;
    case FAMILY_DEEPSEEK_R1:
        put_r1_question(out, content);
        say_r1_prompt(t, out);
        break;
    case FAMILY_LLAMA2:
        put_llama2_question(t, out, content);
        break;
    case FAMILY_LLAMA3:
    case FAMILY_LLAMA31:
        put_llama3_turn(out, "user", "", content);
        chat_say(out, "<|start_header_id|>assistant<|end_header_id|>\n\n");
        break;
    case FAMILY_MISTRAL:
    case FAMILY_NEMO:
    case FAMILY_SMALL:
        put_mistral_question(t, out, content);
        break;
    case FAMILY_TURNS:
    case FAMILY_OLMO2:
    case FAMILY_GPT_OSS:
    case FAMILY_GEMMA2:
    case FAMILY_GEMMA3:
        turns_next(t, content, out);
        break;
    }
    return 0;
}

void chat_template_answer(const struct chat_template *t, const struct chat_message *answer, struct chat_text *out) {
    if (chat_template_has_channels(t)) chat_say(out, FINAL);
    chat_put(out, chat_content(answer));
}

const char *chat_template_end_of_turn(const struct chat_template *t) {
    return t->kind->end_of_turn ? t->kind->end_of_turn : buf_text(&t->eos);
}
