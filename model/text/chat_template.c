/* Reading tokenizer_config.json, chat_template.jinja and chat_template.json; what is set of a template. Templates are interpreted by jinja.h:
 * those of the files, and those that have names (chat_template_named.c). */
#include "model/text/chat_template.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/text/chat_template_internal.h"

enum { TEMPLATE_BYTES_MAX = 1 << 20 };

/* What the files say about chats. */
struct source {
    const struct chat_source *files;
    cJSON *config;    /* NULL: no tokenizer_config.json */
    cJSON *tokens;    /* NULL: no special_tokens_map.json */
    const char *path; /* of the file that holds the template */
    struct buf jinja; /* the template */
    bool has_template;
};

static void source_free(struct source *s) {
    buf_free(&s->jinja);
    cJSON_Delete(s->config);
    cJSON_Delete(s->tokens);
}

/* chat_template: a string, or a list of {name, template} of which "default" counts. */
static int read_member(struct source *s, const cJSON *root, const char *path) {
    const cJSON *item = json_get(root, "chat_template");
    if (!item) return 0;
    if (cJSON_IsArray(item)) {
        const cJSON *found = NULL;
        for (const cJSON *m = item->child; m; m = m->next) {
            const cJSON *name = json_get(m, "name");
            if (cJSON_IsString(name) && strcmp(name->valuestring, "default") == 0) found = json_get(m, "template");
        }
        if (!found) return err_set(ERR_FORMAT, "%s: 'chat_template' lists no template named 'default'", path);
        item = found;
    }
    s->has_template = true;
    s->path = path;
    if (json_string(item, &s->jinja)) return 0;
    return err_set(ERR_FORMAT, "%s: 'chat_template' is neither a string nor a list of templates", s->path);
}

static int read_json(struct source *s, const char *path) {
    cJSON *root;
    TRY(json_parse_file(&root, path));
    int rc = cJSON_IsObject(root) ? read_member(s, root, path) : err_set(ERR_FORMAT, "%s: expected an object", path);
    cJSON_Delete(root);
    return rc;
}

static int read_template(struct source *s) {
    s->has_template = s->files->jinja != NULL;
    s->path = s->files->jinja;
    if (s->has_template) return file_read(s->path, TEMPLATE_BYTES_MAX, &s->jinja);
    TRY(read_member(s, s->config, s->files->config));
    return s->has_template || !s->files->json ? 0 : read_json(s, s->files->json);
}

static int source_read(struct source *s, bool wants_template) {
    if (s->files->config) {
        const char *text = s->files->config_text;
        int rc = text ? json_parse(&s->config, text, strlen(text)) : json_parse_file(&s->config, s->files->config);
        if (rc != 0) return text ? err_prefix(rc, "%s", s->files->config) : rc;
        if (!cJSON_IsObject(s->config)) return err_set(ERR_FORMAT, "%s: expected an object", s->files->config);
    }
    if (s->files->tokens) TRY(json_parse_file(&s->tokens, s->files->tokens));
    return wants_template ? read_template(s) : 0;
}

/* bos_token and the like: a string, an object with "content", or null. */
static int read_token(const struct source *s, const char *name, const char *otherwise, struct buf *out) {
    const cJSON *item = json_get(s->config, name);
    const char *path = item ? s->files->config : s->files->tokens;
    if (!item) item = json_get(s->tokens, name);
    if (cJSON_IsObject(item)) item = json_get(item, "content");
    if (!item) {
        buf_puts(out, otherwise);
        return 0;
    }
    if (json_string(item, out)) return 0;
    return err_set(ERR_FORMAT, "%s: '%s' is neither a string nor an object with 'content'", path, name);
}

/* --- what a template states ---------------------------------------------------------------------------------- */

static void take_today(struct chat_template *t) {
    const time_t now = time(NULL);
    struct tm day;
    if (!localtime_r(&now, &day) || strftime(t->date, sizeof t->date, DATE_FORMAT, &day) == 0)
        memcpy(t->date, "1970-01-01", sizeof t->date);
}

