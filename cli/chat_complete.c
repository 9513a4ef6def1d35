#include "cli/chat_complete.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/chat.h"

/* --- the words ---------------------------------------------------------------------------------------------------- */

struct list {
    const char *prefix; /* what was typed of the word */
    size_t n;
    char **words; /* [count] */
    int count, cap;
};

/* Keeps text [n] and `ending` if it begins as what was typed. */
static void offer(struct list *l, const char *text, size_t n, const char *ending) {
    if (n < l->n || memcmp(text, l->prefix, l->n) != 0) return;
    if (l->count == l->cap) {
        int cap = l->cap ? 2 * l->cap : 32;
        char **words = realloc(l->words, (size_t)cap * sizeof *words);
        if (!words) return;
        l->words = words, l->cap = cap;
    }
    struct buf word = {0};
    buf_append(&word, text, n);
    buf_puts(&word, ending);
    l->words[l->count++] = word.data;
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t common_length(const char *a, const char *b, size_t n) {
    size_t at = 0;
    while (at < n && a[at] && a[at] == b[at]) at++;
    while (at > 0 && (a[at] & 0xc0) == 0x80) at--;
    return at;
}

static void hand_over(struct list *l, struct completions *out) {
    if (l->count > 1) qsort(l->words, (size_t)l->count, sizeof *l->words, compare);
    out->count = l->count;
    for (int i = 0; i < l->count; i++) {
        size_t n = strlen(l->words[i]);
        out->common = i == 0 ? n : common_length(buf_text(&out->words), l->words[i], out->common);
        buf_append(&out->words, l->words[i], n + 1);
        free(l->words[i]);
    }
    free(l->words);
}

/* --- what they may be ---------------------------------------------------------------------------------------------- */

static void offer_commands(struct list *l) {
    const struct chat_row *row;
    for (int i = 0; (row = chat_row_at(i)); i++) offer(l, row->name, strlen(row->name), *row->argument ? " " : "");
}

static void offer_settings(struct list *l) {
    const struct chat_row *row;
    for (int i = 0; (row = chat_setting_row(i)); i++) offer(l, row->name + 1, strlen(row->name + 1), " ");
}

/* Of "a|b|c". */
static void offer_values(struct list *l, const char *values) {
    while (*values) {
        size_t n = strcspn(values, "|");
        offer(l, values, n, "");
        values += n + (values[n] == '|');
    }
}

static bool is_folder(const char *folder, const char *name) {
    struct buf path = {0};
    buf_printf(&path, "%s/%s", folder, name);
    bool result = file_is_directory(buf_text(&path));
    buf_free(&path);
    return result;
}

/* Of the folder in what was typed, which stays as it was typed. Hidden files once a dot is typed; none with control characters. */
static void offer_files(struct list *l, const char *typed) {
    const char *slash = strrchr(typed, '/'), *name = slash ? slash + 1 : typed;
    struct buf shown = {0}, folder = {0}, path = {0};
    buf_append(&shown, typed, (size_t)(name - typed));
    chat_expand_path(buf_text(&shown), &folder);
    const char *folder_path = shown.len > 0 ? buf_text(&folder) : ".";
    DIR *dir = opendir(folder_path);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        const char *found = entry->d_name;
        bool is_plain = utf8_is_valid(found, strlen(found)) && !strpbrk(found, "\n\r\t\033");
        if (strncmp(found, name, strlen(name)) != 0 || (found[0] == '.' && name[0] != '.') || !is_plain) continue;
        buf_clear(&path);
        buf_printf(&path, "%s%s", buf_text(&shown), found);
        offer(l, path.data, path.len, is_folder(folder_path, found) ? "/" : "");
    }
    if (dir) closedir(dir);
    buf_free(&shown);
    buf_free(&folder);
    buf_free(&path);
}

static size_t blanks_at(const char *text) {
    return strspn(text, " \t");
}

/* `line` holds the command up to the word, which begins at `at`. Returns where the word that is completed begins. */
static size_t offer_arguments(struct list *l, const char *line, size_t name_length, size_t at) {
    const struct chat_row *row = chat_find_row(line, name_length);
    if (row && row->values && strcmp(row->values, CHAT_SETTINGS) == 0) {
        size_t n = strcspn(line + at, " \t");
        row = line[at + n] ? chat_find_setting(line + at, n) : NULL;
        if (!row) {
            l->prefix = line + at, l->n = n;
            if (!line[at + n]) offer_settings(l);
            return at;
        }
        at += n + blanks_at(line + at + n);
    }
    l->prefix = line + at, l->n = strlen(line + at);
    if (row && row->values && strcmp(row->values, CHAT_FILES) == 0)
        offer_files(l, line + at);
    else if (row && row->values)
        offer_values(l, row->values);
    return at;
}

void chat_complete(const char *line, size_t n, struct completions *out) {
    *out = (struct completions){0};
    struct list l = {0};
    struct buf text = {0};
    buf_append(&text, line, n);
    const char *typed = buf_text(&text);
    size_t name_length = strcspn(typed, " \t\n");
    if (typed[0] == '/' && typed[1] != '/' && name_length == n) {
        l.prefix = typed, l.n = n;
        offer_commands(&l);
    } else if (typed[0] == '/' && typed[1] != '/' && !strchr(typed, '\n')) {
        out->from = offer_arguments(&l, typed, name_length, name_length + blanks_at(typed + name_length));
    }
    hand_over(&l, out);
    buf_free(&text);
}

void completions_free(struct completions *c) {
    buf_free(&c->words);
    *c = (struct completions){0};
}
