/* Reading tokenizer_config.json, chat_template.jinja and chat_template.json; the kinds of templates are told apart in
 * chat_template_match.c and rendered in chat_template_render.c. */
#include "model/text/chat_template.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json.h"
#include "model/text/chat_template_internal.h"

enum { TEMPLATE_BYTES_MAX = 1 << 20 };

/* What the files say about chats. */
struct source {
    const struct chat_source *files;
    cJSON *config;    /* NULL: no tokenizer_config.json */
    const char *path; /* of the file that holds the template */
    struct buf jinja; /* the template */
    bool has_template;
};

static void source_free(struct source *s) {
    buf_free(&s->jinja);
    cJSON_Delete(s->config);
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
    return wants_template ? read_template(s) : 0;
}

/* bos_token and eos_token: a string, an object with "content", or null. */
static int read_token(const struct source *s, const char *name, const char *otherwise, struct buf *out) {
    const cJSON *item = json_get(s->config, name);
    if (cJSON_IsObject(item)) item = json_get(item, "content");
    if (!item) {
        buf_puts(out, otherwise);
        return 0;
    }
    if (json_string(item, out)) return 0;
    return err_set(ERR_FORMAT, "%s: '%s' is neither a string nor an object with 'content'", s->files->config, name);
}

/* --- what a template states ---------------------------------------------------------------------------------- */

#define DATE_FORMAT "%Y-%m-%d"

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
    return 0;
}

bool chat_template_states_date(const struct chat_template *t) {
    return t->kind->family == FAMILY_GPT_OSS;
}

const char *chat_template_date(const struct chat_template *t) {
    return t->date;
}

bool chat_template_states_effort(const struct chat_template *t) {
    return t->kind->family == FAMILY_GPT_OSS;
}

void chat_template_set_effort(struct chat_template *t, enum chat_effort effort) {
    t->effort = effort;
}

/* --- loading ----------------------------------------------------------------------------------------------- */

/* Of the kind that is set. */
static int finish(struct chat_template *t, const struct source *s) {
    take_today(t);
    t->effort = EFFORT_MEDIUM;
    TRY(read_token(s, "bos_token", t->kind->bos, &t->bos));
    return read_token(s, "eos_token", t->kind->eos, &t->eos);
}

static int recognise(struct chat_template *t, const struct source *s) {
    if (!template_match(buf_text(&s->jinja), s->jinja.len, t))
        return err_set(ERR_UNSUPPORTED,
                       "%s: the chat template is none that duet knows; hint: --template NAME, one of %s", s->path,
                       template_kind_names());
    return finish(t, s);
}

static int create(struct chat_template **out, const struct chat_source *files, const struct template_kind *kind) {
    struct source s = {.files = files};
    struct chat_template *t = calloc(1, sizeof *t);
    *out = NULL;
    bool borrows = kind && strcmp(kind->name, "qwen2.5") == 0; /* its default system prompt is the model's own */
    int rc = t ? source_read(&s, !kind || borrows) : err_set(ERR_MEMORY, "no memory for a chat template");
    if (rc == 0 && kind) {
        t->kind = kind;
        if (borrows) template_read_default_system(buf_text(&s.jinja), s.jinja.len, t);
        rc = finish(t, &s);
    } else if (rc == 0 && s.has_template) {
        rc = recognise(t, &s);
    }
    source_free(&s);
    if (rc == 0 && t->kind)
        *out = t;
    else
        chat_template_free(t);
    return rc;
}

int chat_template_load(struct chat_template **out, const char *name, const struct chat_source *files) {
    const struct template_kind *kind = name ? template_kind_find(name) : NULL;
    *out = NULL;
    if (!name || kind) return create(out, files, kind);
    return err_set(ERR_USAGE, "there is no chat template '%s', expected one of %s", name, template_kind_names());
}

void chat_template_free(struct chat_template *t) {
    if (!t) return;
    buf_free(&t->bos);
    buf_free(&t->eos);
    buf_free(&t->default_system);
    free(t);
}

const char *chat_template_names(void) {
    return template_kind_names();
}

const char *chat_template_name(const struct chat_template *t) {
    return t->kind->name;
}

enum chat_thoughts chat_template_thoughts(const struct chat_template *t) {
    if (t->kind->options & THINKS) return THOUGHTS_ALWAYS;
    return t->kind->family == FAMILY_QWEN3 ? THOUGHTS_ASKED : THOUGHTS_NONE;
}

const char *const *chat_template_marks(const struct chat_template *t) {
    static const char *const none[] = {NULL}, *const of_thoughts[] = {"<think>", "</think>", NULL},
                             *const of_channels[] = {"<|start|>", "<|channel|>", "<|message|>", NULL};
    if (chat_template_has_channels(t)) return of_channels;
    return chat_template_thoughts(t) == THOUGHTS_NONE ? none : of_thoughts;
}

bool chat_template_has_channels(const struct chat_template *t) {
    return t->kind->family == FAMILY_GPT_OSS;
}
