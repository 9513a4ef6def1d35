/* Conversations as a template renders them, whole and by pieces. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "model/text/chat_template_internal.h"

/* Words that no conversation says by chance, in lower case, as templates may make letters so. */
static const char question_probe[] = "what does duet ask", answer_probe[] = "this is what duet answers",
                  system_probe[] = "be as brief as duet";

/* --- texts ------------------------------------------------------------------------------------------------------- */

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

static void say(struct chat_text *out, const char *text) {
    append(out, text, strlen(text), 0);
}

/* --- whole ------------------------------------------------------------------------------------------------------- */

struct chat_message chat_say_as(const char *role, const char *content) {
    return (struct chat_message){role, content, strlen(content)};
}

const char *chat_template_token(const struct chat_template *t, const char *name) {
    for (int i = 0; i < t->token_count; i++)
        if (strcmp(t->tokens[i].name, name) == 0) return buf_text(&t->tokens[i].text);
    return "";
}

enum { VARIABLES_MAX = 16 };

static bool is_told(const struct chat_template *t, const char *name) {
    for (int i = 0; i < t->told_count; i++)
        if (strcmp(t->told[i].name, name) == 0) return true;
    return false;
}

/* What templates ask for. Of thinking they are told where it is unwanted or was asked for: what it means that nothing is said is theirs. */
static int set_defaults(const struct chat_template *t, bool prompts, bool think, struct jinja_variable *out) {
    static const char *const efforts[] = {[EFFORT_LOW] = "low", [EFFORT_MEDIUM] = "medium", [EFFORT_HIGH] = "high"};
    int n = 0;
    for (int i = 0; i < t->token_count; i++)
        out[n++] = (struct jinja_variable){t->tokens[i].name, JINJA_IS_TEXT, buf_text(&t->tokens[i].text)};
    out[n++] = (struct jinja_variable){.name = "tools", .kind = JINJA_IS_NONE};
    out[n++] = (struct jinja_variable){.name = "documents", .kind = JINJA_IS_NONE};
    out[n++] = (struct jinja_variable){"add_generation_prompt", prompts ? JINJA_IS_TRUE : JINJA_IS_FALSE, NULL};
    if (!think || t->asks_for_thoughts) {
        out[n++] = (struct jinja_variable){"enable_thinking", think ? JINJA_IS_TRUE : JINJA_IS_FALSE, NULL};
        out[n++] = (struct jinja_variable){"thinking", think ? JINJA_IS_TRUE : JINJA_IS_FALSE, NULL};
    }
    if (t->has_effort) out[n++] = (struct jinja_variable){"reasoning_effort", JINJA_IS_TEXT, efforts[t->effort]};
    return n;
}

/* With what it was told in their place. */
static int set_variables(const struct chat_template *t, bool prompts, bool think, struct jinja_variable *out) {
    struct jinja_variable defaults[VARIABLES_MAX];
    const int count = set_defaults(t, prompts, think, defaults);
    int n = 0;
    for (int i = 0; i < count; i++)
        if (!is_told(t, defaults[i].name)) out[n++] = defaults[i];
    for (int i = 0; i < t->told_count; i++) out[n++] = t->told[i];
    return n;
}

int chat_template_run(const struct chat_template *t, const struct chat_message *m, int count, bool prompts, bool think,
                      struct chat_text *out) {
    struct jinja_message *messages = memory_resize(NULL, ((size_t)count + 1) * sizeof *messages);
    struct jinja_variable *variables = memory_resize(NULL, ((size_t)t->told_count + VARIABLES_MAX) * sizeof *variables);
    for (int i = 0; i < count; i++) messages[i] = (struct jinja_message){m[i].role, m[i].content, m[i].len};
    struct jinja_input input = {.messages = messages,
                                .count = count,
                                .content_in_parts = t->wants_parts,
                                .variables = variables,
                                .variable_count = set_variables(t, prompts, think, variables),
                                .has_now = t->needs_date || t->has_date};
    strptime(t->date, DATE_FORMAT, &input.now);
    const time_t day = timegm(&input.now);
    gmtime_r(&day, &input.now);
    out->text.len = out->plain.len = 0;
    const int rc = jinja_render(t->jinja, &input, &out->text, &out->plain);
    free(variables);
    free(messages);
    return rc;
}