/* A day of the calendar is written as it was read: timegm makes one of March of a 30th of February. */
int chat_template_set_date(struct chat_template *t, const char *date) {
    struct tm day = {0};
    char again[sizeof t->date];
    if (strlen(date) != sizeof again - 1 || !strptime(date, DATE_FORMAT, &day) || timegm(&day) == (time_t)-1 ||
        strftime(again, sizeof again, DATE_FORMAT, &day) == 0 || strcmp(again, date) != 0)
        return err_set(ERR_USAGE, "'%s' is no date, expected one like 2026-11-30", date);
    memcpy(t->date, again, sizeof t->date);
    t->has_date = true;
    return 0;
}

bool chat_template_states_date(const struct chat_template *t) {
    return (t->needs_date || t->has_date) && jinja_names(t->jinja, "strftime_now");
}

const char *chat_template_date(const struct chat_template *t) {
    return t->date;
}

bool chat_template_states_effort(const struct chat_template *t) {
    return jinja_names(t->jinja, "reasoning_effort");
}

void chat_template_set_effort(struct chat_template *t, enum chat_effort effort) {
    t->effort = effort;
    t->has_effort = true;
}

void chat_template_ask_for_thoughts(struct chat_template *t) {
    t->asks_for_thoughts = true;
    chat_template_probe_thoughts(t);
}

enum chat_thoughts chat_template_thoughts(const struct chat_template *t) {
    return t->thoughts;
}

bool chat_template_opens_thought(const struct chat_template *t, bool think) {
    return t->opens_thoughts[think];
}

bool chat_template_has_channels(const struct chat_template *t) {
    return t->has_channels;
}

const char *const *chat_template_marks(const struct chat_template *t) {
    static const char *const none[] = {NULL}, *const of_channels[] = {"<|start|>", "<|channel|>", "<|message|>", NULL};
    static const char *const of_thoughts[][3] = {{"<think>", "</think>", NULL},
                                                 {"[THINK]", "[/THINK]", NULL},
                                                 {"<|channel>", "<channel|>", NULL},
                                                 {"<|START_THINKING|>", "<|END_THINKING|>", NULL},
                                                 {"<seed:think>", "</seed:think>", NULL}};
    if (t->has_channels) return of_channels;
    for (size_t i = 0; i < sizeof of_thoughts / sizeof *of_thoughts; i++)
        if (jinja_says(t->jinja, of_thoughts[i][0]) || jinja_says(t->jinja, of_thoughts[i][1])) return of_thoughts[i];
    return t->thoughts != THOUGHTS_NONE ? of_thoughts[0] : none;
}

/* --- loading ----------------------------------------------------------------------------------------------- */

/* Templates may ask for any of these; one that neither the files nor the name gives is undefined there. */
static int read_tokens(struct chat_template *t, const struct source *s, const struct named_template *named) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat_token *token = &t->tokens[t->token_count];
        token->name = names[i];
        const int rc = read_token(s, names[i], !named || i > 1 ? "" : i == 0 ? named->bos : named->eos, &token->text);
        if (rc != 0 && i < 2) return rc; /* others, which hardly any template asks for, are left out */
        if (token->text.len > 0) t->token_count++;
    }
    return 0;
}

static int interpret(struct chat_template *t, const char *source, size_t n) {
    TRY(jinja_read(&t->jinja, source, n));
    return chat_template_probe(t);
}

/* The system prompt that the files' own template has for conversations without one: "qwen2.5" takes it. */
static void take_default_system(struct chat_template *t, const struct source *s) {
    static const char open[] = "<|im_start|>system\n", close[] = "<|im_end|>\n";
    struct chat_template file = *t;
    struct chat_text text = {{0}, {0}};
    file.jinja = NULL;
    file.end_of_turn = (struct buf){0};
    if (interpret(&file, buf_text(&s->jinja), s->jinja.len) == 0 &&
        chat_template_run_question(&file, true, &text) == 0) {
        const char *begin = strstr(buf_text(&text.text), open), *end = begin ? strstr(begin, close) : NULL;
        if (end && !file.needs_system) {
            struct chat_token *token = &t->tokens[t->token_count++];
            token->name = "default_system";
            buf_append(&token->text, begin + sizeof open - 1, (size_t)(end - begin) - (sizeof open - 1));
        }
    }
    chat_text_free(&text);
    buf_free(&file.end_of_turn);
    jinja_free(file.jinja);
}

