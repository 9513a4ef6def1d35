/* What kind of template it is, by what it renders.
 *
 * What stands behind an answer is read off a conversation with an answer that is known: question, answer, question. Behind the answer's
 * text there begins what belongs to its end and to the next turn. What reaches up to eos_token is the end of turn, or else a mark like
 * "<|im_end|>" with which the template also closes a last answer, or behind which others begin the next turn; GLM's answers, which end as the
 * next role begins, have none. */
#include <string.h>

#include "model/text/chat_template_internal.h"

/* --- the end of a turn ------------------------------------------------------------------------------------------- */

/* The length of what a text begins with if that is a mark, "<...>" or "[...]". */
static size_t mark_length(const char *text) {
    const char *ends = text[0] == '<' ? "> \t\r\n<" : text[0] == '[' ? "] \t\r\n[" : NULL;
    if (!ends) return 0;
    const size_t n = 1 + strcspn(text + 1, ends);
    return text[n] == ends[0] ? n + 1 : 0;
}

static bool has_marks(const char *text, const char *end) {
    for (; text < end; text++)
        if (mark_length(text) > 0) return true;
    return false;
}

/* Is this what stands behind the answer of a conversation that ends with it? Not where the template refuses that. */
static bool closes_last(const struct chat_template *t, const char *mark, size_t n) {
    struct chat_text all = {{0}, {0}};
    size_t at;
    bool is_so = false;
    if (chat_template_run_answered(t, NULL, true, &all) == 0 && chat_template_find_answered(&all, &at)) {
        const char *text = buf_text(&all.text) + at;
        is_so = strncmp(text + chat_template_blanks(text), mark, n) == 0;
    }
    chat_text_free(&all);
    return is_so;
}

/* Of what stands between an answer and the next question. */
static void find_end_of_turn(struct chat_template *t, const char *text) {
    text += chat_template_blanks(text);
    const char *token = chat_template_token(t, "eos_token"), *eos = *token ? strstr(text, token) : NULL;
    const char *question = strstr(text, chat_template_question());
    if (eos && eos < question) {
        buf_append(&t->end_of_turn, text, (size_t)(eos - text) + strlen(token));
        return;
    }
    const size_t n = mark_length(text);
    if (n > 0 && (closes_last(t, text, n) || has_marks(text + n, question))) buf_append(&t->end_of_turn, text, n);
}

/* --- thoughts ---------------------------------------------------------------------------------------------------- */

/* Behind what a question's rendering ends with the model thinks already. */
static bool opens_thought(const struct chat_text *t, const char *mark) {
    size_t n = t->text.len, length = mark ? strlen(mark) : 0;
    while (n > 0 && strchr(" \t\r\n", t->text.data[n - 1])) n--;
    return length > 0 && n >= length && memcmp(t->text.data + n - length, mark, length) == 0;
}

/* Does it make a difference whether a thought is asked for or unwanted? */
static bool minds_thoughts(const struct chat_template *t) {
    struct chat_template asks = *t;
    struct chat_text with = {{0}, {0}}, without = {{0}, {0}};
    asks.asks_for_thoughts = true;
    const bool is_so =
        chat_template_run_question(&asks, true, &with) == 0 &&
        chat_template_run_question(&asks, false, &without) == 0 &&
        (with.text.len != without.text.len || memcmp(with.text.data, without.text.data, with.text.len) != 0);
    chat_text_free(&with);
    chat_text_free(&without);
    return is_so;
}

void chat_template_probe_thoughts(struct chat_template *t) {
    struct chat_text text = {{0}, {0}};
    t->thoughts = minds_thoughts(t) ? THOUGHTS_ASKED : THOUGHTS_NONE;
    const char *mark = t->has_channels ? NULL : chat_template_marks(t)[0];
    for (int think = 0; think < 2; think++)
        t->opens_thoughts[think] = chat_template_run_question(t, think, &text) == 0 && opens_thought(&text, mark);
    chat_text_free(&text);
    if (t->thoughts == THOUGHTS_NONE && (t->has_channels || t->opens_thoughts[1])) t->thoughts = THOUGHTS_ALWAYS;
}

/* --- all --------------------------------------------------------------------------------------------------------- */

/* The first way in which it renders a question: as it stands, with the day's date, behind a system prompt, with both. The error is
 * that of the first. */
static int find_way(struct chat_template *t, struct chat_text *out) {
    for (int way = 0; way < 4; way++) {
        t->needs_date = way & 1;
        t->needs_system = way & 2;
        if (chat_template_run_question(t, true, out) == 0) return 0;
    }
    t->needs_date = t->needs_system = false;
    return chat_template_run_question(t, true, out);
}

/* Content is a text, or a list of one, as models that see have it. */
static int find_content(struct chat_template *t, struct chat_text *out) {
    const int rc = find_way(t, out);
    if (rc == 0 && chat_template_says_question(out)) return 0;
    t->wants_parts = true;
    if (find_way(t, out) == 0 && chat_template_says_question(out)) return 0;
    t->wants_parts = false;
    if (rc != 0) return find_way(t, out);
    return err_set(ERR_UNSUPPORTED, "it does not say what users say");
}

int chat_template_probe(struct chat_template *t) {
    struct chat_text text = {{0}, {0}};
    const struct chat_message next = chat_say_as("user", chat_template_question());
    size_t at = 0;
    int rc = find_content(t, &text);
    if (rc == 0) rc = chat_template_run_answered(t, &next, true, &text);
    if (rc == 0 &&
        !(chat_template_find_answered(&text, &at) && strstr(buf_text(&text.text) + at, chat_template_question())))
        rc = err_set(ERR_UNSUPPORTED, "it does not say what was answered, or asked then");
    if (rc == 0) {
        find_end_of_turn(t, buf_text(&text.text) + at);
        t->has_channels = jinja_says(t->jinja, "<|channel|>") && jinja_says(t->jinja, "<|message|>") &&
                          jinja_says(t->jinja, "<|start|>");
        chat_template_probe_thoughts(t);
    }
    chat_text_free(&text);
    return rc;
}