static bool is_role(const struct chat_message *m, const char *role) {
    return strcmp(m->role, role) == 0;
}

/* The template's own refusals stand alone. */
static int of_template(int rc) {
    return rc == 0 || rc == ERR_USAGE ? rc : err_prefix(rc, "the chat template");
}

static void put_range(struct chat_text *out, const struct chat_text *from, size_t begin) {
    buf_append(&out->text, buf_text(&from->text) + begin, from->text.len - begin);
    buf_append(&out->plain, buf_text(&from->plain) + begin, from->plain.len - begin);
}

int chat_template_render(const struct chat_template *t, const struct chat_message *messages, int count, bool think,
                         struct chat_text *out) {
    struct chat_text all = {{0}, {0}};
    if (count <= 0) return err_set(ERR_USAGE, "the conversation has no messages");
    for (int i = 0; i < count; i++)
        if (!is_role(&messages[i], "system") && !is_role(&messages[i], "user") && !is_role(&messages[i], "assistant"))
            return err_set(ERR_USAGE, "message %d has the role '%s', expected system, user or assistant", i + 1,
                           messages[i].role);
    const int rc = of_template(chat_template_run(t, messages, count, true, think, &all));
    if (rc == 0) put_range(out, &all, 0);
    chat_text_free(&all);
    return rc;
}

/* --- by pieces --------------------------------------------------------------------------------------------------- */

int chat_template_run_answered(const struct chat_template *t, const struct chat_message *next, bool think,
                               struct chat_text *out) {
    const struct chat_message all[] = {chat_say_as("system", system_probe), chat_say_as("user", question_probe),
                                       chat_say_as("assistant", answer_probe), next ? *next : chat_say_as("user", "")};
    const int first = t->needs_system ? 0 : 1;
    return chat_template_run(t, all + first, (next ? 4 : 3) - first, next != NULL, think, out);
}

int chat_template_run_question(const struct chat_template *t, bool think, struct chat_text *out) {
    const struct chat_message all[] = {chat_say_as("system", system_probe), chat_say_as("user", question_probe)};
    const int first = t->needs_system ? 0 : 1;
    return chat_template_run(t, all + first, 2 - first, true, think, out);
}

const char *chat_template_question(void) {
    return question_probe;
}

bool chat_template_says_question(const struct chat_text *t) {
    return strstr(buf_text(&t->text), question_probe) != NULL;
}

bool chat_template_find_answered(const struct chat_text *t, size_t *at) {
    const char *found = memmem(buf_text(&t->text), t->text.len, answer_probe, strlen(answer_probe));
    if (found) *at = (size_t)(found - buf_text(&t->text)) + strlen(answer_probe);
    return found != NULL;
}

size_t chat_template_blanks(const char *text) {
    return strspn(text, " \t\r\n");
}

int chat_template_next(const struct chat_template *t, const struct chat_message *user, bool answer_was_cut, bool think,
                       struct chat_text *out) {
    struct chat_text all = {{0}, {0}};
    size_t at = 0;
    if (!is_role(user, "user")) return err_set(ERR_USAGE, "a later turn has the role '%s', expected user", user->role);
    int rc = chat_template_run_answered(t, user, think, &all);
    if (rc == 0 && !chat_template_find_answered(&all, &at))
        rc = err_set(ERR_UNSUPPORTED, "it leaves out what was answered before this question");
    if (rc == 0) {
        const size_t end = at + chat_template_blanks(buf_text(&all.text) + at);
        if (t->end_of_turn.len > 0 && strncmp(buf_text(&all.text) + end, t->end_of_turn.data, t->end_of_turn.len) == 0)
            at = end + t->end_of_turn.len;
        if (answer_was_cut) say(out, chat_template_end_of_turn(t));
        put_range(out, &all, at);
    }
    chat_text_free(&all);
    return of_template(rc);
}

void chat_template_answer(const struct chat_template *t, const struct chat_message *answer, struct chat_text *out) {
    if (chat_template_has_channels(t)) say(out, "<|channel|>final<|message|>");
    chat_text_put(out, answer->content, answer->len);
}

const char *chat_template_end_of_turn(const struct chat_template *t) {
    return buf_text(&t->end_of_turn);
}