static int make_named(struct chat_template *t, const struct source *s, const struct named_template *named) {
    t->name = named->name;
    TRY(read_tokens(t, s, named));
    if (s->has_template) take_default_system(t, s);
    return interpret(t, named->jinja, strlen(named->jinja));
}

static int make_of_file(struct chat_template *t, const struct source *s) {
    TRY(read_tokens(t, s, NULL));
    if (interpret(t, buf_text(&s->jinja), s->jinja.len) == 0) return 0;
    err_prefix(ERR_UNSUPPORTED, "%s: the chat template", s->path);
    return err_hint(ERR_UNSUPPORTED, "--template NAME, one of %s", chat_template_names());
}

static int create(struct chat_template **out, const struct chat_source *files, const struct named_template *named) {
    struct source s = {.files = files};
    struct chat_template *t = calloc(1, sizeof *t);
    *out = NULL;
    bool borrows = named && strcmp(named->name, "qwen2.5") == 0;
    int rc = t ? source_read(&s, !named || borrows) : err_set(ERR_MEMORY, "no memory for a chat template");
    if (t) take_today(t);
    if (rc == 0 && (named || s.has_template)) rc = named ? make_named(t, &s, named) : make_of_file(t, &s);
    source_free(&s);
    if (rc == 0 && t->jinja)
        *out = t;
    else
        chat_template_free(t);
    return rc;
}

int chat_template_load(struct chat_template **out, const char *name, const struct chat_source *files) {
    const struct named_template *named = name ? named_template_find(name) : NULL;
    struct chat_source its = *files;
    *out = NULL;
    if (name && text_ends_with(name, ".jinja")) {
        its.jinja = name;
        name = NULL;
    }
    if (!name || named) return create(out, &its, named);
    return err_set(ERR_USAGE, "there is no chat template '%s', expected one of %s", name, chat_template_names());
}

void chat_template_free(struct chat_template *t) {
    if (!t) return;
    for (int i = 0; i < t->told_count; i++) {
        free((char *)t->told[i].name);
        free((char *)t->told[i].text);
    }
    free(t->told);
    for (size_t i = 0; i < sizeof t->tokens / sizeof *t->tokens && !t->told_over; i++) buf_free(&t->tokens[i].text);
    buf_free(&t->end_of_turn);
    if (!t->told_over) jinja_free(t->jinja);
    free(t);
}

static int take_told(struct jinja_variable *out, const cJSON *member) {
    struct buf text = {0};
    out->kind = cJSON_IsTrue(member)     ? JINJA_IS_TRUE
                : cJSON_IsFalse(member)  ? JINJA_IS_FALSE
                : cJSON_IsNumber(member) ? JINJA_IS_NUMBER
                : cJSON_IsString(member) ? JINJA_IS_TEXT
                                         : JINJA_IS_NONE;
    if (out->kind == JINJA_IS_NONE && !cJSON_IsNull(member))
        return err_set(ERR_FORMAT, "member '%s' is no text, number, true, false or null", member->string);
    out->name = memory_copy_text(member->string);
    if (cJSON_IsNumber(member)) json_put_number(&text, member->valuedouble);
    if (cJSON_IsNumber(member) || json_string(member, &text)) out->text = memory_copy_text(buf_text(&text));
    buf_free(&text);
    return 0;
}

static int tell(struct chat_template *t, const cJSON *members) {
    const cJSON *member;
    t->told = memory_resize(NULL, ((size_t)cJSON_GetArraySize(members) + 1) * sizeof *t->told);
    cJSON_ArrayForEach(member, members) {
        t->told[t->told_count] = (struct jinja_variable){0};
        TRY(take_told(&t->told[t->told_count], member));
        t->told_count++;
    }
    return chat_template_probe(t);
}

int chat_template_tell(struct chat_template **out, const struct chat_template *base, const cJSON *members) {
    struct chat_template *t = memory_resize(NULL, sizeof *t);
    *t = *base;
    t->told_over = base;
    t->told = NULL, t->told_count = 0;
    t->end_of_turn = (struct buf){0};
    const int rc = tell(t, members);
    *out = rc == 0 ? t : NULL;
    if (rc != 0) chat_template_free(t);
    return rc;
}
