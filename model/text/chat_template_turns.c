/* Templates that are a row of turns, each a role's name between two marks, the content, an end of turn and a separator. */
#include "model/text/chat_template_internal.h"

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

int turns_render(const struct chat_template *t, const struct chat_message *m, int count, struct chat_text *out) {
    if (t->kind->family == FAMILY_GEMMA2 || t->kind->family == FAMILY_GEMMA3) return render_gemma(t, m, count, out);
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
    say_role(t, out, is_gemma ? "model" : "assistant");
}
