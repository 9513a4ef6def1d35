/* Which of the named templates is a file's like? The one that says the same of conversations that begin with a system prompt; of those that
 * allow none, the same of others. So a default system prompt may be another one, or bos_token not stand in front. */
#include <string.h>

#include "model/text/chat_template_internal.h"

#define SAY(role, content) \
    { role, content, sizeof content - 1 }
#define SYSTEM   SAY("system", " Be brief. ")
#define QUESTION SAY("user", " Hi <there>\n")
#define ANSWER   SAY("assistant", " <think>\nHm.\n</think>\n\nYes.\n ")
#define NEXT     SAY("user", "And?")
static const struct {
    struct chat_message messages[4];
    int count;
    bool think;
} with_system[] = {{{SYSTEM, QUESTION}, 2, true},
                   {{SYSTEM, QUESTION}, 2, false},
                   {{SYSTEM, QUESTION, ANSWER, NEXT}, 4, true},
                   {{SAY("system", ""), QUESTION}, 2, true},
                   {{SYSTEM}, 1, true},
                   {{SYSTEM, SYSTEM, QUESTION}, 3, true}},
  without[] = {{{QUESTION}, 1, true}, {{QUESTION, ANSWER, NEXT}, 3, true}, {{QUESTION, NEXT}, 2, true}};
enum { WITH_SYSTEM = sizeof with_system / sizeof *with_system, WITHOUT = sizeof without / sizeof *without };

/* A text without bos_token in front. */
static void skip_bos(const struct chat_template *t, const struct chat_text *text, size_t *at) {
    const char *bos = chat_template_token(t, "bos_token");
    const size_t n = strlen(bos);
    *at = n > 0 && text->text.len >= n && memcmp(text->text.data, bos, n) == 0 ? n : 0;
}

/* *says: at least one of them says something. */
static bool is_same(const struct chat_template *a, const struct chat_template *b, const struct chat_message *m,
                    int count, bool think, bool *says) {
    struct chat_text of_a = {{0}, {0}}, of_b = {{0}, {0}};
    size_t at_a, at_b;
    const int rc_a = chat_template_run(a, m, count, true, think, &of_a),
              rc_b = chat_template_run(b, m, count, true, think, &of_b);
    skip_bos(a, &of_a, &at_a);
    skip_bos(b, &of_b, &at_b);
    const bool is_so = (rc_a == 0) == (rc_b == 0) && of_a.text.len - at_a == of_b.text.len - at_b &&
                       memcmp(buf_text(&of_a.text) + at_a, buf_text(&of_b.text) + at_b, of_a.text.len - at_a) == 0;
    *says |= rc_a == 0 || rc_b == 0;
    chat_text_free(&of_a);
    chat_text_free(&of_b);
    return is_so;
}

static bool is_like(const struct chat_template *a, const struct chat_template *b) {
    bool says = false;
    for (int i = 0; i < WITH_SYSTEM; i++)
        if (!is_same(a, b, with_system[i].messages, with_system[i].count, with_system[i].think, &says)) return false;
    for (int i = 0; i < WITHOUT && !says; i++) {
        bool ignored = false;
        if (!is_same(a, b, without[i].messages, without[i].count, without[i].think, &ignored)) return false;
    }
    return true;
}

/* What templates that say the same of all these speak of besides. */
static bool speaks_alike(const struct chat_template *t, const char *name) {
    if (strcmp(name, "chatml") == 0 || strcmp(name, "qwen2.5") == 0)
        return jinja_names(t->jinja, "tools") == (name[0] == 'q');
    if (strcmp(name, "llama3.1") == 0 || strcmp(name, "llama3.2") == 0)
        return jinja_names(t->jinja, "strftime_now") == text_ends_with(name, "2");
    if (strncmp(name, "mistral-small", 13) == 0) return t->needs_date == (name[13] != '\0');
    return true;
}

const char *chat_template_name(const struct chat_template *t) {
    static const char own[] = "own";
    const char *name = t->name;
    for (int i = 0; !name && named_template_at(i); i++) {
        struct chat_template other = *t;
        const struct named_template *named = named_template_at(i);
        if (!speaks_alike(t, named->name) || jinja_read(&other.jinja, named->jinja, strlen(named->jinja)) != 0)
            continue;
        other.wants_parts = false;
        other.needs_date = t->needs_date;
        if (is_like(t, &other)) name = named->name;
        jinja_free(other.jinja);
    }
    return name ? name : own;
}
